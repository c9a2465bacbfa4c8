"""Ratios: many fractions as two lists of whole numbers, for there may be thousands of sizes."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import overload


class Ratios(Sequence[Fraction]):
    """A tuple of fractions whose objects are made when one is asked for.

    Parameters
    ----------
    numerators, denominators
        Of each, in lowest terms.

    Examples
    --------
    >>> Ratios((1, 3), (2, 1))[0]
    Fraction(1, 2)
    """

    __slots__ = ("denominators", "numerators")

    def __init__(self, numerators: tuple[int, ...], denominators: tuple[int, ...]) -> None:
        self.numerators = numerators
        self.denominators = denominators

    @staticmethod
    def of(values: Sequence[Fraction]) -> "Ratios":
        """Take fractions apart."""
        return Ratios(
            tuple([value.numerator for value in values]),
            tuple([value.denominator for value in values]),
        )

    def __len__(self) -> int:
        return len(self.numerators)

    @overload
    def __getitem__(self, at: int) -> Fraction: ...
    @overload
    def __getitem__(self, at: slice) -> "Ratios": ...
    def __getitem__(self, at: int | slice) -> "Fraction | Ratios":
        if isinstance(at, slice):
            return Ratios(self.numerators[at], self.denominators[at])
        return Fraction(self.numerators[at], self.denominators[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.numerators, self.denominators))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def largest(self) -> Fraction:
        """Return the largest, compared in whole numbers."""
        unit = math.lcm(*set(self.denominators))
        pairs = zip(self.numerators, self.denominators, strict=True)
        return Fraction(max(n * (unit // d) for n, d in pairs), unit)
