"""solve: from a topology and a collective to a verified schedule with a bound."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from teccl._fractions import read_fraction
from teccl._numba import check_environment, solving_clock, watch_compiler
from teccl.construct.baselines import BASELINES
from teccl.construct.params import MILLION
from teccl.demand import Collective, Demand
from teccl.errors import MethodError, ProblemError
from teccl.footprint import (
    UNCERTAINTY,
    Footprint,
    construction_footprint,
    free_memory,
    least_sends,
)
from teccl.keywords import GRID_METHODS, Effort, Objective, Solver, SwitchMode, Transit
from teccl.problem import Problem
from teccl.progress import CancelToken, Progress, ProgressCallback
from teccl.reachability import find_unreachable
from teccl.result import Result, Status
from teccl.schedule import BoundSummary, Schedule, send_array
from teccl.synthesis.apart import Ending, run_apart
from teccl.synthesis.incumbents import Candidate
from teccl.synthesis.portfolio import Strategy, run_portfolio
from teccl.synthesis.request import (
    Request,
    check_obeyed,
    check_switches,
    read_buffer,
    read_choice,
    read_chunks,
    read_demand,
    read_epoch,
    read_name,
    read_schedule,
    read_share,
    read_time_limit,
    read_topology,
    read_whole,
)
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.synthesis.strategies import CONSTRUCT, PORTFOLIO
from teccl.synthesis.strategies.baselines import BaselineStrategy
from teccl.synthesis.strategies.restart import replay_start
from teccl.topology import Topology
from teccl.units import Quantity

Method = Callable[[Search], None]

_NOTHING = "stopped before the first schedule was found"
# Methods that construct.
CONSTRUCTIONS = ("auto", "construct")


def solve(
    topology: Topology | str | Path,
    collective: str | Collective | None = None,
    *,
    size: Quantity | None = None,
    chunks: int | str | None = None,
    max_chunks: int | None = None,
    chunk_tolerance: float | str | None = None,
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
    any_order: bool = False,
    objective: str = "finish",
    ranks: str | Sequence[int] | None = None,
    demand: Demand | str | Path | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    overhead: Quantity | None = None,
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
    chunk_tolerance
        Of the numbers tried the fewest within this part of the best, below 1 or a percentage as
        text, is taken; None is 0.1 %, or 1 % where links have an overhead.
    method
        ``"auto"`` or one of `METHODS`.
    effort
        How much work ``auto`` does: ``"quick"``, ``"normal"`` or ``"thorough"``.
    time_limit
        Keep the best schedule found by then.
    gap
        Stop within this part of the bound: below 1, or a percentage as text.
    grid, epoch, epoch_multiplier, horizon
        The paper's grid: whether to use it, how long an epoch is and how many there are.
    switch, transit, buffer, copy
        How switches behave, how much GPUs may hold for others, and whether they may copy.
    any_order
        Whether ``auto`` may keep AllReduces whose ranks add in different orders, so that the bits
        of floating-point results differ between ranks.
    objective
        What exact models minimise: ``"finish"`` or ``"paper"``.
    ranks, root
        Who takes part, None for all, and the root's rank.
    demand
        A demand or a demand file in place of `collective`, `size`, `ranks` and `root`.
    without_links, degrade
        Links to remove, and links to slow down: ``["A:B=50%"]`` or ``{"A:B": "50%"}``.
    overhead
        Time for which each transfer holds its link beside its bytes, instead of the topology's own.
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
    network = read_topology(topology, without_links, degrade, overhead)
    request = Request(
        topology=network,
        demand=read_demand(network, collective, demand, size=size, ranks=ranks, root=root),
        chunks=read_chunks(chunks, on_grid=on_grid),
        max_chunks=None if max_chunks is None else read_whole(max_chunks, "max chunks", low=1),
        chunk_tolerance=(
            None if chunk_tolerance is None else read_share(chunk_tolerance, "chunk tolerance")
        ),
        method=name,
        effort=read_choice(effort, Effort, "effort"),
        time_limit_s=read_time_limit(time_limit),
        gap=read_share(gap, "gap"),
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
        any_order=any_order,
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
    _check_size(request)
    problem = request.problem(request.chunks or 1)
    if request.method not in BASELINES:
        if progress is not None:
            note = "kernels are compiled when they are first called after installation"
            progress(Progress(phase="kernels", message=note))
        watch_compiler()
    search = Search(request=request, started=solving_clock(), progress=progress, cancel=cancel)
    obstacle = find_unreachable(problem)
    if obstacle is not None:
        message = obstacle.describe(problem)
        return _without_schedule(search, problem, Status.INFEASIBLE, message)
    if request.method in CONSTRUCTIONS:
        _announce(search, problem)
    ending: Ending | None
    if cancel is None or cancel.patience_s is None:
        ending = _searched(search, problem)
    else:
        ending = run_apart(partial(_searched, search, problem), cancel, cancel.patience_s)
        # A search that was left behind goes on with its own state.
        search = search if ending is not None else search.snapshot()
    stopped, message = ending or Ending(Status.INTERRUPTED, _NOTHING)
    best = search.incumbents.best
    if best is None:
        return _without_schedule(search, problem, stopped, message)
    return _finished(search, best, stopped)


def _searched(search: Search, problem: Problem) -> Ending:
    """Prove a bound and let the method find schedules; tell how that ended."""
    try:
        search.checkpoint()
        search.report("bound")
        search.bound = search.prove(problem, narrow=False)
        search.report("bound", search.bound.certificate)
        METHODS[search.request.method](search)
    except SearchStoppedError as stop:
        return Ending(stop.status, stop.message or _NOTHING)
    except KeyboardInterrupt:
        return Ending(Status.INTERRUPTED, _NOTHING)
    return Ending(Status.FEASIBLE, _NOTHING)


def _check_size(request: Request) -> None:
    """Refuse a demand whose sends no memory here holds before its chunks are listed."""
    sends = least_sends(request.demand, request.topology.num_gpus)
    if sends > MILLION:
        _check_memory(request, Footprint.of_sends(sends))


def _check_memory(request: Request, footprint: Footprint) -> None:
    free = free_memory()
    if footprint.num_bytes > UNCERTAINTY * free:
        raise MethodError(
            f"{request.demand.title} on {request.topology.num_gpus} GPUs takes {footprint}, but "
            f"{free / 1e9:.1f} GB are free; use fewer GPUs (--ranks), fewer chunks or more memory"
        )


def _announce(search: Search, problem: Problem) -> None:
    """Say what a large construction takes, and refuse one that no memory here holds."""
    footprint = construction_footprint(problem)
    if search.features.offer_work(1) < MILLION:
        return
    _check_memory(search.request, footprint)
    search.report("construct", str(footprint))


def _load_libraries() -> None:
    """Load what every request needs before the clock starts: start-up is no part of solving."""
    check_environment()
    import_module("teccl.bounds")
    import_module("teccl.verification")
    import_module("teccl.replay")


def _read_horizon(value: int | str | None) -> int | None:
    if value is None or str(value).strip().lower() == "auto":
        return None
    return read_whole(value, "horizon", low=1)


def _check_request(request: Request) -> None:
    """Refuse options that contradict each other."""
    if request.epoch_multiplier <= 0:
        raise ProblemError(f"epoch multiplier {request.epoch_multiplier} is not positive; use 1")
    if request.objective is Objective.PAPER and not request.grid:
        raise ProblemError("objective paper counts epochs; add --grid or use objective finish")
    if request.method in GRID_METHODS and request.chunks is None:
        raise MethodError(
            f"method {request.method} takes a number of chunks; give --chunks N or use auto"
        )
    if request.method in BASELINES and request.grid:
        raise MethodError(
            f"method {request.method} has no grid; drop the grid's options or use auto"
        )
    if request.max_chunks is not None and request.chunks is not None:
        raise ProblemError(
            f"max chunks {request.max_chunks} limits what --chunks auto tries, but there are "
            f"{request.chunks}; drop --max-chunks or add --chunks auto"
        )
    if request.chunk_tolerance is not None and request.chunks is not None:
        raise ProblemError(
            f"chunk tolerance {float(request.chunk_tolerance):g} chooses among what --chunks auto "
            f"tries, but there are {request.chunks}; drop --chunk-tolerance or add --chunks auto"
        )
    check_obeyed(request)
    check_switches(request.topology, request.switch, request.transit)
    collectives = {tenant.collective for tenant in request.demand.tenants}
    if request.any_order and not collectives & {Collective.ALLREDUCE, Collective.EXPLICIT}:
        raise ProblemError(
            f"{request.demand.title} has no sum that several ranks make; drop --any-order"
        )


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
    from teccl.bounds.patience import limited_to
    from teccl.bounds.summary import tenant_bounds
    from teccl.verification import verify

    if stopped is not Status.INTERRUPTED:
        search.refine()
    search.report("verify")
    bound = search.bound
    if search.request.grid and search.request.chunks is None and best.grid is None:
        # How few epochs are possible depends on the chunks that were chosen.
        bound = search.prove(best.schedule.problem)
    schedule = replace(best.schedule, bound=bound)
    verify(schedule, strict=True)
    with limited_to(search.bound_s):
        tenants_ps = tenant_bounds(schedule.problem)
    return Result(
        status=Status.OPTIMAL if _is_optimal(search, best, bound) else stopped,
        requested_method=search.request.method,
        problem=schedule.problem,
        schedule=schedule,
        finish_ps=best.finish_ps,
        tenant_finish_ps=best.tenant_finish_ps,
        tenant_bound_ps=tenants_ps,
        bound=bound,
        given_chunks=search.request.chunks is not None,
        grid=best.grid or schedule.grid,
        epochs=best.epochs,
        verified=True,
        solve_seconds=search.elapsed_s,
        message=search.note or best.note,
        tried=search.incumbents.tried if search.request.chunks is None else (),
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


def _wants_any(problem: Problem) -> bool:
    """Whether some GPU wants what it does not have."""
    table = problem.chunks
    columns = (table.source_set, table.destination_set, table.reduce)
    for *ends, sums in set(zip(*(column.tolist() for column in columns), strict=True)):
        held, wanted = (set(table.sets[end].tolist()) for end in ends)
        if wanted - held or (sums and len(held) > 1):
            return True
    return False


def _portfolio(strategies: Sequence[Strategy], search: Search) -> None:
    """Let strategies have their turns; refuse what none of them serves."""
    problem = search.request.problem(search.request.chunks or 1)
    if not _wants_any(problem):
        grid = search.request.time_grid(problem)
        sends = send_array([], [], [])
        nothing = Schedule(problem=problem, sends=sends, grid=grid, method="construct")
        search.offer(nothing, epochs=None if grid is None else 0)
        return
    run_portfolio(search, strategies)
    if not search.incumbents:
        problem = search.request.problem(search.request.chunks or 1)
        limits = {"--buffer": problem.buffer is not None, "--no-copy": not problem.copy}
        remedy = " and ".join(name for name, is_given in limits.items() if is_given)
        raise MethodError(
            f"no construction serves {problem.demand.title} with these options; "
            + (f"drop {remedy}" if remedy else "use --method milp or a baseline")
        )


def _milp(search: Search) -> None:
    """Solve the general model, started from the best schedule that is known otherwise."""
    from teccl.models.milp.exact import solve_milp

    solve_milp(search, _warm_start(search) if search.request.warm_start else None)


def _warm_start(search: Search) -> Candidate | None:
    """Construct a schedule to start an exact model from."""
    side = replace(search, request=replace(search.request, method="construct"), progress=None)
    with contextlib.suppress(MethodError):
        try:
            if side.request.from_schedule is not None:
                replay_start(side)
            _portfolio(CONSTRUCT, side)
        except SearchStoppedError as stop:
            if not side.incumbents:
                raise SearchStoppedError(stop.status) from stop
    return side.incumbents.best


def _lp(search: Search) -> None:
    """Solve the linear program and make a schedule of its rates."""
    from teccl.models.lp.method_lp import solve_lp

    solve_lp(search)


def _astar(search: Search) -> None:
    """Solve the general model round after round."""
    from teccl.models.astar.method_astar import solve_astar

    solve_astar(search)


METHODS: dict[str, Method] = {
    "auto": partial(_portfolio, PORTFOLIO),
    "construct": partial(_portfolio, CONSTRUCT),
    "milp": _milp,
    "lp": _lp,
    "astar": _astar,
    **{name: partial(_portfolio, [BaselineStrategy(name)]) for name in BASELINES},
}
