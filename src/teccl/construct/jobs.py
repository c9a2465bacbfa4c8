"""Serial scheduling of tasks: forwards, backwards, and what is scarce before the rest.

Serial scheduling books ahead and fills gaps. It serves continuous time only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray, starts_of
from teccl.construct.params import CHUNK_TOLERANCE, GAP_PART, NEVER, SCARCE
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    arcs_of,
    mirror,
    replay_tasks,
    resource_columns,
    task_lengths,
)
from teccl.schedule.ordering import order_by

# Called between steps that take long; may raise to end the search.
Checkpoint = Callable[[], None]


def _go_on() -> None:
    """End nothing."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Tasks as serial scheduling sees them.

    Parameters
    ----------
    columns
        CSR list of what each holds, from when on and for how long.
    arcs
        How many others each waits for, and a CSR list of those that wait for it, with lags.
    release
        When each may start at the earliest.
    quantum
        Starts are multiples of it.
    length
        Time until all of it is over.
    num_resources
        What there is to hold.
    """

    columns: tuple[IntArray, ...]
    arcs: tuple[IntArray, ...]
    release: IntArray
    quantum: IntArray
    length: IntArray
    num_resources: int

    @staticmethod
    def of(instance: Instance, tasks: Tasks, order: Precedence) -> "Jobs":
        """Return tasks with times that are alike but for rounding made alike.

        Times are whole picoseconds, and a link half as fast holds a chunk for twice as long but for
        one: without this every transfer over it would leave a gap that no other fits into. What is
        made of them keeps to the links' limits up to rounding, which `_settled` mends.
        """
        quantum = _quanta(instance, tasks)
        each = np.repeat(quantum, np.diff(tasks.res_start))
        whole = np.maximum(1, (tasks.res_hold + each // 2) // each) * each
        is_whole = np.abs(whole - tasks.res_hold) * CHUNK_TOLERANCE <= each
        res_start, res, offset, hold = resource_columns(tasks)
        hold = np.where(is_whole, whole, hold)
        waits, next_start, next_task, next_lag = arcs_of(order)
        return Jobs(
            columns=(res_start, res, _in_phase(res, offset, each), hold),
            arcs=(waits, next_start, next_task, next_lag - quantum[next_task] // CHUNK_TOLERANCE),
            release=order.release,
            quantum=quantum,
            length=task_lengths(tasks),
            num_resources=instance.num_resources,
        )

    @cached_property
    def mirrored(self) -> "Jobs":
        """The jobs as seen when time runs backwards, without releases."""
        (starts, res, offset, hold), arcs = mirror(self.length, self.columns, self.arcs)
        # Offsets count from the end, which lies in another phase.
        offset = _in_phase(res, offset, np.repeat(self.quantum, np.diff(starts)))
        release = np.zeros_like(self.release)
        return replace(self, columns=(starts, res, offset, hold), arcs=arcs, release=release)

    def part(self, is_kept: npt.NDArray[np.bool_], is_held: npt.NDArray[np.bool_]) -> "Jobs":
        """Return some of the jobs, which hold only some of their resources."""
        res_start, res, offset, hold = self.columns
        _, next_start, next_task, next_lag = self.arcs
        count, kept = len(self.length), int(is_kept.sum())
        number = np.cumsum(is_kept) - 1
        owner = np.repeat(np.arange(count), np.diff(res_start))
        stays = is_kept[owner] & is_held[res]
        starts = starts_of(number[owner[stays]], kept)
        before = np.repeat(np.arange(count), np.diff(next_start))
        waits = is_kept[before] & is_kept[next_task]
        before, after = number[before[waits]], number[next_task[waits]]
        return Jobs(
            columns=(starts, res[stays], offset[stays], hold[stays]),
            arcs=(
                np.bincount(after, minlength=kept),
                starts_of(before, kept),
                after,
                next_lag[waits],
            ),
            release=self.release[is_kept],
            quantum=np.where(np.diff(starts) > 0, self.quantum[is_kept], 1),
            length=self.length[is_kept],
            num_resources=self.num_resources,
        )

    def placed(self, key: IntArray) -> IntArray:
        """Place jobs serially, the least key first; returns their starts."""
        from teccl.construct.serial import serial_schedule

        start: IntArray = serial_schedule(
            *self.columns, *self.arcs, self.release, key, self.quantum, self.num_resources
        )
        return start

    def justified(
        self,
        *,
        key: IntArray,
        rounds: int,
        known: IntArray | None = None,
        checkpoint: Checkpoint = _go_on,
    ) -> IntArray:
        """Place jobs, then backwards and forwards again, each in the other's order.

        Returns the best starts. With `known` starts it goes on from these.
        """
        start = self.placed(key) if known is None else known
        best = start
        for _ in range(rounds):
            checkpoint()
            back = self.mirrored.placed(-(start + self.length))
            if back.min(initial=0) < 0:
                break
            checkpoint()
            start = self.placed(-(back + self.length))
            if self.finish(start) < self.finish(best):
                best = start
        return best

    def finish(self, start: IntArray) -> int:
        """Return when the last job is over."""
        return int((start + self.length).max(initial=0))


def justify_serially(
    instance: Instance,
    tasks: Tasks,
    *,
    key: IntArray,
    rounds: int,
    order: Precedence,
    known: IntArray | None = None,
    checkpoint: Checkpoint = _go_on,
    jobs: Jobs | None = None,
) -> IntArray:
    """Place tasks serially by a key, then backwards and forwards again; returns the best starts.

    Who tries several keys gives the `jobs` that the tasks make.
    """
    jobs = jobs or Jobs.of(instance, tasks, order)
    start = jobs.justified(key=key, rounds=rounds, known=known, checkpoint=checkpoint)
    return _settled(instance, tasks, order, start)


def due_times(order: Precedence, wanted: IntArray) -> IntArray:
    """Return when tasks must start for all that wait for them to start when that is wanted."""
    from teccl.construct.listing import tails
    from teccl.construct.serial import in_sequence

    arcs = order.next_start, order.next_task
    return -tails(*arcs, order.next_lag, -wanted, in_sequence(order.waits, *arcs))


def schedule_scarce_first(
    instance: Instance, tasks: Tasks, *, key: IntArray, rounds: int, order: Precedence
) -> IntArray:
    """Schedule what holds scarce resources as if the others were free, then all by when it is due.

    What feeds a full link must come in the order in which that link sends; justification finds it
    slowly, since it takes all tasks for equally urgent.
    """
    from teccl.construct.serial import between, heads, in_sequence

    jobs = Jobs.of(instance, tasks, order)
    res_start, res, _, hold = jobs.columns
    is_scarce = _are_scarce(res, hold, jobs.num_resources)
    is_urgent = np.logical_or.reduceat(is_scarce[res], res_start[:-1])
    if is_urgent.all():
        return _settled(instance, tasks, order, jobs.justified(key=key, rounds=rounds))
    waits, next_start, next_task, _ = jobs.arcs
    sequence = in_sequence(waits, next_start, next_task)
    is_kept = between(sequence, next_start, next_task, is_urgent)
    part = replace(jobs, release=heads(sequence, *jobs.arcs[1:], jobs.release))
    part = part.part(is_kept, is_scarce)
    start = part.justified(key=key[is_kept], rounds=rounds)
    wanted = part.finish(start) - jobs.length
    wanted[is_urgent] = start[is_urgent[is_kept]]
    return _settled(instance, tasks, order, jobs.placed(due_times(order, wanted)))


def _are_scarce(res: IntArray, hold: IntArray, num: int) -> npt.NDArray[np.bool_]:
    """Whether each resource is full, or held at a time for longer than one that is full."""
    load = np.bincount(res, hold, minlength=num)
    longest = np.zeros(num, dtype=np.int64)
    np.maximum.at(longest, res, hold)
    is_full = load >= SCARCE * load.max(initial=0)
    is_scarce: npt.NDArray[np.bool_] = is_full | (longest > longest[is_full].min(initial=2 * NEVER))
    return is_scarce


def _settled(instance: Instance, tasks: Tasks, order: Precedence, start: IntArray) -> IntArray:
    """Return exact starts for tasks in the order of starts that are right up to rounding."""
    from teccl.construct.serial import sequence_of, settle

    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    by_begin = order_by(tasks.res, start[owner] + tasks.res_offset)
    before, after = by_begin[:-1], by_begin[1:]
    is_next = tasks.res[before] == tasks.res[after]
    before, after = before[is_next], after[is_next]
    behind, lag = np.full(len(owner), -1), np.zeros(len(owner), dtype=np.int64)
    behind[before] = owner[after]
    lag[before] = tasks.res_offset[before] + tasks.res_hold[before] - tasks.res_offset[after]
    arcs = order.next_start, order.next_task
    by_start = order_by(start)
    sequence = sequence_of(order.waits, *arcs, tasks.res_start, behind, by_start)
    exact: IntArray = settle(
        sequence, *arcs, order.next_lag, tasks.res_start, behind, lag, order.release
    )
    return exact if exact.min(initial=0) >= 0 else replay_tasks(instance, tasks, key=start)


def _in_phase(res: IntArray, offset: IntArray, quantum: IntArray) -> IntArray:
    """Give offsets on one resource that differ by whole quanta but for rounding one remainder."""
    slack = quantum // CHUNK_TOLERANCE
    phase = (offset + slack) % quantum
    by_phase = order_by(res, phase)
    ordered = phase[by_phase]
    is_new = np.diff(ordered, prepend=0) > slack[by_phase]
    is_new |= np.diff(res[by_phase], prepend=-1) != 0
    first = ordered[np.maximum.accumulate(np.where(is_new, np.arange(len(res)), 0))]
    # A run of many that are each near the next may end far from where it begins.
    is_near = ordered - first <= slack[by_phase]
    common = np.empty_like(phase)
    common[by_phase] = np.where(is_near, first, ordered)
    return offset + common - phase


def _quanta(instance: Instance, tasks: Tasks) -> IntArray:
    """Shortest hold among the resources that tasks connect: multiples of it leave no odd gaps.

    Where some hold is far from a multiple, so that gaps are odd anyway and starts that wait for the
    next multiple would leave resources idle, it is a picosecond.
    """
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.res_start))
    shortest = np.full(instance.num_resources, np.iinfo(np.int64).max)
    np.minimum.at(shortest, tasks.res, tasks.res_hold)
    quantum = _spread(tasks, owner, shortest)
    each = quantum[owner]
    idle = -(tasks.res_hold - each // CHUNK_TOLERANCE) % each
    shortest[tasks.res[GAP_PART * idle > tasks.res_hold]] = 1
    return _spread(tasks, owner, shortest)


def _spread(tasks: Tasks, owner: IntArray, least: IntArray) -> IntArray:
    """Return for each task the least number of the resources that it is connected with."""
    while True:
        of_task = np.minimum.reduceat(least[tasks.res], tasks.res_start[:-1])
        before = least.copy()
        np.minimum.at(least, tasks.res, of_task[owner])
        if np.array_equal(before, least):
            return of_task
