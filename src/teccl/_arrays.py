"""Arrays of numbers, whatever they mean: runs of equal values, look-ups, exact scaling."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
# int64, or Python integers where those would overflow.
NumberArray = npt.NDArray[Any]

# Later than any time and beyond any epoch; sums with it are never formed.
NEVER = np.iinfo(np.int64).max
# Fewer look-ups than this are searched one by one.
_FEW = 10_000


def ints(values: Sequence[int]) -> IntArray:
    """Return a list of integers as an array."""
    return np.array(values, dtype=np.int64)


def expand(first: IntArray, count: IntArray) -> IntArray:
    """Return the ranges ``first[i], first[i] + 1, ...`` of `count[i]` numbers, end to end.

    Examples
    --------
    >>> expand(np.array([4, 9]), np.array([3, 2])).tolist()
    [4, 5, 6, 9, 10]
    """
    ends = np.cumsum(count)
    shift: IntArray = np.repeat(first - (ends - count), count)
    return np.arange(len(shift)) + shift


def new_run(*columns: npt.NDArray[Any]) -> BoolArray:
    """Mark the positions where any of the sorted columns differs from the position before."""
    marks = np.ones(len(columns[0]), dtype=bool)
    if len(marks):
        marks[1:] = False
    for column in columns:
        marks[1:] |= column[1:] != column[:-1]
    return marks


def number_runs(*columns: npt.NDArray[Any]) -> IntArray:
    """Return the number of the run of equal values that each position belongs to."""
    return np.cumsum(new_run(*columns), dtype=np.int64) - 1


def last_marked(marks: BoolArray, run: IntArray) -> IntArray:
    """Position of the latest marked entry up to each position in the same run, -1 where none.

    Parameters
    ----------
    marks
        The entries to look for.
    run
        Number of each position's run; runs are contiguous.
    """
    found = np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
    return np.where((found >= 0) & (run[found] == run), found, -1)


def next_marked(marks: BoolArray, run: IntArray) -> IntArray:
    """Position of the first marked entry from each position on in the same run, -1 where none."""
    mirrored = last_marked(marks[::-1], run[::-1])[::-1]
    return np.where(mirrored >= 0, len(marks) - 1 - mirrored, -1)


def locate(keys: IntArray, wanted: IntArray) -> IntArray:
    """Index of the first key that is not less than each wanted one; keys are sorted, none negative.

    Like ``np.searchsorted``, but by counting where the keys lie densely: millions of look-ups in a
    table beat as many binary searches.

    Examples
    --------
    >>> locate(np.array([2, 2, 5]), np.array([0, 2, 3, 9])).tolist()
    [0, 0, 2, 3]
    """
    span = int(keys[-1]) + 1 if len(keys) else 0
    if span > 8 * (len(keys) + len(wanted)) or len(wanted) < _FEW:
        return np.searchsorted(keys, wanted)
    below = np.zeros(span + 2, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=span), out=below[1:-1])
    below[-1] = len(keys)
    return below[np.minimum(wanted, span)]


def distinct(values: IntArray) -> IntArray:
    """Return the values in ascending order, each once.

    Like ``np.unique``, whose table of hashes takes ten times as long for many different values.

    Examples
    --------
    >>> distinct(np.array([5, 2, 5])).tolist()
    [2, 5]
    """
    ordered = np.sort(values)
    return ordered[new_run(ordered)]


def is_among(values: IntArray, keys: IntArray) -> BoolArray:
    """Whether each value is one of the keys, like ``np.isin`` without its table of hashes.

    Examples
    --------
    >>> is_among(np.array([5, 2, 7]), np.array([7, 5])).tolist()
    [True, False, True]
    """
    if not len(keys):
        return np.zeros(len(values), dtype=bool)
    ordered = keys if (keys[1:] >= keys[:-1]).all() else np.sort(keys)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: BoolArray = ordered[at] == values
    return found


def scaled(values: Sequence[Fraction], terms: int) -> NumberArray:
    """Return the fractions times their common denominator, so that sums are exact.

    Parameters
    ----------
    values
        Non-negative fractions.
    terms
        How many of them a sum may have; Python integers are used where int64 could overflow.
    """
    common = math.lcm(*(value.denominator for value in values)) if values else 1
    whole = [value.numerator * (common // value.denominator) for value in values]
    fits = max(whole, default=0) * max(1, terms) < 2**62
    return np.array(whole, dtype=np.int64 if fits else object)
