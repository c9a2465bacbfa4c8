"""Starts for rounds of A*: what is left, constructed greedily, laid into what links have free."""

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.constructions import construct
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance
from teccl.construct.tasks import tasks_of_plan
from teccl.demand import Collective, Demand
from teccl.demand.tenants import ExplicitChunk
from teccl.models.astar.astar_round import AstarRound, AstarState
from teccl.models.milp.arcs import NEVER, Arcs
from teccl.models.turning import TurnedTask
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

FloatArray = npt.NDArray[np.float64]


class Trip(NamedTuple):
    """A passage of one chunk from a GPU: when it is planned, and each link with its offset.

    The epoch counts from the start of the schedule.
    """

    chunk: int
    epoch: int
    hops: tuple[tuple[int, int], ...]


def greedy_trips(
    task: TurnedTask, arcs: Arcs, state: AstarState, seed: int, *, begin: int = 0
) -> list[Trip]:
    """Construct what is left as if everything under way were there; none where that is no help.

    The trips begin in epoch `begin`, in the order in which they are planned.

    Turned problems and circuits are left to the solver alone.
    """
    if task.is_turned or not arcs.by_link or task.inner.topology.has_profiles:
        return []
    chunks = np.flatnonzero(state.missing.any(axis=1))
    residual = _residual(task.inner, state, chunks.tolist())
    instance = Instance.build(residual, TimeGrid(problem=residual, epoch=task.inner_grid.epoch))
    plan = min(construct(instance, Goal(seed=seed)), key=lambda p: p.finish, default=None)
    if plan is None:
        return []
    tasks = tasks_of_plan(instance, plan)
    trips = []
    for t in np.argsort(tasks.start, kind="stable").tolist():
        hops = slice(tasks.hop_start[t], tasks.hop_start[t + 1])
        pairs = zip(tasks.hop_link[hops].tolist(), tasks.hop_offset[hops].tolist(), strict=True)
        epoch = begin + int(tasks.start[t])
        trips.append(Trip(int(chunks[tasks.chunk[t]]), epoch, tuple(pairs)))
    return trips


def _residual(problem: Problem, state: AstarState, chunks: list[int]) -> Problem:
    """The problem of bringing what is missing from those who have it, or will."""
    rank = {int(node): r for r, node in enumerate(problem.topology.gpus)}
    holds = state.has_from < NEVER
    explicit = tuple(
        ExplicitChunk(
            tuple(rank[n] for n in np.flatnonzero(holds[m]).tolist() if n in rank),
            tuple(rank[n] for n in np.flatnonzero(state.missing[m]).tolist()),
        )
        for m in chunks
    )
    tenant = replace(
        problem.demand.tenants[0],
        collective=Collective.EXPLICIT,
        chunks=explicit,
        size=problem.chunk_bytes,
        ready={},
        ranks=None,
        root=None,
        matrix=None,
    )
    return replace(problem, demand=Demand(tenants=(tenant,)), num_chunks=1)


def laid(
    trips: list[Trip], arcs: Arcs, state: AstarState, *, begin: int, length: int
) -> list[tuple[int, int, int]]:
    """Lay trips into the epochs of a window, each as early as its chunk and its links allow.

    Parameters
    ----------
    arcs
        The window's, with what its places have free.
    begin, length
        The window's first epoch, and epochs of it in which GPUs may start.
    """
    free = arcs.limit.copy()
    has = np.where(state.has_from < NEVER, np.maximum(state.has_from - begin, 0), NEVER)
    uses: dict[int, list[int]] = defaultdict(list)
    for use, arc in enumerate(arcs.use_arc.tolist()):
        uses[arc].append(use)
    flows: list[tuple[int, int, int]] = []
    for trip in trips:
        hops = _needed(trip, arcs, has)
        if not hops:
            continue
        source = int(arcs.src[hops[0][0]])
        since = max(trip.epoch - begin, int(has[trip.chunk, source]))
        for epoch in range(since, length):
            held = _holds(hops, arcs, uses, epoch)
            if held is None:
                break
            if all((free[place, a:b] >= load).all() for place, a, b, load in held):
                for place, a, b, load in held:
                    free[place, a:b] -= load
                _arrive(trip.chunk, hops, arcs, has, epoch)
                flows += [(trip.chunk, arc, begin + epoch + offset) for arc, offset in hops]
                break
    return flows


def _needed(trip: Trip, arcs: Arcs, has: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Hops of a trip that lead to a GPU without the chunk."""
    kept: set[int] = set()
    into = {int(arcs.end[arc]): i for i, (arc, _) in enumerate(trip.hops)}
    for i, (arc, _) in enumerate(trip.hops):
        node = int(arcs.end[arc])
        if arcs.is_switch[node] or has[trip.chunk, node] < NEVER:
            continue
        at: int | None = i
        while at is not None and at not in kept:
            kept.add(at)
            tail = int(arcs.src[trip.hops[at][0]])
            at = into.get(tail) if arcs.is_switch[tail] else None
    return [trip.hops[i] for i in sorted(kept)]


def _holds(
    hops: list[tuple[int, int]], arcs: Arcs, uses: dict[int, list[int]], epoch: int
) -> list[tuple[int, int, int, int]] | None:
    """Places, epochs and loads that hops take, None beyond the window."""
    horizon = arcs.limit.shape[1]
    held = []
    for arc, offset in hops:
        k = epoch + offset
        if k >= horizon or k + arcs.delay[arc, k] > horizon:
            return None
        for use in uses[arc]:
            first = k + int(arcs.use_offset[use])
            last = first + int(arcs.use_span[use, k])
            held.append((int(arcs.use_place[use]), first, last, int(arcs.use_load[use])))
    return held


def _arrive(
    chunk: int,
    hops: list[tuple[int, int]],
    arcs: Arcs,
    has: npt.NDArray[np.int64],
    epoch: int,
) -> None:
    for arc, offset in hops:
        node = int(arcs.end[arc])
        if not arcs.is_switch[node]:
            has[chunk, node] = epoch + offset + int(arcs.delay[arc, epoch + offset])


def start_values(stated: AstarRound, flows: list[tuple[int, int, int]]) -> FloatArray:
    """Values of a round's flow columns, NaN for the others, which follow from them."""
    values = np.full(stated.model.num_columns, np.nan)
    values[stated.flows.column] = 0.0
    index = stated.flows.columns.index
    for m, a, k in flows:
        column = index[m, a, k - stated.begin]
        if column >= 0:
            values[column] = 1.0
    return values
