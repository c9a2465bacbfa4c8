"""ASTRA-sim's network files: which of its networks a topology is, and in which units."""

import pytest
import yaml

from teccl import Topology
from teccl.formats.astra_sim.write import (
    NetworkShape,
    Scale,
    network_text,
    shape_for_schedules,
    shape_of,
)


@pytest.mark.parametrize(
    ("text", "exact", "serves"),
    [
        ("ring:gpus=5", NetworkShape.RING, NetworkShape.RING),
        ("ring:gpus=3", NetworkShape.FULLY_CONNECTED, NetworkShape.FULLY_CONNECTED),
        ("line:gpus=2", NetworkShape.FULLY_CONNECTED, NetworkShape.FULLY_CONNECTED),
        ("fully-connected:gpus=4", NetworkShape.FULLY_CONNECTED, NetworkShape.FULLY_CONNECTED),
        ("star:gpus=4", NetworkShape.SWITCH, NetworkShape.SWITCH),
        ("line:gpus=4", None, NetworkShape.FULLY_CONNECTED),
        ("torus:dims=3x3", None, NetworkShape.FULLY_CONNECTED),
        ("dgx1", None, None),
        ("dgx-h100:chassis=2", None, None),
    ],
)
def test_shapes(text, exact, serves):
    """A ring, a full connection and a switch; schedules run on a full connection as well."""
    topology = Topology.parse(text)
    assert shape_of(topology) is exact
    assert shape_for_schedules(topology) is serves


def test_a_gigabyte_is_two_to_the_thirty():
    """Rates are divided by 2^30, latencies are in nanoseconds."""
    topology = Topology.parse("ring:gpus=4,bandwidth=50GB/s,alpha=0.5us")
    document = yaml.safe_load(network_text(topology, NetworkShape.RING))
    assert document["topology"] == ["Ring"]
    assert document["npus_count"] == [4]
    assert document["bandwidth"] == [pytest.approx(50e9 / 2**30)]
    assert document["latency"] == [500.0]


def test_a_finer_scale():
    """A cycle of a picosecond and four parts to a byte."""
    topology = Topology.parse("ring:gpus=4,bandwidth=50GB/s,alpha=0.5us")
    text = network_text(topology, NetworkShape.RING, Scale(tick_ps=1, parts=4))
    document = yaml.safe_load(text)
    assert document["bandwidth"] == [pytest.approx(4 * 50e9 / 2**30 / 1000)]
    assert document["latency"] == [500_000.0]


def test_other_networks_are_lists_of_links():
    """GPUs by rank, then switches; a comment says that upstream does not read it."""
    text = network_text(Topology.parse("dgx-h100:chassis=2"), None)
    assert text.startswith("# ASTRA-sim reads Ring, FullyConnected and Switch only")
    document = yaml.safe_load(text)
    assert document["topology"] == ["Graph"]
    (gpus,), (devices,) = document["npus_count"], document["devices_count"]
    ends = {end for link in document["links"] for end in link[:2]}
    assert ends == set(range(devices))
    assert gpus == 16
