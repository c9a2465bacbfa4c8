"""Solving on a fabric: bound, plan in the quotient, judge, and choose the number of chunks."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl._numba import solving_clock, watch_compiler
from teccl.demand import Collective, parse_collective
from teccl.errors import MethodError
from teccl.keywords import SwitchMode
from teccl.orbit.bounds import summarise
from teccl.orbit.damage import Damage
from teccl.orbit.fabric import Fabric
from teccl.orbit.folding import MAX_LISTED
from teccl.orbit.groups import Groups, split_for
from teccl.orbit.judge import verify_orbit
from teccl.orbit.patched import PatchedSchedule, check_lengths
from teccl.orbit.plan.exchange import exchanged
from teccl.orbit.plan.growing import gathered
from teccl.orbit.plan.reversal import backwards, mirrored
from teccl.orbit.problem import FabricProblem
from teccl.orbit.result import OrbitResult, meets
from teccl.orbit.schedule import OrbitSchedule, OrbitSends
from teccl.result import Attempt
from teccl.schedule import BoundSummary
from teccl.units import Quantity, parse_size

# What doubling the chunks has to gain, as `--chunk-tolerance` says elsewhere.
_GAIN = 1e-3
# Sends of first chunks that a plan lists at most; planning takes gigabytes for these.
_MOST_SENDS = 2**25


def solve_orbit(
    fabric: Fabric,
    collective: str | Collective,
    *,
    size: Quantity,
    chunks: int | None = None,
    switch: SwitchMode = SwitchMode.COPY,
    damage: Damage | None = None,
    groups: Groups | None = None,
) -> OrbitResult:
    """Plan a collective of all GPUs of a fabric as orbits, verified and bounded.

    Parameters
    ----------
    fabric
        The network, see `parse_fabric`.
    collective
        AllGather, ReduceScatter, AllReduce or AllToAll.
    size
        Bytes as nccl-tests counts them.
    chunks
        Pieces per block; None takes the fewest that finish about as early as more.
    switch
        Whether switches may copy; plans do not use it.
    damage
        Links that are down or slow; the plan of the whole fabric is patched around them.
    groups
        Ranks that each have the collective for themselves, all at the same time.

    Raises
    ------
    MethodError
        If the fabric is not planned as orbits.

    Examples
    --------
    >>> from teccl.orbit import parse_fabric
    >>> result = solve_orbit(parse_fabric("torus:dims=8x8"), "allgather", size="64MB", chunks=1)
    >>> result.status.value, result.schedule.num_sends
    ('optimal', 4032)
    """
    watch_compiler()
    begin = solving_clock()
    if groups is not None and damage is not None:
        raise MethodError("groups of ranks are not patched around damage; plan them as tenants")
    first = FabricProblem(
        fabric=fabric if groups is None else split_for(fabric, groups),
        collective=parse_collective(collective),
        size=parse_size(size),
        num_chunks=chunks or 1,
        switch=switch,
        groups=groups,
    )
    _check_count(first)
    best: OrbitSchedule | None = None
    tried = []
    for problem in [first] if chunks else _cut(first):
        found = _best(problem)
        tried.append(Attempt(problem.num_chunks, found.method, found.finish_time_s))
        gains = best is None or found.finish_ps < best.finish_ps * (1 - _GAIN)
        if gains:
            best = found
        if not gains or meets(found, _bound_of(found).physical_ps):
            break
    assert best is not None
    final = best if damage is None else _patched(best, damage, cut=chunks is None)
    verify_orbit(final, strict=True)
    return OrbitResult(
        schedule=final,
        bound=_bound_of(final),
        given_chunks=chunks is not None,
        solve_seconds=solving_clock() - begin,
        tried=tuple(tried),
    )


def mend_orbit(schedule: OrbitSchedule | PatchedSchedule, damage: Damage) -> OrbitResult:
    """Patch a plan around damage; what no damaged link carries stays as it is.

    Parameters
    ----------
    schedule
        A plan of `solve_orbit`; of a patched one the plan that was patched.
    damage
        All links that are down or slow now.

    Raises
    ------
    MethodError
        If the schedule is no plan of `solve_orbit`, or the damage leaves some GPU out of reach.
    VerificationError
        If the schedule is wrong before anything is damaged.

    Examples
    --------
    >>> from teccl.orbit import Damage, parse_fabric
    >>> fabric = parse_fabric("torus:dims=8x8")
    >>> plan = solve_orbit(fabric, "allgather", size="64MB", chunks=1).schedule
    >>> mend_orbit(plan, Damage.of(fabric, down=["gpu0:gpu1"])).schedule.num_sends
    4032
    """
    watch_compiler()
    begin = solving_clock()
    base = schedule.base if isinstance(schedule, PatchedSchedule) else schedule
    verify_orbit(base, strict=True)
    made = _patched(base, damage, cut=True)
    verify_orbit(made, strict=True)
    pieces = made.problem.num_chunks
    return OrbitResult(
        schedule=made,
        bound=_bound_of(made),
        given_chunks=False,
        solve_seconds=solving_clock() - begin,
        tried=(Attempt(pieces, made.method, made.finish_time_s),),
    )


def _patched(schedule: OrbitSchedule, damage: Damage, *, cut: bool) -> PatchedSchedule:
    """Patch a plan and bound what the damage leaves."""
    from teccl.orbit.plan.mending import mended

    check_lengths(schedule.problem, damage)
    made = mended(schedule, damage, cut=cut)
    return replace(made, bound=summarise(made.problem, damage))


def _check_count(problem: FabricProblem) -> None:
    """Refuse what would list more sends than fit memory.

    Every other rank gets each chunk, sends its part of a sum, or both; of an AllToAll one gets it.
    """
    others = {Collective.ALLTOALL: 1, Collective.ALLREDUCE: 2 * (problem.group_size - 1)}
    count = problem.num_chunk_orbits * others.get(problem.collective, problem.group_size - 1)
    if count > _MOST_SENDS:
        raise MethodError(
            f"{problem.fabric.name}: {problem.num_chunks} chunks make {count} sends of one chunk "
            f"of each orbit, more than are listed ({_MOST_SENDS}); give fewer with --chunks"
        )


def _cut(problem: FabricProblem) -> Iterator[FabricProblem]:
    """Yield the problem with one chunk per block, two, four and so on."""
    pieces, orbits = 1, len(problem.fabric.gpu_orbits)
    while pieces * orbits * problem.fabric.num_gpus <= MAX_LISTED:
        yield replace(problem, num_chunks=pieces)
        pieces *= 2
    if pieces == 1:
        yield problem


def _bound_of(schedule: OrbitSchedule | PatchedSchedule) -> BoundSummary:
    """What was proven about a schedule's problem."""
    assert schedule.bound is not None
    return schedule.bound


def _best(problem: FabricProblem) -> OrbitSchedule:
    """Return the earliest plan, the first that meets the bound for these chunks."""
    bound = summarise(problem)
    best: OrbitSchedule | None = None
    for sends in _plans(problem):
        made = OrbitSchedule(problem=problem, sends=sends, method="orbit", bound=bound)
        if best is None or made.finish_ps < best.finish_ps:
            best = made
        if meets(best, bound.chunk_ps or bound.physical_ps):
            break
    if best is None:
        raise MethodError(
            f"{problem.fabric.name}: links that move with the group do not join all gpus through "
            "one switch at a time; plan it without orbits"
        )
    return replace(best, claimed_finish_ps=best.finish_ps)


def _plans(problem: FabricProblem) -> Iterator[OrbitSends]:
    """Yield plans of a collective."""
    if problem.collective is Collective.ALLGATHER:
        yield from gathered(problem)
    elif problem.collective is Collective.REDUCESCATTER:
        for sends in gathered(mirrored(problem)):
            yield backwards(problem, sends)
    elif problem.collective is Collective.ALLREDUCE:
        yield from _both_halves(problem)
    else:
        made = exchanged(problem)
        if made is not None:
            yield made


def _both_halves(problem: FabricProblem) -> Iterator[OrbitSends]:
    """Yield a ReduceScatter followed by an AllGather, the best of each."""
    halves = [
        replace(problem, collective=each)
        for each in (Collective.REDUCESCATTER, Collective.ALLGATHER)
    ]
    scattered, gathering = (_best(half) for half in halves)
    later = gathering.sends.copy()
    later["start_ps"] += scattered.finish_ps
    later["transfer"] += scattered.sends["transfer"].max() + 1
    yield np.concatenate([scattered.sends, later])
