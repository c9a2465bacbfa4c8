"""Schedule files: the whole problem and its sends as JSON, so that a file can be judged alone."""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from teccl import __version__
from teccl import _files as files
from teccl.demand.demand_files import demand_from_dict, demand_to_dict
from teccl.errors import InputError, ScheduleError
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.orbits import folded, unfolded
from teccl.schedule.sends import (
    SEND_DTYPE,
    SUM_SEND_DTYPE,
    BoundSummary,
    IntArray,
    Schedule,
    SendArray,
    check_ranges,
)
from teccl.schedule.sum_files import (
    references_from_plain,
    references_to_plain,
    sums_from_plain,
    sums_to_plain,
)
from teccl.timegrid import TimeGrid
from teccl.topology.topology_files import topology_from_dict, topology_to_dict
from teccl.units import format_duration, format_size, parse_duration

_Choice = TypeVar("_Choice", SwitchMode, Transit)

FORMAT = "teccl-schedule"
# Version 2 has partial sums, pieces of a whole buffer and a claim about the order of additions;
# what needs none of them is written in version 1.
SCHEMA_VERSIONS = (1, 2)
# Longer schedules list their sends by column, a third of the size and faster to read, and those
# that shifts repeat hold one chunk of each orbit only.
MAX_ROWS = 50_000
_TOP_KEYS = (
    "format",
    "schema_version",
    "tool_version",
    "method",
    "topology",
    "demand",
    "options",
    "chunks",
    "grid",
    "finish_ps",
    "bound",
    "sends",
)
_TOP_KEYS_2 = (*_TOP_KEYS, "same_order", "sums")
_OPTION_KEYS = ("num_chunks", "switch", "transit", "buffer", "copy")
_OPTION_KEYS_2 = (*_OPTION_KEYS, "whole_buffer")
_REQUIRED_SEND_KEYS = ("chunk", "link", "start_ps", "transfer", "op")
_SUM_SEND_KEYS = ("carries", "becomes")
_BOUND_KEYS = ("physical_ps", "chunk_ps", "epochs", "certificate")


def save_schedule(schedule: Schedule, path: Path) -> None:
    """Write a schedule file; equal schedules give equal bytes."""
    text = files.to_json(schedule_to_dict(schedule))
    files.write_atomically(path, text, ScheduleError)


def load_schedule(path: Path) -> Schedule:
    """Read a schedule file, refusing damaged and foreign ones."""
    text = files.read_text(path, ScheduleError, max_bytes=files.MAX_SCHEDULE_BYTES)
    return schedule_from_dict(files.parse_json(text, str(path), ScheduleError), where=str(path))


def schedule_to_dict(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as the plain data a file holds."""
    problem = schedule.problem
    bound = schedule.bound
    is_plain = schedule.sums is None and not (schedule.same_order or problem.whole_buffer)
    document: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSIONS[0] if is_plain else SCHEMA_VERSIONS[1],
        "tool_version": __version__,
        "method": schedule.method,
        "topology": topology_to_dict(problem.topology),
        "demand": demand_to_dict(problem.demand),
        "options": {
            "num_chunks": problem.num_chunks,
            "switch": problem.switch.value,
            "transit": problem.transit.value,
            "buffer": problem.buffer,
            "copy": problem.copy,
        },
        "chunks": _chunks_to_dict(problem),
        "grid": {"epoch": format_duration(schedule.grid.epoch)} if schedule.grid else None,
        "finish_ps": schedule.finish_ps,
        "bound": {key: getattr(bound, key) for key in _BOUND_KEYS} if bound else None,
        "sends": _sends_to_plain(schedule),
    }
    if not is_plain:
        document["options"]["whole_buffer"] = problem.whole_buffer
        document["same_order"] = schedule.same_order
        document["sums"] = sums_to_plain(schedule.sums)
    return document


def schedule_from_dict(document: Any, *, where: str = "schedule") -> Schedule:
    """Build a schedule from plain data."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        if isinstance(document, dict) and document.get("format") == "teccl-orbit":
            raise ScheduleError(
                f"{where} is an orbit, which lists one send of many; "
                "'teccl verify', 'simulate' and 'export --rank' read it"
            )
        raise ScheduleError(f"{where} is not a teccl schedule; its 'format' must be {FORMAT!r}")
    version = document.get("schema_version")
    keys = _TOP_KEYS_2 if version == SCHEMA_VERSIONS[1] else _TOP_KEYS
    top = files.expect_mapping(document, where, ScheduleError, known=keys, required=keys)
    if version not in SCHEMA_VERSIONS or isinstance(version, bool):
        raise ScheduleError(
            f"{where}: schema_version {files.shown(version)} is not supported; "
            f"this teccl reads {' and '.join(map(str, SCHEMA_VERSIONS))}"
        )
    files.expect_text(top["tool_version"], f"{where}: tool_version", ScheduleError)
    problem = _read_problem(top, where)
    grid = _read_grid(top["grid"], problem, where)
    sums = sums_from_plain(top.get("sums"), where)
    sends, shifts = _read_sends(top["sends"], problem, where, has_sums=sums is not None)
    return Schedule(
        problem=problem,
        sends=sends,
        shifts=shifts,
        sums=sums,
        same_order=files.expect_bool(
            top.get("same_order", False), f"{where}: same_order", ScheduleError
        ),
        grid=grid,
        method=files.expect_text(top["method"], f"{where}: method", ScheduleError),
        bound=_read_bound(top["bound"], where),
        claimed_finish_ps=files.expect_int(
            top["finish_ps"], f"{where}: finish_ps", ScheduleError, low=0, high=2**62
        ),
    )


def _chunks_to_dict(problem: Problem) -> dict[str, Any]:
    """Return the chunk table by column; nodes are listed by index in the topology's `nodes`."""
    table = problem.chunks
    return {
        "sizes": [format_size(size) for size in table.sizes],
        "sets": [nodes.tolist() for nodes in table.sets],
        "size": table.size_index.tolist(),
        "sources": table.source_set.tolist(),
        "destinations": table.destination_set.tolist(),
        "reduce": table.reduce.astype(int).tolist(),
        "tenant": table.tenant.tolist(),
        "block": table.block.tolist(),
        "piece": table.piece.tolist(),
    }


def _sends_to_plain(schedule: Schedule) -> list[dict[str, Any]] | dict[str, list[Any]]:
    """Return sends one by one or, where there are many, by column and once for each orbit."""
    is_long = len(schedule) > MAX_ROWS
    may_fold = is_long and schedule.shifts and schedule.sums is None
    of_orbits = folded(schedule) if may_fold else None
    sends = schedule.sends if of_orbits is None else of_orbits
    columns: dict[str, list[Any]] = {
        name: sends[name].tolist() for name in ("chunk", "link", "start_ps", "transfer")
    }
    columns["op"] = ["reduce" if reduce else "copy" for reduce in sends["reduce"].tolist()]
    if schedule.grid is not None:
        columns["epoch"] = sends["epoch"].tolist()
    if schedule.sums is not None:
        columns |= {key: references_to_plain(sends[key]) for key in _SUM_SEND_KEYS}
    if of_orbits is not None:
        columns["shifts"] = [shift.tolist() for shift in schedule.shifts]
    if is_long:
        return columns
    names = tuple(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _read_problem(top: dict[str, Any], where: str) -> Problem:
    keys = _OPTION_KEYS_2 if top["schema_version"] == SCHEMA_VERSIONS[1] else _OPTION_KEYS
    options = files.expect_mapping(
        top["options"], f"{where}: options", ScheduleError, known=keys, required=keys
    )
    buffer = options["buffer"]
    try:
        problem = Problem(
            topology=topology_from_dict(top["topology"], where=f"{where}: topology"),
            demand=demand_from_dict(top["demand"], where=f"{where}: demand"),
            num_chunks=files.expect_int(
                options["num_chunks"], f"{where}: num_chunks", ScheduleError, low=1, high=10**7
            ),
            switch=_read_choice(options["switch"], SwitchMode, f"{where}: switch"),
            transit=_read_choice(options["transit"], Transit, f"{where}: transit"),
            buffer=buffer
            if buffer is None
            else files.expect_int(buffer, f"{where}: buffer", ScheduleError, low=0, high=10**9),
            copy=files.expect_bool(options["copy"], f"{where}: copy", ScheduleError),
            whole_buffer=files.expect_bool(
                options.get("whole_buffer", False), f"{where}: whole_buffer", ScheduleError
            ),
        )
    except ScheduleError:
        raise
    except InputError as problem_with_it:
        text = str(problem_with_it)
        prefix = "" if text.startswith(where) else f"{where}: "
        raise ScheduleError(prefix + text) from None
    if top["chunks"] != _chunks_to_dict(problem):
        raise ScheduleError(f"{where}: the table of chunks does not follow from the demand")
    return problem


def _read_choice(value: Any, kind: type[_Choice], where: str) -> _Choice:
    choices = [member.value for member in kind]
    if value not in choices:
        raise ScheduleError(f"{where} is {files.shown(value)}; give {' or '.join(choices)}")
    return kind(value)


def _read_grid(value: Any, problem: Problem, where: str) -> TimeGrid | None:
    if value is None:
        return None
    entry = files.expect_mapping(
        value, f"{where}: grid", ScheduleError, known=("epoch",), required=("epoch",)
    )
    epoch = files.quantity(entry["epoch"], parse_duration, f"{where}: epoch", ScheduleError)
    try:
        return TimeGrid(problem=problem, epoch=epoch)
    except InputError as problem_with_it:
        raise ScheduleError(f"{where}: {problem_with_it}") from None


def _read_bound(value: Any, where: str) -> BoundSummary | None:
    if value is None:
        return None
    where = f"{where}: bound"
    entry = files.expect_mapping(
        value, where, ScheduleError, known=_BOUND_KEYS, required=_BOUND_KEYS
    )
    numbers = {
        key: None
        if entry[key] is None and key != "physical_ps"
        else files.expect_int(entry[key], f"{where}: {key}", ScheduleError, low=0, high=2**62)
        for key in ("physical_ps", "chunk_ps", "epochs")
    }
    certificate = files.expect_text(entry["certificate"], f"{where}: certificate", ScheduleError)
    return BoundSummary(certificate=certificate, **numbers)  # type: ignore[arg-type]


def _read_sends(
    value: Any, problem: Problem, where: str, *, has_sums: bool
) -> tuple[SendArray, tuple[IntArray, ...]]:
    """Return all sends, and the shifts that made them of those in the file."""
    where = f"{where}: sends"
    required = (*_REQUIRED_SEND_KEYS, *(_SUM_SEND_KEYS if has_sums else ()))
    if not isinstance(value, dict):
        return _read_columns(_columns_of_rows(value, required, where), required, where), ()
    columns = dict(value)
    shifts = _read_shifts(columns.pop("shifts", []), problem, where)
    sends = _read_columns(columns, required, where)
    if not shifts:
        return sends, ()
    if has_sums:
        raise ScheduleError(f"{where}: shifts repeat no partial sums; list all sends")
    try:
        check_ranges(problem, sends)
        return unfolded(problem, shifts, sends), shifts
    except ScheduleError as reason:
        raise ScheduleError(f"{where}: {reason}; the file is damaged") from None


def _read_shifts(value: Any, problem: Problem, where: str) -> tuple[IntArray, ...]:
    where = f"{where}: shifts"
    nodes = np.arange(problem.topology.num_nodes)
    entries = files.expect_list(value, where, ScheduleError)
    if len(entries) > len(nodes).bit_length():
        raise ScheduleError(f"{where}: {len(entries)} are too many for {len(nodes)} nodes")
    shifts: list[IntArray] = []
    for i, entry in enumerate(entries):
        images = files.expect_list(entry, f"{where}[{i}]", ScheduleError)
        shift = np.array(_read_integers(images, "node", f"{where}[{i}]"), dtype=np.int64)
        if not np.array_equal(np.sort(shift), nodes) or np.array_equal(shift, nodes):
            raise ScheduleError(f"{where}[{i}] moves no nodes; give a permutation of {len(nodes)}")
        if any(not np.array_equal(shift[other], other[shift]) for other in shifts):
            raise ScheduleError(f"{where}[{i}] does not commute with those before it")
        shifts.append(shift)
    return tuple(shifts)


def _read_columns(columns: Any, required: tuple[str, ...], where: str) -> SendArray:
    columns = files.expect_mapping(
        columns, where, ScheduleError, known=(*required, "epoch"), required=required
    )
    lengths = {
        key: len(files.expect_list(column, f"{where}: {key}", ScheduleError))
        for key, column in columns.items()
    }
    if len(set(lengths.values())) > 1:
        raise ScheduleError(f"{where}: columns have different lengths {lengths}; the file is cut")
    has_sums = _SUM_SEND_KEYS[0] in required
    array = np.zeros(lengths["chunk"], dtype=SUM_SEND_DTYPE if has_sums else SEND_DTYPE)
    for key, column in columns.items():
        if key == "op":
            array["reduce"] = _read_ops(column, where)
        elif key in _SUM_SEND_KEYS:
            array[key] = references_from_plain(column, f"{where}: {key}")
        else:
            array[key] = _read_integers(column, key, where)
    return array


def _columns_of_rows(value: Any, required: tuple[str, ...], where: str) -> dict[str, list[Any]]:
    rows = files.expect_list(value, where, ScheduleError)
    if not rows:
        return {key: [] for key in required}
    known = (*required, "epoch")
    keys = tuple(rows[0]) if isinstance(rows[0], dict) else known
    for i, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != set(keys):
            entry = files.expect_mapping(
                row, f"{where}[{i}]", ScheduleError, known=known, required=required
            )
            missing = sorted(set(keys) ^ set(entry))
            raise ScheduleError(f"{where}[{i}] has other keys than the first: {missing}")
    return {key: [row[key] for row in rows] for key in keys}


def _read_integers(column: list[Any], key: str, where: str) -> Any:
    for i, entry in enumerate(column):
        if type(entry) is not int:
            raise ScheduleError(f"{where}[{i}]: {key} is {files.shown(entry)}; give a whole number")
    low = min(column, default=0)
    limit = np.iinfo(np.int64 if key == "start_ps" else np.int32).max
    if low < 0 or max(column, default=0) > limit:
        raise ScheduleError(f"{where}: {key} has a value out of range; use 0 to {limit}")
    return column


def _read_ops(column: list[Any], where: str) -> list[bool]:
    for i, op in enumerate(column):
        if op not in ("copy", "reduce"):
            raise ScheduleError(f"{where}[{i}]: op is {files.shown(op)}; give copy or reduce")
    return [op == "reduce" for op in column]
