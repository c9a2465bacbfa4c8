"""Reductions from multicasts: a ReduceScatter is an AllGather on the reversed network, backwards.

An AllGather schedule in which every node receives each chunk once is, per chunk, a tree away from
its source. Run backwards on the original links it is a tree towards it, along which contributions
are combined, each counted once. A switch that copies would have to combine, so the AllGather is
made without switch copy, except in switches that reduce. Those combine only what arrives at the
same instant, as the copies of a multicast leave a switch at one.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan
from teccl.construct.tasks import meeting_delays
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem

Multicast = Callable[[Instance, Tables], Plan | None]


def can_reverse(problem: Problem) -> bool:
    """Whether time may run backwards: static rates, no ready times."""
    return not problem.topology.has_profiles and not problem.demand.has_ready_times


def reducing_switches(instance: Instance) -> IntArray:
    """Return the switches in which contributions may come together, at times that stay."""
    problem = instance.problem
    keeps_time = instance.grid is None and len(problem.chunks.sizes) == 1
    buffers = problem.switch is SwitchMode.COPY and problem.transit is Transit.STORE_AND_FORWARD
    if not (keeps_time and buffers):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero([node.reduce for node in problem.topology.nodes])


def transposed_problem(problem: Problem, *, gathers: bool = False) -> Problem:
    """Return the multicast on the reversed network whose reversal solves a reduction.

    Chunks keep their numbers: the one that ends at a node starts there. With `gathers` switches
    copy in it.
    """
    tenants = tuple(_transposed_tenant(problem, tenant) for tenant in problem.demand.tenants)
    switch = problem.switch
    if switch is SwitchMode.COPY and not gathers:
        switch = SwitchMode.NO_COPY
    return replace(
        problem,
        topology=problem.topology.transposed(),
        demand=Demand(tenants=tenants),
        switch=switch,
    )


def _transposed_tenant(problem: Problem, tenant: Tenant) -> Tenant:
    swap = {
        Collective.REDUCESCATTER: Collective.ALLGATHER,
        Collective.ALLREDUCE: Collective.ALLGATHER,
        Collective.REDUCE: Collective.BROADCAST,
    }
    if tenant.collective in swap:
        return replace(tenant, collective=swap[tenant.collective])
    # Anything else turns into explicit chunks with both ends swapped: the chunks of an AllToAll are
    # those of an AllToAll again, but with other numbers.
    blocks = problem.blocks(tenant)
    chunks = tuple(
        ExplicitChunk(block.destinations, block.sources, size=block.size) for block in blocks
    )
    return replace(tenant, collective=Collective.EXPLICIT, chunks=chunks, root=None, matrix=None)


def reversed_plan(
    instance: Instance, multicast: Multicast, *, gathers: bool = False
) -> Plan | None:
    """Make the multicast on the reversed network and turn it round.

    Returns a plan on the instance's own routes, in which every row is a transfer of its own; with
    `gathers` those that come together in a switch are one, and who is nearer sets out later.
    """
    backward = Instance.build(
        transposed_problem(instance.problem, gathers=gathers),
        instance.grid,
        ways=[way[::-1] for way in instance.routes.ways()],
    )
    plan = multicast(backward, Tables.build(backward))
    if plan is None:
        return None
    rows = plan.rows.copy()
    rows[:, 2] = plan.finish - rows[:, 2] - backward.routes.length[rows[:, 1]]
    if not gathers:
        rows[:, 3] = np.arange(len(rows))
        rows[:, 4] = 0
    reduce = np.ones(len(rows), dtype=bool)
    rows[:, 2] -= meeting_delays(instance, rows, reduce)
    return Plan(rows=rows, finish=plan.finish, reduce=reduce)
