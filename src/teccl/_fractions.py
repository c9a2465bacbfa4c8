"""Fractions that options take: numbers, percentages and what part of its bandwidth a link has."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from teccl.errors import InputError, TopologyError

# Digits of any number that is given.
LONGEST = 40
_PERCENT = 100


def read_fraction(value: object, what: str) -> Fraction:
    """Read a number or a percentage such as ``50%``.

    Examples
    --------
    >>> read_fraction("50%", "factor"), read_fraction(0.1, "gap")
    (Fraction(1, 2), Fraction(1, 10))
    """
    text = str(value).strip()
    scale = _PERCENT if text.endswith("%") else 1
    # A number of a few digits is enough, and no text may blow up into one of a billion.
    digits = text.removesuffix("%").strip()
    plain = digits.lower().partition("e")[2].lstrip("+-")
    try:
        if isinstance(value, bool) or len(digits) > LONGEST or len(plain) > 2:
            raise ValueError
        return Fraction(digits) / scale
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"{what} {text[:40]!r} is not a number; give for example 0.5 or 50%"
        ) from None


def read_factors(degrade: str | Sequence[str] | Mapping[str, object]) -> dict[str, Fraction]:
    """Read which part of their bandwidth links have left."""
    if isinstance(degrade, Mapping):
        pairs = [(str(spec), value) for spec, value in degrade.items()]
    else:
        pairs = []
        for entry in [degrade] if isinstance(degrade, str) else degrade:
            spec, separator, value = str(entry).rpartition("=")
            if not separator:
                raise TopologyError(f"degrade {str(entry)[:60]!r}: write for example A:B=50%")
            pairs.append((spec, value))
    factors = {spec: read_fraction(value, f"degrade {spec}") for spec, value in pairs}
    for spec, factor in factors.items():
        if factor > 1:
            raise TopologyError(
                f"degrade {spec}: {float(_PERCENT * factor):g}% is more than a link has; give less"
            )
    if len(factors) < len(pairs):
        raise TopologyError("degrade names the same links twice; give one factor for them")
    return factors
