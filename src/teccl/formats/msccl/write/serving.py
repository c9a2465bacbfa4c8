"""Sizes: for which messages a program serves, and how they divide into chunks and elements."""

import math
from dataclasses import dataclass
from fractions import Fraction

from teccl._suggest import did_you_mean
from teccl.errors import ExportError
from teccl.formats.shared.exports import ExportOptions
from teccl.units import format_size

# As nccl-tests names them.
ELEMENT_BYTES = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
}
# Below this the low-latency protocol's smaller overhead is worth half of the bandwidth.
_LOW_LATENCY_BYTES = 64 * 1024
# A file serves sizes within this factor of the one its schedule was made for.
_RANGE = 2
# nccl-tests rounds each rank's share to this many bytes.
_SHARE_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSizes:
    """Sizes in bytes, as nccl-tests counts them.

    Parameters
    ----------
    scheduled
        What the schedule was made for.
    unit
        Sizes must be multiples of it, so that every chunk is a whole number of elements.
    fitting
        The smallest such size from the scheduled one on, within the range.
    low, high
        The range in which the runtime may choose the file.
    dtype, protocol
        Names of element type and protocol.
    """

    scheduled: Fraction
    unit: int
    fitting: int
    low: int
    high: int
    dtype: str
    protocol: str

    def notes(self, loop: int) -> list[str]:
        """Say where the scheduled size does not divide."""
        if self.scheduled == self.fitting:
            return []
        note = (
            f"{format_size(self.scheduled)} does not divide into {loop} chunks of whole "
            f"{self.dtype} elements; the runtime uses the file only for multiples of {self.unit} "
            f"bytes, such as {self.fitting}"
        )
        return [note]


def sizes_of(
    scheduled: Fraction,
    *,
    loop: int,
    ranks: int,
    options: ExportOptions,
    protocol: str,
) -> ServedSizes:
    """Choose range and element type.

    Raises
    ------
    ExportError
        If an option is unknown or no size in the range divides.
    """
    dtype = options.dtype or "float"
    if dtype not in ELEMENT_BYTES:
        raise ExportError(f"unknown dtype {dtype[:40]!r}{did_you_mean(dtype, ELEMENT_BYTES)}")
    unit = loop * ELEMENT_BYTES[dtype]
    low = math.floor(scheduled / _RANGE if options.min_bytes is None else options.min_bytes)
    high = math.ceil(scheduled * _RANGE if options.max_bytes is None else options.max_bytes)
    fitting = -(-max(math.ceil(scheduled), low) // unit) * unit
    if fitting >= high:
        fitting = (high - 1) // unit * unit
    if high <= low or fitting < max(low, 1):
        raise ExportError(
            f"no size from min-bytes {low} to max-bytes {high} is a multiple of {unit} bytes "
            f"({loop} chunks of {dtype}); widen the range or use fewer chunks or instances"
        )
    wide = math.lcm(unit, ranks * _SHARE_BYTES)
    if (rounded := -(-fitting // wide) * wide) < high and fitting != scheduled:
        fitting = rounded
    return ServedSizes(
        scheduled=scheduled,
        unit=unit,
        fitting=fitting,
        low=low,
        high=high,
        dtype=dtype,
        protocol=protocol,
    )


def protocol_of(asked: str | None, scheduled: Fraction, protocols: tuple[str, ...]) -> str:
    """Return the protocol that was asked for, or that serves the size best.

    Raises
    ------
    ExportError
        If it is unknown.
    """
    if asked is None:
        return "LL" if scheduled < _LOW_LATENCY_BYTES else "Simple"
    for name in protocols:
        if name.lower() == asked.lower():
            return name
    raise ExportError(f"unknown protocol {asked[:40]!r}{did_you_mean(asked, protocols)}")
