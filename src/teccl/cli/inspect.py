"""`teccl verify` and `teccl simulate`: judge and replay a schedule file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import UsageError
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    ScheduleArgument,
    check_output,
    choice,
    option,
    output_option,
)
from teccl.cli.orbits import fail_if

if TYPE_CHECKING:
    from teccl.replay import Replay
    from teccl.rounds.cost import RoundCost
    from teccl.schedule import Schedule
    from teccl.verification import Violation

_ROUNDS = "Rounds"
# Rows of a table that a person still reads; --json has all of them.
MAX_ROWS = 20


def verify(
    file: ScheduleArgument,
    runtime: Annotated[
        str | None,
        choice("--runtime", ("msccl", "rccl"), "Programs", "Judge an .xml file for it (both)"),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check that a schedule file, or an MSCCL or RCCL program, is correct."""
    from teccl.cli.programs import is_program, verify_program

    if is_program(file):
        verify_program(file, runtime, as_json=as_json, quiet=quiet)
        return
    if runtime is not None:
        raise UsageError("--runtime is for MSCCL and RCCL programs (.xml); drop it")
    from teccl.cli.output import emit, emit_json

    violations, line, figures = _judged(file)
    if as_json:
        found = [_violation_document(violation) for violation in violations]
        emit_json({"verified": not violations, "violations": found, **figures})
    elif violations and not quiet:
        emit(_violation_table(violations))
    elif not quiet:
        emit(f"ok: {line}")
    fail_if(violations, file)


def _judged(file: str) -> "tuple[tuple[Violation, ...], str, dict[str, Any]]":
    """Judge a schedule or an orbit file; return also what to say of it in a line and in figures."""
    from teccl.cli.output import schedule_document
    from teccl.orbit.recognition import is_orbit_file

    if is_orbit_file(Path(file)):
        from teccl.cli import orbits

        orbit, violations = orbits.load_judged(file)
        return violations, orbits.headline(orbit), schedule_document(orbit)
    from teccl.schedule import Schedule
    from teccl.verification import has_same_order
    from teccl.verification import verify as find_violations

    schedule = Schedule.load(file)
    violations = find_violations(schedule)
    line, figures = _headline(schedule), schedule_document(schedule)
    if not violations and _has_shared_sums(schedule):
        same = has_same_order(schedule)
        line += f"; ranks add in {'one order' if same else 'different orders'}"
        figures["same_order"] = same
    return violations, line, figures


def _has_shared_sums(schedule: "Schedule") -> bool:
    """Whether several ranks want the same sum."""
    table = schedule.problem.chunks
    several = [len(nodes) > 1 for nodes in table.sets]
    return any(several[table.destination_set[m]] for m in range(len(table)) if table.reduce[m])


def simulate(
    file: ScheduleArgument,
    *,
    output: Annotated[
        str | None,
        output_option("Save the schedule with the replay's times, .json or .json.gz."),
    ] = None,
    rounds: Annotated[
        bool, option("--rounds", "", _ROUNDS, "Also replay it in rounds of grouped sends.")
    ] = False,
    round_overhead: Annotated[
        str | None,
        option("--round-overhead", "DURATION", _ROUNDS, "What beginning a round takes (0s)."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Replay a schedule exactly: every send as early as the order of sends allows."""
    from teccl.cli.orbits import simulate_orbit
    from teccl.cli.output import emit, emit_json
    from teccl.orbit.recognition import is_orbit_file
    from teccl.replay import simulate as replay_of
    from teccl.schedule import Schedule
    from teccl.verification import verify as find_violations

    path = check_output(output)
    if round_overhead is not None and not rounds:
        raise UsageError("--round-overhead is what a round takes; add --rounds")
    if is_orbit_file(Path(file)):
        if rounds:
            raise UsageError("--rounds is for files that list all sends; drop it")
        simulate_orbit(file, path, as_json=as_json, quiet=quiet)
        return
    schedule = Schedule.load(file)
    fail_if(find_violations(schedule), file)
    replay = replay_of(schedule)
    cost = _round_cost(schedule, round_overhead or "0s") if rounds else None
    if path is not None:
        replay.schedule.save(path)
    if as_json:
        emit_json(_replay_document(schedule, replay, cost))
    elif not quiet:
        emit(_replay_text(schedule, replay, path, cost))


def _round_cost(schedule: "Schedule", overhead: str) -> "RoundCost":
    from teccl.rounds.cost import round_cost
    from teccl.rounds.executable import Executable
    from teccl.units import parse_duration, picoseconds

    lost = picoseconds(parse_duration(overhead, what="round overhead"))
    return round_cost(Executable.of(schedule), overhead_ps=lost)


def _violation_document(violation: "Violation") -> dict[str, Any]:
    return {
        "kind": violation.kind.value,
        "chunk": violation.chunk,
        "link": violation.link,
        "time_s": violation.time_s,
        "detail": violation.detail,
    }


def _violation_table(violations: "tuple[Violation, ...]") -> str:
    from teccl.cli.output import table
    from teccl.units import display_time

    rows = [
        (v.kind.value, "-" if v.time_s is None else display_time(v.time_s), v.detail)
        for v in violations[:MAX_ROWS]
    ]
    text = table(("violation", ">time", "what is wrong"), rows)
    if len(violations) > MAX_ROWS:
        text += f"\n... and {len(violations) - MAX_ROWS} more (--json lists them)"
    return text


def _headline(schedule: "Schedule") -> str:
    from teccl.units import display_time

    problem = schedule.problem
    return (
        f"{problem.demand.title} on {problem.topology.name}, {problem.num_gpus} gpus: "
        f"{len(schedule)} sends of {len(problem.chunks)} chunks, "
        f"finish {display_time(schedule.finish_time_s)}"
    )


def _replay_document(
    schedule: "Schedule", replay: "Replay", cost: "RoundCost | None"
) -> dict[str, Any]:
    from teccl.cli.output import schedule_document
    from teccl.units import PICOSECONDS

    tenants = schedule.problem.demand.tenants
    in_rounds = None
    if cost is not None:
        in_rounds = {
            "num_rounds": cost.num_rounds,
            "most_messages": cost.most_messages,
            "finish_time_s": cost.finish_ps / PICOSECONDS,
        }
    return {
        **schedule_document(replay.schedule),
        "verified": True,
        "finish_time_s": replay.finish_ps / PICOSECONDS,
        "scheduled_finish_time_s": schedule.finish_time_s,
        "tenants": [
            {"name": tenant.name, "finish_time_s": finish / PICOSECONDS}
            for tenant, finish in zip(tenants, replay.tenant_finish_ps, strict=True)
        ],
        "links": [
            {"link": link, "name": name, "utilisation": busy, "num_sends": sends}
            for link, name, busy, sends in _busiest_links(replay.schedule)
        ],
        "critical_path": _critical_path(replay.schedule),
        **({} if in_rounds is None else {"rounds": in_rounds}),
    }


def _busiest_links(schedule: "Schedule") -> list[tuple[int, str, float, int]]:
    """Return index, name, utilisation and number of sends of the links in use, busiest first."""
    import numpy as np

    topology = schedule.problem.topology
    busy = schedule.utilisation()
    counts = np.bincount(schedule.sends["link"], minlength=topology.num_links)
    order = np.argsort(-busy, kind="stable")
    return [
        (int(i), topology.link_name(int(i)), float(busy[i]), int(counts[i]))
        for i in order
        if counts[i]
    ]


def _critical_path(schedule: "Schedule") -> list[dict[str, Any]]:
    from teccl.schedule.timing import send_times
    from teccl.units import PICOSECONDS

    arrivals = send_times(schedule).arrival_ps
    path = []
    for row in schedule.critical_path():
        send = schedule.sends[row]
        path.append(
            {
                "chunk": int(send["chunk"]),
                "link": int(send["link"]),
                "name": schedule.problem.topology.link_name(int(send["link"])),
                "start_s": int(send["start_ps"]) / PICOSECONDS,
                "arrival_s": int(arrivals[row]) / PICOSECONDS,
            }
        )
    return path


def _replay_text(
    schedule: "Schedule", replay: "Replay", path: Path | None, cost: "RoundCost | None"
) -> str:
    from teccl.cli.output import pairs, table
    from teccl.units import PICOSECONDS, display_time

    rows: list[tuple[str, object]] = [
        ("schedule", _headline(schedule)),
        ("finish time", display_time(replay.finish_ps / PICOSECONDS)),
    ]
    if cost is not None:
        ratio = cost.finish_ps / max(1, replay.finish_ps)
        time = display_time(cost.finish_ps / PICOSECONDS)
        rows.append(("in rounds", f"{time} ({ratio:.2f} times), {cost.num_rounds} rounds"))
        rows.append(("largest round", f"{cost.most_messages} messages of one gpu"))
    tenants = schedule.problem.demand.tenants
    if len(tenants) > 1:
        rows += [
            (f"finish of {tenant.name}", display_time(finish / PICOSECONDS))
            for tenant, finish in zip(tenants, replay.tenant_finish_ps, strict=True)
        ]
    if path is not None:
        rows.append(("saved to", path))
    links = [
        (name, f"{busy:.1%}", sends)
        for _, name, busy, sends in _busiest_links(replay.schedule)[:MAX_ROWS]
    ]
    steps = [
        (s["name"], s["chunk"], display_time(s["start_s"]), display_time(s["arrival_s"]))
        for s in _critical_path(replay.schedule)
    ]
    parts = [
        pairs(rows),
        table(("busiest links", ">busy", ">sends"), links),
        table(("critical path", ">chunk", ">start", ">arrival"), steps[:MAX_ROWS]),
    ]
    if len(steps) > MAX_ROWS:
        parts[-1] += f"\n... and {len(steps) - MAX_ROWS} more (--json lists them)"
    return "\n\n".join(parts)
