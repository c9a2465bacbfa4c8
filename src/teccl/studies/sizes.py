"""Lists of sizes: walks from one size to another, and lists taken as they are."""

from collections.abc import Sequence
from fractions import Fraction

from teccl._fractions import read_fraction
from teccl.errors import InputError
from teccl.units import Quantity, parse_size

# Points of each decimal unit on the paper's walk.
STEPS = (1, 4, 16, 64, 256)
MAX_SIZES = 1000


def read_sizes(
    sizes: str | Sequence[Quantity], factor: Quantity | None = None
) -> tuple[Fraction, ...]:
    """Read ``A:B``, a list with commas, or a sequence of sizes.

    Parameters
    ----------
    sizes
        ``A:B`` walks 1, 4, 16, 64 and 256 of each decimal unit, both ends included; a list is
        taken as it is.
    factor
        Multiply from A to B by this instead.

    Raises
    ------
    InputError
        If a size cannot be read, is not positive, or the walk has too many.

    Examples
    --------
    >>> [int(size) for size in read_sizes("1KB:64KB")]
    [1000, 4000, 16000, 64000]
    >>> [int(size) for size in read_sizes("1KB:8KB", factor=2)]
    [1000, 2000, 4000, 8000]
    """
    if isinstance(sizes, str) and ":" in sizes:
        first, _, last = sizes.partition(":")
        low, high = _size(first), _size(last)
        if low > high:
            raise InputError(f"sizes {sizes[:40]!r} end before they begin; give the smaller first")
        walk = _walk(low, high) if factor is None else _multiplied(low, high, factor)
    elif factor is not None:
        raise InputError("factor needs sizes A:B, for example 1KB:1GB; drop it for a list")
    else:
        parts = sizes.split(",") if isinstance(sizes, str) else sizes
        walk = [_size(part) for part in parts]
    if not walk or len(set(walk)) != len(walk):
        raise InputError("sizes are empty or repeat one; give each once, for example 1KB,1MB")
    return tuple(walk)


def _size(text: Quantity) -> Fraction:
    size = parse_size(text)
    if size <= 0:
        raise InputError(f"size {str(text)[:40]!r} is not positive; give for example 1KB")
    return size


def _walk(low: Fraction, high: Fraction) -> list[Fraction]:
    points = {Fraction(step * 1000**unit) for unit in range(6) for step in STEPS}
    return sorted({low, high, *(point for point in points if low < point < high)})


def _multiplied(low: Fraction, high: Fraction, factor: Quantity) -> list[Fraction]:
    ratio = read_fraction(factor, "factor")
    if ratio <= 1:
        raise InputError(f"factor {ratio} is not above 1; give for example 2")
    walk = [low]
    while walk[-1] * ratio <= high:
        walk.append(walk[-1] * ratio)
        if len(walk) > MAX_SIZES:
            raise InputError(f"factor {ratio} gives more than {MAX_SIZES} sizes; use a larger one")
    return walk
