"""solve: from a topology and a collective to a verified schedule with a bound.

Every method offers its schedules to a `Search`, which re-times them and keeps the best for each
number of chunks. `auto` is a pipeline of methods over one search.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from teccl.construct.baselines import BASELINES, build_baseline, serving_baselines
from teccl.demand import Collective, Demand
from teccl.errors import MethodError, ProblemError, ScheduleError
from teccl.footprint import UNCERTAINTY, construction_footprint, free_memory
from teccl.problem import Problem, SwitchMode, Transit
from teccl.progress import CancelToken, Progress, ProgressCallback
from teccl.reachability import find_unreachable
from teccl.request import (
    GRID_METHODS,
    Effort,
    Objective,
    Request,
    Solver,
    read_buffer,
    read_choice,
    read_chunks,
    read_demand,
    read_epoch,
    read_fraction,
    read_name,
    read_schedule,
    read_time_limit,
    read_topology,
    read_whole,
)
from teccl.result import Result, Status
from teccl.schedule import BoundSummary, Schedule
from teccl.search import FAR_GAP, Candidate, Search, SearchStoppedError
from teccl.throughput import ANNOUNCED_SENDS, is_irregular_cluster, repeat_trees
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.units import PICOSECONDS, Quantity, display_time, format_size

Method = Callable[[Search], None]

# A method that is farther behind than this and gains less by more chunks is tried no longer.
PROMISING_GAIN = 0.05
# Times the best finish beyond which chunks do not help trees over all GPUs, whose every link is
# busy with whole blocks already.
HOPELESS = 4
# A gap below which narrower cuts are not looked for, and only one count is polished.
NARROW_GAP = 0.004
# Gaps below which counts of chunks are not tried again with more effort, the latter for large
# schedules.
POLISHED_GAP = 0.003
LARGE_POLISHED_GAP = 0.02
# Gaps with which large clusters are done, for collectives of one phase and of two: those without
# symmetry once trees are laid, others once their largest schedules were tried.
LARGE_GAPS: dict[int, float] = {1: 0.04, 2: 0.1}
# Auto tries the baselines too where its schedule is small and this far above the bound. With two
# phases one that loses no time between them is hard to match, and few sends cost little to try.
BASELINE_GAP = 0.01
PHASES_GAP = 0.001
FEW_SENDS = 2_000
# Methods that construct.
CONSTRUCTIONS = ("auto", "construct")
# Sends beyond which a schedule is large: only its best count of chunks is tried again.
LARGE_SENDS = 20_000


def solve(
    topology: Topology | str | Path,
    collective: str | Collective | None = None,
    *,
    size: Quantity | None = None,
    chunks: int | str | None = None,
    max_chunks: int | None = None,
    method: str = "auto",
    effort: str = "normal",
    time_limit: Quantity | None = None,
    gap: float | str = 0,
    grid: bool = False,
    epoch: Quantity | None = None,
    epoch_multiplier: float | str | None = None,
    horizon: int | str | None = None,
    switch: str = "copy",
    transit: str = "store-and-forward",
    buffer: int | str | None = None,
    copy: bool = True,
    objective: str = "finish",
    ranks: str | Sequence[int] | None = None,
    demand: Demand | str | Path | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    from_schedule: Schedule | str | Path | None = None,
    warm_start: bool = True,
    solver: str = "highs",
    threads: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> Result:
    """Find a schedule for a collective, verify it and say how good it is.

    Parameters
    ----------
    topology
        A topology, a file or ``preset[:key=value,...]``.
    collective
        Its name; None with `demand`.
    size
        Bytes as nccl-tests counts them, for example ``"1MB"``.
    chunks, max_chunks
        Pieces into which each block is cut, ``"auto"`` to choose among at most `max_chunks`.
    method
        ``"auto"`` or one of `METHODS`.
    effort
        How much work ``auto`` does: ``"quick"``, ``"normal"`` or ``"thorough"``.
    time_limit
        Keep the best schedule found by then.
    gap
        Stop within this fraction (or percentage, as text) of the bound.
    grid, epoch, epoch_multiplier, horizon
        The paper's grid: whether to use it, how long an epoch is and how many there are.
    switch, transit, buffer, copy
        How switches behave, how much GPUs may hold for others, and whether they may copy.
    objective
        What exact models minimise: ``"finish"`` or ``"paper"``.
    ranks, root
        Who takes part, None for all, and the root's rank.
    demand
        A demand or a demand file in place of `collective`, `size`, `ranks` and `root`.
    without_links, degrade
        Links to remove, and links to slow down: ``["A:B=50%"]`` or ``{"A:B": "50%"}``.
    from_schedule
        A schedule to start from.
    warm_start
        Whether exact models get the best schedule known to start from.
    solver, threads, seed
        Back end of exact models, its threads, and the seed of all random choices.
    progress
        Called with a `Progress` whenever there is news.
    cancel
        Stops the search from another thread; the best schedule so far is kept.

    Returns
    -------
    Result
        With a verified schedule, unless the demand cannot be met or nothing was found in time.

    Raises
    ------
    InputError
        If something that was given is wrong or the method does not serve the problem.
    VerificationError
        If a schedule fails verification, which is a fault of teccl.

    Examples
    --------
    >>> import teccl
    >>> result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
    >>> result.method, result.num_sends, result.finish_time_s
    ('ring', 12, 1.65e-05)
    """
    name = read_name(method, METHODS, "method")
    on_grid = grid or name in GRID_METHODS
    on_grid = on_grid or not (epoch is None and epoch_multiplier is None and horizon is None)
    network = read_topology(topology, without_links, degrade)
    request = Request(
        topology=network,
        demand=read_demand(network, collective, demand, size=size, ranks=ranks, root=root),
        chunks=read_chunks(chunks, on_grid=on_grid),
        max_chunks=None if max_chunks is None else read_whole(max_chunks, "max chunks", low=1),
        method=name,
        effort=read_choice(effort, Effort, "effort"),
        time_limit_s=read_time_limit(time_limit),
        gap=read_fraction(gap, "gap"),
        grid=on_grid,
        epoch=read_epoch(epoch),
        epoch_multiplier=read_fraction(
            1 if epoch_multiplier is None else epoch_multiplier, "epoch multiplier"
        ),
        horizon=_read_horizon(horizon),
        switch=read_choice(switch, SwitchMode, "switch"),
        transit=read_choice(transit, Transit, "transit"),
        buffer=read_buffer(buffer),
        copy=copy,
        objective=read_choice(objective, Objective, "objective"),
        from_schedule=read_schedule(from_schedule),
        warm_start=warm_start,
        solver=read_choice(solver, Solver, "solver"),
        threads=None if threads is None else read_whole(threads, "threads", low=1),
        seed=read_whole(seed, "seed", low=0, high=2**63 - 1),
    )
    _check_request(request)
    return run(request, progress=progress, cancel=cancel)


def run(
    request: Request,
    *,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> Result:
    """Carry out a checked request."""
    _load_libraries()
    problem = request.problem(request.chunks or 1)
    if request.method not in BASELINES:
        from teccl.construct.warmup import load_kernels

        if progress is not None:
            note = "loading compiled kernels; the first time after installation they are compiled"
            progress(Progress(phase="kernels", message=note))
        load_kernels(problem)
    search = Search(request=request, started=time.perf_counter(), progress=progress, cancel=cancel)
    obstacle = find_unreachable(problem)
    if obstacle is not None:
        message = obstacle.describe(problem)
        return _without_schedule(search, problem, Status.INFEASIBLE, message)
    if request.method in CONSTRUCTIONS:
        _announce(search, problem)
    stopped = Status.FEASIBLE
    message = "stopped before the first schedule was found"
    try:
        search.checkpoint()
        search.report("bound")
        search.bound = _bound(request, problem, narrow=False)
        search.report("bound", search.bound.certificate)
        METHODS[request.method](search)
    except SearchStoppedError as stop:
        stopped, message = stop.status, stop.message or message
    except KeyboardInterrupt:
        stopped = Status.INTERRUPTED
    best = search.incumbent
    if best is None:
        return _without_schedule(search, problem, stopped, message)
    return _finished(search, best, stopped)


def _announce(search: Search, problem: Problem) -> None:
    """Say what a large construction takes, and refuse one that no memory here holds."""
    footprint = construction_footprint(problem)
    if footprint.sends < ANNOUNCED_SENDS:
        return
    free = free_memory()
    if footprint.num_bytes > UNCERTAINTY * free:
        raise MethodError(
            f"{problem.demand.title} on {problem.topology.num_gpus} GPUs takes {footprint}, but "
            f"{free / 1e9:.1f} GB are free; use fewer GPUs (--ranks), fewer chunks or more memory"
        )
    search.report("construct", str(footprint))


def _load_libraries() -> None:
    """Load what every request needs before the clock starts: start-up is no part of solving."""
    import_module("teccl.bounds")
    import_module("teccl.check")


def _read_horizon(value: int | str | None) -> int | None:
    if value is None or str(value).strip().lower() == "auto":
        return None
    return read_whole(value, "horizon", low=1)


def _check_request(request: Request) -> None:
    """Refuse options that contradict each other."""
    if request.gap < 0:
        raise ProblemError(f"gap {request.gap} is negative; use 0 or more")
    if request.epoch_multiplier <= 0:
        raise ProblemError(f"epoch multiplier {request.epoch_multiplier} is not positive; use 1")
    if request.objective is Objective.PAPER and not request.grid:
        raise ProblemError("objective paper counts epochs; add --grid or use objective finish")
    if request.method in BASELINES and request.grid:
        raise MethodError(
            f"method {request.method} has no grid; drop the grid's options or use auto"
        )
    if request.method in BASELINES and request.from_schedule is not None:
        raise MethodError(f"method {request.method} starts from nothing; drop --from or use auto")


def _bound(request: Request, problem: Problem, *, narrow: bool = True) -> BoundSummary:
    """Return what can be proven about the problem; `narrow` looks for narrow cuts too."""
    from teccl.bounds import summarise

    return summarise(
        problem,
        grid=request.time_grid(problem),
        given_chunks=request.chunks is not None,
        narrow=narrow,
    )


def _refine(search: Search, *, at_once: bool = False) -> None:
    """Look for narrow cuts, unless the bound shows already that the best schedule is very good.

    With `at_once` they are looked for before there is any schedule.
    """
    best, target = search.incumbent, search.target
    tolerance = NARROW_GAP if search.request.chunks is None else 0
    if search.is_refined or target is None:
        return
    if not at_once and (best is None or best.length <= target * (1 + tolerance)):
        return
    with search.paused():
        import_module("scipy.sparse.csgraph")
        import_module("scipy.optimize")
    search.bound = _bound(search.request, search.request.problem(search.request.chunks or 1))
    search.is_refined = True
    search.report("bound", search.bound.certificate)


def _without_schedule(search: Search, problem: Problem, status: Status, message: str) -> Result:
    return Result(
        status=status,
        requested_method=search.request.method,
        problem=problem,
        bound=search.bound,
        given_chunks=search.request.chunks is not None,
        grid=search.request.time_grid(problem),
        solve_seconds=search.elapsed_s,
        message=message,
    )


def _finished(search: Search, best: Candidate, stopped: Status) -> Result:
    """Verify the best schedule and report on it."""
    from teccl.check import verify

    _refine(search)
    search.report("verify")
    bound = search.bound
    if search.request.grid and search.request.chunks is None and best.grid is None:
        # How few epochs are possible depends on the chunks that were chosen.
        bound = _bound(search.request, best.schedule.problem)
    schedule = replace(best.schedule, bound=bound)
    verify(schedule, strict=True)
    return Result(
        status=Status.OPTIMAL if _is_optimal(search, best, bound) else stopped,
        requested_method=search.request.method,
        problem=schedule.problem,
        schedule=schedule,
        finish_ps=best.finish_ps,
        tenant_finish_ps=best.tenant_finish_ps,
        bound=bound,
        given_chunks=search.request.chunks is not None,
        grid=best.grid or schedule.grid,
        epochs=best.epochs,
        verified=True,
        solve_seconds=search.elapsed_s,
        tried=search.tried if search.request.chunks is None else (),
    )


def _is_optimal(search: Search, best: Candidate, bound: BoundSummary | None) -> bool:
    """Whether the length meets the bound, up to a picosecond for each send that sets it."""
    if best.epochs is not None:
        return bound is not None and bound.epochs is not None and best.epochs <= bound.epochs
    if search.target is None:
        return False
    excess = best.length - search.target
    # The path is longer to find than to rule out: it has no more sends than the schedule.
    return excess <= 0 or (
        excess <= len(best.schedule) and excess <= len(best.schedule.critical_path())
    )


def _auto(search: Search) -> None:
    """Start from what is given, construct, and try the baselines where that leaves a gap."""
    start = _usable_start(search)
    # A small schedule is made anew sooner than another is replayed and judged.
    is_early = search.request.time_limit_s is not None or len(start or ()) > LARGE_SENDS
    if start is not None and is_early:
        _replay(search, start)

    def others(*, is_done: bool) -> None:
        if start is not None and not is_early:
            _replay(search, start)
        if not is_done:
            _useful_baselines(search)

    _construct(search, others=others)
    if search.request.grid:
        from teccl.models.exact import close_gap

        close_gap(search)


def _construct(search: Search, *, others: Callable[..., None] | None = None) -> None:
    """Construct schedules with more and more chunks, then try harder with the best counts.

    Large clusters without symmetry begin with balanced trees instead. Before more effort is made
    `others` are tried, which may take less; they are told whether any is still needed.
    """
    level = search.request.effort
    is_laid = level is not Effort.QUICK and is_irregular_cluster(search) and _lay_first(search)
    is_done = is_laid and _is_near_enough(search)
    if not is_done:
        _construct_counts(search)
    _refine(search)
    is_done = is_done or (search.is_exhausted and _is_near_enough(search))
    if others is not None:
        others(is_done=is_done)
    # What is far off needs trees, however long it took so far.
    search.checkpoint(is_capped=search.is_within(FAR_GAP))
    if level is not Effort.QUICK and search.request.chunks is not None:
        _construct_one(search, search.request.problem(search.request.chunks), level)
    elif level is not Effort.QUICK and search.best and not is_done:
        # Polishing mends what is nearly good, repeated trees serve where whole shares are wrong;
        # what they make of something far off is not polished, which takes long and gains little.
        # So does polishing sums behind switches, where trees of as many chunks come first.
        is_near = search.is_within(FAR_GAP)
        if is_near and search.phases > 1 and search.request.topology.num_switches:
            repeat_trees(search, [max(search.best)])
        if is_near:
            _polish(search)
        if not is_laid:
            repeat_trees(search)
        if not search.is_within(FAR_GAP):
            _polish(search)
    if not search.best:
        problem = search.request.problem(search.request.chunks or 1)
        limits = {"--buffer": problem.buffer is not None, "--no-copy": not problem.copy}
        remedy = " and ".join(name for name, is_given in limits.items() if is_given)
        raise MethodError(
            f"no construction serves {problem.demand.title} with these options; "
            + (f"drop {remedy}" if remedy else "use --method milp or a baseline")
        )
    search.checkpoint()


def _construct_counts(search: Search) -> None:
    """Construct schedules with more and more chunks, until one is too much for the effort."""
    for problem in search.problems():
        try:
            _construct_one(search, problem, Effort.QUICK)
        except SearchStoppedError as stop:
            # What is far off is not given up for having taken long: trees may do better.
            if stop.status is not Status.FEASIBLE or search.is_within(FAR_GAP):
                raise
            return


def _is_near_enough(search: Search) -> bool:
    """Whether a large cluster's schedule is near enough to the bound for the effort."""
    if search.request.effort is Effort.THOROUGH:
        return False
    return search.is_within(LARGE_GAPS[search.phases])


def _lay_first(search: Search) -> bool:
    """Begin with balanced trees; say whether they were tried."""
    if search.request.time_limit_s is not None:
        # Trees take their time, and whoever is in a hurry should have something before.
        _construct_one(search, search.request.problem(1), Effort.QUICK)
    _refine(search, at_once=True)
    return repeat_trees(search)


def _polish(search: Search) -> None:
    """Try the counts of chunks that came out best again with more effort, if it is worth it."""
    counts = sorted(search.best, key=lambda count: search.best[count].length)
    best = search.best[counts[0]]
    is_large = len(best.schedule) > LARGE_SENDS * search.phases
    if search.is_within(LARGE_POLISHED_GAP if is_large else POLISHED_GAP):
        return
    chosen = counts[: 1 if is_large else 2]
    if search.is_within(NARROW_GAP):
        # Little is left, and what is left is more likely found where pieces are smaller.
        chosen = [max(chosen)]
    for count in chosen:
        _construct_one(search, search.request.problem(count), search.request.effort)


def _construct_one(search: Search, problem: Problem, level: Effort) -> None:
    """Offer the first plan at once and the best one in the end, however it ends."""
    from teccl.construct.instance import Instance
    from teccl.construct.strategies import LAID_GAP, Work, plans
    from teccl.construct.warmup import load_all_kernels

    search.checkpoint()
    # Near the bound nothing is laid as trees, and the kernels for that stay unread.
    if level is not Effort.QUICK and not search.is_within(LAID_GAP[level.value]):
        with search.paused():
            load_all_kernels()
    grid = search.request.time_grid(problem)
    instance = Instance.build(problem, grid)
    known = search.best.get(problem.num_chunks)
    pending = None
    try:
        work = Work(
            level=level.value,
            seed=search.request.seed,
            exact=search.request.chunks is not None,
            checkpoint=search.checkpoint,
        )
        for plan in plans(instance, target=_construction_target(search, grid), work=work):
            if known is not None and plan.finish > (known.epochs or known.finish_ps):
                continue
            pending = plan
            if problem.num_chunks not in search.best or len(problem.demand.tenants) > 1:
                search.offer_plan(instance, plan)
                pending = None
            search.checkpoint()
    finally:
        if pending is not None:
            search.offer_plan(instance, pending)


def _construction_target(search: Search, grid: TimeGrid | None) -> int:
    """Return the bound in the time that plans count: epochs on a grid, else picoseconds."""
    target = 0 if search.target is None else search.target * (1 + search.request.gap)
    return math.ceil(target if grid is None else target / (grid.epoch * PICOSECONDS))


def _useful_baselines(search: Search) -> None:
    """Try the baselines where a gap is left and schedules are small."""
    if search.request.grid or not search.best:
        return
    sends = construction_footprint(search.request.problem(1)).sends
    is_far = not search.is_within(BASELINE_GAP) and sends <= LARGE_SENDS
    is_sum = search.phases > 1 and sends <= FEW_SENDS
    if is_far or (is_sum and not search.is_within(PHASES_GAP)):
        _baselines(search)


def _baselines(search: Search) -> None:
    """Try every baseline that serves the problem, with more and more chunks."""
    names: list[str] | None = None
    before: dict[str, int] = {}
    for problem in search.problems(search.finest()):
        names = serving_baselines(problem) if names is None else names
        found: dict[str, int] = {}
        for name in names:
            search.checkpoint()
            with contextlib.suppress(MethodError):
                found[name] = search.offer(build_baseline(name, problem))
        names = [name for name in names if _is_promising(search, name, found, before)]
        before = found


def _is_promising(
    search: Search, name: str, found: Mapping[str, int], before: Mapping[str, int]
) -> bool:
    """Whether a method may win with more chunks: it is near the best or still gains by them."""
    if name not in found:
        return False
    if search.asks_for_trees and found[name] > HOPELESS * search.fastest:
        return False
    gains = name not in before or found[name] < (1 - PROMISING_GAIN) * before[name]
    return gains or found[name] <= (1 + PROMISING_GAIN) * search.fastest


def _usable_start(search: Search) -> Schedule | None:
    """Return the schedule that the user gave to start from, if its order may still work."""
    start = search.request.from_schedule
    if start is None:
        return None
    obstacle = _difference(search.request, _restarted(search, start), start)
    if obstacle is not None:
        search.report("restart", f"starting anew: {obstacle}")
        return None
    return start


def _restarted(search: Search, start: Schedule) -> Problem:
    """Return the problem that a schedule to start from must solve."""
    return search.request.problem(search.request.chunks or start.problem.num_chunks)


def _replay(search: Search, start: Schedule) -> None:
    """Offer a schedule to start from, in the times that its order takes now."""
    from teccl.check import simulate, verify

    problem = _restarted(search, start)
    obstacle = _congestion(search, problem, start)
    if obstacle is not None:
        search.report("restart", f"starting anew: {obstacle}")
        return
    try:
        replay = simulate(start, topology=problem.topology)
    except ScheduleError as reason:
        search.report("restart", f"starting anew: {reason}")
        return
    if search.best and replay.finish_ps > search.fastest:
        search.report("restart", "starting anew: the schedule is slower than a new one")
    elif verify(replay.schedule):
        search.report("restart", "starting anew: the schedule does not fit the problem any more")
    else:
        search.offer_replay(replay)


def _congestion(search: Search, problem: Problem, start: Schedule) -> str | None:
    """Say why a schedule's order is too slow to be of use; None if nothing shows that it is.

    What a link carries takes its time in whatever order, and no order is faster on slower links.
    Replaying a schedule to learn that it is of no use could take as long as making a new one.
    """
    if search.target is None or problem.topology.has_profiles:
        return None
    if not search.best and len(start) <= LARGE_SENDS:
        return None
    most = search.fastest if search.best else search.target * (1 + FAR_GAP)
    finish = start.claimed_finish_ps
    if finish is not None and finish > most and _is_nowhere_faster(problem, start.problem):
        return f"its order takes at least {display_time(finish / PICOSECONDS)}"
    sizes = problem.chunks.size_index[start.sends["chunk"]]
    held_ps = problem.transmission_ps[start.sends["link"], sizes]
    load_ps = np.bincount(start.sends["link"], weights=held_ps)
    busiest = int(load_ps.argmax())
    if load_ps[busiest] <= most:
        return None
    name = problem.topology.link_name(busiest)
    return f"its order takes link {name} at least {display_time(load_ps[busiest] / PICOSECONDS)}"


def _is_nowhere_faster(problem: Problem, other: Problem) -> bool:
    """Whether every link takes a chunk at least as long as in another problem on the same links."""
    if other.topology.has_profiles or problem.topology.shared != other.topology.shared:
        return False
    slower = problem.transmission_ps >= other.transmission_ps
    later = problem.topology.alpha_ps >= other.topology.alpha_ps
    return bool(slower.all() and later.all())


def _difference(request: Request, problem: Problem, start: Schedule) -> str | None:
    """Say why a schedule's order is of no use for a problem on a changed fabric; None if it is.

    Raises
    ------
    ScheduleError
        If the fabric is the same but something else was asked for.
    """
    old, new = start.problem.topology, problem.topology
    if old.nodes != new.nodes:
        return "the schedule is for another fabric"
    if replace(problem, topology=old) != start.problem:
        if old.links != new.links and problem.demand != start.problem.demand:
            return "the schedule serves other ranks"
        given = start.problem
        raise ScheduleError(
            f"the schedule to start from solves another problem: {given.demand.title} of "
            f"{format_size(given.size_bytes)} with --chunks {given.num_chunks}; ask for that, with "
            "its other options, or drop --from"
        )
    if request.grid:
        return "epochs do not carry over from one schedule to another"
    ends = [[(link.src, link.dst, link.shares) for link in t.links] for t in (old, new)]
    return None if ends[0] == ends[1] else "the fabric has other links than the schedule's"


def _baseline(name: str, search: Search) -> None:
    """Try one baseline with more and more chunks."""
    for problem in search.problems():
        search.checkpoint()
        search.offer(build_baseline(name, problem))
    search.checkpoint()


def _milp(search: Search) -> None:
    """Solve the general model, started from the best schedule that is known otherwise."""
    from teccl.models.exact import solve_milp

    solve_milp(search, _warm_start(search) if search.request.warm_start else None)


def _warm_start(search: Search) -> Candidate | None:
    """Construct a schedule to start an exact model from."""
    side = replace(
        search, request=replace(search.request, method="construct"), progress=None, best={}
    )
    with contextlib.suppress(MethodError):
        try:
            start = _usable_start(side)
            if start is not None:
                _replay(side, start)
            _construct(side)
        except SearchStoppedError as stop:
            if not side.best:
                raise SearchStoppedError(stop.status) from stop
    return side.incumbent


def _lp(search: Search) -> None:
    """Solve the linear program and make a schedule of its rates."""
    from teccl.models.rates import solve_lp

    solve_lp(search)


def _astar(search: Search) -> None:
    """Solve the general model round after round."""
    from teccl.models.astar import solve_astar

    solve_astar(search)


METHODS: dict[str, Method] = {
    "auto": _auto,
    "construct": _construct,
    "milp": _milp,
    "lp": _lp,
    "astar": _astar,
    **{name: partial(_baseline, name) for name in BASELINES},
}
