"""Loading the compiled kernels before the clock starts."""

from fractions import Fraction
from functools import cache

from teccl.construct.params import MANY_GPUS, NEVER
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology

# A bound that any plan meets: the first one ends the search.
_EASY = NEVER // 2


def load_kernels(problem: Problem) -> None:
    """Compile the kernels that a problem needs, or load them from the cache."""
    table, topology = problem.chunks, problem.topology
    if table.reduce.any() or (topology.num_switches and topology.num_gpus >= 2 * MANY_GPUS):
        load_all_kernels()
    elif any(len(table.sets[i]) > 1 for i in set(table.destination_set.tolist())):
        _exercise("allgather", _EASY)
    else:
        _exercise("alltoall", _EASY)


def load_all_kernels() -> None:
    """Compile or load every kernel."""
    _exercise("allreduce", 0)


@cache
def load_insertion_kernels() -> None:
    """Compile or load the kernels of insertion and of ruin and recreate."""
    from teccl.construct.goal import Goal
    from teccl.construct.insertion import inserted_plans
    from teccl.construct.instance import Instance
    from teccl.construct.recreate import recreate

    demand = Demand.collective("alltoall", size="3KB")
    instance = Instance.build(Problem(topology=Topology.parse("ring:gpus=3"), demand=demand))
    for plan in inserted_plans(instance, Goal()):
        recreate(instance, plan, target=0, seed=0, budget=1)


def load_tree_kernels(topology: Topology) -> None:
    """Compile or load the kernels that lay trees across a topology's switches."""
    if topology.num_switches:
        _lay_trees()


@cache
def _lay_trees() -> None:
    from teccl.construct.instance import Instance
    from teccl.construct.jobs import schedule_scarce_first
    from teccl.construct.tasks import precedence, task_tails, tasks_of_plan
    from teccl.construct.trees import plan_across

    demand = Demand.collective("allreduce", size="3KB")
    # One slow GPU, so that its links are scarce and others are not.
    star = Topology.parse("star:gpus=3").degraded({"0:*": Fraction(1, 2)})
    instance = Instance.build(Problem(topology=star, demand=demand))
    plan = plan_across(instance, target=1.0)
    if plan is not None:
        tasks = tasks_of_plan(instance, plan)
        order = precedence(instance, tasks)
        key = task_tails(tasks, order)
        schedule_scarce_first(instance, tasks, key=key, rounds=1, order=order)


@cache
def load_forest_kernels() -> None:
    """Compile or load the kernels that pack trees and schedule them in rounds."""
    from teccl.construct.forest import best_forest
    from teccl.construct.forest_plans import forest_plan

    demand = Demand.collective("allgather", size="3KB")
    problem = Problem(topology=Topology.parse("star:gpus=3"), demand=demand)
    forest = best_forest(problem, 1)
    if forest is not None:
        forest_plan(problem, forest)


@cache
def _exercise(collective: str, target: int) -> None:
    """Solve a very small problem, which calls each kernel once."""
    from teccl.construct.constructions import construct
    from teccl.construct.goal import Goal
    from teccl.construct.instance import Instance
    from teccl.construct.realise import realise
    from teccl.timegrid import TimeGrid

    demand = Demand.collective(collective, size="3KB")
    problem = Problem(topology=Topology.parse("ring:gpus=3"), demand=demand)
    instance = Instance.build(problem, TimeGrid.build(problem))
    for plan in construct(instance, Goal(target=target)):
        realise(instance, plan, method="construct")
