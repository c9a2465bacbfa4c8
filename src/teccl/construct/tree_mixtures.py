"""Tree mixtures: sums along trees of the cheapest ways, in the amounts that load links least.

Each piece of an AllReduce is added up along a tree to some GPU and copied along another from there;
GPUs that take no part may add up and copy, too. How much goes along which pair of trees is a linear
program with a column for each pair: the load of the fullest resource and the mean latency of the
pieces are to take the least time together. Only few pairs matter: where resources have the prices
that the pairs known so far give them, those that are cheaper than what a piece is worth become
known, until none is. Cheap trees are grown from each root along the shortest ways.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.forest import Branch, Forest, in_turns
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import ENTRIES_A_STEP, NARROW_GAP, STEPS
from teccl.problem import Problem
from teccl.units import PICOSECONDS

FloatArray = npt.NDArray[np.float64]


class TreePair(NamedTuple):
    """Routes of a tree along which a piece is added up, the ends first, and of one out again."""

    inward: tuple[int, ...]
    outward: tuple[int, ...]


class Mixture(NamedTuple):
    """Pairs of trees, the part of all pieces that each carries, and what each takes of resources.

    `load` has a row for each pair and counts in the time of the instance.
    """

    pairs: list[TreePair]
    part: FloatArray
    load: FloatArray

    def time(self, pieces: list[int]) -> int:
        """Return how long the fullest resource is held where pieces take pairs, given by number."""
        used = np.bincount(pieces, minlength=len(self.pairs))
        return int(np.rint((used @ self.load).max()))

    @property
    def least(self) -> float:
        """How long a piece takes where each pair carries just its part."""
        return float((self.part @ self.load).max())


def mixed_forest(problem: Problem, fits: Callable[[Forest], bool], goal: Goal) -> Forest | None:
    """Return the trees of the best mixture, for as many pieces of each block of a sum as fit.

    There are as few pieces as make what rounding costs next to nothing, if so many fit. None where
    members do not reach each other.
    """
    instance = Instance.build(problem)
    members = sorted(set(problem.chunks.destinations(0).tolist()))
    mixture = best_mixture(instance, members, goal)
    if mixture is None:
        return None
    branches = _branches(instance, mixture)
    known, pieces = None, 1
    while True:
        turns = in_turns(mixture.part, pieces, len(members))
        time, enough = mixture.time(turns), (1 + NARROW_GAP) * mixture.least
        trees = [branches[number] for number in turns]
        rate = Fraction(problem.chunks.sizes[0] * problem.num_chunks * pieces * PICOSECONDS, time)
        found = Forest(pieces, rate, is_optimal=False, trees=trees)
        if known is not None and not fits(found):
            return known
        if time <= enough * len(turns):
            return found
        known, pieces = found, 2 * pieces


def _branches(instance: Instance, mixture: Mixture) -> list[list[Branch]]:
    """Return the hops of each pair of trees, first all contributions."""
    routes, ways = instance.routes, instance.routes.ways()
    src, dst = routes.src.tolist(), routes.dst.tolist()
    return [
        [
            Branch(src[route], dst[route], ways[route], is_sum)
            for tree, is_sum in ((pair.inward, True), (pair.outward, False))
            for route in tree
        ]
        for pair in mixture.pairs
    ]


def best_mixture(instance: Instance, members: list[int], goal: Goal) -> Mixture | None:
    """Return the mixture of trees with which an AllReduce of members takes the least time.

    None where members do not reach each other. What is known once the goal's allowance is spent is
    taken as it is.
    """
    market = _Market(instance, members)
    # Latency counts for everybody on its way in some rounds, so that trees become short, and for
    # one in others, so that they are thrifty.
    weights = (1 / len(members), 1.0)
    turn = stale = 0
    while stale < len(weights) and (not turn or goal.spent < goal.allowance):
        goal.begin(mixing_work(market.count, len(members)))
        cheap = list(market.cheap_pairs(weights[turn % len(weights)]))
        turn, stale = turn + 1, 0 if cheap else stale + 1
        if cheap:
            goal.begin(market.add(cheap) // STEPS)
    return market.mixture() if market.pairs else None


def mixing_work(num_gpus: int, num_members: int) -> int:
    """Units of finding shortest ways and of growing two trees from each GPU."""
    return 2 * num_gpus**2 * (num_gpus + num_members) // STEPS


class _Market:
    """Prices of resources under the pairs that are known, and what these carry at best.

    A piece is the whole buffer; `worth` is what it may cost.
    """

    def __init__(self, instance: Instance, members: list[int]) -> None:
        topology, self.routes = instance.problem.topology, instance.routes
        place = np.full(topology.num_nodes, -1)
        place[topology.gpus] = np.arange(topology.num_gpus)
        self.src, self.dst = place[self.routes.src], place[self.routes.dst]
        self.members, self.count = place[members], topology.num_gpus
        self.latency = np.add.reduceat(
            instance.latency[self.routes.links], self.routes.link_start[:-1]
        ).astype(float)
        self.uses = self._uses(instance.num_resources)
        self.blocks = len(members)
        self.pairs: list[TreePair] = []
        self.loads: list[FloatArray] = []
        self.ways: list[float] = []
        self.price = np.ones(instance.num_resources) / instance.num_resources
        self.part, self.worth = np.zeros(0), np.inf

    def _uses(self, num_resources: int) -> Any:
        """Rows of what a piece of a block's size takes of each resource on each route."""
        from scipy import sparse

        shape = len(self.routes), num_resources
        hold = self.routes.res_hold.astype(float)
        return sparse.csr_matrix((hold, self.routes.res, self.routes.res_start), shape=shape)

    def add(self, pairs: list[TreePair]) -> int:
        """Make pairs known, and find what they carry and what resources are worth then.

        Returns elementary steps.
        """
        from scipy import sparse
        from scipy.optimize import linprog

        for pair in pairs:
            self.pairs.append(pair)
            self.loads.append(self._load(pair))
            self.ways.append(self._way(pair))
        # Whoever solves it counts in numbers near one.
        loads = self.blocks * np.array(self.loads).T
        unit = loads.max()
        fullest = -np.ones((len(loads), 1))
        limits: Any = sparse.csr_matrix(np.hstack([loads / unit, fullest]))
        whole: Any = np.append(np.ones(len(self.pairs)), 0.0)[None]
        cost = np.append(np.array(self.ways) / unit, 1.0)
        most = np.zeros(len(loads))
        found: Any = linprog(cost, A_ub=limits, b_ub=most, A_eq=whole, b_eq=[1], method="highs")
        self.part, self.price = found.x[:-1], -found.ineqlin.marginals
        self.worth = float(found.eqlin.marginals[0]) * unit
        return (1 + int(found.nit)) * loads.size // ENTRIES_A_STEP

    def mixture(self) -> Mixture:
        """Return the pairs that carry something."""
        used = np.flatnonzero(self.part > 0)
        part = self.part[used] / self.part[used].sum()
        return Mixture([self.pairs[i] for i in used], part, np.array(self.loads)[used])

    def cheap_pairs(self, weight: float) -> Iterator[TreePair]:
        """Yield pairs that cost less than a piece is worth, the best of each root.

        `weight` is what the latency of a hop counts in looking for them.
        """
        distance, out, route = self._ways(weight)
        back = self._ways(weight, turned=True)[1]
        for root in range(self.count):
            both = distance[root, self.members] + distance[self.members, root]
            if not np.isfinite(both).all():
                continue
            away = _grown(distance, out, root, self.members)
            towards = _grown(distance.T, back, root, self.members)
            pair = TreePair(
                tuple(int(route[b, a]) for a, b in reversed(towards)),
                tuple(int(route[a, b]) for a, b in away),
            )
            cost = self.blocks * float(self._load(pair) @ self.price) + self._way(pair)
            if cost < (1 - NARROW_GAP / 2) * self.worth:
                yield pair

    def _load(self, pair: TreePair) -> FloatArray:
        """Return what a piece of a block's size takes of each resource along a pair."""
        load: FloatArray = np.asarray(self.uses[[*pair.inward, *pair.outward]].sum(axis=0)).ravel()
        return load

    def _way(self, pair: TreePair) -> float:
        """Return the longest latency of a way in and out again."""
        longest = 0.0
        for tree, is_out in ((pair.inward[::-1], False), (pair.outward, True)):
            near, far = (self.src, self.dst) if is_out else (self.dst, self.src)
            at: dict[int, float] = {}
            for route in tree:
                at[int(far[route])] = at.get(int(near[route]), 0.0) + self.latency[route]
            longest += max(at.values(), default=0.0)
        return longest

    def _ways(
        self, weight: float, *, turned: bool = False
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Return shortest distances between GPUs, who is before each on them, and direct routes.

        Turned distances lead to the first GPU, not from it.
        """
        from scipy.sparse.csgraph import shortest_path

        price = self.blocks * (self.uses @ self.price) + weight * self.latency
        # Ways that cost nothing would count as none.
        price += NARROW_GAP * self.routes.length / len(self.routes)
        order = np.argsort(-price, kind="stable")
        cost = np.full((self.count, self.count), np.inf)
        route = np.full((self.count, self.count), -1)
        cost[self.src[order], self.dst[order]] = price[order]
        route[self.src[order], self.dst[order]] = order
        cost = cost.T if turned else cost
        distance, before = shortest_path(cost, method="D", return_predecessors=True)
        return distance, before.astype(np.int64), route


def _grown(
    distance: FloatArray, before: IntArray, root: int, members: IntArray
) -> list[tuple[int, int]]:
    """Return arcs of a tree that grows from a root to the nearest member until it has all.

    Distances and who is before whom are those of the shortest ways (Takahashi and Matsuyama).
    """
    near, start = distance[root].copy(), np.full(len(distance), root)
    has, wanted = np.arange(len(distance)) == root, np.zeros(len(distance), dtype=bool)
    wanted[members] = True
    wanted[root] = False
    arcs = []
    while wanted.any():
        goal = int(np.where(wanted, near, np.inf).argmin())
        way, node = [], goal
        while not has[node]:
            way.append((int(before[start[goal], node]), node))
            node = way[-1][0]
        for arc in reversed(way):
            arcs.append(arc)
            node = arc[1]
            has[node], wanted[node] = True, False
            is_nearer = distance[node] < near
            near[is_nearer], start[is_nearer] = distance[node][is_nearer], node
    return arcs
