"""Exchanged: a collective as an exchange in which everything goes straight to where it is wanted.

Behind switches that neither wait nor add, a tree of GPUs pays a latency on each of its levels, and
what goes through one switch to several GPUs at once must find all of their ports free. Where no
link is narrower than the ports of GPUs, sending everything straight to where it is wanted takes no
more of them, and is easier to put in order.

In the exchange each GPU is two, one that sends and one that receives, so that nothing waits at a
third: a contribution would be added to what that one has. Where switches copy, all receivers of a
switch may be one, to which a chunk goes once; its last link then stands for those of all of them.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan, on_routes
from teccl.demand import Block, Collective, Demand, ExplicitChunk
from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Node, Topology


class Exchanged(NamedTuple):
    """The network and the demand of an exchange."""

    topology: Topology
    demand: Demand


class _Delivery(NamedTuple):
    """A block that goes from one rank to the receiver of some ranks."""

    source: int
    receiver: int
    block: Block


def is_staged(problem: Problem) -> bool:
    """Whether ways lead through several switches, from every source to every destination."""
    routes, gpus = Instance.build(problem).routes, problem.topology.gpus
    if not routes.are_staged():
        return False
    known = {*zip(routes.src.tolist(), routes.dst.tolist(), strict=True)}
    wanted = {(block.sources, block.destinations) for block in _blocks(problem)}
    return all(
        source == end or (gpus[source], gpus[end]) in known
        for sources, ends in wanted
        for source in sources
        for end in ends
    )


def adds_for_several(problem: Problem) -> bool:
    """Whether several want a sum: who contributes and receives would send on what has come."""
    return any(block.reduce and len(block.destinations) > 1 for block in _blocks(problem))


def exchanges(problem: Problem) -> list[Exchanged]:
    """Return the exchanges that a problem may be: for each GPU, and for all of a switch at once."""
    alone = np.arange(problem.topology.num_gpus)
    found = [_exchanged(problem, alone)]
    together = _behind_switches(problem)
    if len(np.unique(together)) < len(alone):
        found.append(_exchanged(problem, together))
    return found


def delivered(problem: Problem, exchange: Schedule) -> Schedule:
    """Return the schedule of an exchange as one of copies or sums."""
    topology, table = problem.topology, problem.chunks
    receivers = exchange.problem.topology.num_gpus - topology.num_gpus
    together = np.arange(topology.num_gpus)
    if receivers < topology.num_gpus:
        together = _behind_switches(problem)
    deliveries = _deliveries(problem, together)
    sends = exchange.sends
    chunk = _chunks_delivered(problem, exchange.problem, deliveries)
    link, which = _expanded(topology, together, sends["link"])
    rows = sends[which]
    rows["link"] = link
    rows["chunk"] = chunk[sends["chunk"][which]]
    rows["reduce"] = table.reduce[rows["chunk"]]
    part = exchange.problem.chunks.block[sends["chunk"][which]]
    source = np.array([each.source for each in deliveries])[part]
    # Nobody is sent what it has.
    returns = topology.link_dst[link] == topology.gpus[source]
    return Schedule(problem=problem, sends=rows[~returns], method="construct")


def plan_delivered(instance: Instance, exchange: Instance, plan: Plan) -> Plan | None:
    """Return the plan of an exchange between single GPUs as one of copies or sums.

    None where the exchange takes ways that the instance does not list.
    """
    problem = instance.problem
    deliveries = _deliveries(problem, np.arange(problem.topology.num_gpus))
    chunk = _chunks_delivered(problem, exchange.problem, deliveries)
    taken = on_routes(plan, exchange.routes, instance.routes)
    if taken is None:
        return None
    rows = taken.rows.copy()
    rows[:, 0] = chunk[rows[:, 0]]
    reduce = problem.chunks.reduce[rows[:, 0]]
    return replace(taken, rows=rows, reduce=reduce if reduce.any() else None)


def _chunks_delivered(problem: Problem, exchange: Problem, deliveries: list[_Delivery]) -> IntArray:
    """Return which chunk of a problem each chunk of its exchange is."""
    table = problem.chunks
    known = {
        key: number
        for number, key in enumerate(zip(table.block.tolist(), table.piece.tolist(), strict=True))
    }
    block = np.array([each.block.number for each in deliveries])[exchange.chunks.block]
    keys = zip(block.tolist(), exchange.chunks.piece.tolist(), strict=True)
    return np.array([known[key] for key in keys])


def _blocks(problem: Problem) -> list[Block]:
    (tenant,) = problem.demand.tenants
    return list(problem.blocks(tenant))


def _behind_switches(problem: Problem) -> IntArray:
    """Return the first rank behind each rank's switch that receives in the same way as it does."""
    topology = problem.topology
    ranks = np.arange(topology.num_gpus)
    if problem.has_reductions or not problem.copy or problem.switch is not SwitchMode.COPY:
        return ranks
    # Whoever has or wants everything.
    served = set.intersection(*({*b.sources, *b.destinations} for b in _blocks(problem)))
    into: dict[int, list[int]] = {}
    for number, link in enumerate(topology.links):
        into.setdefault(link.dst, []).append(number)
    first: dict[object, int] = {}
    for rank, gpu in enumerate(topology.gpus.tolist()):
        ways = [topology.links[number] for number in into.get(gpu, [])]
        is_alone = len(ways) == 1 and not ways[0].shares and topology.is_switch[ways[0].src]
        is_alone = is_alone and rank in served
        key: object = replace(ways[0], dst=0) if is_alone else rank
        ranks[rank] = first.setdefault(key, rank)
    return ranks


def _deliveries(problem: Problem, together: IntArray) -> list[_Delivery]:
    """Return all that is wanted; nothing goes to a GPU that has it, alone."""
    found = []
    for block in _blocks(problem):
        sources = block.sources if block.reduce else block.sources[:1]
        for source in sources:
            ends = {int(together[end]) for end in block.destinations if end != source}
            found += [_Delivery(source, end, block) for end in sorted(ends)]
    return found


def _exchanged(problem: Problem, together: IntArray) -> Exchanged:
    """Return the exchange in which each rank's receiver is that of another one, or its own."""
    topology = problem.topology
    count, receivers = topology.num_gpus, np.unique(together)
    place = {rank: number for number, rank in enumerate(receivers.tolist())}
    (tenant,) = problem.demand.tenants
    chunks = tuple(
        ExplicitChunk((each.source,), (count + place[each.receiver],), size=each.block.size)
        for each in _deliveries(problem, together)
    )
    kind = Collective.EXPLICIT
    exchange = replace(tenant, collective=kind, chunks=chunks, matrix=None, ranks=None, root=None)
    nodes = tuple(
        Node(name=f"{topology.nodes[topology.gpus[rank]].name}-in") for rank in receivers.tolist()
    )
    into = {int(topology.gpus[rank]): topology.num_nodes + number for rank, number in place.items()}
    others = {*topology.gpus.tolist()} - set(into)
    links = tuple(
        replace(link, dst=into.get(link.dst, link.dst))
        for link in topology.links
        if link.dst not in others
    )
    network = replace(topology, nodes=topology.nodes + nodes, links=links)
    return Exchanged(network, Demand(tenants=(exchange,)))


def _expanded(topology: Topology, together: IntArray, links: IntArray) -> tuple[IntArray, IntArray]:
    """Return the links that each of an exchange's stands for, and which send each is of."""
    rank = np.full(topology.num_nodes, -1)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    ends = rank[topology.link_dst]
    is_kept = (ends < 0) | (together[ends] == ends)
    stands_for: list[list[int]] = []
    number = {}
    for link in np.flatnonzero(is_kept).tolist():
        number[link] = len(stands_for)
        stands_for.append([link])
    first = {int(ends[link]): link for link in number if ends[link] >= 0}
    for link in np.flatnonzero(~is_kept).tolist():
        stands_for[number[first[int(together[ends[link]])]]].append(link)
    count = np.array([len(each) for each in stands_for])
    which = np.repeat(np.arange(len(links)), count[links])
    expanded = [link for each in links.tolist() for link in stands_for[each]]
    return np.array(expanded, dtype=np.int64), which
