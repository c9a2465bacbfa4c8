"""Orbit files: fabric, collective and the sends of one chunk of each orbit as JSON."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from teccl import __version__
from teccl import _files as files
from teccl.demand import parse_collective
from teccl.errors import InputError, ScheduleError
from teccl.keywords import SwitchMode
from teccl.orbit.damage import Damage
from teccl.orbit.fabric import CapacityOrbit, Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.groups import Groups
from teccl.orbit.lattice import Moduli
from teccl.orbit.naming import check_distinct
from teccl.orbit.patched import ADDED_DTYPE, REMOVED_DTYPE, PatchedSchedule
from teccl.orbit.problem import FabricProblem
from teccl.orbit.recognition import ORBIT_FORMAT
from teccl.orbit.schedule import ORBIT_DTYPE, OrbitSchedule, OrbitSends
from teccl.schedule import BoundSummary
from teccl.topology import NodeKind
from teccl.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)

SCHEMA_VERSION = 1
_TOP_KEYS = (
    *("format", "schema_version", "tool_version", "method", "fabric", "collective"),
    *("size", "num_chunks", "switch", "finish_ps", "bound", "sends"),
)
_FABRIC_KEYS = ("name", "group", "nodes", "links", "shared")
_LISTING_KEYS = ("ranks", "names")
_NODE_KEYS = ("name", "kind", "moduli", "group")
_LINK_KEYS = ("src", "dst", "offset", "bandwidth", "alpha", "overhead", "shares")
_CAPACITY_KEYS = ("name", "moduli", "bandwidth")
_SEND_KEYS = ("chunk", "link", "transfer", "start_ps", "reduce")
_PATCH_KEYS = ("damage", "removed", "added")
_DAMAGE_KEYS = ("link", "bandwidth")
_REMOVED_KEYS = ("transfer", "element")
_ADDED_KEYS = ("chunk", "element", "link", "transfer", "start_ps", "reduce")
_GROUPS_KEYS = ("size", "stride")
_BOUND_KEYS = ("physical_ps", "chunk_ps", "certificate")


def save_orbit(schedule: OrbitSchedule | PatchedSchedule, path: Path) -> None:
    """Write an orbit file; equal schedules give equal bytes."""
    files.write_atomically(path, files.to_json(orbit_to_dict(schedule)), ScheduleError)


def load_orbit(path: Path) -> OrbitSchedule | PatchedSchedule:
    """Read an orbit file, refusing damaged and foreign ones."""
    text = files.read_text(path, ScheduleError, max_bytes=files.MAX_SCHEDULE_BYTES)
    return orbit_from_dict(files.parse_json(text, str(path), ScheduleError), where=str(path))


def orbit_to_dict(schedule: OrbitSchedule | PatchedSchedule) -> dict[str, Any]:
    """Return the schedule as the plain data a file holds."""
    problem, bound = schedule.problem, schedule.bound
    plain = schedule.base if isinstance(schedule, PatchedSchedule) else schedule
    document = {
        "format": ORBIT_FORMAT,
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "method": schedule.method,
        "fabric": fabric_to_dict(problem.fabric),
        "collective": problem.collective.value,
        "size": format_size(problem.size),
        "num_chunks": problem.num_chunks,
        "switch": problem.switch.value,
        "finish_ps": schedule.finish_ps,
        "bound": {key: getattr(bound, key) for key in _BOUND_KEYS} if bound else None,
        "sends": _columns(plain.sends, _SEND_KEYS),
    }
    if problem.groups is not None:
        document["groups"] = {"size": problem.groups.size, "stride": problem.groups.stride}
    if isinstance(schedule, PatchedSchedule):
        document["patch"] = _patch_to_dict(schedule)
    return document


def _columns(rows: OrbitSends, keys: tuple[str, ...]) -> dict[str, list[int]]:
    return {key: rows[key].astype(np.int64).tolist() for key in keys}


def _patch_to_dict(schedule: PatchedSchedule) -> dict[str, Any]:
    return {
        "damage": [
            {"link": link, "bandwidth": None if rate is None else format_bandwidth(rate)}
            for link, rate in schedule.damage.rates.items()
        ],
        "removed": _columns(schedule.removed, _REMOVED_KEYS),
        "added": _columns(schedule.added, _ADDED_KEYS),
    }


def fabric_to_dict(fabric: Fabric) -> dict[str, Any]:
    """Return a fabric as plain data."""
    listing = {key: list(getattr(fabric, key)) for key in _LISTING_KEYS if getattr(fabric, key)}
    return {
        "name": fabric.name,
        "group": list(fabric.moduli),
        "nodes": [
            {"name": n.name, "kind": n.kind.value, "moduli": list(n.moduli), "group": n.group}
            for n in fabric.nodes
        ],
        "links": [
            {
                "src": link.src,
                "dst": link.dst,
                "offset": list(link.offset),
                "bandwidth": format_bandwidth(link.bandwidth),
                "alpha": format_duration(link.alpha),
                "overhead": format_duration(link.overhead),
                "shares": list(link.shares),
            }
            for link in fabric.links
        ],
        "shared": [
            {
                "name": each.name,
                "moduli": list(each.moduli),
                "bandwidth": format_bandwidth(each.bandwidth),
            }
            for each in fabric.shared
        ],
        **listing,
    }


def orbit_from_dict(
    document: Any, *, where: str = "orbit schedule"
) -> OrbitSchedule | PatchedSchedule:
    """Build a schedule from plain data."""
    if not isinstance(document, dict) or document.get("format") != ORBIT_FORMAT:
        raise ScheduleError(
            f"{where} is no orbit file of teccl; its 'format' must be {ORBIT_FORMAT!r}"
        )
    known = (*_TOP_KEYS, "groups", "patch")
    top = files.expect_mapping(document, where, ScheduleError, known=known, required=_TOP_KEYS)
    version = top["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ScheduleError(
            f"{where}: schema_version {files.shown(version)} is not supported; "
            f"this teccl reads {SCHEMA_VERSION}"
        )
    files.expect_text(top["tool_version"], f"{where}: tool_version", ScheduleError)
    try:
        problem = _read_problem(top, where)
    except InputError as reason:
        prefix = "" if str(reason).startswith(where) else f"{where}: "
        raise ScheduleError(f"{prefix}{reason}") from None
    sends = _read_sends(top["sends"], f"{where}: sends", ORBIT_DTYPE)
    plain = OrbitSchedule(
        problem=problem,
        sends=sends,
        method=files.expect_text(top["method"], f"{where}: method", ScheduleError),
        bound=_read_bound(top["bound"], f"{where}: bound"),
        claimed_finish_ps=files.expect_int(
            top["finish_ps"], f"{where}: finish_ps", ScheduleError, low=0, high=2**62
        ),
    )
    return _read_patch(plain, top["patch"], f"{where}: patch") if "patch" in top else plain


def _read_patch(plain: OrbitSchedule, value: Any, where: str) -> PatchedSchedule:
    """Put a patch on the schedule that a file has the rest of."""
    entry = _mapping(value, where, _PATCH_KEYS)
    rates: dict[int, Fraction | None] = {}
    for i, each in enumerate(files.expect_list(entry["damage"], f"{where}: damage", ScheduleError)):
        at = f"{where}: damage[{i}]"
        one = _mapping(each, at, _DAMAGE_KEYS)
        link = files.expect_int(one["link"], f"{at}: link", ScheduleError, low=0, high=2**62)
        if link in rates:
            raise ScheduleError(f"{at}: link {link} is named twice; name each once")
        rate = one["bandwidth"]
        rates[link] = (
            None
            if rate is None
            else files.quantity(rate, parse_bandwidth, f"{at}: bandwidth", ScheduleError)
        )
    try:
        damage = Damage(fabric=plain.fabric, rates=rates)
    except InputError as reason:
        raise ScheduleError(f"{where}: {reason}") from None
    return PatchedSchedule(
        base=replace(plain, bound=None, claimed_finish_ps=None),
        damage=damage,
        removed=_read_sends(entry["removed"], f"{where}: removed", REMOVED_DTYPE),
        added=_read_sends(entry["added"], f"{where}: added", ADDED_DTYPE),
        method=plain.method,
        bound=plain.bound,
        claimed_finish_ps=plain.claimed_finish_ps,
    )


def _read_problem(top: dict[str, Any], where: str) -> FabricProblem:
    switches = [SwitchMode.COPY.value, SwitchMode.NO_COPY.value]
    if top["switch"] not in switches:
        shown = files.shown(top["switch"])
        raise ScheduleError(f"{where}: switch is {shown}; give {' or '.join(switches)}")
    collective = files.expect_text(top["collective"], f"{where}: collective", ScheduleError)
    return FabricProblem(
        fabric=fabric_from_dict(top["fabric"], where=f"{where}: fabric"),
        collective=parse_collective(collective),
        size=files.quantity(top["size"], parse_size, f"{where}: size", ScheduleError),
        num_chunks=files.expect_int(
            top["num_chunks"], f"{where}: num_chunks", ScheduleError, low=1, high=10**6
        ),
        switch=SwitchMode(top["switch"]),
        groups=_read_groups(top["groups"], f"{where}: groups") if "groups" in top else None,
    )


def _read_groups(value: Any, where: str) -> Groups:
    entry = _mapping(value, where, _GROUPS_KEYS)
    size, stride = (
        files.expect_int(entry[key], f"{where}: {key}", ScheduleError, low=1, high=2**31)
        for key in _GROUPS_KEYS
    )
    return Groups(size, stride)


def fabric_from_dict(document: Any, *, where: str = "fabric") -> Fabric:
    """Build a fabric from plain data, refusing anything unknown."""
    known = (*_FABRIC_KEYS, *_LISTING_KEYS)
    top = files.expect_mapping(document, where, ScheduleError, known=known, required=_FABRIC_KEYS)
    listing = {key: _entries(top, key, where) if key in top else [] for key in _LISTING_KEYS}
    fabric = Fabric(
        name=files.expect_text(top["name"], f"{where}: name", ScheduleError),
        moduli=_moduli(top["group"], f"{where}: group"),
        nodes=tuple(_read_node(*entry) for entry in _entries(top, "nodes", where)),
        links=tuple(_read_link(*entry) for entry in _entries(top, "links", where)),
        shared=tuple(_read_capacity(*entry) for entry in _entries(top, "shared", where)),
        ranks=tuple(
            files.expect_int(*entry, ScheduleError, low=0, high=2**31) for entry in listing["ranks"]
        ),
        names=tuple(files.expect_text(*entry, ScheduleError) for entry in listing["names"]),
    )
    # What is built from presets has names of its own for each.
    for orbits in (() if fabric.names else fabric.nodes, fabric.shared):
        check_distinct(fabric.name, [(each.name, each.moduli) for each in orbits])
    return fabric


def _mapping(value: Any, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    return files.expect_mapping(value, where, ScheduleError, known=keys, required=keys)


def _entries(top: dict[str, Any], key: str, where: str) -> list[tuple[Any, str]]:
    entries = files.expect_list(top[key], f"{where}: {key}", ScheduleError)
    return [(entry, f"{where}: {key}[{i}]") for i, entry in enumerate(entries)]


def _moduli(value: Any, where: str) -> Moduli:
    entries = files.expect_list(value, where, ScheduleError)
    return tuple(files.expect_int(x, where, ScheduleError, low=0, high=2**31) for x in entries)


def _read_node(value: Any, where: str) -> NodeOrbit:
    entry = _mapping(value, where, _NODE_KEYS)
    if entry["kind"] not in ("gpu", "switch"):
        raise ScheduleError(f"{where}: kind is {files.shown(entry['kind'])}; give gpu or switch")
    group = entry["group"]
    return NodeOrbit(
        name=files.expect_text(entry["name"], f"{where}: name", ScheduleError),
        kind=NodeKind(entry["kind"]),
        moduli=_moduli(entry["moduli"], f"{where}: moduli"),
        group=None if group is None else files.expect_text(group, f"{where}: group", ScheduleError),
    )


def _read_link(value: Any, where: str) -> LinkOrbit:
    entry = _mapping(value, where, _LINK_KEYS)

    def index(key: str) -> int:
        return files.expect_int(entry[key], f"{where}: {key}", ScheduleError, low=0, high=2**31)

    def duration(key: str) -> Fraction:
        return files.quantity(entry[key], parse_duration, f"{where}: {key}", ScheduleError)

    return LinkOrbit(
        src=index("src"),
        dst=index("dst"),
        offset=_moduli(entry["offset"], f"{where}: offset"),
        bandwidth=_bandwidth(entry, where),
        alpha=duration("alpha"),
        overhead=duration("overhead"),
        shares=_moduli(entry["shares"], f"{where}: shares"),
    )


def _bandwidth(entry: dict[str, Any], where: str) -> Fraction:
    return files.quantity(entry["bandwidth"], parse_bandwidth, f"{where}: bandwidth", ScheduleError)


def _read_capacity(value: Any, where: str) -> CapacityOrbit:
    entry = _mapping(value, where, _CAPACITY_KEYS)
    return CapacityOrbit(
        name=files.expect_text(entry["name"], f"{where}: name", ScheduleError),
        moduli=_moduli(entry["moduli"], f"{where}: moduli"),
        bandwidth=_bandwidth(entry, where),
    )


def _read_bound(value: Any, where: str) -> BoundSummary | None:
    if value is None:
        return None
    entry = _mapping(value, where, _BOUND_KEYS)

    def number(key: str) -> int:
        return files.expect_int(entry[key], f"{where}: {key}", ScheduleError, low=0, high=2**62)

    return BoundSummary(
        physical_ps=number("physical_ps"),
        chunk_ps=None if entry["chunk_ps"] is None else number("chunk_ps"),
        certificate=files.expect_text(entry["certificate"], f"{where}: certificate", ScheduleError),
    )


def _read_sends(value: Any, where: str, dtype: np.dtype[Any]) -> OrbitSends:
    keys = tuple(dtype.names or ())
    columns = _mapping(value, where, keys)
    lengths = {
        key: len(files.expect_list(column, f"{where}: {key}", ScheduleError))
        for key, column in columns.items()
    }
    if len(set(lengths.values())) > 1:
        raise ScheduleError(f"{where}: columns have different lengths {lengths}; the file is cut")
    array = np.zeros(lengths[keys[0]], dtype=dtype)
    for key, column in columns.items():
        limit = 1 if key == "reduce" else 2**62
        for i, entry in enumerate(column):
            if type(entry) is not int or not 0 <= entry <= limit:
                raise ScheduleError(
                    f"{where}[{i}]: {key} is {files.shown(entry)}; "
                    f"give a whole number from 0 to {limit}"
                )
        array[key] = column
    return array
