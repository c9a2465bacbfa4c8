"""The directed ring through all members whose slowest hop is as fast as possible."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.baselines._hamiltonian import hamiltonian_cycle, may_have_cycle
from teccl.construct.baselines._routing import Router
from teccl.construct.booking import Route
from teccl.topology import Topology

Order = list[int]


class Ring(NamedTuple):
    """Members in ring order.

    Parameters
    ----------
    nodes
        Each member sends to the next, the last to the first.
    bandwidth
        Rate of the slowest link on the way.
    through_gpus
        Whether hops may pass through GPUs that are no members.
    """

    nodes: tuple[int, ...]
    bandwidth: Fraction
    through_gpus: bool


@lru_cache(maxsize=2)
def widest_ring(topology: Topology, members: tuple[int, ...]) -> Ring | None:
    """Find a ring with the largest smallest bandwidth, or None if none was found.

    The search is a heuristic with a fixed budget of work; on small networks it is exhaustive. What
    it finds is kept, because numbers of chunks do not change it.
    """
    for through_gpus in (False, True):
        ring = _Search(topology, members, through_gpus=through_gpus).widest()
        if ring is not None or len(members) == topology.num_gpus:
            return ring
    return None


class _Search:
    """Rings over the hops that links of at least some bandwidth allow."""

    def __init__(self, topology: Topology, members: tuple[int, ...], *, through_gpus: bool) -> None:
        self.topology, self.members, self.through_gpus = topology, members, through_gpus
        self.rates = topology.rates
        self.levels = sorted(set(self.rates))
        inner = set(range(topology.num_nodes)) - set(members)
        self.relays = [i for i in inner if through_gpus or topology.nodes[i].is_switch]

    def widest(self) -> Ring | None:
        """Return the ring of the highest level at which one is found."""
        high = self._highest_possible()
        if high is None:
            return None
        order = self._order(high)
        if order is not None:
            return self._ring(order, high)
        found, low = self._order(0) if high > 0 else None, 0
        if found is None:
            return None
        while low + 1 < high:
            middle = (low + high) // 2
            order = self._order(middle)
            if order is None:
                high = middle
            else:
                found, low = order, middle
        return self._ring(found, low)

    def _highest_possible(self) -> int | None:
        """Return the highest level at which nothing obvious forbids a ring."""
        low, high = -1, len(self.levels)
        while low + 1 < high:
            middle = (low + high) // 2
            if may_have_cycle(self._adjacency(self._router(middle))):
                low = middle
            else:
                high = middle
        return None if low < 0 else low

    def _router(self, level: int) -> Router:
        links = [i for i, rate in enumerate(self.rates) if rate >= self.levels[level]]
        # Latency alone decides between hops, so that one ring serves all chunk sizes.
        return Router(self.topology, Fraction(0), relays=self.relays, links=links)

    def _adjacency(self, router: Router) -> npt.NDArray[np.bool_]:
        reachable: npt.NDArray[np.bool_] = np.isfinite(router.costs(self.members))
        np.fill_diagonal(reachable, val=False)
        return reachable

    def _order(self, level: int) -> Order | None:
        """Return a ring of positions over the hops of a level."""
        router = self._router(level)
        adjacency = self._adjacency(router)
        if not may_have_cycle(adjacency):
            return None
        plain = [
            order
            for order in self._plain_orders(router)
            if adjacency[order, np.roll(order, -1)].all()
        ]
        if plain:
            return max(plain, key=lambda order: self._merit(router, order))
        return hamiltonian_cycle(adjacency)

    def _plain_orders(self, router: Router) -> Iterator[Order]:
        """Yield orders that suit most clusters: by rank, chassis there and back, to the nearest."""
        yield list(range(len(self.members)))
        yield self._there_and_back()
        yield _nearest_first(router.costs(self.members))

    def _there_and_back(self) -> Order:
        """Return the order by rank with every second chassis reversed."""
        chassis: dict[str | None, Order] = {}
        for position, node in enumerate(self.members):
            chassis.setdefault(self.topology.nodes[node].group, []).append(position)
        return [
            position
            for i, positions in enumerate(chassis.values())
            for position in (reversed(positions) if i % 2 else positions)
        ]

    def _merit(self, router: Router, order: Order) -> tuple[Fraction, float]:
        """Return the rate left on the fullest link if all hops are used at once, and latency."""
        nodes = [self.members[position] for position in order]
        hops = list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
        load = _load(self.topology, [router.route(*hop) or () for hop in hops])
        latency = sum(router.cost(*hop) for hop in hops)
        return min(rate / count for rate, count in load), -latency

    def _ring(self, order: Order, level: int) -> Ring:
        nodes = tuple(self.members[position] for position in order)
        return Ring(nodes, self.levels[level], self.through_gpus)


def _nearest_first(costs: npt.NDArray[np.float64]) -> Order:
    """Return the order that goes from the first to the nearest that is left, and so on."""
    left = np.ones(len(costs), dtype=bool)
    order = [0]
    left[0] = False
    while left.any():
        ahead = np.where(left, costs[order[-1]], np.inf)
        if not np.isfinite(ahead).any():
            break
        order.append(int(ahead.argmin()))
        left[order[-1]] = False
    # Those that cannot be reached go last; the order is then no ring and is dropped.
    return order + np.flatnonzero(left).tolist()


def _load(topology: Topology, routes: Sequence[Route]) -> list[tuple[Fraction, int]]:
    """Return the rate of every link and shared capacity in use and how many routes use it."""
    links = Counter(link for route in routes for link in route)
    shared = Counter(
        name for link, count in links.items() for name in topology.links[link].shares * count
    )
    return [(topology.links[link].bandwidth, count) for link, count in links.items()] + [
        (topology.shared[name], count) for name, count in shared.items()
    ]
