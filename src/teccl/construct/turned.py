"""Sums as multicasts: an instance and its plans with links and time turned round.

Run backwards, the tree along which a sum is made is one along which its receiver sends a copy to
all who contribute. So whatever serves multicasts in which every GPU receives a chunk once serves
sums as well, where rates do not change and all data is there from the start.
"""

from dataclasses import replace

import numpy as np

from teccl.construct.instance import Instance, in_own_time
from teccl.construct.plan import Plan
from teccl.construct.reversal import can_reverse, transposed_problem
from teccl.keywords import SwitchMode


def is_turnable(instance: Instance) -> bool:
    """Whether an instance is one of sums that may be turned round, each for one GPU.

    Chunks that are not sums may be there too if they go from one GPU to one. Latencies move from
    behind a transfer to before it, which is all the same only where whatever holds a resource has
    the same latency: links that share a capacity may differ in it, and so may the ways that meet
    in a port of a hyper-edge, which is held from the start.
    """
    problem, table = instance.problem, instance.problem.chunks
    count = np.array([len(nodes) for nodes in table.sets])
    is_single = (count[table.destination_set] == 1) & (
        table.reduce | (count[table.source_set] == 1)
    )
    topology = problem.topology
    has_ports = problem.switch is SwitchMode.HYPER_EDGE and topology.num_switches > 0
    is_uniform = not topology.shared and not has_ports
    return bool(is_single.all()) and can_reverse(problem) and is_uniform


def turned_instance(instance: Instance) -> Instance:
    """Return the multicast on the reversed routes; chunks and routes keep their numbers."""
    problem = replace(transposed_problem(instance.problem), copy=True)
    ways = [way[::-1] for way in instance.routes.ways()]
    return Instance.build(problem, instance.grid, ways=ways)


def turned_plan(instance: Instance, plan: Plan) -> Plan:
    """Return a plan of one instance as one of the other, where time runs backwards.

    Parameters
    ----------
    instance
        The one that the result is for.
    plan
        Its rows are transfers of their own, and exact unless there is a grid.
    """
    timed, own = in_own_time(instance, plan.rows)
    end = own[:, 2] + timed.routes.length[own[:, 1]]
    rows = plan.rows.copy()
    finish = int(end.max(initial=0))
    rows[:, 2] = finish - end
    rows[:, 3] = np.arange(len(rows))
    rows[:, 4] = 0
    reduce = instance.problem.chunks.reduce[rows[:, 0]]
    return Plan(
        rows=rows,
        finish=finish,
        reduce=reduce if reduce.any() else None,
        exact=instance.grid is None,
    )
