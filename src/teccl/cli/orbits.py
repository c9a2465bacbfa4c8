"""Orbit schedules on the command line: solving, judging, replaying and one rank's program."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teccl.cli.errors import CommandFailed, ExitCode, UsageError

if TYPE_CHECKING:
    from teccl.orbit import Damage, Fabric, OrbitResult, OrbitSchedule, PatchedSchedule
    from teccl.schedule import Schedule
    from teccl.verification import Violation

# Sends from which on a collective is planned as orbits where it can be: listing as many takes half
# a minute and gigabytes.
MOST_LISTED = 2**23
# Sends that a page shows one by one.
MOST_SHOWN = 2**20
# Options that plans in the quotient follow, or that change nothing about them.
_KNOWN = (
    *("size", "chunks", "switch", "effort", "seed", "threads", "without_links", "degrade"),
    # A limit waits for a first schedule, and there is one alone.
    *("time_limit", "gap"),
)


def find_fabric(
    topology: str, collective: str | None, given: Mapping[str, Any], *, asked: bool
) -> "Fabric | None":
    """Return the fabric to plan on, None where all sends are to be listed.

    Parameters
    ----------
    asked
        Whether ``--orbit`` is given; otherwise only what is too large to list is planned so, and
        what starts from an orbit file or is on a fabric file.

    Raises
    ------
    UsageError
        If orbits are asked for with an option that they do not know.
    """
    from teccl.cli.startup import load_graphs_alone
    from teccl.errors import InputError

    # Before anything that loads the rest of scipy.
    load_graphs_alone()
    from teccl.orbit.recognition import is_fabric_file

    known = (*_KNOWN, "from_schedule") if _starts_from_orbits(given) else _KNOWN
    asked = asked or _starts_from_orbits(given) or is_fabric_file(topology)
    others = [key for key in given if key not in known]
    if not asked and (others or not _is_large(topology)):
        return None
    from teccl.orbit.presets import parse_fabric
    from teccl.orbit.problem import COLLECTIVES

    serves = collective is not None and _is_one_of(collective, COLLECTIVES)
    if asked:
        if others:
            name = others[0].replace("_", "-").replace("from-schedule", "from")
            raise UsageError(f"--orbit takes no --{name}; drop one of them")
        if not serves:
            names = ", ".join(each.value for each in COLLECTIVES)
            raise UsageError(f"--orbit is for {names}; drop it or name one of them")
        return parse_fabric(topology)
    try:
        return parse_fabric(topology) if serves else None
    except InputError:
        # The general way says what is wrong, or plans what has no symmetry.
        return None


def _starts_from_orbits(given: Mapping[str, Any]) -> bool:
    from teccl.orbit.recognition import is_orbit_file

    return "from_schedule" in given and is_orbit_file(Path(given["from_schedule"]))


def _is_one_of(collective: str, known: tuple[Any, ...]) -> bool:
    from teccl.demand import parse_collective
    from teccl.errors import DemandError

    try:
        return parse_collective(collective) in known
    except DemandError:
        return False


def _is_large(topology: str) -> bool:
    """Whether a collective of all GPUs has too many sends to list; not where there are no GPUs."""
    from teccl.errors import InputError
    from teccl.orbit.recognition import count_gpus

    try:
        gpus = count_gpus(topology)
    except InputError:
        return False
    return gpus * (gpus - 1) > MOST_LISTED


def solve_fabric(
    fabric: "Fabric",
    collective: str,
    given: Mapping[str, Any],
    path: Path | None,
    groups: str | None = None,
) -> "OrbitResult":
    """Plan, judge and save."""
    from teccl.cli.startup import load_numba_alone
    from teccl.keywords import SwitchMode
    from teccl.orbit import solve_orbit
    from teccl.orbit.groups import Groups
    from teccl.synthesis.request import read_share, read_time_limit

    load_numba_alone()
    chunks, switch = _read_chunks(collective, given), given.get("switch", SwitchMode.COPY.value)
    if switch not in (SwitchMode.COPY, SwitchMode.NO_COPY):
        raise UsageError(f"--switch is {switch!r}; give copy or no-copy with orbits")
    read_time_limit(given.get("time_limit"))
    read_share(given.get("gap", 0), "--gap")
    damage = _read_damage(fabric, given)
    if "from_schedule" in given:
        if groups is not None:
            raise UsageError("--groups are not patched around damage; drop --from or --groups")
        result = _mend(fabric, collective, given, damage)
    else:
        result = solve_orbit(
            fabric,
            collective,
            size=given["size"],
            chunks=chunks,
            switch=SwitchMode(switch),
            damage=damage,
            groups=None if groups is None else Groups.parse(groups),
        )
    if path is not None:
        result.schedule.save(path)
    return result


def _read_chunks(collective: str, given: Mapping[str, Any]) -> int | None:
    """Return what --chunks says, and make sure that there is a size."""
    from teccl.errors import DemandError

    if given.get("size") is None:
        raise DemandError(f"{collective} needs a size; give for example --size 1MB")
    chunks = given.get("chunks")
    if chunks is not None and chunks != "auto" and not (chunks.isdigit() and int(chunks) > 0):
        raise UsageError(f"--chunks is {chunks!r}; give auto or a positive number")
    return None if chunks in (None, "auto") else int(chunks)


def bound_fabric(fabric: "Fabric", collective: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what no schedule of all GPUs can beat, as `teccl bound --json` has it."""
    from teccl.demand import parse_collective
    from teccl.orbit.bounds import for_any_chunks, summarise
    from teccl.orbit.problem import FabricProblem
    from teccl.units import PICOSECONDS, parse_size

    chunks = _read_chunks(collective, given)
    problem = FabricProblem(
        fabric=fabric,
        collective=parse_collective(collective),
        size=parse_size(given["size"]),
        num_chunks=chunks or 1,
    )
    found = (summarise if chunks else for_any_chunks)(problem, _read_damage(fabric, given))
    scopes = {"physical": found.physical_ps} | ({"chunk": found.chunk_ps} if chunks else {})
    figures = {f"{name}_bound_s": (ps or 0) / PICOSECONDS for name, ps in scopes.items()}
    return {**figures, "certificate": found.certificate}


def _read_damage(fabric: "Fabric", given: Mapping[str, Any]) -> "Damage | None":
    """Return what --without-link and --degrade leave out or slow down."""
    from teccl._fractions import read_factors
    from teccl.orbit import Damage

    down, slower = given.get("without_links", ()), read_factors(given.get("degrade", ()))
    return Damage.of(fabric, down=down, slower=slower) if down or slower else None


def _mend(
    fabric: "Fabric", collective: str, given: Mapping[str, Any], damage: "Damage | None"
) -> "OrbitResult":
    """Patch the plan of an orbit file, which has to be one of the same request."""
    from teccl.demand import parse_collective
    from teccl.orbit import OrbitSchedule, mend_orbit
    from teccl.units import format_size, parse_size

    file = given["from_schedule"]
    if damage is None:
        raise UsageError(
            f"--from {file} is an orbit file, which is patched around damage; "
            "give --without-link or --degrade, or drop it"
        )
    start = OrbitSchedule.load_file(file)
    asked: dict[str, tuple[object, object]] = {
        "topology": (start.fabric.name, fabric.name),
        "collective": (start.problem.collective.value, parse_collective(collective).value),
        "size": (format_size(start.problem.size), format_size(parse_size(given["size"]))),
        "chunks": (start.problem.num_chunks, given.get("chunks", start.problem.num_chunks)),
        "switch": (start.problem.switch.value, given.get("switch", start.problem.switch.value)),
    }
    for what, (there, here) in asked.items():
        if str(there) != str(here) and here != "auto":
            raise UsageError(f"--from {file} has {what} {there}, not {here}; give a plan of that")
    if start.fabric != fabric:
        raise UsageError(f"--from {file} is for another {fabric.name}; give a plan of this one")
    return mend_orbit(start, damage)


def load_judged(
    file: str,
) -> "tuple[OrbitSchedule | PatchedSchedule, tuple[Violation, ...]]":
    """Read an orbit file and judge it."""
    from teccl.orbit import OrbitSchedule, verify_orbit

    schedule = OrbitSchedule.load_file(file)
    return schedule, verify_orbit(schedule)


def list_images(file: str) -> "Schedule":
    """Return an orbit file with every send listed, for what shows single sends.

    Raises
    ------
    UsageError
        If they are too many for that.
    """
    from teccl.orbit import OrbitSchedule, expand

    schedule = OrbitSchedule.load_file(file)
    if schedule.num_sends > MOST_SHOWN:
        raise UsageError(
            f"{file} stands for {schedule.num_sends} sends, more than a page shows ({MOST_SHOWN}); "
            "use teccl simulate for its links, or teccl export --rank R for one rank"
        )
    return expand(schedule)


def headline(schedule: "OrbitSchedule | PatchedSchedule") -> str:
    """One line that says what a schedule is."""
    from teccl.units import display_time

    problem = schedule.problem
    return (
        f"{problem.collective.value} on {problem.fabric.name}, {problem.fabric.num_gpus} gpus: "
        f"{schedule.num_sends} sends, {len(schedule)} of them listed, "
        f"finish {display_time(schedule.finish_time_s)}"
    )


def simulate_orbit(file: str, path: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Replay an orbit file: every send as early as the order of sends allows."""
    from teccl.cli.output import emit, emit_json, pairs, schedule_document, table
    from teccl.orbit import PatchedSchedule
    from teccl.orbit.replay import replayed
    from teccl.units import display_time

    schedule, violations = load_judged(file)
    fail_if(violations, file)
    # What is patched is not the same everywhere, so that it keeps its times.
    is_patched = isinstance(schedule, PatchedSchedule)
    replay = schedule if isinstance(schedule, PatchedSchedule) else replayed(schedule)
    path_rows = [] if isinstance(replay, PatchedSchedule) else replay.critical_path()
    if path is not None:
        replay.save(path)
    fabric, load = replay.fabric, replay.load()
    ends = [fabric.link_ends(fabric.link_base[[i]]) for i in range(len(fabric.links))]
    names = [f"{fabric.node_name(a[0])} > {fabric.node_name(b[0])}" for a, b in ends]
    order = sorted(range(len(names)), key=lambda i: -load[i])
    if as_json:
        links = [{"orbit": i, "name": names[i], "utilisation": float(load[i])} for i in order]
        emit_json(
            {
                **schedule_document(replay),
                "verified": True,
                "scheduled_finish_time_s": schedule.finish_time_s,
                "links": links,
                "critical_path": [int(row) for row in path_rows],
            }
        )
    elif not quiet:
        rows: list[tuple[str, object]] = [
            ("schedule", headline(schedule)),
            ("finish time", display_time(replay.finish_time_s)),
            ("times", "kept, around damage")
            if is_patched
            else ("critical path", f"{len(path_rows)} sends"),
        ]
        rows += [("saved to", path)] if path is not None else []
        busy = [(f"{names[i]} and images", f"{load[i]:.1%}") for i in order]
        emit("\n\n".join([pairs(rows), table(("links", ">busy"), busy)]))


def export_rank(file: str, rank: int | None, path: Path | None, *, as_json: bool) -> None:
    """Write the messages of one rank of an orbit file as JSON."""
    from teccl._files import to_json, write_atomically
    from teccl.cli.output import emit, emit_json, pairs, schedule_document
    from teccl.errors import ExportError
    from teccl.orbit.ranks import rank_program

    if rank is None:
        raise UsageError("an orbit file is exported rank by rank; give --rank R")
    schedule, violations = load_judged(file)
    fail_if(violations, file)
    steps = [step._asdict() for step in rank_program(schedule, rank)]
    program = {"format": "teccl-rank", "rank": rank, **schedule_document(schedule), "steps": steps}
    if path is not None:
        write_atomically(path, to_json(program), ExportError)
    facts = {"target": "rank", "rank": rank, "messages": len(steps)}
    if as_json:
        emit_json({**facts, "files": [] if path is None else [str(path)]})
    else:
        emit(pairs([*facts.items(), *([("saved to", path)] if path is not None else [])]))


def fail_if(violations: "tuple[Violation, ...]", file: str) -> None:
    """End with the exit code of a failed verification if there are violations."""
    if violations:
        others = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION,
            f"schedule {file} failed verification: {violations[0]}{others}",
        )
