"""Loading the compiled kernels before the clock starts."""

import sys
from functools import cache
from importlib import import_module
from typing import Any

from teccl.problem import Problem

# A bound that any plan meets: the first one ends the search.
_EASY = 2**60


def load_numba_alone() -> None:
    """Load numba without the BLAS that it looks for, for programs that own their process.

    The search imports scipy.linalg, which takes longer than most solutions. No kernel here needs
    BLAS, but a user's own compiled functions may: only the command line calls this.
    """
    name = "scipy.linalg.cython_blas"
    modules: dict[str, Any] = sys.modules
    if "numba.np.arraymath" in modules or name in modules:
        return
    modules[name] = None
    try:
        import_module("numba.np.arraymath")
    finally:
        del modules[name]


def load_kernels(problem: Problem) -> None:
    """Compile the kernels that a problem needs, or load them from the cache."""
    table = problem.chunks
    if table.reduce.any():
        load_all_kernels()
    elif any(len(table.sets[i]) > 1 for i in set(table.destination_set.tolist())):
        _exercise("allgather", _EASY)
    else:
        _exercise("alltoall", _EASY)


def load_all_kernels() -> None:
    """Compile or load every kernel."""
    _exercise("allreduce", 0)


@cache
def _exercise(collective: str, target: int) -> None:
    """Solve a very small problem, which calls each kernel once."""
    from teccl.construct.instance import Instance
    from teccl.construct.realise import realise
    from teccl.construct.strategies import Work, plans
    from teccl.demand import Demand
    from teccl.timegrid import TimeGrid
    from teccl.topology import Topology

    demand = Demand.collective(collective, size="3KB")
    problem = Problem(topology=Topology.parse("ring:gpus=3"), demand=demand)
    instance = Instance.build(problem, TimeGrid.build(problem))
    for plan in plans(instance, target=target, work=Work(level="normal")):
        realise(instance, plan, method="construct")
