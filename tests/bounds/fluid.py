"""What arbitrarily fine chunks could reach: linear programs over time, written from the rules.

Rates are constant within an interval, and what flows in during an interval may flow on during the
same one after the latency, as fluid does. Data that several want may even be coded: what a link
carries for one destination is free for another. That is at least as strong as copying, so no valid
bound exceeds the least horizon found here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from tests.bounds.clock import Clock, Tree, circuits

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem, SwitchMode


class Way(NamedTuple):
    """A link or, where switches do not copy, a path from GPU to GPU; times in intervals."""

    src: int
    dst: int
    uses: tuple[tuple[int, int], ...]
    delay: int


class Commodity(NamedTuple):
    """Chunks with the same holders and destinations, as one amount of bytes."""

    ready: dict[int, int]
    wanted: tuple[int, ...]
    amount: Fraction


class Rows:
    """Inequalities over nonnegative columns."""

    def __init__(self) -> None:
        self.columns = 0
        self.entries: list[tuple[int, int, float]] = []
        self.upper: list[float] = []

    def column(self) -> int:
        self.columns += 1
        return self.columns - 1

    def at_most(self, terms: list[tuple[int, float]], bound: float) -> None:
        self.entries += [(len(self.upper), column, factor) for column, factor in terms]
        self.upper.append(bound)

    def least(self, cost: dict[int, float]) -> float | None:
        """Least cost, None if the rows cannot be satisfied."""
        if not self.entries:
            return 0.0 if min(self.upper, default=0) >= 0 else None
        rows, columns, factors = zip(*self.entries, strict=True)
        matrix = csr_array((factors, (rows, columns)), shape=(len(self.upper), self.columns))
        costs = np.zeros(self.columns)
        for column, value in cost.items():
            costs[column] = value
        result = linprog(costs, A_ub=matrix, b_ub=self.upper, method="highs")
        assert result.status in (0, 2), result.message
        return None if result.status == 2 else float(result.fun)


def can_finish(problem: Problem, unit: Fraction, horizon: int) -> bool:
    """Whether fluid data, copied only, can be delivered within a number of intervals."""
    assert not problem.has_reductions
    clock = Clock(problem, unit, exact=True)
    rows = Rows()
    loads: dict[tuple[int | str, int], list[tuple[int, float]]] = defaultdict(list)
    ways = _ways(problem, clock)
    for commodity in _commodities(problem, clock):
        carried = {
            (way, k): rows.column()
            for way in ways
            for k in range(horizon - max([way.delay, *(offset for _, offset in way.uses)]))
        }
        for (way, k), column in carried.items():
            for e, offset in way.uses:
                # Units of time that one part of the commodity keeps the link busy.
                busy = float(commodity.amount / _rate(clock, e, way.uses) / unit)
                for place in (e, *problem.topology.links[e].shares):
                    loads[place, k + offset].append((column, busy))
        for goal in commodity.wanted:
            _flow_rows(rows, problem, commodity, goal, carried=carried, horizon=horizon)
    for terms in loads.values():
        rows.at_most(terms, 1.0)
    return rows.least({}) is not None


def _rate(clock: Clock, link: int, uses: Iterable[tuple[int, int]]) -> Fraction:
    """Bytes per second on a link of a way; a hyper-edge holds all of its links for the slowest."""
    return min(clock.rate(e) for e, _ in uses) if clock.hyper else clock.rate(link)


def _flow_rows(
    rows: Rows,
    problem: Problem,
    commodity: Commodity,
    goal: int,
    *,
    carried: dict[tuple[Way, int], int],
    horizon: int,
) -> None:
    """All of a commodity must flow from its holders to one destination within what is carried."""
    flow = carried
    if len(commodity.wanted) > 1:
        flow = {key: rows.column() for key in carried}
        for key, column in flow.items():
            rows.at_most([(column, 1.0), (carried[key], -1.0)], 0.0)
    into: dict[tuple[int, int], list[int]] = defaultdict(list)
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (way, k), column in flow.items():
        out[way.src, k].append(column)
        into[way.dst, k + way.delay].append(column)
    arrive = [(c, -1.0) for k in range(horizon) for c in into[goal, k]]
    rows.at_most([*arrive, *((c, 1.0) for k in range(horizon) for c in out[goal, k])], -1.0)
    for node in range(problem.topology.num_nodes):
        is_switch = problem.topology.nodes[node].is_switch
        for k in range(min(horizon, commodity.ready.get(node, horizon))):
            if not out[node, k]:
                continue
            times = [k] if is_switch else range(k + 1)
            leave = [(c, 1.0) for t in times for c in out[node, t]]
            rows.at_most([*leave, *((c, -1.0) for t in times for c in into[node, t])], 0.0)


def _commodities(problem: Problem, clock: Clock) -> list[Commodity]:
    table = problem.chunks
    groups: dict[tuple, list[int]] = defaultdict(list)
    for m in range(len(table)):
        groups[table.tenant[m], table.source_set[m], table.destination_set[m]].append(m)
    found = []
    for chunks in groups.values():
        ready = {s: clock.ready(chunks[0], s) for s in table.sources(chunks[0]).tolist()}
        wanted = tuple(t for t in table.destinations(chunks[0]).tolist() if t not in ready)
        amount = sum((table.size(m) for m in chunks), Fraction(0))
        # What is not copied is something else for every destination.
        goals = [wanted] if problem.copy else [(goal,) for goal in wanted]
        found += [Commodity(ready, each, amount) for each in goals]
    return found


def _ways(problem: Problem, clock: Clock) -> list[Way]:
    if problem.switch is SwitchMode.COPY and problem.copy:
        trees: list[Tree] = [((e, None),) for e in range(problem.topology.num_links)]
    else:
        trees = circuits(problem, copies=False)
    return [_way(problem, clock, tree) for tree in trees]


def _way(problem: Problem, clock: Clock, tree: Tree) -> Way:
    links = problem.topology.links
    uses, delay = [], 0
    for e, _ in tree:
        uses.append((e, 0 if clock.hyper else delay))
        delay += clock.delta(links[e].alpha)
    return Way(links[tree[0][0]].src, links[tree[-1][0]].dst, tuple(uses), delay)


def transposed(problem: Problem) -> Problem:
    """The copies on the reversed network whose time reversal makes single-destination sums."""
    ranks = {int(node): rank for rank, node in enumerate(problem.topology.gpus)}
    table = problem.chunks
    chunks = tuple(
        ExplicitChunk(
            tuple(ranks[t] for t in table.destinations(m).tolist()),
            tuple(ranks[s] for s in table.sources(m).tolist()),
        )
        for m in range(len(table))
    )
    tenant = Tenant(collective=Collective.EXPLICIT, size=problem.chunk_bytes, chunks=chunks)
    reduces = any(node.reduce for node in problem.topology.nodes)
    switch = problem.switch
    if switch is SwitchMode.COPY or (reduces and switch is SwitchMode.NO_COPY):
        switch = SwitchMode.COPY if reduces else SwitchMode.NO_COPY
    topology = problem.topology.transposed()
    demand = Demand(tenants=(tenant,))
    return replace(problem, topology=topology, demand=demand, num_chunks=1, switch=switch)


def allreduce_seconds(problem: Problem) -> float:
    """Time of the best mixture of trees towards roots and trees away from them, without latency.

    Fine chunks in a pipeline reach it, so that no bound may exceed it.
    """
    members = problem.chunks.sources(0).tolist()
    total = sum((problem.chunks.size(m) for m in range(len(problem.chunks))), Fraction(0))
    rows = Rows()
    time = rows.column()
    loads: dict[int | str, list[tuple[int, float]]] = defaultdict(list)
    amounts = []
    for root in members:
        sides = []
        for inward in (True, False):
            trees = _trees(problem, root, members, inward=inward)
            columns = []
            for tree in trees:
                columns.append(rows.column())
                for place, load in _tree_load(problem, tree, total).items():
                    loads[place].append((columns[-1], load))
            sides.append(columns)
        difference = [*((c, 1.0) for c in sides[0]), *((c, -1.0) for c in sides[1])]
        rows.at_most(difference, 0.0)
        rows.at_most([(c, -factor) for c, factor in difference], 0.0)
        amounts += sides[0]
    rows.at_most([(c, -1.0) for c in amounts], -1.0)
    for terms in loads.values():
        rows.at_most([*terms, (time, -1.0)], 0.0)
    best = rows.least({time: 1.0})
    assert best is not None
    return best


def _tree_load(problem: Problem, tree: frozenset, total: Fraction) -> dict[int | str, float]:
    """Seconds that all data on a tree of paths would keep each link and shared capacity busy."""
    clock = Clock(problem, Fraction(1))
    loads: dict[int | str, float] = defaultdict(float)
    for path in tree:
        for e in path:
            for place in (e, *problem.topology.links[e].shares):
                loads[place] += float(total / _rate(clock, e, ((f, 0) for f in path)))
    return loads


def _trees(problem: Problem, root: int, members: list[int], *, inward: bool) -> set[frozenset]:
    """Trees to or from a root over GPUs and, where they copy or reduce, over switches."""
    paths = [tuple(e for e, _ in tree) for tree in circuits(problem, copies=False)]
    found = set(_picked(problem, paths, root, members, inward=inward))
    reduces = all(node.reduce for node in problem.topology.nodes if node.is_switch)
    is_hyper = problem.switch is SwitchMode.HYPER_EDGE
    if (reduces and not is_hyper) if inward else problem.switch is SwitchMode.COPY:
        links = [(e,) for e in range(problem.topology.num_links)]
        found |= set(_picked(problem, links, root, members, inward=inward))
    return found


def _picked(
    problem: Problem, paths: list[tuple[int, ...]], root: int, members: list[int], *, inward: bool
) -> Iterator[frozenset]:
    """Trees in which every node has picked the one path that joins it to the rest."""
    links = problem.topology.links
    ends = [(links[path[0]].src, links[path[-1]].dst) for path in paths]
    options: list[list[tuple[int, ...] | None]] = []
    others = [node for node in range(problem.topology.num_nodes) if node != root]
    for node in others:
        own = [p for p, (a, b) in zip(paths, ends, strict=True) if node == (a if inward else b)]
        options.append(own if node in members else [*own, None])
    for pick in product(*options):
        parent = {
            node: links[path[-1]].dst if inward else links[path[0]].src
            for node, path in zip(others, pick, strict=True)
            if path is not None
        }
        used = _joined(parent, root, members)
        if used is not None:
            chosen = dict(zip(others, pick, strict=True))
            yield frozenset(chosen[node] for node in used)


def _joined(parent: dict[int, int], root: int, members: list[int]) -> set[int] | None:
    """Nodes on the members' ways to the root, None if some way does not end there."""
    used: set[int] = set()
    for member in members:
        node, steps = member, 0
        while node != root:
            if node not in parent or steps > len(parent):
                return None
            used.add(node)
            node, steps = parent[node], steps + 1
    return used
