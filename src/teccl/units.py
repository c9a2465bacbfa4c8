"""Sizes, bandwidths and durations: text to exact rationals and back.

Everything is a `fractions.Fraction` in SI units (bytes, bytes per second, seconds), because the
epoch arithmetic must not turn a kappa of 1 into 2 by a rounding error in the last bit.
"""

import math
import re
from fractions import Fraction
from numbers import Rational

from teccl.errors import UnitError

PICOSECONDS = 10**12
# A duration must fit int64 picoseconds with room for sums over a schedule.
MAX_SECONDS = Fraction(2**62, PICOSECONDS)

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DURATIONS = {
    "ps": Fraction(1, 10**12),
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),  # micro sign
    "μs": Fraction(1, 10**6),  # Greek mu
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
# At most 30 digits and a two-digit exponent: enough for anything real, and no text can
# blow up into a number of a billion digits.
_NUMBER = r"(?P<number>\d{1,30}/\d{1,30}|\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?)"
_MAX_NUMBER = 10**60
_QUANTITY = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>[^\d\s][^\s]*)?\s*", re.ASCII)

Quantity = str | int | float | Fraction


def parse_size(value: Quantity, *, what: str = "size") -> Fraction:
    """Read a number of bytes such as ``"64KiB"`` or ``"1.5 MB"``.

    Numbers that are not text are bytes already. Prefixes may be small; a small ``b``, which means
    bits in bandwidths, is refused.

    Examples
    --------
    >>> parse_size("1KB"), parse_size("1KiB")
    (Fraction(1000, 1), Fraction(1024, 1))
    """
    if type(value) is int and 0 <= value < _MAX_NUMBER:
        return Fraction(value)  # thousands of them in a matrix
    example = "give a unit, for example 64KiB or 1MB"
    number, unit = _split(value, what, example)
    if unit is None:
        return number
    stem = unit.lower()
    if stem in ("byte", "bytes"):
        return number
    scale = _byte_scale(stem.removesuffix("b")) if stem.endswith("b") else None
    if scale is not None and unit.endswith("b"):
        raise UnitError(
            f"{what} {_show(value)}: {unit} may mean bits; write {unit[:-1]}B for bytes, sizes in "
            "bits are not taken"
        )
    if scale is None:
        raise UnitError(f"{what} {_show(value)}: unknown unit {unit!r}; {example}")
    return number * scale


def parse_bandwidth(value: Quantity, *, what: str = "bandwidth") -> Fraction:
    """Read bytes per second such as ``"25GB/s"``, ``"25GBps"`` or, in bits, ``"200Gb/s"``.

    Examples
    --------
    >>> parse_bandwidth("200Gb/s") == parse_bandwidth("25GB/s")
    True
    """
    example = "give a unit, for example 25GB/s or 200Gb/s"
    number, unit = _split(value, what, example)
    if unit is None:
        return number
    match = re.fullmatch(r"([kKmMgGtTpP]?i?)(b|B|bit|byte)(/s|ps)", unit)
    scale = _byte_scale(match[1].lower()) if match else None
    if match is None or scale is None:
        raise UnitError(f"{what} {_show(value)}: unknown unit {unit!r}; {example}")
    return number * scale / (8 if match[2] in ("b", "bit") else 1)


def parse_duration(
    value: Quantity, *, what: str = "duration", example: str = "0.7us or 10s"
) -> Fraction:
    """Read seconds such as ``"0.7us"``, ``"10 s"``, ``"2min"`` or ``"1.5h"``.

    Errors call it `what` and suggest the `example`.

    Examples
    --------
    >>> parse_duration("0.7us"), parse_duration("1.5h")
    (Fraction(7, 10000000), Fraction(5400, 1))
    """
    remedy = f"give a unit, for example {example}"
    number, unit = _split(value, what, remedy)
    if unit is not None:
        if unit not in _DURATIONS:
            raise UnitError(f"{what} {_show(value)}: unknown unit {unit!r}; {remedy}")
        number *= _DURATIONS[unit]
    if number > MAX_SECONDS:
        raise UnitError(f"{what} {_show(value)} is longer than 53 days; give a shorter one")
    return number


def format_size(size: Fraction | int) -> str:
    """Print bytes with the largest decimal unit that keeps the value exact.

    Examples
    --------
    >>> format_size(64_000), format_size(Fraction(125, 2))
    ('64KB', '62.5B')
    """
    return _format(Fraction(size), [("TB", 12), ("GB", 9), ("MB", 6), ("KB", 3), ("B", 0)])


def format_bandwidth(bandwidth: Fraction | int) -> str:
    """Print bytes per second exactly.

    Examples
    --------
    >>> format_bandwidth(Fraction(12_500_000_000))
    '12.5GB/s'
    """
    scales = [("TB/s", 12), ("GB/s", 9), ("MB/s", 6), ("KB/s", 3), ("B/s", 0)]
    return _format(Fraction(bandwidth), scales)


def format_throughput(rate: Fraction) -> str:
    """Print bytes per second in GB/s, as a fraction too where digits do not end.

    Examples
    --------
    >>> format_throughput(Fraction(1024 * 10**9, 3))
    '341.333 GB/s (1024/3)'
    >>> format_throughput(Fraction(50 * 10**9))
    '50 GB/s'
    """
    exact = rate / 10**9
    text = f"{float(exact):.6g} GB/s"
    return text if exact.denominator == 1 else f"{text} ({exact})"


def format_duration(seconds: Fraction | int) -> str:
    """Print a duration exactly.

    Examples
    --------
    >>> format_duration(Fraction(7, 10**7))
    '0.7us'
    """
    if seconds == 0:
        return "0"
    if seconds < Fraction(1, 10**8):
        return _format(Fraction(seconds), [("ns", -9), ("ps", -12)])
    return _format(Fraction(seconds), [("s", 0), ("ms", -3), ("us", -6)], smallest=Fraction(1, 10))


def display_time(seconds: float) -> str:
    """Print a time for people: four significant digits, the unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e12:.4g} ps" if seconds else "0 s"


def picoseconds(seconds: Fraction) -> int:
    """Whole picoseconds, rounded up."""
    return math.ceil(seconds * PICOSECONDS)


def _split(value: Quantity, what: str, example: str) -> tuple[Fraction, str | None]:
    """Number and unit of a quantity; text without a unit is refused unless it is zero."""
    if isinstance(value, bool) or not isinstance(value, str | Rational | float):
        raise UnitError(f"{what} {_show(value)} is not a quantity; {example}")
    if not isinstance(value, str):
        if isinstance(value, float) and not math.isfinite(value):
            raise UnitError(f"{what} {value} is not finite; {example}")
        if value < 0:
            raise UnitError(f"{what} {_show(value)} is negative; give a positive value")
        if value > _MAX_NUMBER:
            raise UnitError(f"{what} {_show(value)} is too large; give a smaller value")
        # repr gives the shortest decimal: 0.7e-6 means 7/10**7, not the nearest binary number.
        return Fraction(repr(value) if isinstance(value, float) else value), None
    match = _QUANTITY.fullmatch(value)
    if match is None:
        if value.strip().startswith("-"):
            raise UnitError(f"{what} {_show(value)} is negative; give 0 or more, with a unit")
        raise UnitError(f"{what} {_show(value)} is not a quantity; {example}")
    try:
        number = Fraction(match["number"])
    except ZeroDivisionError:
        raise UnitError(f"{what} {_show(value)} divides by zero; {example}") from None
    if match["unit"] is None and number != 0:
        raise UnitError(f"{what} {_show(value)} has no unit; {example}")
    return number, match["unit"]


def _byte_scale(prefix: str) -> int | None:
    return _PREFIXES.get(prefix) or _BINARY.get(prefix)


def _show(value: object) -> str:
    """A value as an error message shows it: quoted, short, on one line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits cannot be printed
        text = "of too many digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _format(
    value: Fraction, scales: list[tuple[str, int]], *, smallest: Fraction = Fraction(1)
) -> str:
    """The first unit that shows the value as a short decimal of at least `smallest`."""
    for unit, exponent in scales:
        scaled = value / Fraction(10) ** exponent
        text = _decimal(scaled)
        if text is not None and (scaled >= smallest or (unit, exponent) == scales[-1]):
            return text + unit
    unit, exponent = scales[-1]
    return f"{value / Fraction(10) ** exponent}{unit}"


def _decimal(value: Fraction, places: int = 12) -> str | None:
    """The value as a plain decimal number, or None when it does not end within `places`."""
    scaled = value * 10**places
    if scaled.denominator != 1:
        return None
    whole, part = divmod(scaled.numerator, 10**places)
    digits = f"{part:0{places}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
