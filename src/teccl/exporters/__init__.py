"""Exporters: schedules as files that other programs run or show.

`TARGETS` lists them. A target is a module of this package with one function,
``render(schedule, path, options) -> Export``, which makes files and writes none; adding a target
is adding its entry here. Nothing is written before all files of an export are made and proven.
"""

from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from teccl._suggest import did_you_mean
from teccl.errors import ExportError
from teccl.exporters.model import Export, ExportOptions, OutputFile
from teccl.units import Quantity, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from teccl.schedule import Schedule

__all__ = ["TARGETS", "Export", "ExportOptions", "OutputFile", "Target", "export"]

_PROGRAM_OPTIONS = (
    *("in_place", "dtype", "channels", "instances", "protocol"),
    *("min_bytes", "max_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An entry of the registry.

    Parameters
    ----------
    summary
        What help texts say.
    module
        Where `render` lives; loaded on first use.
    suffixes
        What the name of an output file must end in.
    options
        Fields of `ExportOptions` that mean something to the target.
    """

    summary: str
    module: str
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def render(self) -> "Callable[[Schedule, Path, ExportOptions], Export]":
        """The function that makes the files."""
        function: Callable[[Schedule, Path, ExportOptions], Export]
        function = import_module(self.module).render
        return function


TARGETS = {
    "msccl": Target(
        summary="MSCCL XML for the NCCL fork",
        module="teccl.exporters.msccl",
        suffixes=(".xml",),
        options=_PROGRAM_OPTIONS,
    ),
    "rccl": Target(
        summary="MSCCL XML for RCCL",
        module="teccl.exporters.rccl",
        suffixes=(".xml",),
        options=_PROGRAM_OPTIONS,
    ),
    "mscclpp": Target(
        summary="MSCCL++ execution plan",
        module="teccl.exporters.mscclpp",
        suffixes=(".json",),
        options=("in_place", "min_bytes", "max_bytes"),
    ),
    "chakra": Target(
        summary="Chakra execution traces for ASTRA-sim",
        module="teccl.exporters.chakra",
        suffixes=(".json",),
        options=("with_config",),
    ),
    "goal": Target(
        summary="GOAL text for LogGOPSim",
        module="teccl.formats.goal.write",
        suffixes=(".goal",),
    ),
    "perfetto": Target(
        summary="timeline for Perfetto and chrome://tracing",
        module="teccl.exporters.perfetto",
        suffixes=(".json", ".json.gz"),
    ),
}


def export(
    schedule: "Schedule",
    *,
    to: str,
    path: str | Path | None = None,
    in_place: bool | None = None,
    dtype: str | None = None,
    channels: int | None = None,
    instances: int | None = None,
    protocol: str | None = None,
    min_bytes: Quantity | None = None,
    max_bytes: Quantity | None = None,
    with_config: bool | None = None,
) -> Export:
    """Turn a schedule into files of another program, prove them and write them.

    Parameters
    ----------
    schedule
        What to export; it is verified first.
    to
        Name of the target, one of `TARGETS`.
    path
        Where to write, None to return the files without writing.
    in_place, dtype, channels, instances, protocol, min_bytes, max_bytes, with_config
        See `ExportOptions`; those that a target does not know are refused.

    Returns
    -------
    Export
        The files with figures, notes and how to run them.

    Raises
    ------
    ExportError
        If the target or an option is wrong, or the target cannot express the schedule.
    ExportRefused
        If a limit of the target is exceeded; the message names it and what would help.
    VerificationError
        If the schedule is wrong.
    """
    from teccl._files import write_atomically
    from teccl.schedule.accumulators import spelled_out
    from teccl.verification import verify

    options = ExportOptions(
        in_place=in_place,
        dtype=dtype,
        channels=channels,
        instances=instances,
        protocol=protocol,
        min_bytes=_bytes(min_bytes, "min-bytes"),
        max_bytes=_bytes(max_bytes, "max-bytes"),
        with_config=with_config,
    )
    target = find_target(to, options)
    verify(schedule, strict=True)
    if schedule.sums is not None:
        # Chunks with and without partial sums then take one way.
        schedule = spelled_out(schedule)
    place = Path(f"schedule{target.suffixes[0]}" if path is None else path)
    made = target.render(schedule, place, options)
    if path is not None:
        for file in made.files:
            write_atomically(file.path, file.content, ExportError)
    return made


def find_target(name: str, options: ExportOptions) -> Target:
    """Return the target of a name after checking that it takes the given options."""
    target = TARGETS.get(name)
    if target is None:
        raise ExportError(f"unknown target {name[:40]!r}{did_you_mean(name, TARGETS)}")
    for option in options.given():
        if option not in target.options:
            raise ExportError(f"--to {name} has no use for {option.replace('_', '-')}; drop it")
    return target


def _bytes(value: Quantity | None, what: str) -> Fraction | None:
    return None if value is None else parse_size(value, what=what)
