"""Mixing: shares of an AllReduce by different schemes, so that links are busy from first to last.

While the sums of one scheme wait for each other, the contributions of another travel.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from teccl.construct.params import PART
from teccl.construct.staged import HELPS, Level, Scheme


def mixed(parts: Mapping[Scheme, Fraction]) -> Scheme:
    """Return a scheme whose shares are those of others, each of which has a part of the buffer."""
    helpers = max((scheme.helpers for scheme in parts), key=len)
    stages = max(scheme.num_stages for scheme in parts)
    placed = list[tuple[Fraction, int, tuple[Level, ...]]]()
    for number, (scheme, count) in enumerate(zip(parts, _counts(parts), strict=True)):
        for turn, levels in enumerate(_shares(scheme, count, len(helpers), stages)):
            placed.append((Fraction(2 * turn + 1, 2 * count), number, levels))
    shares = tuple(levels for *_, levels in sorted(placed, key=lambda each: each[:2]))
    return Scheme(name="mixed", shares=shares, helpers=helpers)


def _shares(
    scheme: Scheme, count: int, num_helpers: int, stages: int
) -> Iterator[tuple[Level, ...]]:
    """Yield so many shares of a scheme; whoever is through waits for the others."""
    missing = num_helpers - len(scheme.helpers)
    for turn in range(count):
        levels = scheme.shares[turn % len(scheme.shares)]
        waits = levels[-1:] * (stages - scheme.num_stages)
        yield tuple(_with_helpers(level, missing) for level in levels + waits)


def _with_helpers(level: Level, count: int) -> Level:
    return Level(level.classes + (HELPS,) * count, level.holds + (False,) * count)


def _counts(parts: Mapping[Scheme, Fraction]) -> list[int]:
    """Return how many pieces each scheme has, as few as come near its part of the buffer."""
    shares = np.array([len(scheme.shares) for scheme in parts])
    part = np.array([float(part) for part in parts.values()])
    best, least = shares, np.inf
    for total in range(len(parts), PART * int(shares.max()) + 1):
        counts = np.maximum(1, np.rint(part * total / shares).astype(np.int64)) * shares
        error = float(np.abs(counts / counts.sum() - part).max())
        if error < least:
            best, least = counts, error
        if PART * error <= 1:
            break
    found: list[int] = best.tolist()
    return found
