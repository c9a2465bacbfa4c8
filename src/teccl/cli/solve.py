"""`teccl solve`: make, verify and time a schedule."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import CommandFailed, ExitCode
from teccl.cli.options import (
    BufferOption,
    ChunkToleranceOption,
    CollectiveArgument,
    DegradeOption,
    DemandOption,
    EffortOption,
    EpochMultiplierOption,
    EpochOption,
    GridOption,
    JsonOption,
    NoCopyOption,
    OverheadOption,
    QuietOption,
    RanksOption,
    RootOption,
    SeedOption,
    SizeOption,
    SwitchOption,
    TopologyArgument,
    TransitOption,
    WithoutLinkOption,
    check_output,
    choice,
    option,
    output_option,
)

if TYPE_CHECKING:
    from teccl.orbit import OrbitResult
    from teccl.progress import CancelToken
    from teccl.result import Result

# The library knows these too; they stand here so that help and completion need not load it.
METHODS = (
    *("auto", "construct", "milp", "lp", "astar", "ring", "recursive-doubling"),
    *("binomial-tree", "double-binary-tree", "shortest-path"),
)
OBJECTIVES = ("finish", "paper")
SOLVERS = ("highs", "cpsat", "gurobi")

_METHOD = "Method"
_GRID = "Grid of the paper"


def solve(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    size: SizeOption = None,
    ranks: RanksOption = None,
    root: RootOption = None,
    demand: DemandOption = None,
    chunks: Annotated[
        str | None,
        option("--chunks", "auto|N", _METHOD, "Pieces per block (auto, on the grid 1)."),
    ] = None,
    max_chunks: Annotated[
        str | None, option("--max-chunks", "N", _METHOD, "Most pieces that auto tries.")
    ] = None,
    chunk_tolerance: ChunkToleranceOption = None,
    method: Annotated[
        str | None, choice("--method", METHODS, _METHOD, "How to make the schedule (auto)")
    ] = None,
    effort: EffortOption = None,
    time_limit: Annotated[
        str | None,
        option("--time-limit", "DURATION", _METHOD, "Keep the best found by then, such as 10s."),
    ] = None,
    gap: Annotated[
        str | None, option("--gap", "GAP", _METHOD, "Stop this close to the bound, such as 1%.")
    ] = None,
    objective: Annotated[
        str | None, choice("--objective", OBJECTIVES, _METHOD, "What to minimise (finish)")
    ] = None,
    from_schedule: Annotated[
        str | None, option("--from", "SCHEDULE", _METHOD, "Start from this schedule file.")
    ] = None,
    no_warm_start: Annotated[
        bool, option("--no-warm-start", "", _METHOD, "Give exact models no start.")
    ] = False,
    solver: Annotated[
        str | None, choice("--solver", SOLVERS, _METHOD, "Back end of exact models (highs)")
    ] = None,
    threads: Annotated[str | None, option("--threads", "N", _METHOD, "Threads to use.")] = None,
    seed: SeedOption = None,
    grid: GridOption = False,
    epoch: EpochOption = None,
    epoch_multiplier: EpochMultiplierOption = None,
    horizon: Annotated[
        str | None, option("--horizon", "auto|K", _GRID, "Number of epochs (auto).")
    ] = None,
    switch: SwitchOption = None,
    transit: TransitOption = None,
    buffer: BufferOption = None,
    no_copy: NoCopyOption = False,
    any_order: Annotated[
        bool,
        option("--any-order", "", _METHOD, "Ranks of an AllReduce may add in different orders."),
    ] = False,
    without_link: WithoutLinkOption = None,
    degrade: DegradeOption = None,
    overhead: OverheadOption = None,
    orbit: Annotated[
        bool, option("--orbit", "", _METHOD, "Plan one chunk of each orbit of a symmetry only.")
    ] = False,
    output: Annotated[
        str | None,
        output_option("Save the schedule as .json or .json.gz."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a schedule for a collective, verify and time it, and say how good it is.

    Sizes, bandwidths and times take units: 64KiB, 25GB/s, 0.7us.
    """
    path = check_output(output)
    flags = {
        "size": size,
        "ranks": ranks,
        "root": root,
        "demand": demand,
        "chunks": chunks,
        "max_chunks": max_chunks,
        "chunk_tolerance": chunk_tolerance,
        "method": method,
        "effort": effort,
        "time_limit": time_limit,
        "gap": gap,
        "objective": objective,
        "from_schedule": from_schedule,
        "warm_start": False if no_warm_start else None,
        "solver": solver,
        "threads": threads,
        "seed": seed,
        "grid": grid or None,
        "epoch": epoch,
        "epoch_multiplier": epoch_multiplier,
        "horizon": horizon,
        "switch": switch,
        "transit": transit,
        "buffer": buffer,
        "copy": False if no_copy else None,
        "any_order": any_order or None,
        "without_links": without_link or None,
        "degrade": degrade or None,
        "overhead": overhead,
    }
    given = {keyword: value for keyword, value in flags.items() if value is not None}
    from teccl.cli.orbits import find_fabric, solve_fabric

    fabric = find_fabric(topology, collective, given, asked=orbit)
    if fabric is not None and collective is not None:
        _print(solve_fabric(fabric, collective, given, path), path, as_json=as_json, quiet=quiet)
        return
    from teccl.cli.interrupt import PATIENCE_S, stopping_on_interrupt
    from teccl.progress import CancelToken

    token = CancelToken(patience_s=PATIENCE_S)
    # Ctrl-C that comes after the search must not lose its schedule: saving and printing, too,
    # are done under the handler.
    with stopping_on_interrupt(token):
        result = _run(topology, collective, given, token, quiet=quiet)
        if path is not None and result.schedule is not None:
            result.schedule.save(path)
        _print(result, path, as_json=as_json, quiet=quiet)
    if result.schedule is None:
        reason = f": {result.message}" if result.message else ""
        code = ExitCode.INTERRUPTED if token.is_cancelled else ExitCode.NO_SCHEDULE
        raise CommandFailed(code, f"no schedule, {result.status.value}{reason}")


def _run(
    topology: str,
    collective: str | None,
    keywords: Mapping[str, Any],
    token: "CancelToken",
    *,
    quiet: bool,
) -> "Result":
    from teccl.cli.display import progress_display
    from teccl.cli.startup import load_numba_alone, spare_f2py

    # Before anything that loads numba or scipy by itself.
    spare_f2py()
    load_numba_alone()
    from teccl.synthesis import solve as find_schedule

    with progress_display(quiet=quiet, request=keywords) as progress:
        return find_schedule(topology, collective, **keywords, progress=progress, cancel=token)


def _print(
    result: "Result | OrbitResult", path: Path | None, *, as_json: bool, quiet: bool
) -> None:
    from teccl.cli.output import emit, emit_json, pairs

    if as_json:
        emit_json(result.to_dict())
    elif not quiet:
        rows: list[tuple[str, object]] = [
            # Names and values stand two blanks or more apart.
            (name.strip(), value.strip())
            for line in result.summary().splitlines()
            for name, _, value in [line.strip().partition("  ")]
        ]
        if path is not None and result.schedule is not None:
            rows.append(("saved to", path))
        emit(pairs(rows))
