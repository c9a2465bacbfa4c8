"""Whether the network can deliver what is wanted at all."""

from collections.abc import Iterable
from typing import NamedTuple

from teccl._graphs import strong_components
from teccl.problem import Problem
from teccl.topology import Topology


class Unreachable(NamedTuple):
    """A chunk that cannot get from a node to one that wants it."""

    chunk: int
    source: int
    destination: int

    def describe(self, problem: Problem) -> str:
        """Return a sentence that names chunk and nodes."""
        nodes = problem.topology.nodes
        return (
            f"{problem.chunk_name(self.chunk)} cannot get from {nodes[self.source].name} to "
            f"{nodes[self.destination].name}: {problem.topology.name} has no path between them"
        )


def find_unreachable(problem: Problem) -> Unreachable | None:
    """Return the first chunk that cannot be delivered, or None.

    A copied chunk must reach its destinations from one of its sources, a sum from all of them.
    """
    if _is_strongly_connected(problem):
        return None
    table, reach = problem.chunks, Reach(problem.topology)
    seen: set[tuple[int, int, bool]] = set()
    for chunk in range(len(table)):
        kind = (int(table.source_set[chunk]), int(table.destination_set[chunk]))
        if (*kind, bool(table.reduce[chunk])) in seen:
            continue
        seen.add((*kind, bool(table.reduce[chunk])))
        sources = table.sources(chunk).tolist()
        for wanted in table.destinations(chunk).tolist():
            cut_off = [source for source in sources if wanted not in reach.from_node(source)]
            if cut_off and (table.reduce[chunk] or len(cut_off) == len(sources)):
                return Unreachable(chunk, cut_off[0], wanted)
    return None


def _is_strongly_connected(problem: Problem) -> bool:
    """Whether every GPU reaches every other; the common case, quick to see."""
    topology = problem.topology
    label = strong_components(topology.num_nodes, topology.link_src, topology.link_dst)
    return len(set(label[topology.gpus].tolist())) == 1


class Reach:
    """Nodes that can be reached from a node, found when first asked for."""

    def __init__(self, topology: Topology) -> None:
        self._component = strong_components(
            topology.num_nodes, topology.link_src, topology.link_dst
        )
        self._ahead: list[list[int]] = [[] for _ in range(topology.num_nodes)]
        for src, dst in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True):
            self._ahead[src].append(dst)
        self._known: dict[int, set[int]] = {}

    def from_node(self, start: int) -> set[int]:
        """Return what can be reached from a node, itself included."""
        if start not in self._known:
            reached, waiting = {start}, [start]
            while waiting:
                for node in self._ahead[waiting.pop()]:
                    if node not in reached:
                        reached.add(node)
                        waiting.append(node)
            self._known[start] = reached
        return self._known[start]

    def leaders(self, nodes: Iterable[int]) -> list[int]:
        """Return those of some nodes from which all of them can be reached."""
        wanted = set(nodes)
        members: dict[int, list[int]] = {}
        for node in sorted(wanted):
            members.setdefault(int(self._component[node]), []).append(node)
        if len(members) == 1:
            return sorted(wanted)
        # Nodes that reach one another reach the same.
        found = [group for group in members.values() if wanted <= self.from_node(group[0])]
        return sorted(node for group in found for node in group)
