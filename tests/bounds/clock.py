"""Time as the oracle reads it from the rules: whole epochs, or an exact unit of physical time.

On the paper's grid all chunks have one size and everything is rounded; in the exact reading every
length must be a whole number of units, so that some optimal schedule starts all sends on them.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import NamedTuple

from teccl.problem import Problem, SwitchMode, Transit

Tree = tuple[tuple[int, int | None], ...]


class Use(NamedTuple):
    """A part of a link, or of a shared capacity, that a hop takes for a while."""

    place: int | str
    offset: int
    span: int
    load: Fraction


class Hop(NamedTuple):
    """What is decided at once: a link, or a circuit through switches to one or more GPUs."""

    src: int
    links: Tree
    uses: tuple[Use, ...]
    ends: tuple[tuple[int, int], ...]


@dataclass
class Clock:
    """Lengths of a problem in whole units.

    Parameters
    ----------
    unit
        Seconds of an epoch, or of the exact unit.
    exact
        Physical time: nothing is rounded and a link carries one chunk at a time.
    """

    problem: Problem
    unit: Fraction
    exact: bool = False
    has_circuits: bool = field(init=False)
    hyper: bool = field(init=False)

    def __post_init__(self) -> None:
        has_switches = self.problem.topology.num_switches > 0
        self.hyper = has_switches and self.problem.switch is SwitchMode.HYPER_EDGE
        cut = has_switches and self.problem.transit is Transit.CUT_THROUGH
        self.has_circuits = cut or self.hyper

    def whole(self, value: Fraction) -> int:
        """A number of units that needs no rounding."""
        assert value.denominator == 1, f"{value} units are not whole"
        return int(value)

    def rate(self, link: int) -> Fraction:
        """Bytes per second that a chunk gets on a link."""
        topology = self.problem.topology
        names = topology.links[link].shares
        return min([topology.links[link].bandwidth, *(topology.shared[name] for name in names)])

    def overhead(self, link: int) -> Fraction:
        """Units that a transfer on a link takes beside its bytes."""
        return self.problem.topology.links[link].overhead / self.unit

    def least_overhead(self, name: str) -> Fraction:
        """The least such of the links that share a capacity."""
        links = self.problem.topology.links
        sharing = (self.overhead(e) for e, link in enumerate(links) if name in link.shares)
        return min(sharing, default=Fraction(0))

    def kappa(self, size: Fraction, rate: Fraction, overhead: Fraction) -> int:
        """Units that a chunk takes at a rate after an overhead."""
        if self.exact:
            return self.whole(overhead + size / (rate * self.unit))
        return ceil(overhead + self.problem.chunk_bytes / (rate * self.unit))

    def link_kappa(self, size: Fraction, link: int) -> int:
        """Units that a chunk takes on a link by itself."""
        return self.kappa(size, self.rate(link), self.overhead(link))

    def tree_kappa(self, size: Fraction, tree: Tree) -> int:
        """Units that a chunk takes on a circuit: one overhead, the largest, and the lowest rate."""
        if not self.exact:
            return max(self.link_kappa(size, e) for e, _ in tree)
        overhead = max(self.overhead(e) for e, _ in tree)
        return self.kappa(size, min(self.rate(e) for e, _ in tree), overhead)

    def delta(self, alpha: Fraction) -> int:
        """Units of a latency."""
        if self.exact:
            return self.whole(alpha / self.unit)
        return 0 if alpha * 10 <= self.unit else ceil(alpha / self.unit)

    def capacity(self, rate: Fraction, overhead: Fraction) -> int:
        """Chunks that may be under way at a time."""
        if self.exact:
            return 1
        return max(1, floor(1 / (overhead + self.problem.chunk_bytes / (rate * self.unit))))

    def link_capacity(self, link: int) -> int:
        """Chunks that a link carries at a time."""
        return self.capacity(self.rate(link), self.overhead(link))

    def ready(self, chunk: int, node: int) -> int:
        """First unit in which a node may send its own data of a chunk."""
        problem = self.problem
        tenant = problem.demand.tenants[problem.chunks.tenant[chunk]]
        rank = problem.topology.gpus.tolist().index(node)
        time = tenant.ready.get(rank, Fraction(0)) / self.unit
        return self.whole(time) if self.exact else ceil(time)

    def limit(self, place: int | str) -> int:
        """How much load a link or shared capacity bears at a time."""
        if isinstance(place, str):
            rate = self.problem.topology.shared[place]
            return self.capacity(rate, self.least_overhead(place))
        return 1 if self.has_circuits and not self.hyper else self.link_capacity(place)

    def hops(self, size: Fraction) -> list[Hop]:
        """All hops for chunks of a size, in the same order for every size."""
        topology = self.problem.topology
        if not self.has_circuits:
            trees: list[Tree] = [((e, None),) for e in range(topology.num_links)]
        else:
            copies = self.problem.switch is SwitchMode.COPY and self.problem.copy
            trees = circuits(self.problem, copies=copies)
        return [self.hop(tree, size) for tree in trees]

    def hop(self, tree: Tree, size: Fraction) -> Hop:
        """Lay a link or circuit on the time axis."""
        links = self.problem.topology.links
        slowest = self.tree_kappa(size, tree)
        rate = min(self.rate(e) for e, _ in tree)
        offsets: list[int] = []
        ways: list[Fraction] = []
        uses: list[Use] = []
        ends: list[tuple[int, int]] = []
        for e, parent in tree:
            before = (
                0 if parent is None else offsets[parent] + self.delta(links[tree[parent][0]].alpha)
            )
            offsets.append(0 if self.hyper else before)
            ways.append(links[e].alpha + (0 if parent is None else ways[parent]))
            uses += self.uses_of(e, size, offsets[-1], slowest, rate)
            if all(up != len(offsets) - 1 for _, up in tree):
                late = (
                    self.delta(ways[-1]) if self.hyper else offsets[-1] + self.delta(links[e].alpha)
                )
                ends.append((links[e].dst, late + slowest))
        return Hop(links[tree[0][0]].src, tree, tuple(uses), tuple(ends))

    def uses_of(
        self, link: int, size: Fraction, offset: int, slowest: int, rate: Fraction
    ) -> list[Use]:
        """What a hop of some length and rate takes of one of its links and of what that shares."""
        topology = self.problem.topology
        own = self.link_kappa(size, link)
        span, load = own, Fraction(1)
        if self.has_circuits and not self.hyper:
            share = Fraction(own, slowest * self.link_capacity(link))
            span, load = slowest, rate / self.rate(link) if self.exact else share
        elif self.exact:
            span = slowest
        uses = [Use(link, offset, span, load)]
        for name in topology.links[link].shares:
            held = slowest
            if not self.exact:
                held = self.kappa(size, topology.shared[name], self.least_overhead(name))
            uses.append(Use(name, offset, held, Fraction(1)))
        return uses


def circuits(problem: Problem, *, copies: bool) -> list[Tree]:
    """Every way from a GPU over a link, or through switches, to one or (with copy) more GPUs."""
    topology = problem.topology
    return [
        tree
        for e, link in enumerate(topology.links)
        if not topology.nodes[link.src].is_switch
        for tree in _grown(problem, e, frozenset({link.src}), copies=copies)
        if _is_simple(problem, tree)
    ]


def _grown(problem: Problem, link: int, seen: frozenset[int], *, copies: bool) -> list[Tree]:
    """Trees that begin with a link and end at GPUs, without going back to a node before it."""
    topology = problem.topology
    node = topology.links[link].dst
    if node in seen:
        return []
    if not topology.nodes[node].is_switch:
        return [((link, None),)]
    out = [e for e, other in enumerate(topology.links) if other.src == node]
    options = [_grown(problem, e, seen | {node}, copies=copies) for e in out]
    if not copies:
        chosen = [(tree,) for trees in options for tree in trees]
    else:
        chosen = [
            tuple(tree for tree in pick if tree)
            for pick in product(*([(), *trees] for trees in options))
        ]
    return [_joined(link, pick) for pick in chosen if pick]


def _joined(link: int, branches: tuple[Tree, ...]) -> Tree:
    rows: list[tuple[int, int | None]] = [(link, None)]
    for branch in branches:
        shift = len(rows)
        rows += [(e, 0 if parent is None else parent + shift) for e, parent in branch]
    return tuple(rows)


def _is_simple(problem: Problem, tree: Tree) -> bool:
    ends = [problem.topology.links[e].dst for e, _ in tree]
    return len(ends) == len(set(ends))
