"""Rivals: small models of other tools' ways to schedule, to compare with.

They are models, not the tools: each keeps the restriction that sets its tool apart and is built
from our own parts otherwise. Their schedules are verified and replayed like all others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from teccl._numba import solving_clock, watch_compiler
from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.keywords import Effort, SwitchMode, Transit
from teccl.problem import Problem
from teccl.result import Result, Status
from teccl.schedule import BoundSummary, Schedule
from teccl.synthesis.request import Request, read_buffer, read_choice, read_chunks, read_whole
from teccl.topology import Topology

__all__ = ["RIVALS", "Rival", "study_methods"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A schedule that a rival made.

    Parameters
    ----------
    schedule
        As the rival times it.
    note
        What its own way of counting says.
    """

    schedule: Schedule
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A model of another tool.

    Parameters
    ----------
    name, summary
        What tables call it and what it is.
    counts
        Numbers of chunks that are tried unless one is given.
    build
        Makes a schedule for a problem, a bound in picoseconds and a seed.
    """

    name: str
    summary: str
    counts: tuple[int, ...]
    build: Callable[[Problem, BoundSummary, int], Made]

    def solve(self, topology: Topology, demand: Demand, **options: Any) -> Result:
        """Schedule a demand this tool's way; the arguments are those of `teccl.solve`."""
        from teccl.bounds import summarise
        from teccl.reachability import find_unreachable
        from teccl.replay import simulate
        from teccl.verification import verify

        watch_compiler()
        started = solving_clock()
        request = _request(topology, demand, options)
        problem = request.problem(request.chunks or 1)
        _refuse_options(self.name, problem)
        obstacle = find_unreachable(problem)
        if obstacle is not None:
            return Result(
                status=Status.INFEASIBLE,
                requested_method=self.name,
                problem=problem,
                message=obstacle.describe(problem),
            )
        bound = summarise(problem, given_chunks=request.chunks is not None)
        counts = self.counts if request.chunks is None else (request.chunks,)
        best, best_finish, note = None, 2**62, ""
        for count in counts:
            made = self.build(request.problem(count), bound, request.seed)
            replay = simulate(made.schedule)
            if replay.finish_ps < best_finish:
                best, best_finish, note = replay, replay.finish_ps, made.note
        assert best is not None
        schedule = replace(best.schedule, bound=bound)
        verify(schedule, strict=True)
        return Result(
            status=Status.FEASIBLE,
            requested_method=self.name,
            problem=schedule.problem,
            schedule=schedule,
            finish_ps=int(best.finish_ps),
            tenant_finish_ps=tuple(int(finish) for finish in best.tenant_finish_ps),
            bound=bound,
            given_chunks=request.chunks is not None,
            verified=True,
            solve_seconds=solving_clock() - started,
            message=note,
        )


def _request(topology: Topology, demand: Demand, options: dict[str, Any]) -> Request:
    # Efforts and limits speak of searches, which these do not make.
    known = {**options}
    for name in ("effort", "time_limit", "max_chunks", "chunk_tolerance", "threads", "solver"):
        known.pop(name, None)
    request = Request(
        topology=topology,
        demand=demand,
        effort=Effort.QUICK,
        chunks=read_chunks(known.pop("chunks", None), on_grid=False),
        switch=read_choice(known.pop("switch", "copy"), SwitchMode, "switch"),
        transit=read_choice(known.pop("transit", "store-and-forward"), Transit, "transit"),
        buffer=read_buffer(known.pop("buffer", None)),
        copy=bool(known.pop("copy", True)),
        seed=read_whole(known.pop("seed", 0), "seed", low=0, high=2**63 - 1),
    )
    if known:
        raise MethodError(f"models of other tools have no use for {', '.join(sorted(known))}")
    return request


def _refuse_options(name: str, problem: Problem) -> None:
    """Refuse what neither model knows."""
    if problem.buffer is not None or not problem.copy:
        raise MethodError(f"{name} knows no buffer limits and always copies; drop these options")
    if problem.topology.has_profiles or problem.demand.has_ready_times:
        raise MethodError(f"{name} knows no changing bandwidth and no ready times; use auto")
    if len(problem.demand.tenants) > 1 or len(problem.chunks.sizes) > 1:
        raise MethodError(f"{name} serves one collective with chunks of one size; use auto")


def _sccl(problem: Problem, bound: BoundSummary, seed: int) -> Made:
    from teccl.studies.rivals.sccl import build

    return build(problem, bound, seed)


def _taccl(problem: Problem, bound: BoundSummary, seed: int) -> Made:
    from teccl.studies.rivals.taccl import build

    return build(problem, bound, seed)


RIVALS = {
    "sccl-like": Rival(
        name="sccl-like",
        summary="model of SCCL: synchronous steps with a barrier after each, chunks matched to "
        "links greedily where SCCL asks an SMT solver",
        counts=(1, 2, 4, 6),
        build=_sccl,
    ),
    "taccl-like": Rival(
        name="taccl-like",
        summary="model of TACCL: routes are fixed first, by load and length, and ordered "
        "afterwards, longest way to go first; prices where TACCL solves a MILP, no sketches",
        counts=(1, 2),
        build=_taccl,
    ),
}


def study_methods() -> tuple[str, ...]:
    """Return the names of all methods that a study may use."""
    from teccl.synthesis import METHODS

    return (*METHODS, *RIVALS)
