"""Loading the compiled kernels before the clock starts."""

from functools import cache


@cache
def load_kernels() -> None:
    """Compile every kernel, or load it from the cache, by solving a very small problem."""
    from teccl.construct.instance import Instance
    from teccl.construct.strategies import Work, plans
    from teccl.demand import Demand
    from teccl.problem import Problem
    from teccl.topology import Topology

    problem = Problem(
        topology=Topology.parse("ring:gpus=3"), demand=Demand.collective("allreduce", size="3KB")
    )
    for _ in plans(Instance.build(problem), target=0, work=Work(level="quick")):
        pass
