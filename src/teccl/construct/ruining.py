"""Compiled ruin and recreate: take out jobs that meet where time is lost, insert them in turn.

A job that ends late is taken out with some that are beside it on a link, and all are inserted
again in another order (Schrimpf et al. 2000; Christiaens and Vanden Berghe 2020). What comes of it
is accepted as in simulated annealing. The energy is the norm of all finishes in a high power: it
falls with the makespan, and with the number of those that come near it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl._kernels import inner, kernel, maker
from teccl.construct.inserting import book_job, common_start, insert, remove
from teccl.construct.labels import Rows, draw
from teccl.construct.params import BOOK_STEPS
from teccl.construct.timetable import book, first_begin_above, length_from, room

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Tries to find another neighbour before fewer are taken out.
_TRIES = 20


class Saved(NamedTuple):
    """Rows of some jobs as they were, and which jobs these are."""

    job: IntArray
    rows: Rows


class Run(NamedTuple):
    """How the search stands.

    Parameters
    ----------
    power
        Per job, its finish to the power, in parts of the reference.
    is_changed
        Per job, whether it differs from the best that is known.
    numbers
        Finish of the best, and how many jobs may be taken out at once.
    """

    power: FloatArray
    is_changed: IntArray
    numbers: IntArray


@inner
def _copy_rows(source, i, target, j):
    target.end[j].count = source.end[i].count
    target.end[j].finish = source.end[i].finish
    for k in range(source.end[i].count):
        old, new = source.row[i, k], target.row[j, k]
        new.route = old.route
        new.start = old.start
        new.head = old.head
        new.shared = old.shared


@inner
def _restore(net, jobs, table, rows, saved, count):
    """Undo: book the saved rows of jobs in place of what they have."""
    for k in range(count):
        remove(net, jobs, table, rows, saved.job[k])
    for k in range(count):
        job = saved.job[k]
        _copy_rows(saved.rows, k, rows, job)
        book_job(net, jobs, table, rows, job, True)


@inner
def _late_job(power, random):
    """Choose a job, the more likely the higher its power."""
    left = power.sum() * (draw(random, 2**40) / 2.0**40)
    for job in range(len(power)):
        left -= power[job]
        if left < 0:
            return job
    return len(power) - 1


@inner
def _neighbour(net, jobs, table, rows, job, random):
    """Choose a job that has a link before or after a given one, mostly the next to it."""
    if rows.end[job].count == 0:
        return job
    size, row = jobs.job[job].size_index, rows.row[job, draw(random, rows.end[job].count)]
    first = net.hop[net.route[size, row.route].hop + row.shared].entry
    entry = net.entry[size, first + draw(random, net.route[size, row.route + 1].entry - first)]
    who, count = table.who[entry.res], table.count[entry.res].who
    place = first_begin_above(who, count, row.start + entry.offset - 1)
    step = 1
    while draw(random, 2) == 0:
        step += 1
    place += step if draw(random, 2) == 0 else -step
    return who[min(max(place, 0), count - 1)].job


@inner
def _choose(net, jobs, table, rows, run, saved, most, random):
    """Choose the jobs to take out; returns how many."""
    saved.job[0] = _late_job(run.power, random)
    wanted, count = 1 + draw(random, most), 1
    tries = 0
    while count < wanted and tries < _TRIES:
        beside = saved.job[draw(random, count)]
        job = _neighbour(net, jobs, table, rows, beside, random)
        is_new = True
        for k in range(count):
            is_new &= saved.job[k] != job
        if is_new:
            saved.job[count] = job
            count += 1
        else:
            tries += 1
    return count


@maker
def _order(saved, count, alone, random):
    """Return the order in which to insert jobs again, by one of several keys."""
    kind = draw(random, 4)
    key = np.empty(count, dtype=np.float64)
    for k in range(count):
        if kind == 0:
            key[k] = -saved.rows.end[k].finish
        elif kind == 1:
            key[k] = -alone[saved.job[k]]
        else:
            key[k] = draw(random, 2**40)
    return np.argsort(key)


@inner
def _is_held(net, rows, job, place, branch):
    """Whether the links that a branch shares with its passage are held by a row that stays."""
    row = rows.row[job, branch]
    for k in range(branch):
        other = rows.row[job, k]
        is_same = place[k] >= 0 and other.head == row.head
        if is_same and common_start(net, row.route, other.route) >= row.shared:
            return True
    return False


@maker
def _prune(net, jobs, table, rows, job, first):
    """Cancel one of a job's rows and all that it feeds, and close up the others.

    Every node receives the chunk once, and rows stand behind those that feed them.
    """
    size, end = jobs.job[job].size_index, rows.end[job]
    place = np.empty(end.count, dtype=np.int64)
    count, finish = 0, 0
    for i in range(end.count):
        row = rows.row[job, i]
        is_kept = i != first and (row.head == i or _is_held(net, rows, job, place, i))
        for k in range(first, i):
            if place[k] < 0:
                fed = net.route[size, rows.row[job, k].route].dst
                is_kept = is_kept and fed != net.route[size, row.route].src
        place[i] = count if is_kept else -1
        count += is_kept
    for i in range(first, end.count):
        if place[i] < 0:
            row = rows.row[job, i]
            book(net, table, row.route, row.shared, size, row.start, job, False)
    for i in range(end.count):
        row = rows.row[job, i]
        if place[i] >= 0:
            new = rows.row[job, place[i]]
            new.route = row.route
            new.start = row.start
            new.head = place[row.head]
            new.shared = row.shared
            finish = max(finish, row.start + length_from(net, row.route, size, row.start))
    end.count = count
    end.finish = finish


@maker
def _take_out(net, jobs, table, rows, saved, count, random):
    """Save jobs and take them out, some of them only in part."""
    for k in range(count):
        job = saved.job[k]
        _copy_rows(rows, job, saved.rows, k)
        if net.buffer < 0 and rows.end[job].count > 1 and draw(random, 2) == 0:
            _prune(net, jobs, table, rows, job, draw(random, rows.end[job].count))
        else:
            remove(net, jobs, table, rows, job)


@kernel
def improve(
    net,
    jobs,
    table,
    labels,
    rows,
    best,
    run,
    saved,
    alone,
    exponent,
    reference,
    heats,
    target,
    more,
    random,
    work,
    until,
    budget,
):
    """Ruin and recreate until so much work is done; whether it is, or more room is needed first.

    The whole work is `budget`; calls that follow one another go on as one would. Each job cancels
    and adds up to `more` bookings on a resource, waits in a node among them. `heats` are the
    first and last temperature in parts of the reference. `best` ends as the best that was found;
    `rows` is where the search goes on.
    """
    total = run.power.sum()
    left = 0
    # Typed, because numba compiles a function anew for each constant that it is given.
    blink, begin = np.bool_(True), np.int64(0)
    while work[0] < until and run.numbers[0] > target:
        most = run.numbers[1]
        if left < more * most:
            left = room(table)
        if left < more * most:
            return False
        left -= more * most
        count = _choose(net, jobs, table, rows, run, saved, most, random)
        _take_out(net, jobs, table, rows, saved, count, random)
        is_served = True
        for k in _order(saved, count, alone, random):
            job = saved.job[k]
            is_served = is_served and insert(
                net, jobs, table, labels, rows, job, blink, begin, random, work
            )
        gained = 0.0
        for k in range(count):
            job = saved.job[k]
            gained += run.power[job] - (rows.end[job].finish / reference) ** exponent
        work[0] += 2 * BOOK_STEPS * count + len(run.power)
        # Temperatures fall evenly on a logarithmic scale.
        heat = heats[0] * (heats[1] / heats[0]) ** (work[0] / budget)
        luck = -np.log((1 + draw(random, 2**40)) / 2.0**40)
        before, after = total ** (1 / exponent), max(total - gained, 0.0) ** (1 / exponent)
        if not is_served or after >= before + heat * luck:
            _restore(net, jobs, table, rows, saved, count)
            continue
        for k in range(count):
            job = saved.job[k]
            run.power[job] = (rows.end[job].finish / reference) ** exponent
            run.is_changed[job] = 1
        total = run.power.sum()
        finish = 0
        for job in range(len(run.power)):
            finish = max(finish, rows.end[job].finish)
        if finish < run.numbers[0]:
            run.numbers[0] = finish
            for job in range(len(run.is_changed)):
                if run.is_changed[job]:
                    _copy_rows(rows, job, best, job)
                    run.is_changed[job] = 0
    return True
