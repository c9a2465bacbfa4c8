"""`teccl solve`: make, verify and time a schedule."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    output_option,
)

if TYPE_CHECKING:
    from teccl.progress import CancelToken
    from teccl.result import Result

# The library knows these too; they stand here so that help and completion need not load it.
COLLECTIVES = (
    *("allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce"),
    *("scatter", "gather", "scattergather", "alltoallv"),
)
METHODS = (
    *("auto", "construct", "milp", "lp", "astar", "ring", "recursive-doubling"),
    *("binomial-tree", "double-binary-tree", "shortest-path"),
)
EFFORTS = ("quick", "normal", "thorough")
OBJECTIVES = ("finish", "paper")
SOLVERS = ("highs", "cpsat", "gurobi")
SWITCHES = ("copy", "no-copy", "hyper-edge")
TRANSITS = ("store-and-forward", "cut-through")

_METHOD = "Method"
_GRID = "Grid of the paper"
_MODEL = "Switches and buffers"
_DEMAND = "Demand"
_CHANGES = "Changes to the topology"


def _completer(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete.lower())]

    return complete


def _option(name: str, metavar: str, panel: str, help_text: str) -> Any:
    """Return an option whose text and default are the library's matter."""
    return typer.Option(
        name, metavar=metavar, rich_help_panel=panel, help=help_text, show_default=False
    )


def _choice(name: str, choices: tuple[str, ...], panel: str, help_text: str) -> Any:
    """Return an option that takes one of some names, which its help lists."""
    return typer.Option(
        name,
        metavar="NAME",
        rich_help_panel=panel,
        help=f"{help_text}: {', '.join(choices)}.",
        show_default=False,
        autocompletion=_completer(choices),
    )


def solve(
    topology: TopologyArgument,
    collective: Annotated[
        str | None,
        typer.Argument(
            metavar="COLLECTIVE",
            help=f"One of {', '.join(COLLECTIVES)}; omitted with --demand.",
            show_default=False,
            autocompletion=_completer(COLLECTIVES),
        ),
    ] = None,
    *,
    size: Annotated[
        str | None,
        _option("--size", "SIZE", _DEMAND, "Bytes as nccl-tests counts them, such as 1MB."),
    ] = None,
    ranks: Annotated[
        str | None, _option("--ranks", "RANKS", _DEMAND, "Ranks that take part, such as 0-7,12.")
    ] = None,
    root: Annotated[str | None, _option("--root", "R", _DEMAND, "Rank of the root.")] = None,
    demand: Annotated[
        str | None, _option("--demand", "FILE", _DEMAND, "A demand file, in place of COLLECTIVE.")
    ] = None,
    chunks: Annotated[
        str | None,
        _option("--chunks", "auto|N", _METHOD, "Pieces per block (auto, on the grid 1)."),
    ] = None,
    max_chunks: Annotated[
        str | None, _option("--max-chunks", "N", _METHOD, "Most pieces that auto tries.")
    ] = None,
    method: Annotated[
        str | None, _choice("--method", METHODS, _METHOD, "How to make the schedule (auto)")
    ] = None,
    effort: Annotated[
        str | None, _choice("--effort", EFFORTS, _METHOD, "How much work auto does (normal)")
    ] = None,
    time_limit: Annotated[
        str | None,
        _option("--time-limit", "DURATION", _METHOD, "Keep the best found by then, such as 10s."),
    ] = None,
    gap: Annotated[
        str | None, _option("--gap", "GAP", _METHOD, "Stop this close to the bound, such as 1%.")
    ] = None,
    objective: Annotated[
        str | None, _choice("--objective", OBJECTIVES, _METHOD, "What to minimise (finish)")
    ] = None,
    from_schedule: Annotated[
        str | None, _option("--from", "SCHEDULE", _METHOD, "Start from this schedule file.")
    ] = None,
    no_warm_start: Annotated[
        bool, _option("--no-warm-start", "", _METHOD, "Give exact models no start.")
    ] = False,
    solver: Annotated[
        str | None, _choice("--solver", SOLVERS, _METHOD, "Back end of exact models (highs)")
    ] = None,
    threads: Annotated[str | None, _option("--threads", "N", _METHOD, "Threads to use.")] = None,
    seed: Annotated[
        str | None, _option("--seed", "N", _METHOD, "Seed of random choices (0).")
    ] = None,
    grid: Annotated[
        bool, _option("--grid", "", _GRID, "Use the paper's epochs end to end.")
    ] = False,
    epoch: Annotated[
        str | None,
        _option("--epoch", "fastest|slowest|DURATION", _GRID, "Length of an epoch (fastest)."),
    ] = None,
    epoch_multiplier: Annotated[
        str | None, _option("--epoch-multiplier", "M", _GRID, "Factor on the epoch (1).")
    ] = None,
    horizon: Annotated[
        str | None, _option("--horizon", "auto|K", _GRID, "Number of epochs (auto).")
    ] = None,
    switch: Annotated[
        str | None, _choice("--switch", SWITCHES, _MODEL, "What a switch may do (copy)")
    ] = None,
    transit: Annotated[
        str | None,
        _choice("--transit", TRANSITS, _MODEL, "How data passes a switch (store-and-forward)"),
    ] = None,
    buffer: Annotated[
        str | None,
        _option(
            "--buffer",
            "unlimited|none|N",
            _MODEL,
            "Received chunks that may wait at a GPU to be forwarded (unlimited).",
        ),
    ] = None,
    no_copy: Annotated[
        bool, _option("--no-copy", "", _MODEL, "No node copies, GPUs included.")
    ] = False,
    without_link: Annotated[
        list[str] | None,
        _option("--without-link", "A:B", _CHANGES, "Remove links A:B, A>B or A:*; may repeat."),
    ] = None,
    degrade: Annotated[
        list[str] | None,
        _option("--degrade", "A:B=50%", _CHANGES, "Scale links' bandwidth; may repeat."),
    ] = None,
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
        "without_links": without_link or None,
        "degrade": degrade or None,
    }
    given = {keyword: value for keyword, value in flags.items() if value is not None}
    from teccl.cli.interrupt import stopping_on_interrupt
    from teccl.progress import CancelToken

    token = CancelToken()
    # Ctrl-C that comes after the search must not lose its schedule: saving and printing, too,
    # are done under the handler.
    with stopping_on_interrupt(token.cancel):
        result = _run(topology, collective, given, token, quiet=quiet)
        if path is not None and result.schedule is not None:
            result.schedule.save(path)
        _print(result, path, as_json=as_json, quiet=quiet)
    if result.schedule is None:
        reason = f": {result.message}" if result.message else ""
        raise CommandFailed(ExitCode.NO_SCHEDULE, f"no schedule, {result.status.value}{reason}")


def _run(
    topology: str,
    collective: str | None,
    keywords: Mapping[str, Any],
    token: "CancelToken",
    *,
    quiet: bool,
) -> "Result":
    from teccl.cli.display import progress_display
    from teccl.synthesis import solve as find_schedule

    with progress_display(quiet=quiet) as progress:
        return find_schedule(topology, collective, **keywords, progress=progress, cancel=token)


def _print(result: "Result", path: Path | None, *, as_json: bool, quiet: bool) -> None:
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
