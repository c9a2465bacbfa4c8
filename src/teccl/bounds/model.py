"""Bound: a proven lower limit with the certificate that anyone can evaluate again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound on the finish time.

    Parameters
    ----------
    kind
        Which theorem: pair, cut, quickest, partition, handed-on, first-passages, entries,
        lengths, coverage, served, departures.
    value
        Picoseconds, rounded down, or whole epochs on a grid.
    certificate
        A sentence that names what binds.
    """

    kind: str
    value: int
    certificate: str
