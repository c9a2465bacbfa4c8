"""Schedules out of other tools' files, so that they can be verified, replayed and looked at."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from teccl import _files as files
from teccl._suggest import did_you_mean
from teccl.errors import InputError, ScheduleError
from teccl.schedule import Schedule
from teccl.topology import Topology
from teccl.units import Quantity, parse_size

__all__ = ["FORMATS", "ImportedSchedule", "import_schedule"]


class _Format(NamedTuple):
    """A foreign format: its module and what it is."""

    module: str
    summary: str


FORMATS = {
    "te-ccl": _Format("teccl.importers.te_ccl", "TE-CCL output JSON"),
    "msccl": _Format("teccl.importers.msccl", "MSCCL or RCCL XML"),
    "goal": _Format("teccl.formats.goal.read", "GOAL text"),
}


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


def import_schedule(
    path: str | Path, format: str, *, topology: "Topology | str | Path", size: Quantity
) -> ImportedSchedule:
    """Read another tool's schedule.

    Parameters
    ----------
    path
        The file.
    format
        One of `FORMATS`.
    topology
        The network it was made for; foreign files do not hold it.
    size
        Bytes of the collective as nccl-tests counts them, which they do not hold either.

    Raises
    ------
    ScheduleError
        If the format is unknown, or the file is damaged or does not fit the topology.
    """
    known = FORMATS.get(format)
    if known is None:
        raise ScheduleError(f"unknown format {files.shown(format)}{did_you_mean(format, FORMATS)}")
    network = Topology.parse(topology)
    amount = parse_size(size)
    if amount <= 0:
        raise ScheduleError(f"size {files.shown(size)} is not positive; give for example 1MB")
    path = Path(path)
    notes: list[str] = []
    reader = import_module(known.module).read
    try:
        schedule = reader(path, network, amount, notes)
    except InputError as problem:
        text = str(problem)
        raise ScheduleError(text if str(path) in text else f"{path}: {text}") from None
    assert isinstance(schedule, Schedule)
    return ImportedSchedule(schedule=schedule, notes=tuple(notes))
