"""Ways: the links from GPU to GPU, straight or through switches, few of very many that are alike.

Of the passages of least length between two GPUs so many are kept that they fill the first link,
each by links that others kept take least. Where all of them lead over slow links between switches
the shortest detours around those are kept too.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from teccl._graphs import strong_components
from teccl.construct.params import LONG_ROUTES, NEVER, PARALLEL_WAYS
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.topology import Topology

Way = tuple[int, ...]


def ways_of(problem: Problem) -> list[Way]:
    """List the links of every passage from GPU to GPU, direct links first."""
    return _possible(problem, list(_all_ways(problem.topology, LONG_ROUTES)))


# A search asks again for every number of chunks, and for the same network turned round.
@lru_cache(maxsize=2)
def _all_ways(topology: Topology, most_long: int) -> tuple[Way, ...]:
    touches = topology.is_switch[topology.link_src] | topology.is_switch[topology.link_dst]
    direct: list[Way] = [(e,) for e in np.flatnonzero(~touches).tolist()]
    passages = _Fabric(topology).passages(direct, most_long) if topology.num_switches else []
    return (*direct, *passages)


def ways_by_receiver(problem: Problem) -> list[Way] | None:
    """Return one of the shortest ways through switches for each two GPUs, told by the receiver.

    Where several links lead nearer, the digits of the receiver's rank say which one is taken, the
    last digit first (D-mod-K routing): in a fat tree those who send to different receivers then
    have different links down, and up, too, if they turn to receivers at equal distances. None where
    somebody cannot be reached so.
    """
    topology = problem.topology
    dst, is_switch = topology.link_dst.tolist(), topology.is_switch.tolist()
    leaving: list[list[int]] = [[] for _ in is_switch]
    entering: list[list[int]] = [[] for _ in is_switch]
    for link, (near, far) in enumerate(zip(topology.link_src.tolist(), dst, strict=True)):
        leaving[near].append(link)
        entering[far].append(near)
    ways: list[Way] = []
    gpus = topology.gpus.tolist()
    for rank, goal in enumerate(gpus):
        left, reached = {goal: 0}, [goal]
        for node in reached:
            if node == goal or is_switch[node]:
                fresh = [near for near in entering[node] if near not in left]
                left.update(dict.fromkeys(fresh, left[node] + 1))
                reached += dict.fromkeys(fresh)
        for source in gpus:
            if source not in left:
                return None
            way, digits, node = list[int](), rank, source
            while node != goal:
                near = left[node] - 1
                nearer = [
                    link
                    for link in leaving[node]
                    if left.get(dst[link]) == near and (dst[link] == goal or is_switch[dst[link]])
                ]
                digits, digit = divmod(digits, len(nearer))
                way.append(nearer[digit])
                node = dst[way[-1]]
            if way:
                ways.append(tuple(way))
    return _possible(problem, ways)


def connect_all(topology: Topology, ways: Sequence[Way]) -> bool:
    """Whether ways lead from each GPU to each other one, but for those that have no link at all."""
    linked = np.isin(topology.gpus, topology.link_src) | np.isin(topology.gpus, topology.link_dst)
    gpus = topology.gpus[linked]
    rank = np.full(topology.num_nodes, -1)
    rank[gpus] = np.arange(len(gpus))
    src = rank[[topology.link_src[way[0]] for way in ways]]
    dst = rank[[topology.link_dst[way[-1]] for way in ways]]
    return not strong_components(len(gpus), src, dst).any()


def _possible(problem: Problem, ways: list[Way]) -> list[Way]:
    """Leave out circuits that would hold a shared capacity twice at once."""
    circuits = problem.transit is Transit.CUT_THROUGH or problem.switch is SwitchMode.HYPER_EDGE
    if not circuits or not problem.topology.shared:
        return ways
    links = problem.topology.links
    names = [[name for e in way for name in links[e].shares] for way in ways]
    return [way for way, held in zip(ways, names, strict=True) if len(held) == len(set(held))]


class _Fabric:
    """Links and switches of a topology, and how often the ways kept so far take each link."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.src, self.dst = topology.link_src.tolist(), topology.link_dst.tolist()
        self.is_switch = topology.is_switch.tolist()
        self.rate = topology.each_link(lambda link: float(topology.rate(link)))
        self.out: list[list[int]] = [[] for _ in self.is_switch]
        for e, src in enumerate(self.src):
            self.out[src].append(e)
        # Ways to switches, which may lead on or not, and ways to GPUs.
        self.use = [[0] * len(self.src) for _ in range(2)]

    def passages(self, direct: list[Way], most_long: int) -> list[Way]:
        """List ways through switches, those through one first, and not too many others."""
        links = range(len(self.src))
        is_inner = [self.is_switch[self.src[e]] and self.is_switch[self.dst[e]] for e in links]
        first = [e for e in links if self.is_switch[self.dst[e]] and not is_inner[e]]
        short = [way for e in first for way in self._from(e, self.out, depth=1)]
        if not any(is_inner):
            return short
        budget = most_long if connect_all(self.topology, direct + short) else NEVER
        long: list[Way] = []
        for e in first:
            long += [way for way in self._from(e, self.out) if len(way) > 2]
            if len(long) > budget:
                return short
        return short + long + self._detours(short + long, is_inner)

    def _detours(self, known: list[Way], is_inner: list[bool]) -> list[Way]:
        """List the shortest ways around slow links between switches, where all known take one."""
        widest: dict[tuple[int, int], float] = {}
        for way in known:
            ends = way[0], self.dst[way[-1]]
            narrowest = min([self.rate[e] for e in way if is_inner[e]], default=np.inf)
            widest[ends] = max(widest.get(ends, 0.0), narrowest)
        rates = {rate for rate, inner in zip(self.rate, is_inner, strict=True) if inner}
        wider: list[Way] = []
        for least in sorted(rates, reverse=True)[:-1]:
            out = [[e for e in es if not is_inner[e] or self.rate[e] >= least] for es in self.out]
            narrow = {ends for ends, width in widest.items() if width < least}
            for start in sorted({start for start, _ in narrow}):
                found = [w for w in self._from(start, out) if (start, self.dst[w[-1]]) in narrow]
                widest |= {(start, self.dst[way[-1]]): least for way in found}
                wider += found
        return wider

    def _from(self, first: int, out: list[list[int]], depth: int | None = None) -> list[Way]:
        """List the shortest passages that begin with a link, to every GPU they reach.

        With `depth` one only the first switch is crossed.
        """
        source = self.src[first]
        ways: dict[int, list[Way]] = {}
        frontier: list[Way] = [(first,)]
        entered = {self.dst[first]}
        switches = 1
        while frontier and (depth is None or switches <= depth):
            found: dict[int, list[Way]] = {}
            for way in frontier:
                for e in out[self.dst[way[-1]]]:
                    node = self.dst[e]
                    if node != source and node not in entered and node not in ways:
                        found.setdefault(node, []).append((*way, e))
            frontier = []
            for node, options in found.items():
                kept = self._spread(options, node)
                if self.is_switch[node]:
                    entered.add(node)
                    frontier += kept
                else:
                    ways[node] = kept
            switches += 1
        return [way for node in sorted(ways) for way in ways[node]]

    def _spread(self, options: list[Way], end: int) -> list[Way]:
        """Keep a few ways to a node, and as many as fill their first link.

        Each is the one whose links the ways kept before it take least. Sources differ in which
        they begin with; but where all are kept up to a switch their order stays: turned again
        behind it, some would never lead.
        """
        use, count = self.use[not self.is_switch[end]], len(options)
        source = self.src[options[0][0]]
        turn = source if count > PARALLEL_WAYS or not self.is_switch[end] else 0
        left = [options[(turn + i) % count] for i in range(count)]
        missing = self.rate[options[0][0]]
        kept: list[Way] = []
        while left and (len(kept) < PARALLEL_WAYS or missing > 0):
            taken = [sum([use[e] for e in way]) for way in left]
            best = left.pop(taken.index(min(taken)))
            kept.append(best)
            missing -= min([self.rate[e] for e in best])
            for e in best:
                use[e] += 1
        return kept
