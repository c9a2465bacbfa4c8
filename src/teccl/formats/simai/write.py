"""SimAI's topology text: ns-3's, with the GPUs of a server and its NVSwitches told apart."""

from collections import Counter
from pathlib import Path

from teccl.errors import ExportError
from teccl.formats.ns3.write import numbered, text_of, wires
from teccl.formats.shared.exports import Export, OutputFile
from teccl.topology import Topology


def render_topology(topology: Topology, path: Path) -> Export:
    """Make the topology file of a topology.

    Servers are the groups of the topology; a switch all of whose neighbours are of its own group
    is an NVSwitch, and any other a switch of the network.

    Raises
    ------
    ExportError
        If groups have different numbers of GPUs, or links differ between the two directions.
    """
    per_server = _gpus_per_server(topology)
    switches = [i for i, node in enumerate(topology.nodes) if node.is_switch]
    inner = [i for i in switches if _is_inner(topology, i)]
    outer = [i for i in switches if i not in set(inner)]
    cables = wires(topology, numbered(topology, [*inner, *outer]), "simai")
    header = f"{topology.num_nodes} {per_server} {len(inner)} {len(outer)} {len(cables)} NONE"
    return Export(
        target="simai",
        files=(OutputFile(path=path, content=text_of(header, topology, cables)),),
        facts={
            "nodes": topology.num_nodes,
            "gpus_per_server": per_server,
            "nvswitches": len(inner),
            "switches": len(outer),
            "wires": len(cables),
        },
        notes=("the GPU type is NONE; write the one that SimAI should compute with",),
    )


def _gpus_per_server(topology: Topology) -> int:
    groups = Counter(topology.nodes[i].group for i in topology.gpus.tolist())
    if None in groups:
        return topology.num_gpus if len(groups) == 1 else _refuse(topology)
    sizes = set(groups.values())
    return sizes.pop() if len(sizes) == 1 else _refuse(topology)


def _refuse(topology: Topology) -> int:
    raise ExportError(
        f"simai: groups of {topology.name} have different numbers of GPUs; servers must be alike"
    )


def _is_inner(topology: Topology, switch: int) -> bool:
    """Whether a switch belongs to one server only."""
    group = topology.nodes[switch].group
    near = {link.dst for link in topology.links if link.src == switch}
    near |= {link.src for link in topology.links if link.dst == switch}
    return group is not None and all(topology.nodes[i].group == group for i in near)
