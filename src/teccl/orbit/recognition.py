"""What is planned as orbits, told without loading what plans it: files, and sizes of presets."""

import inspect
import re
from math import prod
from pathlib import Path

from teccl import _files as files
from teccl.topology import Topology
from teccl.topology.presets import PRESETS, read_spec
from teccl.topology.presets._wiring import read_dims
from teccl.topology.topology_files import is_file_name

ORBIT_FORMAT = "teccl-orbit"
FABRIC_FORMAT = "teccl-fabric"
# Presets that are built as fabrics, with what gives the number of their GPUs.
PERIODIC = {
    "torus": ("dims",),
    "ring": ("gpus",),
    "rail-tree": ("pods", "units", "chassis", "gpus"),
}


def is_orbit_file(path: str | Path) -> bool:
    """Whether a file begins as an orbit file does; nothing is said of the rest."""
    return _is_of(path, ORBIT_FORMAT)


def is_fabric_file(path: str | Path) -> bool:
    """Whether a file begins as a fabric file does; nothing is said of the rest."""
    return _is_of(path, FABRIC_FORMAT)


def _is_of(path: str | Path, name: str) -> bool:
    try:
        text = files.read_head(Path(path))
    except OSError:
        return False
    return re.search(rf'"format"\s*:\s*"{name}"', text) is not None


def count_gpus(text: str) -> int:
    """Number of GPUs of a preset or file; what is built as a fabric need not be listed for it.

    Raises
    ------
    TopologyError
        If there is no such preset or file, or it is wrong.
    """
    if not is_file_name(text):
        name, parameters = read_spec(text)
        if name in PERIODIC:
            known = inspect.signature(PRESETS[name]).parameters
            sizes = [parameters.get(key, known[key].default) for key in PERIODIC[name]]
            return prod(read_dims(name, sizes[0]) if name == "torus" else sizes)
    return Topology.parse(text).num_gpus
