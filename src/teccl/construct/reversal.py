"""Reductions from multicasts: a ReduceScatter is an AllGather on the reversed network, backwards.

An AllGather schedule in which every node receives each chunk once is, per chunk, a tree away from
its source. Run backwards on the original links it is a tree towards it, along which contributions
are combined, each counted once. A switch that copies would have to combine, so the AllGather is
made without switch copy.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from teccl.construct.instance import Instance
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem, SwitchMode

Multicast = Callable[[Instance, Tables], Plan | None]


def can_reverse(problem: Problem) -> bool:
    """Whether time may run backwards: static rates, no ready times."""
    return not problem.topology.has_profiles and not problem.demand.has_ready_times


def transposed_problem(problem: Problem) -> Problem:
    """Return the multicast on the reversed network whose reversal solves a reduction.

    Chunks keep their numbers: the one that ends at a node starts there.
    """
    tenants = tuple(_transposed_tenant(problem, tenant) for tenant in problem.demand.tenants)
    switch = SwitchMode.NO_COPY if problem.switch is SwitchMode.COPY else problem.switch
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
        Collective.ALLTOALL: Collective.ALLTOALL,
    }
    if tenant.collective in swap:
        return replace(tenant, collective=swap[tenant.collective])
    # Anything else turns into explicit chunks with both ends swapped.
    blocks = tenant.blocks(problem.topology.num_gpus)
    chunks = tuple(ExplicitChunk(block.destinations, block.sources) for block in blocks)
    return replace(tenant, collective=Collective.EXPLICIT, chunks=chunks, root=None, matrix=None)


def reversed_plan(instance: Instance, multicast: Multicast) -> Plan | None:
    """Make the multicast on the reversed network and turn it round.

    Returns a plan on the instance's own routes, in which every row is a transfer of its own.
    """
    backward = Instance.build(
        transposed_problem(instance.problem),
        instance.grid,
        ways=[way[::-1] for way in instance.routes.ways()],
    )
    plan = multicast(backward, Tables.build(backward))
    if plan is None:
        return None
    rows = plan.rows.copy()
    rows[:, 2] = plan.finish - rows[:, 2] - backward.routes.length[rows[:, 1]]
    rows[:, 3] = np.arange(len(rows))
    rows[:, 4] = 0
    return Plan(rows=rows, finish=plan.finish, reduce=np.ones(len(rows), dtype=bool))
