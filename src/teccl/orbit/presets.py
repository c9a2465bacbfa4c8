"""Fabrics by name: tori, rails and fabric files at once, all others by folding what is listed."""

from fractions import Fraction
from pathlib import Path

from teccl.orbit.fabric import Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.fabric_files import load_fabric
from teccl.orbit.finding import find_fabric
from teccl.orbit.folding import fold
from teccl.orbit.rails import rail_tree
from teccl.orbit.recognition import PERIODIC, is_fabric_file
from teccl.topology import Topology
from teccl.topology.presets import OVERHEAD, read_spec
from teccl.topology.presets._wiring import (
    check_count,
    read_alpha,
    read_bandwidth,
    read_dims,
    read_latency,
)
from teccl.topology.presets.tiers import RAIL_TREE
from teccl.topology.topology_files import is_file_name
from teccl.units import Quantity

_BANDWIDTH, _ALPHA = "50GB/s", "0.5us"


def parse_fabric(text: str | Path | Topology) -> Fabric:
    """Build a fabric from what `Topology.parse` takes, or from a fabric file.

    Raises
    ------
    TopologyError
        If there is no such preset or file, it is wrong, or no group acts freely on its GPUs.

    Examples
    --------
    >>> parse_fabric("torus:dims=64x64x64")
    Fabric('torus', Z64xZ64xZ64, 262144 gpus, 0 switches, 1572864 links)
    """
    if isinstance(text, str) and not is_file_name(text):
        name, parameters = read_spec(text)
        if name in PERIODIC:
            overhead = parameters.pop(OVERHEAD, 0)
            cost = read_latency(name, OVERHEAD, overhead) if overhead else Fraction(0)
            if name == RAIL_TREE:
                return rail_tree(**parameters, overhead=cost)
            return _torus(name, **parameters, overhead=cost)
    if not isinstance(text, Topology) and is_fabric_file(text):
        return load_fabric(text)
    topology = Topology.parse(text)
    fabric = fold(topology)
    is_listed = isinstance(text, Topology) or is_file_name(str(text))
    if fabric is None or (is_listed and len(fabric.gpu_orbits) > 1):
        fabric = find_fabric(topology, fabric)
    return fabric


def _torus(
    name: str,
    *,
    dims: str = "4x4",
    gpus: int = 8,
    bandwidth: Quantity = _BANDWIDTH,
    alpha: Quantity = _ALPHA,
    overhead: Fraction = Fraction(0),
) -> Fabric:
    """GPUs on a grid whose axes close, or on one circle; one link orbit for each way along an axis.

    An axis of two has one way, since the next and the one before are the same GPU.
    """
    if name == "ring":
        check_count(name, "gpus", gpus, low=2)
    sizes = read_dims(name, dims) if name == "torus" else (gpus,)
    rate, latency = read_bandwidth(name, bandwidth), read_alpha(name, alpha)
    links = tuple(
        LinkOrbit(
            src=0,
            dst=0,
            offset=tuple(step % size if i == axis else 0 for i in range(len(sizes))),
            bandwidth=rate,
            alpha=latency,
            overhead=overhead,
        )
        for axis, size in enumerate(sizes)
        for step in ((1, -1) if size > 2 else (1,) if size == 2 else ())
    )
    nodes = (NodeOrbit(name="gpu{n}", moduli=sizes),)
    return Fabric(name=name, moduli=sizes, nodes=nodes, links=links)
