"""`teccl calibrate`: measure links, or read them from logs, and write a topology file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import UsageError, report
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    check_output,
    option,
    output_option,
    refuse_given,
)
from teccl.cli.run import (
    BACKENDS,
    BackendOption,
    TimeoutOption,
    TimeScaleOption,
    read_count,
    read_name,
    read_time_scale,
    read_timeout,
)

if TYPE_CHECKING:
    from teccl.runtime.calibrate import Calibration

_MEASURE = "Measure"
_LOGS = "Logs of nccl-tests"
TOPOLOGY_SUFFIXES = (".yaml", ".yml", ".json")
# Parameters that mean nothing to logs.
_MEASURING = ("backend", "sizes", "repeat", "groups", "timeout", "emulate", "time_scale")
# Links that a person still reads; --json has all of them.
MAX_ROWS = 20
MAX_SIZE = 2**30


def calibrate(
    context: typer.Context,
    *,
    backend: BackendOption = "mpi",
    ranks: Annotated[
        str | None, option("--ranks", "N", _MEASURE, "Ranks to start (2), or those of a log.")
    ] = None,
    sizes: Annotated[
        str, option("--sizes", "A:B", _MEASURE, "Sizes from A to B by factors of 4 (1KB:4MB).")
    ] = "1KB:4MB",
    repeat: Annotated[
        str, option("--repeat", "N", _MEASURE, "Exchanges that are timed at each size (10).")
    ] = "10",
    groups: Annotated[
        str | None,
        option("--groups", "N", _MEASURE, "Measure a few pairs for every two groups of N ranks."),
    ] = None,
    timeout: TimeoutOption = "60s",
    emulate: Annotated[
        str | None,
        option("--emulate", "TOPOLOGY", "Emulated links", "Measure this topology's links, paced."),
    ] = None,
    time_scale: TimeScaleOption = "auto",
    log: Annotated[
        list[str] | None,
        option("--log", "[A-B=]FILE", _LOGS, "Fit a log, of all ranks or of one pair; may repeat."),
    ] = None,
    collective: Annotated[
        str | None,
        option("--collective", "NAME", _LOGS, "The collective of a log that does not say it."),
    ] = None,
    output: Annotated[str | None, output_option("Save the topology, .yaml or .json.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure alpha, overhead and bandwidth by ping-pong and write a topology for solve.

    Starts local ranks, or uses those it is started with under mpirun, srun or torchrun. Values
    come from a robust fit and are printed with 95 % confidence.
    """
    path = check_output(output, TOPOLOGY_SUFFIXES)
    number = None if ranks is None else read_count(ranks, "ranks", low=2)
    found: Calibration | None
    if log:
        refuse_given(context, _MEASURING, "is for measurements, and --log reads those of others")
        found = _from_logs(log, collective, number)
    else:
        refuse_given(context, ("collective",), "is that of a log; add --log")
        found = _from_ranks(
            read_name(backend, BACKENDS, "backend"),
            ranks=number,
            sizes=read_sizes(sizes),
            repeat=read_count(repeat, "repeat", low=1),
            group=None if groups is None else read_count(groups, "groups", low=1),
            emulate=emulate,
            time_scale=read_time_scale(time_scale),
            timeout=read_timeout(timeout),
        )
    if found is not None:
        _print(found, path, as_json=as_json, quiet=quiet)


def _from_logs(logs: list[str], collective: str | None, ranks: int | None) -> "Calibration":
    from teccl.demand import parse_collective
    from teccl.runtime.calibrate import calibration_from_logs
    from teccl.runtime.nccl_logs import read_log

    test = None if collective in (None, "sendrecv") else parse_collective(str(collective)).value
    read = []
    for text in logs:
        pair, file = _log_pair(text)
        of_pair = 2 if pair is not None else None
        read.append((pair, read_log(Path(file), test=test or collective, ranks=ranks or of_pair)))
    return calibration_from_logs(read)


def _log_pair(text: str) -> tuple[tuple[int, int] | None, str]:
    """Split ``A-B=FILE``."""
    pair, equals, file = text.partition("=")
    ends = pair.split("-")
    if not equals or len(ends) != 2 or not all(e.isascii() and e.isdigit() for e in ends):
        return None, text
    a, b = int(ends[0][:6]), int(ends[1][:6])
    if a == b:
        raise UsageError(f"log {text[:60]!r} is for a rank and itself; name two ranks")
    return (a, b), file


def _from_ranks(backend: str, **options: Any) -> "Calibration | None":
    if backend == "torch":
        return _from_torch(**options)
    from teccl.runtime.calibrate import calibrate_ranks

    def tell(problem: BaseException) -> None:
        report(problem, debug=False)

    return calibrate_ranks(**options, tell=tell)


def _from_torch(*, emulate: str | None, time_scale: float | None, **options: Any) -> Any:
    from teccl.runtime.launch import check_torch

    if emulate is not None or time_scale is not None:
        raise UsageError("--emulate paces MPI's messages; use --backend mpi")
    check_torch()
    from teccl.torch.run_files import calibrate_ranks

    return calibrate_ranks(**options)


def read_sizes(text: str) -> tuple[int, ...]:
    """Read ``A:B`` as sizes from A to B by factors of four, or a list with commas."""
    from teccl.units import parse_size

    low, colon, high = text.partition(":")
    if not colon:
        return tuple(_whole(parse_size(part), text) for part in text.split(","))
    first, last = _whole(parse_size(low), text), _whole(parse_size(high), text)
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= 4
    if len(sizes) < 2:
        raise UsageError(f"sizes {text[:40]!r} are fewer than two; give for example 1KB:4MB")
    return tuple(sizes)


def _whole(size: Any, text: str) -> int:
    if not 1 <= size <= MAX_SIZE or size.denominator != 1:
        raise UsageError(f"sizes {text[:40]!r}: give whole bytes from 1B to 1GiB")
    return int(size)


def _print(found: "Calibration", path: Path | None, *, as_json: bool, quiet: bool) -> None:
    from teccl.cli.output import emit, emit_json

    if path is not None:
        found.topology().save(path)
    if as_json:
        emit_json({**found.to_dict(), "output": None if path is None else str(path)})
    elif not quiet:
        emit(_text(found, path))


def _text(found: "Calibration", path: Path | None) -> str:
    from teccl.cli.output import table
    from teccl.units import display_time

    rows = []
    for link in found.links[:MAX_ROWS]:
        fit = link.fit
        share = fit.beta_error / max(fit.beta_s_per_byte, 1e-300)
        rows.append(
            (
                f"gpu{link.src} > gpu{link.dst}",
                display_time(fit.alpha_s),
                f"+-{display_time(fit.alpha_error)}",
                "-" if fit.overhead_s is None else display_time(fit.overhead_s),
                f"+-{display_time(fit.overhead_error)}",
                f"{fit.bandwidth / 1e9:.4g} GB/s",
                f"+-{share:.1%}",
                fit.samples,
                f"{fit.typical_residual:.1%}",
            )
        )
    costs = (">alpha", ">95 %", ">overhead", ">95 %", ">bandwidth", ">95 %")
    heads = ("link", *costs, ">samples", ">residual")
    text = f"{found.num_ranks} ranks, {len(found.links)} links\n\n{table(heads, rows)}"
    if len(found.links) > MAX_ROWS:
        text += f"\n... and {len(found.links) - MAX_ROWS} more (--json lists them)"
    unknown = [link for link in found.links if not link.fit.has_bandwidth]
    if unknown:
        text += (
            f"\n\nnote: the bandwidth of {len(unknown)} links cannot be told from noise, such as "
            f"gpu{unknown[0].src} > gpu{unknown[0].dst}; measure larger messages with --sizes, "
            "more of them with --repeat, or on an idle machine"
        )
    return text + (f"\n\nsaved to {path}" if path is not None else "")
