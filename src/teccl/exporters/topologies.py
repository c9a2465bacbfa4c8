"""Topologies as files of simulators: `TOPOLOGY_TARGETS`, and `export_topology`.

A target is a module with one function, ``render_topology(topology, path) -> Export``, which makes
files and writes none; adding one is adding its entry here.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teccl._suggest import did_you_mean
from teccl.errors import ExportError
from teccl.exporters.model import Export

if TYPE_CHECKING:
    from collections.abc import Callable

    from teccl.topology import Topology


class TopologyTarget(NamedTuple):
    """A format: what it is, where its function lives, what names of files end in."""

    summary: str
    module: str
    suffixes: tuple[str, ...]

    @property
    def render(self) -> "Callable[[Topology, Path], Export]":
        """The function that makes the files."""
        function: Callable[[Topology, Path], Export]
        function = import_module(self.module).render_topology
        return function


TOPOLOGY_TARGETS = {
    "astra-sim": TopologyTarget(
        "ASTRA-sim's analytical network", "teccl.formats.astra_sim.write", (".yml", ".yaml")
    ),
    "ns3": TopologyTarget("ASTRA-sim's ns-3 network", "teccl.formats.ns3.write", (".txt",)),
    "simai": TopologyTarget("SimAI's ns-3 network", "teccl.formats.simai.write", (".txt",)),
    "htsim": TopologyTarget("htsim's trees", "teccl.formats.htsim.write", (".topo",)),
}


def find_topology_target(name: str) -> TopologyTarget:
    """Return the target of a name.

    Raises
    ------
    ExportError
        If there is none.
    """
    target = TOPOLOGY_TARGETS.get(name)
    if target is None:
        raise ExportError(f"unknown target {name[:40]!r}{did_you_mean(name, TOPOLOGY_TARGETS)}")
    return target


def export_topology(topology: "Topology", *, to: str, path: str | Path | None = None) -> Export:
    """Turn a topology into a file of a simulator and write it.

    Parameters
    ----------
    topology
        What to export.
    to
        Name of the target, one of `TOPOLOGY_TARGETS`.
    path
        Where to write, None to return the file without writing.

    Raises
    ------
    ExportError
        If the target is unknown or cannot express the topology.
    """
    from teccl._files import write_atomically

    target = find_topology_target(to)
    place = Path(f"topology{target.suffixes[0]}" if path is None else path)
    made = target.render(topology, place)
    if path is not None:
        for file in made.files:
            write_atomically(file.path, file.content, ExportError)
    return made
