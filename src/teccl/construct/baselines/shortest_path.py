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
from teccl.schedule.model import SendArray

COLLECTIVES = tuple(Collective)


class Delivery(NamedTuple):
    """One chunk on its way from a node that has it to one that wants it."""

    chunk: int
    source: int
    destination: int


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    if not problem.copy and any(_copies_result(problem, chunk) for chunk in _sums(problem)):
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


def _root(problem: Problem, chunk: int) -> int:
    """Return the destination in which a sum is formed, one that contributes if there is any.

    Blocks take turns.
    """
    wanted = problem.chunks.destinations(chunk).tolist()
    sources = set(problem.chunks.sources(chunk).tolist())
    roots = [node for node in wanted if node in sources] or wanted
    return int(roots[problem.chunks.block[chunk] % len(roots)])


def _copies_result(problem: Problem, chunk: int) -> bool:
    """Whether a GPU that only received a sum would have to send it more than once."""
    is_source = _root(problem, chunk) in problem.chunks.sources(chunk)
    return not is_source and len(_others(problem, chunk)) > 0


def _others(problem: Problem, chunk: int) -> list[int]:
    """Return the destinations that get the result of a sum from its root."""
    root = _root(problem, chunk)
    return [node for node in problem.chunks.destinations(chunk).tolist() if node != root]


def _climbs(problem: Problem, router: Router, booking: Booking) -> list[tuple[int, Leg]]:
    """Return the legs of every sum's tree, those that enter a GPU before the one that leaves it."""
    trees: dict[tuple[int, int], list[tuple[int, Leg]]] = {}
    climbs = []
    for chunk in _sums(problem):
        root, sources = _root(problem, chunk), int(problem.chunks.source_set[chunk])
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
            waiting.append(legs[node].dst)
    depths = {root: 0}
    for node in legs:
        way = [node]
        while way[-1] not in depths:
            way.append(legs[way[-1]].dst)
        for above, below in zip(reversed(way), reversed(way[:-1]), strict=False):
            depths[below] = depths[above] + 1
    return [(depths[node], leg) for node, leg in legs.items()]


def _deliveries(problem: Problem, router: Router) -> list[Delivery]:
    """Return what goes where: urgent tenants first, then pieces in turn, then the longest ways."""
    num_nodes = problem.topology.num_nodes

    def order(delivery: Delivery) -> tuple[float, ...]:
        way = router.cost(delivery.source, delivery.destination)
        turn = (delivery.destination - delivery.source) % num_nodes
        return (*_rank(problem, delivery.chunk), -way, turn, delivery.source)

    return sorted(_unordered_deliveries(problem, router), key=order)


def _unordered_deliveries(problem: Problem, router: Router) -> Iterator[Delivery]:
    table, ready = problem.chunks, problem.ready_ps()
    for chunk in range(len(table)):
        if table.reduce[chunk]:
            root = _root(problem, chunk)
            yield from (Delivery(chunk, root, node) for node in _others(problem, chunk))
            continue
        sources = table.sources(chunk).tolist()
        since = ready[table.tenant[chunk]]
        for node in table.destinations(chunk).tolist():
            if node not in sources:
                nearest = min(sources, key=lambda s: (since[s] + router.cost(s, node), s))
                yield Delivery(chunk, nearest, node)


def _rank(problem: Problem, chunk: int) -> tuple[float, int]:
    """Return what decides between chunks before their ways do."""
    table = problem.chunks
    tenant = problem.demand.tenants[table.tenant[chunk]]
    return -float(tenant.priority), int(table.piece[chunk])
