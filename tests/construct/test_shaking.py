"""Shaking: the order of transfers is tried again and again, and never ends later for it."""

from teccl.construct.goal import Goal
from teccl.construct.schemes import owned
from teccl.construct.staged import shallow_finish, staged_schedule
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.verification import verify


def costly(owners: int) -> Problem:
    topology = Topology.parse("dgx-b200:rates=effective")
    demand = Demand.collective("allreduce", size="1MB")
    return Problem(topology=topology, demand=demand, num_chunks=owners, whole_buffer=True)


def test_shaking_gains_where_messages_cost():
    """Five owners of eight end sooner than in the order of their pieces, and correctly."""
    problem, scheme = costly(5), owned(8, 5)
    schedule = staged_schedule(problem, scheme, Goal())
    assert schedule is not None
    assert verify(schedule) == ()
    assert schedule.finish_ps < (shallow_finish(problem, scheme) or 0)


def test_what_ends_much_later_than_known_is_not_shaken():
    """Beside a much better schedule no work is spent."""
    problem, goal = costly(6), Goal()
    staged_schedule(problem, owned(8, 6), goal, known=1)
    assert goal.spent == 0
