"""evaluate: finish times and bounds of a topology, fast enough for search loops.

What `solve` does besides is left out: one construction for each of a few numbers of chunks, no
baselines, no search for narrow cuts. What comes out is verified all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from teccl._numba import solving_clock, watch_compiler
from teccl.demand import Collective, Demand
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology
from teccl.units import PICOSECONDS, Quantity, parse_size

if TYPE_CHECKING:
    from teccl.construct.plan import Plan

# Numbers of chunks that are tried for each size.
CHUNKS = (1, 4)
# A gap below which fewer chunks are not tried.
GOOD_GAP = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a topology gives for some sizes, one entry each.

    Parameters
    ----------
    sizes
        Bytes as nccl-tests counts them.
    finish_ps
        Picoseconds of a verified schedule; None where some rank cannot be reached.
    bound_ps
        Picoseconds that no schedule can beat; None likewise.
    num_chunks
        Chunks of each schedule.
    schedules
        The schedules themselves.
    seconds
        What the evaluation took.
    """

    sizes: tuple[Fraction, ...]
    finish_ps: tuple[int | None, ...]
    bound_ps: tuple[int | None, ...]
    num_chunks: tuple[int, ...]
    schedules: tuple[Schedule | None, ...]
    seconds: float

    @property
    def finish_times_s(self) -> tuple[float | None, ...]:
        """Finish times in seconds."""
        return tuple(None if t is None else t / PICOSECONDS for t in self.finish_ps)

    @property
    def bounds_s(self) -> tuple[float | None, ...]:
        """Bounds in seconds."""
        return tuple(None if t is None else t / PICOSECONDS for t in self.bound_ps)

    @property
    def is_feasible(self) -> bool:
        """Whether every size has a schedule."""
        return all(t is not None for t in self.finish_ps)


def evaluate(
    topology: Topology | str | Path,
    collective: str | Collective,
    sizes: Sequence[Quantity],
    *,
    chunks: Sequence[int] = CHUNKS,
    seed: int = 0,
) -> Evaluation:
    """Return finish times and lower bounds of a collective on a topology, quickly.

    Use it to rank topologies, and `teccl.solve` for those worth having: its schedules are mostly
    within a few per cent of the best, not the best.

    Parameters
    ----------
    topology, collective
        As for `teccl.solve`.
    sizes
        Sizes to evaluate.
    chunks
        Numbers of chunks to try for each size; more of them are slower and better.
    seed
        Of random choices.

    Examples
    --------
    >>> found = evaluate("ring:gpus=4", "allgather", ["1KB", "1MB"])
    >>> found.bounds_s[1] <= found.finish_times_s[1]
    True
    """
    from teccl.reachability import find_unreachable

    network = Topology.parse(topology)
    amounts = tuple(parse_size(size) for size in sizes)
    watch_compiler()
    started = solving_clock()
    rows: list[tuple[Schedule | None, int | None, int]] = []
    for amount in amounts:
        demand = Demand.collective(collective, size=amount)
        problems = [
            Problem(topology=network, demand=demand, num_chunks=count)
            for count in sorted(set(chunks), reverse=True)
        ]
        if not rows and find_unreachable(problems[0]) is not None:
            rows = [(None, None, 1)] * len(amounts)
            break
        rows.append(_evaluate_size(problems, seed))
    return Evaluation(
        sizes=amounts,
        finish_ps=tuple(None if s is None else s.finish_ps for s, _, _ in rows),
        bound_ps=tuple(bound for _, bound, _ in rows),
        num_chunks=tuple(count for _, _, count in rows),
        schedules=tuple(schedule for schedule, _, _ in rows),
        seconds=solving_clock() - started,
    )


def _evaluate_size(
    problems: Sequence[Problem], seed: int
) -> tuple[Schedule | None, int | None, int]:
    """Construct with fewer and fewer chunks until it is good, verify the best, and bound it."""
    from teccl.bounds import all_bounds
    from teccl.construct.constructions import construct
    from teccl.construct.goal import Goal
    from teccl.construct.instance import Instance
    from teccl.construct.realise import realise
    from teccl.verification import verify

    bound = all_bounds(problems[0], most_cuts=1, narrow=False)[0].value
    best: tuple[Instance, Plan] | None = None
    for problem in problems:
        instance = Instance.build(problem)
        plan = next(construct(instance, Goal(target=bound, seed=seed)), None)
        if plan is not None and (best is None or plan.finish < best[1].finish):
            best = instance, plan
        if best is not None and best[1].finish <= bound * (1 + GOOD_GAP):
            break
    if best is None:
        raise MethodError(
            f"no construction serves {problems[0].demand.title} here; use teccl.solve"
        )
    schedule = realise(*best, method="construct")
    verify(schedule, strict=True)
    return schedule, bound, schedule.problem.num_chunks
