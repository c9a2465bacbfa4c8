"""Baselines: the textbook algorithms every other schedule is compared with."""

from collections.abc import Callable
from typing import NamedTuple

from teccl._suggest import did_you_mean
from teccl.construct.baselines import (
    binomial_tree,
    double_binary_tree,
    recursive_doubling,
    ring,
    shortest_path,
)
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.schedule.sends import Schedule, SendArray

__all__ = ["BASELINES", "Baseline", "build_baseline", "serving_baselines"]


class Baseline(NamedTuple):
    """A textbook algorithm.

    Parameters
    ----------
    refusal
        Says what it cannot do for a problem, as the rest of a sentence; None if it serves it.
    build
        Makes the sends.
    """

    refusal: Callable[[Problem], str | None]
    build: Callable[[Problem], SendArray]


BASELINES: dict[str, Baseline] = {
    "ring": Baseline(ring.refusal, ring.build),
    "recursive-doubling": Baseline(recursive_doubling.refusal, recursive_doubling.build),
    "binomial-tree": Baseline(binomial_tree.refusal, binomial_tree.build),
    "double-binary-tree": Baseline(double_binary_tree.refusal, double_binary_tree.build),
    "shortest-path": Baseline(shortest_path.refusal, shortest_path.build),
}


def serving_baselines(problem: Problem) -> list[str]:
    """Return the names of the baselines that serve a problem."""
    return [name for name, baseline in BASELINES.items() if baseline.refusal(problem) is None]


def build_baseline(name: str, problem: Problem) -> Schedule:
    """Schedule a problem by a baseline.

    Parameters
    ----------
    name
        ``ring``, ``recursive-doubling``, ``binomial-tree``, ``double-binary-tree`` or
        ``shortest-path``.
    problem
        What to schedule; every destination must be reachable.

    Raises
    ------
    MethodError
        If there is no such baseline or it does not serve the problem; the message names methods
        that do.

    Examples
    --------
    >>> from teccl import Demand, Problem, Topology
    >>> demand = Demand.collective("allgather", size="1MB")
    >>> build_baseline("ring", Problem(topology=Topology.parse("ring:gpus=4"), demand=demand))
    Schedule('ring', allgather on 'ring', 12 sends, 16.5 us)
    """
    if name not in BASELINES:
        raise MethodError(f"unknown baseline {name[:40]!r}{did_you_mean(name, BASELINES)}")
    reason = BASELINES[name].refusal(problem)
    if reason is not None:
        # Buffer limits are kept by the methods that are no baselines.
        others = serving_baselines(problem) or ["construct"]
        raise MethodError(f"method {name} {reason}; use {', '.join(['auto', *others])}")
    return Schedule(problem=problem, sends=BASELINES[name].build(problem), method=name)
