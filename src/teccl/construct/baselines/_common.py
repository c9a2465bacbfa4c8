"""What the baselines share: who takes part, which chunks there are, and booking a list of hops."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from teccl.construct.baselines._routing import Router
from teccl.construct.booking import Booking, Route
from teccl.demand import Collective
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.schedule.sends import SendArray


class Hop(NamedTuple):
    """A chunk going from one GPU to another, by node; hops are listed in booking order."""

    chunk: int
    src: int
    dst: int
    reduce: bool = False


class Team(NamedTuple):
    """The GPUs of a single tenant's collective and its chunks.

    Parameters
    ----------
    nodes
        Members by position in the collective.
    root
        Position of the root, 0 where there is none.
    pieces
        Chunks by piece, then block number.
    """

    nodes: tuple[int, ...]
    root: int
    pieces: tuple[dict[int, int], ...]

    def __len__(self) -> int:
        return len(self.nodes)


def only_collective(problem: Problem) -> Collective:
    """Return the collective of the only tenant."""
    return problem.demand.tenants[0].collective


def team_of(problem: Problem) -> Team:
    """Return who takes part in the only tenant's collective, and its chunks."""
    tenant, topology, table = problem.demand.tenants[0], problem.topology, problem.chunks
    ranks = tenant.members(topology.num_gpus)
    pieces: tuple[dict[int, int], ...] = tuple({} for _ in range(problem.num_chunks))
    places = zip(table.block.tolist(), table.piece.tolist(), strict=True)
    for chunk, (block, piece) in enumerate(places):
        pieces[piece][block] = chunk
    return Team(
        nodes=tuple(topology.gpus[list(ranks)].tolist()),
        root=0 if tenant.root is None else ranks.index(tenant.root),
        pieces=pieces,
    )


def refuse_options(
    problem: Problem, collectives: Sequence[Collective], *, any_demand: bool = False
) -> str | None:
    """Return what a baseline for some collectives cannot do for a problem, or None.

    With `any_demand` several tenants and GPUs that do not copy are fine.
    """
    if problem.buffer is not None:
        return "keeps to no buffer limit"
    if any_demand:
        return _copied_sums(problem)
    if len(problem.demand.tenants) > 1:
        return "serves one tenant only"
    if only_collective(problem) not in collectives:
        return f"does not serve {only_collective(problem)}"
    if not problem.copy:
        return "copies in GPUs, which --no-copy forbids"
    return None


def _copied_sums(problem: Problem) -> str | None:
    """Return why a sum that several GPUs want cannot be made, or None."""
    table = problem.chunks
    several = [len(table.sets[i]) > 1 for i in table.destination_set[table.reduce].tolist()]
    if not problem.copy and any(several):
        return "makes a sum once and copies it, which --no-copy forbids"
    return None


def non_members(problem: Problem, members: Iterable[int]) -> list[int]:
    """Return the nodes that partial sums may pass without meeting another contribution."""
    return sorted(set(range(problem.topology.num_nodes)) - set(members))


def blocked_sum(
    problem: Problem, members: Sequence[int], pairs: Iterable[tuple[int, int]]
) -> str | None:
    """Return what a baseline cannot do if partial sums cannot go where it wants, or None.

    Parameters
    ----------
    problem
        Its topology.
    members
        GPUs that contribute.
    pairs
        Positions of members that send partial sums, and those they send to.
    """
    router = _sum_router(problem, members)
    has_way = np.isfinite(router.costs(members))
    nodes, distinct = problem.topology.nodes, sorted(set(pairs))
    for i, j in distinct:
        if not has_way[i, j]:
            ends = f"from {nodes[members[i]].name} to {nodes[members[j]].name}"
            return f"has no way for partial sums {ends} past other members"
    # A relay has one accumulator: two partial sums that wait in it would mix.
    relays = Counter(
        relay for i, j in distinct for relay in _relays(problem, router, members[i], members[j])
    )
    crowded = next((relay for relay, count in relays.items() if count > 1), None)
    if crowded is not None:
        return f"would mix partial sums in {nodes[crowded].name}, which takes no part"
    return None


def _relays(problem: Problem, router: Router, src: int, dst: int) -> list[int]:
    """Return the GPUs between the ends of the cheapest route."""
    topology = problem.topology
    if len(topology.gpus) == problem.num_gpus:
        return []
    inner = [int(topology.link_dst[link]) for link in router.route(src, dst) or ()][:-1]
    return [node for node in inner if not topology.nodes[node].is_switch]


def _sum_router(problem: Problem, members: Iterable[int]) -> Router:
    relays = non_members(problem, members)
    return Router(problem.topology, problem.chunk_bytes, relays=relays)


def book_hops(problem: Problem, hops: Iterable[Hop], members: Iterable[int]) -> SendArray:
    """Book hops in their order: copies on the cheapest route, partial sums past all members."""
    copies = Router(problem.topology, problem.chunk_bytes)
    sums = _sum_router(problem, members) if problem.has_reductions else copies
    known: dict[tuple[int, int, bool], Route] = {}
    booking = Booking(problem)
    for chunk, src, dst, reduce in hops:
        route = known.get((src, dst, reduce))
        if route is None:
            route = (sums if reduce else copies).route(src, dst)
            if route is None:
                nodes = problem.topology.nodes
                raise MethodError(
                    f"no way from {nodes[src].name} to {nodes[dst].name}, which this method "
                    "needs; use auto"
                )
            known[src, dst, reduce] = route
        if reduce:
            booking.carry(chunk, route, reduce=True)
        else:
            booking.deliver(chunk, route)
    return booking.sends()
