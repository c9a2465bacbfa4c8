"""Clusters: named groups, pods and leaves of fabrics, what fast links connect."""

from fractions import Fraction

import numpy as np
import pytest

from teccl.topology import Topology
from teccl.topology.clusters import partings


def clusters_of(topology: Topology) -> list[set[frozenset[str]]]:
    """Return the GPUs of all clusters with more than one, for each way to part the topology."""
    ways = []
    for label in partings(topology):
        inside = label[topology.gpus]
        parts = [topology.gpus[inside == k] for k in np.unique(inside[inside >= 0])]
        ways.append(
            {frozenset(topology.nodes[i].name for i in p.tolist()) for p in parts if len(p) > 1}
        )
    return ways


@pytest.fixture
def leaves(tmp_path):
    """Return two leaves of three GPUs each below a spine, in a file that names no groups."""
    text = '{"schema_version": 1, "nodes": ['
    names = [f'{{"name": "g{i}"}}' for i in range(6)]
    names += [f'{{"kind": "switch", "name": "{name}"}}' for name in ("leaf0", "leaf1", "spine")]
    cables = [(f"g{i}", f"leaf{i // 3}") for i in range(6)]
    cables += [("leaf0", "spine"), ("leaf1", "spine")]
    links = [
        f'{{"src": "{a}", "dst": "{b}", "bandwidth": "10GB/s", "alpha": "1us"}}'
        for pair in cables
        for a, b in (pair, pair[::-1])
    ]
    path = tmp_path / "leaves.json"
    path.write_text(text + ", ".join(names) + '], "links": [' + ", ".join(links) + "]}")
    return Topology.parse(path)


def test_named_groups():
    """Chassis are clusters by their name."""
    found = clusters_of(Topology.parse("ndv2:chassis=2"))
    sizes = [sorted(len(cluster) for cluster in way) for way in found]
    assert [8, 8] in sizes


def test_leaves_without_names(leaves):
    """GPUs below one leaf are a cluster although nothing names them."""
    assert {frozenset({"g0", "g1", "g2"}), frozenset({"g3", "g4", "g5"})} in clusters_of(leaves)


def test_fast_links():
    """GPUs that faster links connect are a cluster."""
    topology = Topology.parse("line:gpus=4").degraded(
        {"1:2": Fraction(1, 4), "2:1": Fraction(1, 4)}
    )
    assert [{frozenset({"gpu0", "gpu1"}), frozenset({"gpu2", "gpu3"})}] == clusters_of(topology)


@pytest.mark.parametrize("preset", ["ring:gpus=5", "star:gpus=4", "fully-connected:gpus=3"])
def test_nothing_to_part(preset):
    """Where all is alike there are no clusters."""
    assert partings(Topology.parse(preset)) == []
