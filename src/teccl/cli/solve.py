"""`teccl solve`: make, verify and time a schedule."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import CommandFailed, ExitCode
from teccl.cli.options import (
    CollectiveArgument,
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    given_keywords,
    option,
    output_option,
    takes,
)
from teccl.keywords import KEYWORDS, Topic

if TYPE_CHECKING:
    from teccl.orbit import OrbitResult
    from teccl.progress import CancelToken
    from teccl.result import Result


@takes(*KEYWORDS)
def solve(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    orbit: Annotated[
        bool,
        option("--orbit", "", Topic.METHOD, "Plan one chunk of each orbit of a symmetry only."),
    ] = False,
    groups: Annotated[
        str | None,
        option(
            "--groups", "SIZE[:STRIDE]", Topic.METHOD, "Let groups of ranks each do it, as orbits."
        ),
    ] = None,
    output: Annotated[
        str | None,
        output_option("Save the schedule as .json or .json.gz."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Make a schedule for a collective, verify and time it, and say how good it is.

    Sizes, bandwidths and times take units: 64KiB, 25GB/s, 0.7us.
    """
    given = given_keywords(given)
    path = check_output(output)
    from teccl.cli.orbits import find_fabric, solve_fabric

    fabric = find_fabric(topology, collective, given, asked=orbit or groups is not None)
    if fabric is not None and collective is not None:
        made = solve_fabric(fabric, collective, given, path, groups)
        _print(made, path, as_json=as_json, quiet=quiet)
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
    from teccl.cli.startup import load_graphs_alone, load_highs_alone, load_numba_alone

    # Before anything that loads numba or scipy by itself.
    load_numba_alone()
    load_graphs_alone()
    load_highs_alone()
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
        rows: list[tuple[str, object]] = [(name.strip(), value) for name, value in result.rows()]
        if path is not None and result.schedule is not None:
            rows.append(("saved to", path))
        emit(pairs(rows))
