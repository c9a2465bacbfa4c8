"""Whether the network can deliver what is wanted at all."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from teccl._graphs import strong_components
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.topology import Link, Topology


class Unreachable(NamedTuple):
    """A chunk that cannot get from a node to one that wants it."""

    chunk: int
    source: int
    destination: int

    def describe(self, problem: Problem) -> str:
        """Return a sentence that names chunk and nodes."""
        nodes, name = problem.topology.nodes, problem.topology.name
        where = "" if _limited_ways(problem) is None else " that holds no shared capacity twice"
        return (
            f"{problem.chunk_name(self.chunk)} cannot get from {nodes[self.source].name} to "
            f"{nodes[self.destination].name}: {name} has no path between them{where}"
        )


def find_unreachable(problem: Problem) -> Unreachable | None:
    """Return the first chunk that cannot be delivered, or None.

    A copied chunk must reach its destinations from one of its sources, a sum from all of them.
    """
    ways = _limited_ways(problem)
    if ways is None and _is_strongly_connected(problem):
        return None
    table, reach = problem.chunks, Reach(problem.topology, ways)
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


def _limited_ways(problem: Problem) -> set[tuple[int, int]] | None:
    """Return the GPUs between which circuits are possible, None where every path will do.

    A circuit holds all its links at once, so that none of them may share a capacity.
    """
    topology = problem.topology
    circuits = problem.transit is Transit.CUT_THROUGH or problem.switch is SwitchMode.HYPER_EDGE
    if not (circuits and topology.shared and topology.num_switches):
        return None
    leaving: list[list[Link]] = [[] for _ in range(topology.num_nodes)]
    for link in topology.links:
        leaving[link.src].append(link)
    found: set[tuple[int, int]] = set()
    for gpu in topology.gpus.tolist():
        waiting = [(gpu, frozenset[str]())]
        seen = set(waiting)
        while waiting:
            node, held = waiting.pop()
            for link in leaving[node]:
                ahead = (link.dst, held | set(link.shares))
                if len(ahead[1]) < len(held) + len(link.shares) or ahead in seen:
                    continue
                seen.add(ahead)
                if topology.is_switch[link.dst]:
                    waiting.append(ahead)
                else:
                    found.add((gpu, link.dst))
    return found


class Reach:
    """Nodes that can be reached from a node, found when first asked for.

    Parameters
    ----------
    ways
        Pairs of nodes between which there is a way, None for what the links join.
    """

    def __init__(self, topology: Topology, ways: set[tuple[int, int]] | None = None) -> None:
        pairs = sorted(ways or ())
        src = topology.link_src if ways is None else np.array([a for a, _ in pairs], dtype=int)
        dst = topology.link_dst if ways is None else np.array([b for _, b in pairs], dtype=int)
        self._component = strong_components(topology.num_nodes, src, dst)
        self._ahead: list[list[int]] = [[] for _ in range(topology.num_nodes)]
        for begin, end in zip(src.tolist(), dst.tolist(), strict=True):
            self._ahead[begin].append(end)
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
