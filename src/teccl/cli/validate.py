"""`teccl validate`: a schedule judged by a simulator that the user has installed."""

from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import CommandFailed, ExitCode, UsageError
from teccl.cli.options import JsonOption, QuietOption, ScheduleArgument, choice, option
from teccl.simulators import SIMULATORS

if TYPE_CHECKING:
    from teccl.simulators import Validation

_SIMULATOR = "Simulator"


def validate(  # noqa: PLR0917, the command line gives names
    file: ScheduleArgument,
    simulator: Annotated[
        str | None,
        choice("--with", tuple(SIMULATORS), _SIMULATOR, "Who judges, required"),
    ] = None,
    program: Annotated[
        str | None,
        option("--program", "PATH", _SIMULATOR, "Its executable on this machine, required."),
    ] = None,
    time_limit: Annotated[
        str | None,
        option("--time-limit", "DURATION", _SIMULATOR, "When to stop the simulator (10min)."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run an installed simulator on a schedule and compare its time with ours."""
    from teccl.cli.output import emit, emit_json
    from teccl.schedule import Schedule
    from teccl.simulators import validate as compare
    from teccl.units import parse_duration

    if simulator is None:
        raise UsageError(f"missing --with; give one of {', '.join(SIMULATORS)}")
    if program is None:
        raise UsageError("missing --program; give the simulator's executable, none is shipped")
    limit = float(parse_duration(time_limit or "600s", what="--time-limit"))
    schedule = Schedule.load(file)
    found = compare(schedule, simulator=simulator, program=program, time_limit=limit)
    if as_json:
        emit_json(_document(found))
    elif not quiet:
        emit(_text(found))
    if found.agrees is False:
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION,
            f"{simulator} ends {found.difference_ps} ps later than simulate, more than rounding "
            f"explains ({found.outcome.allowance_ps} ps)",
        )


def _document(found: "Validation") -> dict[str, Any]:
    from teccl.units import PICOSECONDS

    return {
        "simulator": found.simulator,
        "simulate_s": found.replay_ps / PICOSECONDS,
        "simulator_s": found.outcome.finish_ps / PICOSECONDS,
        "difference_ps": found.difference_ps,
        "relative": found.relative,
        "allowance_ps": found.outcome.allowance_ps,
        "agrees": found.agrees,
        "differences": list(found.outcome.differences),
        "notes": list(found.outcome.notes),
        "command": list(found.outcome.command),
    }


def _text(found: "Validation") -> str:
    from teccl.cli.output import pairs
    from teccl.units import PICOSECONDS, display_time

    verdict = {True: "yes", False: "no", None: "the models differ"}[found.agrees]
    rows: list[tuple[str, object]] = [
        ("simulate", display_time(found.replay_ps / PICOSECONDS)),
        (found.simulator, display_time(found.outcome.finish_ps / PICOSECONDS)),
        ("difference", f"{found.difference_ps} ps, {100 * found.relative:.4f} %"),
        ("rounding explains", f"{found.outcome.allowance_ps} ps"),
        ("agrees", verdict),
    ]
    lines = [pairs(rows)]
    lines += [f"differs: {sentence}" for sentence in found.outcome.differences]
    lines += [f"note: {sentence}" for sentence in found.outcome.notes]
    return "\n".join(lines)
