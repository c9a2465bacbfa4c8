"""Schedules and topologies as files that other programs run or show: `export`, `export_topology`.

A format's `write` makes files and writes none. Nothing is written before all files of an export are
made and proven.
"""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from teccl._suggest import did_you_mean
from teccl.errors import ExportError
from teccl.formats.registry import Format, formats_that
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.units import Quantity, parse_size

if TYPE_CHECKING:
    from teccl.schedule import Schedule
    from teccl.topology import Topology

__all__ = ["Export", "ExportOptions", "OutputFile", "export", "export_topology"]


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
        Name of the target, one of those that `teccl export` lists.
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
    made: Export = target.function("write", "render")(schedule, place, options)
    return made if path is None else _written(made)


def find_target(name: str, options: ExportOptions) -> Format:
    """Return the target of a name after checking that it takes the given options."""
    target = _known(name, "writes")
    for option in options.given():
        if option not in target.write_options:
            raise ExportError(f"--to {name} has no use for {option.replace('_', '-')}; drop it")
    return target


def export_topology(topology: "Topology", *, to: str, path: str | Path | None = None) -> Export:
    """Turn a topology into a file of a simulator and write it.

    Parameters
    ----------
    topology
        What to export.
    to
        Name of the format, one of those that `teccl topology export` lists.
    path
        Where to write, None to return the file without writing.

    Raises
    ------
    ExportError
        If the format is unknown or cannot express the topology.
    """
    target = find_topology_target(to)
    place = Path(f"topology{target.suffixes[0]}" if path is None else path)
    made: Export = target.function("write", "render_topology")(topology, place)
    return made if path is None else _written(made)


def find_topology_target(name: str) -> Format:
    """Return the format of a name that topologies can be written in.

    Raises
    ------
    ExportError
        If there is none.
    """
    return _known(name, "writes_topology")


def _known(name: str, what: str) -> Format:
    known = formats_that(what)
    if name == "torch":
        raise ExportError("PyTorch runs plans; write one: teccl sweep ... --plan FOLDER (torch.md)")
    if name not in known:
        raise ExportError(f"unknown target {name[:40]!r}{did_you_mean(name, known)}")
    return known[name]


def _written(made: Export) -> Export:
    from teccl._files import write_atomically

    for file in made.files:
        write_atomically(file.path, file.content, ExportError)
    return made


def _bytes(value: Quantity | None, what: str) -> Fraction | None:
    return None if value is None else parse_size(value, what=what)
