"""Shortest paths: every chunk goes to every destination on its own cheapest path, without copies.

This is the comparison of the TE-CCL paper. Sums climb a tree of cheapest paths to one of their
destinations, and the result goes from there to the others.
"""

from collections.abc import Iterator
from typing import NamedTuple

from teccl.construct.baselines._common import refuse_options
from teccl.construct.baselines._routing import Router
from teccl.construct.booking import Booking, Leg
from teccl.demand import Collective
from teccl.problem import Problem
from teccl.reachability import Reach
from teccl.schedule.sends import SendArray

COLLECTIVES = tuple(Collective)


class Shipment(NamedTuple):
    """One chunk on its way from a node that has it to one that wants it."""

    chunk: int
    source: int
    destination: int


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    roots = _Roots(problem)
    if not all(roots.usable(chunk) for chunk in _sums(problem)):
        return "makes a sum at one of its destinations, from which not all others can be reached"
    if not problem.copy and any(roots.copies_result(chunk) for chunk in _sums(problem)):
        return "copies the result of a sum, which --no-copy forbids"
    return refuse_options(problem, COLLECTIVES, any_demand=True)


def build(problem: Problem) -> SendArray:
    """Schedule any demand."""
    router, booking = Router(problem.topology, problem.chunk_bytes), Booking(problem)
    for chunk, leg in _climbs(problem, router, booking):
        booking.carry(chunk, leg.links, reduce=True)
    for delivery in _deliveries(problem, router):
        route = router.route(delivery.source, delivery.destination)
        assert route is not None, "reachability is checked before any method runs"
        booking.carry(delivery.chunk, route)
    return booking.sends()


def _sums(problem: Problem) -> list[int]:
    return [int(chunk) for chunk in problem.chunks.reduce.nonzero()[0]]


class _Roots:
    """The destinations in which sums are made."""

    def __init__(self, problem: Problem) -> None:
        self.table = problem.chunks
        self._reach = Reach(problem.topology)
        self._known: dict[tuple[int, int], list[int]] = {}

    def usable(self, chunk: int) -> list[int]:
        """Return destinations that reach all others, those that contribute if there are any."""
        key = (int(self.table.source_set[chunk]), int(self.table.destination_set[chunk]))
        if key not in self._known:
            leaders = self._reach.leaders(self.table.destinations(chunk).tolist())
            sources = set(self.table.sources(chunk).tolist())
            self._known[key] = [node for node in leaders if node in sources] or leaders
        return self._known[key]

    def of(self, chunk: int) -> int:
        """Return where a sum is made; blocks take turns."""
        roots = self.usable(chunk)
        return roots[int(self.table.block[chunk]) % len(roots)]

    def others(self, chunk: int) -> list[int]:
        """Return the destinations that get the result of a sum from its root."""
        root = self.of(chunk)
        return [node for node in self.table.destinations(chunk).tolist() if node != root]

    def copies_result(self, chunk: int) -> bool:
        """Whether a GPU that only received a sum would have to send it more than once."""
        is_source = self.of(chunk) in self.table.sources(chunk)
        return not is_source and len(self.others(chunk)) > 0


def _climbs(problem: Problem, router: Router, booking: Booking) -> list[tuple[int, Leg]]:
    """Return the legs of every sum's tree, those that enter a GPU before the one that leaves it."""
    trees: dict[tuple[int, int], list[tuple[int, Leg]]] = {}
    climbs, roots = [], _Roots(problem)
    for chunk in _sums(problem):
        root, sources = roots.of(chunk), int(problem.chunks.source_set[chunk])
        if (root, sources) not in trees:
            trees[root, sources] = _tree(problem, router, booking, chunk, root)
        rank = _rank(problem, chunk)
        climbs += [((*rank, -depth), chunk, leg) for depth, leg in trees[root, sources]]
    climbs.sort(key=lambda climb: climb[0])
    return [(chunk, leg) for _, chunk, leg in climbs]


def _tree(
    problem: Problem, router: Router, booking: Booking, chunk: int, root: int
) -> list[tuple[int, Leg]]:
    """Return (depth, leg) for every GPU that sends in the tree from a chunk's sources to a root."""
    legs: dict[int, Leg] = {}
    waiting = problem.chunks.sources(chunk).tolist()
    while waiting:
        node = waiting.pop()
        if node != root and node not in legs:
            route = router.route(node, root)
            assert route is not None, "reachability is checked before any method runs"
            legs[node] = booking.legs(route)[0]
            waiting.append(legs[node].ends[0])
    depths = {root: 0}
    for node in legs:
        way = [node]
        while way[-1] not in depths:
            way.append(legs[way[-1]].ends[0])
        for above, below in zip(reversed(way), reversed(way[:-1]), strict=False):
            depths[below] = depths[above] + 1
    return [(depths[node], leg) for node, leg in legs.items()]


def _deliveries(problem: Problem, router: Router) -> list[Shipment]:
    """Return what goes where: urgent tenants first, then pieces in turn, then the longest ways."""
    num_nodes = problem.topology.num_nodes

    def order(delivery: Shipment) -> tuple[float, ...]:
        way = router.cost(delivery.source, delivery.destination)
        turn = (delivery.destination - delivery.source) % num_nodes
        return (*_rank(problem, delivery.chunk), -way, turn, delivery.source)

    return sorted(_unordered_deliveries(problem, router), key=order)


def _unordered_deliveries(problem: Problem, router: Router) -> Iterator[Shipment]:
    table, ready, roots = problem.chunks, problem.ready_ps(), _Roots(problem)
    for chunk in range(len(table)):
        if table.reduce[chunk]:
            root = roots.of(chunk)
            yield from (Shipment(chunk, root, node) for node in roots.others(chunk))
            continue
        sources = table.sources(chunk).tolist()
        since = ready[table.tenant[chunk]]
        for node in table.destinations(chunk).tolist():
            if node not in sources:
                nearest = min(sources, key=lambda s: (since[s] + router.cost(s, node), s))
                yield Shipment(chunk, nearest, node)


def _rank(problem: Problem, chunk: int) -> tuple[float, int]:
    """Return what decides between chunks before their ways do."""
    table = problem.chunks
    tenant = problem.demand.tenants[table.tenant[chunk]]
    return -float(tenant.priority), int(table.piece[chunk])
