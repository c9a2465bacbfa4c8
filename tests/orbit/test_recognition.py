"""What is planned as orbits: sizes and files are told as those who build them say."""

import pytest

from teccl import Topology
from teccl.errors import TopologyError
from teccl.orbit.fabric_files import save_fabric
from teccl.orbit.presets import parse_fabric
from teccl.orbit.recognition import count_gpus, is_fabric_file, is_orbit_file


@pytest.mark.parametrize(
    "spec", ["torus", "torus:dims=3x5", "ring", "ring:gpus=7", "dgx1", "line:gpus=5"]
)
def test_gpus_are_counted_as_they_are_built(spec):
    """Defaults are those of the presets."""
    assert count_gpus(spec) == Topology.parse(spec).num_gpus


@pytest.mark.parametrize("spec", ["torus:dims=4xx", "nothing", "nothing.yaml"])
def test_what_cannot_be_built_is_not_counted(spec):
    """Errors are those of the presets and files."""
    with pytest.raises(TopologyError):
        count_gpus(spec)


def test_fabric_files_are_told_from_others(tmp_path):
    """By their first bytes, and a file that is not there is none."""
    path = tmp_path / "fabric.json"
    save_fabric(parse_fabric("torus:dims=4x4"), path)
    assert is_fabric_file(path)
    assert not is_orbit_file(path)
    assert not is_fabric_file(tmp_path / "nothing.json")
