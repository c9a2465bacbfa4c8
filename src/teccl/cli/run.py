"""`teccl run`: execute a schedule with real bytes on ranks of MPI or torch, and time it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode, UsageError, report
from teccl.cli.options import JsonOption, QuietOption, choice, option

if TYPE_CHECKING:
    from teccl.runtime.measure import RunOptions

_RUN = "Run"
_LINKS = "Emulated links"
# The library knows these too; they stand here so that help and completion need not load it.
DTYPES = (
    *("float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
OPS = ("sum", "min", "max", "prod")
BACKENDS = ("mpi", "torch")
MAX_COUNT = 10**6
COLUMNS = (
    *("by", ">size", ">count", "type", "redop", ">root"),
    *(">time", ">algbw", ">busbw", ">wrong"),
)

TimeoutOption = Annotated[
    str, option("--timeout", "DURATION", _RUN, "End all ranks if nothing moves for so long (60s).")
]
BackendOption = Annotated[
    str, choice("--backend", BACKENDS, _RUN, "Whose ranks and messages to use (mpi)")
]
TimeScaleOption = Annotated[
    str,
    option("--time-scale", "auto|X", _LINKS, "Make emulated links X times slower (auto)."),
]


def run(
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A schedule file.", show_default=False)
    ],
    *,
    backend: BackendOption = "mpi",
    ranks: Annotated[
        str, option("--ranks", "auto|N", _RUN, "Ranks to start (auto: those the schedule uses).")
    ] = "auto",
    repeat: Annotated[str, option("--repeat", "N", _RUN, "Runs that are timed (20).")] = "20",
    warmup: Annotated[str, option("--warmup", "N", _RUN, "Runs before them (5).")] = "5",
    dtype: Annotated[
        str, choice("--dtype", DTYPES, _RUN, "Type of the elements (float32)")
    ] = "float32",
    op: Annotated[str, choice("--op", OPS, _RUN, "How reductions combine (sum)")] = "sum",
    check: Annotated[
        bool, option("--check", "", _RUN, "Check every result, and against the library's.")
    ] = False,
    timeout: TimeoutOption = "60s",
    emulate: Annotated[
        bool, option("--emulate", "", _LINKS, "Pace links to the topology's bandwidth and alpha.")
    ] = False,
    time_scale: TimeScaleOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a schedule with real bytes, beside the library's own algorithm.

    Starts local ranks, or uses those it is started with under mpirun, srun or torchrun. Times are
    medians over the repeats, from a common start to the last rank's end.
    """
    from teccl.cli.output import emit, emit_json
    from teccl.runtime.measure import RunOptions

    scale = read_time_scale(time_scale)
    options = RunOptions(
        repeat=read_count(repeat, "repeat", low=1),
        warmup=read_count(warmup, "warmup", low=0),
        dtype=read_name(dtype, DTYPES, "data type"),
        op=read_name(op, OPS, "op"),
        check=check,
        emulate=emulate or scale is not None,
        time_scale=scale,
        timeout=read_timeout(timeout),
    )
    number = None if ranks == "auto" else read_count(ranks, "ranks", low=1)
    found = _run_file(read_name(backend, BACKENDS, "backend"), schedule, options, number)
    if found is None:
        return
    if as_json:
        emit_json(found)
    elif not quiet:
        emit(run_text(found))
    if found["wrong"]:
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION,
            f"run of {schedule}: {found['wrong']} elements are wrong; run again, and report it",
        )


def _run_file(
    backend: str, schedule: str, options: "RunOptions", ranks: int | None
) -> dict[str, Any] | None:
    if backend == "torch":
        from teccl.runtime.launch import check_torch

        check_torch()
        from teccl.torch.run_files import run_file as run_on_torch

        return run_on_torch(schedule, options, ranks=ranks)
    from teccl.runtime.launch import run_file

    return run_file(schedule, options, ranks=ranks, tell=_tell)


def _tell(problem: BaseException) -> None:
    report(problem, debug=False)


def read_count(text: str, what: str, *, low: int) -> int:
    """Read a whole number from the command line."""
    if not (text.isascii() and text.isdigit()) or not low <= int(text[:12]) <= MAX_COUNT:
        raise UsageError(f"{what} {text[:20]!r} is not a whole number from {low} to {MAX_COUNT}")
    return int(text)


def read_name(text: str, names: tuple[str, ...], what: str) -> str:
    """Read one of some names."""
    if text not in names:
        raise UsageError(f"{what} {text[:40]!r} is unknown; use {', '.join(names)}")
    return text


def read_timeout(text: str) -> float:
    """Read a duration that is not zero."""
    from teccl.units import parse_duration

    seconds = float(parse_duration(text, what="timeout"))
    if seconds <= 0:
        raise UsageError(f"timeout {text!r} is not positive; give for example 60s")
    return seconds


def read_time_scale(text: str) -> float | None:
    """Read a factor, None for automatic."""
    if text == "auto":
        return None
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale < 1e15:
        raise UsageError(f"time scale {text[:40]!r} is not a positive number; give one, or auto")
    return scale


def run_text(found: dict[str, Any]) -> str:
    """Lay a report out with the columns of nccl-tests, a line for teccl and one for the library."""
    from teccl.cli.output import table
    from teccl.units import display_time

    rows = found["rows"]
    head = (
        f"{rows[0]['collective']} on {found['topology']}, method {found['method']}: "
        f"{found['ranks']} ranks, {found['repeat']} repeats after {found['warmup']}, "
        "bandwidths in GB/s"
    )
    notes = [head]
    padded = sum(row["size_bytes"] for row in rows[-1 if len(rows) == 1 else 1 :])
    if padded != found["scheduled_bytes"]:
        notes.append(
            f"{found['scheduled_bytes']} bytes of the schedule padded onto whole elements: {padded}"
        )
    if found["time_scale"] is not None:
        measured, simulated = rows[0]["teccl"]["time_s"], found["simulated_s"]
        notes.append(
            f"links emulated {found['time_scale']:.6g} times slower: measured "
            f"{display_time(measured)}, simulated {display_time(simulated)} "
            f"({measured / simulated - 1:+.1%})"
        )
    heads = COLUMNS if len(rows) == 1 else ("tenant", *COLUMNS)
    return "\n".join([*notes, "", table(heads, _cells(found))])


def _cells(found: dict[str, Any]) -> list[tuple[object, ...]]:
    rows, lines = found["rows"], []
    for row in rows:
        root = "-" if row["root"] is None else row["root"]
        what = (row["size_bytes"], row["count"], found["dtype"], row["op"] or "-", root)
        for name, timing in (("teccl", row["teccl"]), (found["library"], row["library"])):
            if timing is not None:
                tenant = (row["name"],) if len(rows) > 1 else ()
                lines.append((*tenant, name, *what, *_timing_cells(timing)))
    return lines


def _timing_cells(timing: dict[str, Any]) -> tuple[object, ...]:
    from teccl.units import display_time

    wrong = "N/A" if timing["wrong"] is None else timing["wrong"]
    bandwidths = [f"{timing[key]:.4g}" for key in ("algbw_GBps", "busbw_GBps")]
    return (display_time(timing["time_s"]), *bandwidths, wrong)
