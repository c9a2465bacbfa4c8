"""Ruin and recreate: a plan made better by taking chunks out and inserting them again."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from teccl.construct.insertion import Workshop, plan_of, refusal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import EXPONENT, HEATS, MOST_REMOVED, SLICE
from teccl.construct.plan import Plan, with_starts
from teccl.construct.realise import bodies, realise
from teccl.construct.symmetry import fits_quotient, improved_in_quotient
from teccl.construct.tabulation import FAR
from teccl.construct.tasks import tasks_of_plan
from teccl.construct.turned import turned_instance, turned_plan
from teccl.schedule.timing import send_times


def _never() -> bool:
    """Nobody asks for the end."""
    return False


def recreate(
    instance: Instance,
    plan: Plan,
    *,
    target: int,
    seed: int,
    budget: int,
    single: bool = False,
    is_over: Callable[[], bool] = _never,
) -> Plan:
    """Return a plan at least as good as a given one.

    Parameters
    ----------
    instance
        What is scheduled; the plan comes back as it is where `refusal` says why.
    plan
        Where the search begins, with times that fit. One that a group of shifts repeats is
        improved in the quotient and repeated again, unless some chunks may wait and not all.
    target
        A lower bound; reaching it ends the search.
    seed
        Of all random choices.
    budget
        Elementary steps that are made.
    single
        Whether no GPU may receive a chunk twice, even where chunks cannot wait.
    is_over
        Asked again and again whether to end before the budget does, with the best so far.
    """
    if refusal(instance) is not None:
        return plan

    def improve(part: Instance, start: Plan) -> Plan:
        shop = Workshop(part, seed=seed, single=single)
        if not load_plan(shop, start):
            return start
        return improved(shop, target=target, budget=budget, known=start, is_over=is_over)

    known = exactly_timed(instance, plan)
    if instance.problem.has_reductions:
        # Contributions that come together in a switch are beyond what a calendar knows.
        if plan.rows[:, 4].any():
            return plan
        part = turned_instance(instance)
        copies = turned_plan(part, known)
        single = True
        found = improve(part, copies)
        return plan if found is copies else turned_plan(instance, found)
    if plan.shifts and fits_quotient(instance.problem):
        return improved_in_quotient(instance, plan, improve) or plan
    found = improve(instance, known)
    return plan if found is known else found


def improved(
    shop: Workshop,
    *,
    target: int,
    budget: int,
    known: Plan,
    is_over: Callable[[], bool] = _never,
) -> Plan:
    """Improve what a workshop holds and return the best plan."""
    from teccl.construct.labels import empty_rows
    from teccl.construct.ruining import Run, Saved, improve

    start = shop.finish
    if start <= target or not len(shop.chunk):
        return known
    rows, best = shop.rows, empty_rows(*shop.rows.row.shape)
    for old, new in zip(rows, best, strict=True):
        new[:] = old
    most = min(MOST_REMOVED, len(shop.chunk))
    saved = Saved(np.zeros(most, dtype=np.int64), empty_rows(most, rows.row.shape[1]))
    power = (rows.end["finish"] / float(start)) ** EXPONENT
    changed = np.zeros(len(shop.chunk), dtype=np.int64)
    run = Run(power, changed, np.array([start, most], dtype=np.int64))
    alone = rows.end["finish"].copy()
    until = min(shop.work + SLICE, budget)
    while not is_over():
        has_room = improve(
            shop.net,
            shop.jobs,
            shop.table,
            shop.labels,
            rows,
            best,
            run,
            saved,
            alone,
            EXPONENT,
            float(start),
            np.array(HEATS),
            target,
            2 * shop.more,
            shop.random,
            shop.steps,
            until,
            budget,
        )
        if not has_room:
            shop.enlarge()
        elif shop.work >= budget or run.numbers[0] <= target:
            break
        else:
            until = min(shop.work + SLICE, budget)
    found = plan_of(shop, best)
    return found if found.finish < start else known


def load_plan(shop: Workshop, plan: Plan) -> bool:
    """Book a plan in a workshop that holds nothing; whether its times fit the calendars."""
    from teccl.construct.inserting import book_rows
    from teccl.construct.labels import empty_rows

    if not shop.instance.problem.copy and plan.feeder is None:
        return False
    job = _jobs_of_rows(shop, plan)
    # Whatever feeds a row starts before it, and of a passage the row that shares nothing is first.
    order = np.lexsort((plan.rows[:, 4], plan.rows[:, 3], plan.rows[:, 2], job))
    job, rows = job[order], plan.rows[order]
    longest = int(np.bincount(job).max(initial=0))
    shop.rows = empty_rows(len(shop.chunk), max(shop.rows.row.shape[1], longest))
    entries, _ = shop.entries(rows[:, 1], rows[:, 4])
    most = int(np.bincount(shop.net.entry["res"][0, entries]).max(initial=0))
    # Whatever arrives at a node may wait there.
    waits = int(np.bincount(shop.net.route["dst"][0, rows[:, 1]]).max(initial=0))
    while shop.table.who.shape[1] < max(most, waits if shop.net.buffer > 0 else 0):
        shop.enlarge()
    return bool(book_rows(shop.net, shop.jobs, shop.table, shop.rows, job, rows, shop.steps))


def exactly_timed(instance: Instance, plan: Plan) -> Plan:
    """Return a plan whose starts are those of its schedule, unless they are that already."""
    is_single = len(instance.problem.chunks.sizes) == 1
    if plan.exact or instance.grid is not None:
        return plan
    if is_single and not instance.problem.topology.has_profiles:
        return plan
    schedule = realise(instance, plan, method="construct")
    tasks = tasks_of_plan(instance, plan)
    first = np.full(len(tasks), FAR, dtype=np.int64)
    np.minimum.at(first, schedule.sends["transfer"], schedule.sends["start_ps"])
    start = first
    if instance.problem.topology.has_profiles:
        # There transfers are numbered in the order in which they were placed.
        start = np.empty_like(first)
        start[[task for body in bodies(tasks, plan) for task in body]] = first
    finish = int(send_times(schedule).arrival_ps.max(initial=0))
    return replace(with_starts(plan, start, finish), exact=True)


def _jobs_of_rows(shop: Workshop, plan: Plan) -> IntArray:
    """Return which job each row of a plan belongs to."""
    chunk = plan.rows[:, 0]
    if shop.instance.problem.copy:
        return np.searchsorted(shop.chunk, chunk)
    assert plan.feeder is not None
    # Copies travel apart: each row belongs to whom the last one that it feeds leads to.
    end = shop.instance.routes.dst[plan.rows[:, 1]]
    for row in np.argsort(-plan.rows[:, 2], kind="stable").tolist():
        if plan.feeder[row] >= 0:
            end[plan.feeder[row]] = end[row]
    num = shop.instance.problem.topology.num_nodes
    wanted = shop.chunk * num + shop.jobs.want
    order = np.argsort(wanted)
    job: IntArray = order[np.searchsorted(wanted[order], chunk * num + end)]
    return job
