"""Ring: everything goes round one directed ring of all members.

The ring is the one whose slowest hop is as fast as possible. A hop is a link, a way through
switches or, where no ring exists without, a way through GPUs that take no part.
"""

from collections.abc import Iterator

from teccl.construct.baselines._common import (
    Team,
    non_members,
    only_collective,
    refuse_options,
    team_of,
)
from teccl.construct.baselines._rings import Ring, widest_ring
from teccl.construct.baselines._routing import Router
from teccl.construct.booking import Booking
from teccl.demand import Collective
from teccl.problem import Problem
from teccl.schedule.sends import SendArray

COLLECTIVES = (
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
    Collective.BROADCAST,
    Collective.REDUCE,
)

# A chunk (by piece and block number) that the member at a place of the ring sends to the next one,
# and whether that one adds it to its own.
Step = tuple[int, int, int, bool]


def refusal(problem: Problem) -> str | None:
    """Return what the method cannot do for a problem, or None."""
    reason = refuse_options(problem, COLLECTIVES)
    if reason is None and widest_ring(problem.topology, team_of(problem).nodes) is None:
        reason = f"finds no ring through the {problem.num_gpus} members"
    return reason


def build(problem: Problem) -> SendArray:
    """Schedule an AllGather, ReduceScatter, AllReduce, Broadcast or Reduce."""
    team = team_of(problem)
    ring = widest_ring(problem.topology, team.nodes)
    assert ring is not None, "a problem without a ring is refused"
    routes = _routes(problem, ring)
    booking = Booking(problem)
    for piece, block, place, reduce in _steps(problem, team, ring):
        booking.carry(team.pieces[piece][block], routes[place], reduce=reduce)
    return booking.sends()


def _routes(problem: Problem, ring: Ring) -> list[tuple[int, ...]]:
    """Return the cheapest route of each hop among those as wide as the ring."""
    topology = problem.topology
    relays = [
        node
        for node in non_members(problem, ring.nodes)
        if ring.through_gpus or topology.nodes[node].is_switch
    ]
    links = [i for i, rate in enumerate(topology.rates) if rate >= ring.bandwidth]
    router = Router(topology, problem.chunk_bytes, relays=relays, links=links)
    routes = []
    for place, node in enumerate(ring.nodes):
        route = router.route(node, ring.nodes[(place + 1) % len(ring.nodes)])
        assert route is not None, "a ring consists of hops that exist"
        routes.append(route)
    return routes


def _steps(problem: Problem, team: Team, ring: Ring) -> Iterator[Step]:
    collective, pieces = only_collective(problem), range(len(team.pieces))
    position = {node: i for i, node in enumerate(team.nodes)}
    blocks = [position[node] for node in ring.nodes]
    root = ring.nodes.index(team.nodes[team.root])
    if collective is Collective.BROADCAST:
        yield from _chain(root, len(team), pieces, reduce=False)
    elif collective is Collective.REDUCE:
        yield from _chain(root + 1, len(team), pieces, reduce=True)
    if collective in (Collective.REDUCESCATTER, Collective.ALLREDUCE):
        yield from _rounds(blocks, pieces, behind=1, reduce=True)
    if collective in (Collective.ALLGATHER, Collective.ALLREDUCE):
        yield from _rounds(blocks, pieces, behind=0, reduce=False)


def _chain(first: int, members: int, pieces: range, *, reduce: bool) -> Iterator[Step]:
    """Pass the only block on from place to place, piece by piece."""
    for piece in pieces:
        for step in range(members - 1):
            yield piece, 0, (first + step) % members, reduce


def _rounds(blocks: list[int], pieces: range, *, behind: int, reduce: bool) -> Iterator[Step]:
    """Let every place send in each round the block it received in the round before.

    Parameters
    ----------
    blocks
        Block that belongs to each place.
    pieces
        Pieces of every block.
    behind
        How many places behind the sender its first block belongs.
    reduce
        Whether the receiver adds what it gets to its own.
    """
    members = len(blocks)
    for step in range(members - 1):
        for piece in pieces:
            for place in range(members):
                yield piece, blocks[(place - behind - step) % members], place, reduce
