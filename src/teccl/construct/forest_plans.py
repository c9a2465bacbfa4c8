"""Forest plans: the trees of a forest, repeated for many pieces and scheduled in rounds."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from teccl.construct.forest import Forest
from teccl.construct.instance import Instance
from teccl.construct.jobs import justify_serially
from teccl.construct.params import JUSTIFICATIONS
from teccl.construct.plan import Plan, with_starts
from teccl.construct.switch_rounds import Ports, justify_in_rounds
from teccl.construct.tasks import finish_time, precedence, task_tails, tasks_of_plan
from teccl.problem import Problem
from teccl.units import PICOSECONDS

# How much more urgent the beginnings of long ways are than later pieces.
TAIL_WEIGHT = 2


class ForestTimes(NamedTuple):
    """How long a block takes at a forest's rate, and beyond that the longest way of a piece."""

    load_ps: float
    latency_ps: float

    @staticmethod
    def of(problem: Problem, forest: Forest) -> "ForestTimes":
        """Return the times of a problem with some number of chunks."""
        hold, alpha = problem.hold_ps[:, 0].tolist(), problem.topology.alpha_ps.tolist()
        longest = 0
        for hops in forest.trees:
            at: dict[int, int] = {}
            for hop in hops:
                length = sum(hold[link] + alpha[link] for link in hop.way)
                at[hop.dst] = max(at.get(hop.dst, 0), at.get(hop.src, 0) + length)
            longest = max(longest, *at.values())
        block = problem.chunks.sizes[0] * problem.num_chunks
        return ForestTimes(float(block / forest.rate * PICOSECONDS), float(longest))


def mean_hops(problem: Problem, forest: Forest) -> float:
    """Links of a transfer on average, for its work; in rounds there are no gaps to be tried."""
    instance = Instance.build(replace(problem, num_chunks=forest.pieces), ways=forest.ways())
    if Ports.of(instance.routes, instance.num_resources) is not None:
        return 1.0
    hops = [len(hop.way) for tree in forest.trees for hop in tree]
    return sum(hops) / max(1, len(hops))


def forest_plan(problem: Problem, forest: Forest) -> tuple[Instance, Plan]:
    """Return a plan that sends all pieces along a forest's trees, and the instance it is for.

    Pieces follow one another, each root's in turn, and what has a long way to go hurries on. Ports
    of switches are matched in rounds; where transfers through a switch do not take equally long, or
    hold more than a port into it and one out of it, they are placed one by one.
    """
    instance = Instance.build(problem, ways=forest.ways())
    plan = forest.plan(instance)
    tasks = tasks_of_plan(instance, plan)
    order = precedence(instance, tasks)
    block, piece = np.divmod(tasks.chunk, problem.num_chunks)
    blocks = len(problem.chunks) // problem.num_chunks
    place = (piece * blocks + block) / len(problem.chunks)
    load = ForestTimes.of(problem, forest).load_ps
    key = (place * load).astype(np.int64) - TAIL_WEIGHT * task_tails(tasks, order)
    ports = Ports.of(instance.routes, instance.num_resources)
    if ports is None:
        start = justify_serially(instance, tasks, key=key, rounds=JUSTIFICATIONS, order=order)
    else:
        start = justify_in_rounds(tasks, ports, plan.rows[:, 1], key=key, order=order)
    return instance, with_starts(plan, start, finish_time(tasks, start))
