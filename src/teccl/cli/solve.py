"""`teccl solve`: make, verify and time a schedule."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from teccl.cli.errors import CommandFailed, ExitCode
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    whole_number,
)

if TYPE_CHECKING:
    from teccl.result import Result

COLLECTIVES = (
    *("allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce"),
    *("scatter", "gather", "scattergather", "alltoallv"),
)
_METHODS = Literal[
    "auto",
    "construct",
    "milp",
    "lp",
    "astar",
    "ring",
    "recursive-doubling",
    "binomial-tree",
    "double-binary-tree",
    "shortest-path",
]
_EFFORTS = Literal["quick", "normal", "thorough"]
_SWITCHES = Literal["copy", "no-copy", "hyper-edge"]
_TRANSITS = Literal["store-and-forward", "cut-through"]
_OBJECTIVES = Literal["finish", "paper"]
_SOLVERS = Literal["highs", "cpsat", "gurobi"]

_METHOD = "Method"
_GRID = "Grid of the paper"
_MODEL = "Switches and buffers"
_DEMAND = "Demand"
_CHANGES = "Changes to the topology"


def _complete_collective(incomplete: str) -> list[str]:
    return [name for name in COLLECTIVES if name.startswith(incomplete.lower())]


def _option(
    name: str, help_text: str, panel: str, *, metavar: str | None = None, parser: Any = None
) -> Any:
    """Return an option whose default the library knows."""
    return typer.Option(
        name,
        help=help_text,
        rich_help_panel=panel,
        metavar=metavar,
        parser=parser,
        show_default=False,
    )


def solve(
    topology: TopologyArgument,
    collective: Annotated[
        str | None,
        typer.Argument(
            metavar="COLLECTIVE",
            help=f"One of {', '.join(COLLECTIVES)}; omitted with --demand.",
            show_default=False,
            autocompletion=_complete_collective,
        ),
    ] = None,
    size: Annotated[
        str | None,
        _option("--size", "Bytes as nccl-tests counts them, e.g. 1MB.", _DEMAND, metavar="SIZE"),
    ] = None,
    ranks: Annotated[
        str | None,
        _option("--ranks", "Ranks that take part, e.g. 0-7,12.", _DEMAND, metavar="RANKS"),
    ] = None,
    root: Annotated[
        int | None,
        _option("--root", "The root's rank.", _DEMAND, metavar="R", parser=whole_number(0)),
    ] = None,
    demand: Annotated[
        str | None,
        _option("--demand", "A demand file, in place of COLLECTIVE.", _DEMAND, metavar="FILE"),
    ] = None,
    chunks: Annotated[
        str | None,
        _option("--chunks", "Chunks per rank and block: auto or N.", _METHOD, metavar="auto|N"),
    ] = None,
    max_chunks: Annotated[
        int | None,
        _option(
            "--max-chunks", "Most chunks that auto tries.", _METHOD, metavar="N",
            parser=whole_number(1),
        ),
    ] = None,
    method: Annotated[
        _METHODS | None, _option("--method", "How to make the schedule (auto).", _METHOD)
    ] = None,
    effort: Annotated[
        _EFFORTS | None, _option("--effort", "How much work auto does (normal).", _METHOD)
    ] = None,
    time_limit: Annotated[
        str | None,
        _option(
            "--time-limit", "Keep the best found by then, e.g. 10s.", _METHOD, metavar="DURATION"
        ),
    ] = None,
    gap: Annotated[
        str | None,
        _option("--gap", "Stop within this gap of the bound, e.g. 0.01 or 1%.", _METHOD,
                metavar="GAP"),
    ] = None,
    objective: Annotated[
        _OBJECTIVES | None, _option("--objective", "What to minimise (finish).", _METHOD)
    ] = None,
    start: Annotated[
        str | None,
        _option("--from", "Start from this schedule.", _METHOD, metavar="SCHEDULE"),
    ] = None,
    no_warm_start: Annotated[
        bool, _option("--no-warm-start", "Give exact models no start.", _METHOD)
    ] = False,
    solver: Annotated[
        _SOLVERS | None, _option("--solver", "Back end of exact models.", _METHOD)
    ] = None,
    threads: Annotated[
        int | None,
        _option("--threads", "Threads to use.", _METHOD, metavar="N", parser=whole_number(1, 4096)),
    ] = None,
    seed: Annotated[
        int | None,
        _option("--seed", "Seed of random choices (0).", _METHOD, metavar="N",
                parser=whole_number(0, 2**63 - 1)),
    ] = None,
    grid: Annotated[
        bool, _option("--grid", "Use the paper's grid of epochs end to end.", _GRID)
    ] = False,
    epoch: Annotated[
        str | None,
        _option("--epoch", "Epoch duration.", _GRID, metavar="fastest|slowest|DURATION"),
    ] = None,
    epoch_multiplier: Annotated[
        str | None,
        _option("--epoch-multiplier", "Factor on the epoch duration.", _GRID, metavar="M"),
    ] = None,
    horizon: Annotated[
        str | None, _option("--horizon", "Number of epochs: auto or K.", _GRID, metavar="auto|K")
    ] = None,
    switch: Annotated[
        _SWITCHES | None, _option("--switch", "What switches do with arrivals (copy).", _MODEL)
    ] = None,
    transit: Annotated[
        _TRANSITS | None,
        _option("--transit", "How data passes switches (store-and-forward).", _MODEL),
    ] = None,
    buffer: Annotated[
        str | None,
        _option("--buffer", "Chunks that may wait at a GPU to be forwarded.", _MODEL,
                metavar="unlimited|none|N"),
    ] = None,
    no_copy: Annotated[bool, _option("--no-copy", "GPUs do not copy either.", _MODEL)] = False,
    without_link: Annotated[
        list[str] | None,
        _option("--without-link", "Remove links A:B, A>B or A:*; may repeat.", _CHANGES,
                metavar="A:B"),
    ] = None,
    degrade: Annotated[
        list[str] | None,
        _option("--degrade", "Slow links down, e.g. A:B=50%; may repeat.", _CHANGES,
                metavar="A:B=P%"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Save the schedule, .json or .json.gz.",
                     show_default=False),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a schedule for a collective, verify it, time it and say how good it is."""
    path = check_output(output)
    options = {
        "size": size, "ranks": ranks, "root": root, "demand": demand,
        "chunks": chunks, "max_chunks": max_chunks, "method": method, "effort": effort,
        "time_limit": time_limit, "gap": gap, "objective": objective, "start": start,
        "no_warm_start": no_warm_start or None, "solver": solver, "threads": threads, "seed": seed,
        "grid": grid or None, "epoch": epoch, "epoch_multiplier": epoch_multiplier,
        "horizon": horizon, "switch": switch, "transit": transit, "buffer": buffer,
        "no_copy": no_copy or None, "without_link": without_link or None,
        "degrade": degrade or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    result = _run(topology, collective, given, quiet=quiet)
    if path is not None and result.schedule is not None:
        result.schedule.save(path)
    _print(result, path, as_json=as_json, quiet=quiet)
    if result.schedule is None:
        raise CommandFailed(ExitCode.NO_SCHEDULE, f"no schedule: {result.status}")
