"""Exact closing in continuous time: a very small problem as an integer program on routes.

Columns say which chunk takes which route and when, and of two transfers that hold one resource
which goes first. Times are counted in a unit that divides all lengths: in a schedule that begins
everything as early as its order allows each start is a sum of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from teccl import solvers
from teccl.construct.insertion import Workshop, refusal
from teccl.construct.instance import Instance
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan, single_rows
from teccl.construct.recreate import exactly_timed
from teccl.construct.turned import turned_instance, turned_plan
from teccl.linear_model import FloatArray, LinearModel, RowBlock, stack
from teccl.progress import CancelToken
from teccl.solvers import Solution, SolverOptions, SolverStatus

# Pairs of transfers that may meet, and transfers; a program with more is not closed in seconds.
MAX_PAIRS = 20_000
# Units of time up to which rows keep to the numbers that the solver takes.
MAX_HORIZON = 2**36


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What closing found.

    Parameters
    ----------
    plan
        The best plan, the given one where none is better.
    bound
        No plan on the instance's routes ends before this, in picoseconds; 0 where nothing is
        proven, in particular where chunks may take ways that are not among the routes.
    """

    plan: Plan
    bound: int

    @property
    def is_optimal(self) -> bool:
        """Whether the plan is proven best for its chunks."""
        return self.plan.finish <= self.bound


def closed_plan(
    instance: Instance, plan: Plan, *, options: SolverOptions, cancel: CancelToken | None = None
) -> Closed | None:
    """Improve a plan, or prove it best; None for what the program does not model.

    Parameters
    ----------
    instance
        A small problem in picoseconds.
    plan
        Where to begin; nothing later comes back.
    options
        Work, time and seed of the solver.
    cancel
        Ends the solver when told to.
    """
    if not is_small(instance) or not _is_modelled(instance):
        return None
    known = exactly_timed(instance, plan)
    if not instance.problem.has_reductions:
        return _closed(instance, known, options, cancel)
    if plan.rows[:, 4].any():
        return None
    part = turned_instance(instance)
    copies = turned_plan(part, known)
    found = _closed(part, copies, options, cancel)
    if found is None:
        return None
    better = plan if found.plan is copies else turned_plan(instance, found.plan)
    return Closed(plan=better, bound=_if_complete(instance, found))


def is_small(instance: Instance) -> bool:
    """Whether closing is worth a look: each chunk may take each route."""
    return len(instance.problem.chunks) * len(instance.routes) <= MAX_PAIRS


def _is_modelled(instance: Instance) -> bool:
    """Whether the program has rows for all that an instance asks for."""
    problem, topology = instance.problem, instance.problem.topology
    copies = problem.copy or problem.has_reductions
    is_plain = instance.grid is None and problem.buffer is None and copies
    is_steady = not topology.has_profiles and not topology.shared
    return is_plain and is_steady and _is_ready_at_once(instance) and refusal(instance) is None


def _is_ready_at_once(instance: Instance) -> bool:
    """Whether all who have a chunk have it from the same time on.

    Another may have been sent it before it has it itself, and the program knows only one of both.
    """
    table = instance.problem.chunks
    return all(
        len(np.unique(instance.ready[table.tenant[k], table.sets[table.source_set[k]]])) == 1
        for k in range(len(table))
    )


def _closed(
    instance: Instance, plan: Plan, options: SolverOptions, cancel: CancelToken | None
) -> Closed | None:
    """Close a multicast."""
    shop = Workshop(instance, seed=options.seed)
    if (shop.net.limit > 1).any() or not len(plan.rows):
        return None
    program = _Program.of(shop, plan)
    if program is None:
        return None
    options = replace(options, start=np.array(program.hint))
    return _read(
        shop, program, plan, solvers.solve(program.model(), "cpsat", options, cancel=cancel)
    )


def _if_complete(instance: Instance, found: Closed) -> int:
    """Return a bound for sums: switches that add up could do better than any turned multicast."""
    reduces = any(node.reduce for node in instance.problem.topology.nodes)
    return 0 if reduces else found.bound


def _read(shop: Workshop, program: "_Program", plan: Plan, solution: Solution) -> Closed:
    """Read what the solver found."""
    is_proven = solution.status is SolverStatus.OPTIMAL
    is_complete = _has_all_ways(shop.instance)
    best = plan
    if solution.values is not None:
        found = program.plan(shop, solution.values)
        best = found if found.finish < plan.finish else plan
    bound = best.finish if is_proven else math.ceil(max(0.0, solution.bound)) * program.unit
    return Closed(plan=best, bound=min(bound, best.finish) if is_complete else 0)


def _has_all_ways(instance: Instance) -> bool:
    """Whether a schedule can do nothing that transfers on the routes, one by one, cannot."""
    problem, topology = instance.problem, instance.problem.topology
    switched = topology.is_switch
    src, dst = topology.link_src, topology.link_dst
    if (switched[src] & switched[dst]).any():
        return False
    passages = sum(
        int(src[a] != dst[b])
        for node in np.flatnonzero(switched).tolist()
        for a in np.flatnonzero(dst == node).tolist()
        for b in np.flatnonzero(src == node).tolist()
    )
    count = passages + int((~switched[src] & ~switched[dst]).sum())
    several = any(len(problem.chunks.destinations(k)) > 1 for k in range(len(problem.chunks)))
    joins = passages > 0 and several and may_join(instance)
    return len(instance.routes) == count and not joins


@dataclass(slots=True, kw_only=True)
class _Program:
    """Columns and rows of the program, and the known plan as values of the columns."""

    unit: int
    lower: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    hint: list[float] = field(default_factory=list)
    rows: list[tuple[list[tuple[int, int]], int]] = field(default_factory=list)
    takes: dict[tuple[int, int], int] = field(default_factory=dict)
    starts: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(shop: Workshop, plan: Plan) -> "_Program | None":
        """State the program; None if it would be large."""
        job = shop.jobs.job
        times = [shop.net.entry["offset"], shop.net.entry["hold"], shop.net.route["length"]]
        unit = math.gcd(*(int(np.gcd.reduce(each.ravel())) for each in times))
        unit = math.gcd(unit, int(np.gcd.reduce(shop.jobs.source["ready"])), plan.finish) or 1
        program = _Program(unit=unit)
        horizon = plan.finish // unit
        if horizon > MAX_HORIZON:
            return None
        begun = {(int(k), int(r)): int(s) // unit for k, r, s in plan.rows[:, :3]}
        finish = program._column(0, horizon, horizon)
        for j in range(len(job) - 1):
            program._add_job(shop, j, begun, horizon, finish)
        users = program._users(shop)
        if sum(len(each) ** 2 for each in users) > 2 * MAX_PAIRS:
            return None
        pairs = {pair for each in users for pair in combinations(each, 2)}
        for one, other in sorted(pairs):
            program._add_pair(shop, one, other, horizon)
        return program

    def _column(self, lower: int, upper: int, value: float) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.hint.append(float(value))
        return len(self.lower) - 1

    def _at_least(self, terms: Sequence[tuple[int, int]], least: int) -> None:
        """Add a row: the sum of columns times values is no less than a number."""
        self.rows.append((list(terms), least))

    def _add_job(
        self,
        shop: Workshop,
        job: int,
        begun: dict[tuple[int, int], int],
        horizon: int,
        finish: int,
    ) -> None:
        """State which routes a chunk may take and what these wait for."""
        net, jobs = shop.net, shop.jobs
        size = int(jobs.job[job].size_index)
        held = jobs.source[jobs.job[job].source : jobs.job[job + 1].source]
        wants = jobs.want[jobs.job[job].want : jobs.job[job + 1].want].tolist()
        if not wants:
            return
        head = (held["ready"][:, None] + net.distance[size][held["node"]]).min(axis=0)
        tail = net.distance[size][:, wants].min(axis=1)
        own = dict(zip(held["node"].tolist(), held["ready"].tolist(), strict=True))
        routes = net.route[size, :-1]
        length = routes["length"] // self.unit
        first = head[routes["src"]] // self.unit
        # A route is of use only where some destination can still be reached in time.
        ends = head[routes["src"]] + routes["length"] + tail[routes["dst"]]
        useful = (ends <= horizon * self.unit) & ~np.isin(routes["dst"], list(own))
        into: dict[int, list[int]] = {}
        for r in np.flatnonzero(useful).tolist():
            start = begun.get((int(shop.chunk[job]), r))
            latest = horizon - int(length[r])
            self.takes[job, r] = self._column(0, 1, start is not None)
            value = int(first[r]) if start is None else start
            self.starts[job, r] = self._column(int(first[r]), latest, value)
            into.setdefault(int(routes["dst"][r]), []).append(r)
        for entering in into.values():
            taken = [(self.takes[job, r], -1) for r in entering]
            self._at_least(taken, -1)
        for node in wants:
            self._at_least([(self.takes[job, r], 1) for r in into.get(node, [])], 1)
        for entering in into.values():
            for r in entering:
                take, start = self.takes[job, r], self.starts[job, r]
                # Taken, it ends no later than everything; not taken, it says nothing.
                self._at_least(
                    [(finish, 1), (start, -1), (take, -horizon)], int(length[r]) - horizon
                )
                if int(routes["src"][r]) in own:
                    continue
                feeders = into.get(int(routes["src"][r]), [])
                self._at_least([(take, -1), *((self.takes[job, q], 1) for q in feeders)], 0)
                for q in feeders:
                    # Start no earlier than what feeds it arrives, where both are taken.
                    big = horizon + int(length[q])
                    columns = [(start, 1), (self.starts[job, q], -1)]
                    switched = [(take, -big), (self.takes[job, q], -big)]
                    self._at_least([*columns, *switched], int(length[q]) - 2 * big)

    def _users(self, shop: Workshop) -> list[list[tuple[int, int]]]:
        """List the transfers that may hold each resource."""
        by_resource: dict[int, list[tuple[int, int]]] = {}
        for job, r in self.takes:
            entries = shop.net.entry[0, shop.net.route[0, r].entry : shop.net.route[0, r + 1].entry]
            for resource in entries["res"].tolist():
                by_resource.setdefault(resource, []).append((job, r))
        return list(by_resource.values())

    def _add_pair(
        self, shop: Workshop, one: tuple[int, int], other: tuple[int, int], horizon: int
    ) -> None:
        """State that of two transfers one goes first on all that both hold."""
        lags = [self._lag(shop, a, b) for a, b in ((one, other), (other, one))]
        times = [self.hint[self.starts[key]] for key in (one, other)]
        first = self._column(0, 1, times[0] <= times[1])
        for (a, b), lag, sign in zip(((one, other), (other, one)), lags, (1, -1), strict=True):
            big = horizon + max(lag, 0)
            columns = [(self.starts[b], 1), (self.starts[a], -1)]
            switched = [(self.takes[a], -big), (self.takes[b], -big), (first, -big * sign)]
            self._at_least([*columns, *switched], lag - 2 * big - (big if sign > 0 else 0))

    def _lag(self, shop: Workshop, before: tuple[int, int], after: tuple[int, int]) -> int:
        """Time by which the second must start after the first to leave all they share to it."""
        spans = []
        for job, r in (before, after):
            size = int(shop.jobs.job[job].size_index)
            part = slice(int(shop.net.route[0, r].entry), int(shop.net.route[0, r + 1].entry))
            entries = shop.net.entry[size, part]
            columns = (entries[name].tolist() for name in ("res", "offset", "hold"))
            spans.append({res: (low, hold) for res, low, hold in zip(*columns, strict=True)})
        shared = spans[0].keys() & spans[1].keys()
        lag = max(spans[0][r][0] + spans[0][r][1] - spans[1][r][0] for r in shared)
        return int(lag) // self.unit

    def model(self) -> LinearModel:
        """Return the program as arrays; the finish is minimised."""
        row = np.repeat(np.arange(len(self.rows)), [len(terms) for terms, _ in self.rows])
        entries = np.array([term for terms, _ in self.rows for term in terms], dtype=np.int64)
        entries = entries.reshape(-1, 2)
        block = RowBlock.of(
            len(self.rows),
            [(row, entries[:, 0], entries[:, 1])],
            lower=np.array([least for _, least in self.rows], dtype=float),
            upper=np.inf,
        )
        cost = np.zeros(len(self.lower))
        cost[0] = 1.0
        lower, upper = np.array(self.lower), np.array(self.upper)
        return stack([block], cost=cost, lower=lower, upper=upper, integer=True)

    def plan(self, shop: Workshop, values: FloatArray) -> Plan:
        """Return the transfers that are taken; of two into one GPU the program has none."""
        taken = [key for key, column in self.takes.items() if values[column] > 0.5]
        taken = _useful(shop, taken, {key: values[self.starts[key]] for key in taken})
        job = np.array([j for j, _ in taken], dtype=np.int64)
        route = np.array([r for _, r in taken], dtype=np.int64)
        start = np.array([round(values[self.starts[key]]) for key in taken]) * self.unit
        rows = single_rows(shop.chunk[job], route, start)
        length = shop.net.route["length"][shop.jobs.job["size_index"][job], route]
        return Plan(rows=rows, finish=int((start + length).max()), exact=True)


def _useful(
    shop: Workshop, taken: list[tuple[int, int]], start: dict[tuple[int, int], float]
) -> list[tuple[int, int]]:
    """Leave out transfers that lead to nobody who wants the chunk.

    They cost the program nothing; in a sum, turned round, GPUs would send that contribute nothing.
    """
    routes, table = shop.instance.routes, shop.instance.problem.chunks
    wanted: dict[int, set[int]] = {}
    kept = set()
    for job, route in sorted(taken, key=lambda key: -start[key]):
        goals = table.sets[table.destination_set[shop.chunk[job]]]
        needed = wanted.setdefault(job, set(goals.tolist()))
        if int(routes.dst[route]) in needed:
            needed.add(int(routes.src[route]))
            kept.add((job, route))
    return [key for key in taken if key in kept]
