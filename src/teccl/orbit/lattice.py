"""Lattice: elements of a product of cyclic groups as numbers, whole arrays at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from teccl._arrays import IntArray, ints

Moduli = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lattice:
    """The group Z_m1 x Z_m2 x ..., its elements numbered row-major, the last axis fastest.

    Examples
    --------
    >>> Lattice((3, 4)).number(Lattice((3, 4)).digits(np.array([7])) + [[0], [2]]).tolist()
    [5]
    """

    moduli: Moduli
    strides: Moduli = field(init=False, compare=False)

    def __post_init__(self) -> None:
        strides = tuple(math.prod(self.moduli[i + 1 :]) for i in range(len(self.moduli)))
        object.__setattr__(self, "strides", strides)

    @property
    def order(self) -> int:
        """Number of elements."""
        return math.prod(self.moduli)

    def digits(self, numbers: IntArray) -> IntArray:
        """Coordinates of elements, one row an axis."""
        rows = [
            numbers // stride % size for size, stride in zip(self.moduli, self.strides, strict=True)
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), *np.shape(numbers))

    def number(self, digits: IntArray) -> IntArray:
        """Numbers of elements from coordinates, which are reduced to the axes' sizes."""
        total = np.zeros(digits.shape[1:], dtype=np.int64)
        for row, size, stride in zip(digits, self.moduli, self.strides, strict=True):
            total += row % size * stride
        return total

    def image(self, numbers: IntArray, onto: "Lattice", offset: Sequence[int]) -> IntArray:
        """Numbers of elements moved by an offset, in a lattice whose sizes divide these."""
        return onto.number(self.digits(numbers) + self.column(offset, np.ndim(numbers)))

    def column(self, offset: Sequence[int], depth: int = 1) -> IntArray:
        """One element's coordinates, shaped to be added to `digits`."""
        return ints(list(offset)).reshape(len(self.moduli), *[1] * depth)
