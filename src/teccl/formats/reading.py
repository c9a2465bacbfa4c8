"""Schedules and topologies out of other tools' files: `import_schedule` and `import_topology`.

No foreign format says all that a schedule or a topology needs, so that both come with sentences on
what was assumed.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from teccl import _files as files
from teccl._suggest import did_you_mean
from teccl.errors import InputError, ScheduleError, TopologyError
from teccl.formats.registry import formats_that
from teccl.formats.shared.imports import Imported, option_name, parse_options
from teccl.schedule import Schedule
from teccl.topology import Topology
from teccl.units import Quantity, parse_size

__all__ = ["Imported", "ImportedSchedule", "import_schedule", "import_topology"]
_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSchedule:
    """A schedule made from another tool's file.

    Parameters
    ----------
    schedule
        The transfers of the file at the earliest times that keep their order. It is not verified:
        whether the file does what it should is what one imports it to find out.
    notes
        One sentence for each thing that was assumed or changed.
    """

    schedule: Schedule
    notes: tuple[str, ...]


def _also_by_format(read: Callable[_Given, _Read]) -> Callable[_Given, _Read]:
    """Let the source have its old name, which is that of a builtin."""

    @wraps(read)
    def call(*arguments: _Given.args, **named: _Given.kwargs) -> _Read:
        if "format" in named:
            message = "format= is now source=; the old name goes in version 0.3"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            named["source"] = named.pop("format")
        return read(*arguments, **named)

    return call


@_also_by_format
def import_schedule(
    path: str | Path, source: str, *, topology: "Topology | str | Path", size: Quantity
) -> ImportedSchedule:
    """Read another tool's schedule.

    Parameters
    ----------
    path
        The file.
    source
        One of the formats that `teccl import` lists.
    topology
        The network it was made for; foreign files do not hold it.
    size
        Bytes of the collective as nccl-tests counts them, which they do not hold either.

    Raises
    ------
    ScheduleError
        If the format is unknown, or the file is damaged or does not fit the topology.
    """
    known = formats_that("reads")
    if source not in known:
        raise ScheduleError(f"unknown format {files.shown(source)}{did_you_mean(source, known)}")
    network = Topology.parse(topology)
    amount = parse_size(size)
    if amount <= 0:
        raise ScheduleError(f"size {files.shown(size)} is not positive; give for example 1MB")
    path = Path(path)
    notes: list[str] = []
    reader = known[source].function("read", "read_schedule")
    try:
        schedule = reader(path, network, amount, notes)
    except InputError as problem:
        text = str(problem)
        raise ScheduleError(text if str(path) in text else f"{path}: {text}") from None
    assert isinstance(schedule, Schedule)
    return ImportedSchedule(schedule=schedule, notes=tuple(notes))


@_also_by_format
def import_topology(path: str | Path, source: str, **options: Quantity | None) -> Imported:
    """Read another tool's topology file.

    Parameters
    ----------
    path
        The file.
    source
        One of the formats that `teccl topology import` lists.
    options
        What the file cannot say, by the names of `ImportOptions`, as texts with units.

    Raises
    ------
    TopologyError
        If the format is unknown or does not take an option, or the file is wrong.
    """
    known = formats_that("reads_topology")
    if source not in known:
        raise TopologyError(f"unknown format {files.shown(source)}{did_you_mean(source, known)}")
    read_options = parse_options(options)
    taken = known[source].topology_options
    for key in read_options.given():
        if key not in taken:
            takes = ", ".join(option_name(name) for name in taken)
            raise TopologyError(
                f"format {source} has no use for {option_name(key)}; it takes {takes}"
            )
    path = Path(path)
    reader = known[source].function("read", "read_topology")
    with files.naming(path, TopologyError):
        imported = reader(path, read_options)
    assert isinstance(imported, Imported)
    return imported
