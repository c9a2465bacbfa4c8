"""The most that fluid data can do by a horizon: the best mixture of ways to serve one byte.

A *pattern* says when one byte position crosses which links until everybody has what it wants. Sums
are unions of contributions: a GPU may keep and send as many partial sums as it likes, and even a
contribution that is counted twice does no harm, so that the optimum is at most that of real sums.
Patterns share the links' time in a linear program; new ones are found by a 0-1 program with the
links' prices until none improves (column generation).

All latencies are whole units, and so are the moments at which rates change and data is ready. Then
the times of a pattern can be rounded down to whole units: it stays valid, and no load moves to
another unit, so that counting time in whole units loses nothing.
"""

from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array
from tests.bounds.clock import Clock, Hop, Tree, Use, circuits
from tests.bounds.oracle import Attempt, Oracle, Program

from teccl.problem import Problem, SwitchMode

# Rounds of prices and nodes of each search; what more would find only makes the test weaker.
MOST_ROUNDS = 80
MOST_NODES = 300
TOLERANCE = 1e-7
# Price of what is not scarce, as a part of the mean price: it keeps idle sends out of patterns. The
# second is for patterns that the first makes too dear.
IDLE = (1e-1, 1e-4)


class FluidClock(Clock):
    """Time in units without transmissions: what flows in during a unit may flow on in the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Fluid passes a switch at once, whether collected before or not.
        self.has_circuits = self.hyper

    def kappa(self, size: Fraction, rate: Fraction, overhead: Fraction) -> int:
        return 0

    def limit(self, place: int | str) -> int:
        return self.problem.topology.num_gpus

    def hops(self, size: Fraction) -> list:
        topology = self.problem.topology
        is_plain = self.problem.switch is not SwitchMode.COPY
        if self.hyper or (is_plain and not any(node.reduce for node in topology.nodes)):
            # What neither copies nor adds up is passed, so that whole ways can be decided at once.
            trees = circuits(self.problem, copies=False)
        else:
            trees = [((e, None),) for e in range(topology.num_links)]
        return [self.hop(tree, size) for tree in trees]

    def hop(self, tree: Tree, size: Fraction) -> Hop:
        hop = super().hop(tree, size)
        if not self.hyper:
            return hop
        # A hyper-edge holds all of its links for as long as the slowest one takes.
        slowest = min((e for e, _ in tree), key=self.rate)
        return hop._replace(uses=tuple(use._replace(span=slowest) for use in hop.uses))

    def uses_of(
        self, link: int, size: Fraction, offset: int, slowest: int, rate: Fraction
    ) -> list[Use]:
        places = (link, *self.problem.topology.links[link].shares)
        return [Use(place, offset, link, Fraction(1)) for place in places]

    def bytes_at(self, link: int, k: int) -> float:
        """Bytes that a link carries in a unit of time."""
        steps = self.problem.topology.rate_steps(self.problem.topology.links[link])
        rate = next(rate for start, rate in reversed(steps) if start <= k * self.unit)
        return float(rate * self.unit)


class Pattern(NamedTuple):
    """A way to serve a byte of a kind of chunks: the time it takes of each place in each unit."""

    kind: int
    busy: dict[tuple[int | str, int], float]


class _Kind(Attempt):
    """The 0-1 program whose solutions are the patterns of one chunk."""

    def __init__(self, oracle: Oracle, chunk: int, horizon: int) -> None:
        self.oracle, self.horizon = oracle, horizon - 1
        self.problem, self.program = oracle.problem, Program()
        self.sends = {}
        self.leaving, self.arriving = defaultdict(list), defaultdict(list)
        self.on_hop = defaultdict(list)
        sends = self._add_sends(chunk)
        if self.problem.chunks.reduce[chunk]:
            self._union_rows(chunk, sends)
        else:
            self._copy_rows(chunk)

    def best(self, prices: dict[tuple[int | str, int], float], idle: float) -> dict | None:
        """Least busy time by prices, as a table of places and units; None if there is no way."""
        program, clock = self.program, self.oracle.clock
        if not program.entries:
            return {} if min(program.upper, default=0) >= 0 else None
        cost = np.zeros(len(program.whole))
        loads: dict[int, list] = defaultdict(list)
        for (_, hop, k), column in self.sends.items():
            for place, offset, link, _ in hop.uses:
                key, busy = (place, k + offset), 1 / clock.bytes_at(link, k + offset)
                loads[column].append((key, busy))
                cost[column] += (prices.get(key, 0.0) + idle) * busy
        values = self._solve(cost / max(cost.max(), 1e-300))
        if values is None:
            return None
        total: dict[tuple[int | str, int], float] = defaultdict(float)
        for column, terms in loads.items():
            for key, busy in terms:
                total[key] += round(values[column]) * busy
        return {key: busy for key, busy in total.items() if busy}

    def _solve(self, cost: np.ndarray) -> np.ndarray | None:
        program = self.program
        rows, columns, factors = zip(*program.entries, strict=True)
        shape = (len(program.upper), len(program.whole))
        matrix = csr_array((factors, (rows, columns)), shape=shape)
        result = milp(
            cost,
            constraints=LinearConstraint(matrix, -np.inf, np.array(program.upper)),
            integrality=np.array(program.whole, dtype=int),
            bounds=Bounds(0, np.array(program.limit)),
            options={"mip_rel_gap": 0.0, "node_limit": MOST_NODES},
        )
        # The limit of nodes has status 1 or, by some versions, 4.
        assert result.status in (0, 1, 2, 4), result.message
        return None if result.x is None else np.asarray(result.x)


def most_by(problem: Problem, unit: Fraction, horizon: int) -> float:
    """The factor by which the demand may grow and still be served by a horizon; 0 if not at all."""
    oracle = Oracle(FluidClock(problem, unit, exact=True))
    table = problem.chunks
    amounts: dict[tuple, float] = defaultdict(float)
    first: dict[tuple, int] = {}
    for m in range(len(table)):
        key = (table.tenant[m], table.source_set[m], table.destination_set[m], table.reduce[m])
        amounts[key] += float(table.size(m))
        first.setdefault(key, m)
    kinds = [_Kind(oracle, first[key], horizon) for key in amounts]
    needs = list(amounts.values())
    patterns = []
    for number, kind in enumerate(kinds):
        busy = kind.best({}, idle=1.0)
        if busy is None:
            return 0.0
        patterns.append(Pattern(number, busy))
    for _ in range(MOST_ROUNDS):
        value, prices, worth = _mixture(patterns, needs)
        found = _cheaper(kinds, prices, worth)
        if not found:
            break
        patterns += found
    return value


def _cheaper(kinds: list[_Kind], prices: dict, worth: list[float]) -> list[Pattern]:
    """Patterns that cost less than they are worth, at most one of each kind."""
    mean = sum(prices.values()) / max(1, len(prices))
    found = []
    for number, kind in enumerate(kinds):
        for idle in IDLE:
            busy = kind.best(prices, idle=idle * mean)
            paid = sum(prices.get(key, 0.0) * time for key, time in (busy or {}).items())
            if busy is not None and paid < worth[number] * (1 - TOLERANCE):
                found.append(Pattern(number, busy))
                break
    return found


def _mixture(patterns: list[Pattern], needs: list[float]) -> tuple[float, dict, list[float]]:
    """The best mixture with the prices of places and units and the worth of a byte of each kind."""
    keys = sorted({key for pattern in patterns for key in pattern.busy}, key=str)
    row = {key: i + len(needs) for i, key in enumerate(keys)}
    # Columns are shares of a kind's need, the last one is the factor.
    entries = [(number, len(patterns), 1.0) for number in range(len(needs))]
    for column, pattern in enumerate(patterns):
        entries.append((pattern.kind, column, -1.0))
        entries += [
            (row[key], column, busy * needs[pattern.kind]) for key, busy in pattern.busy.items()
        ]
    rows, columns, factors = zip(*entries, strict=True)
    shape = (len(needs) + len(keys), len(patterns) + 1)
    matrix = csr_array((factors, (rows, columns)), shape=shape)
    upper = np.concatenate([np.zeros(len(needs)), np.ones(len(keys))])
    cost = np.zeros(len(patterns) + 1)
    cost[-1] = -1.0
    result = linprog(cost, A_ub=matrix, b_ub=upper, method="highs")
    if result.status == 3:
        return float("inf"), {}, [0.0] * len(needs)
    assert result.status == 0, result.message
    marginals = -result.ineqlin.marginals
    prices = {key: float(marginals[row[key]]) for key in keys}
    worth = [float(marginals[number]) / needs[number] for number in range(len(needs))]
    return float(-result.fun), prices, worth
