"""Random choices that are the same on every machine and version of Python."""

import math
import random
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Chance:
    """A stream of random choices that follows from its key.

    Only `Random.random` is used, the one method whose values Python promises to keep.
    """

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key)))  # noqa: S311, no secret

    def coin(self, probability: float) -> bool:
        """Return True this often."""
        return self._random.random() < probability

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, all from `low` to `high` equally likely."""
        return low + int(self._random.random() * (high - low + 1))

    def choice(self, items: Sequence[_Item]) -> _Item:
        """Return one of the items, all equally likely."""
        return items[self.whole(0, len(items) - 1)]

    def sample(self, items: Sequence[_Item], count: int) -> list[_Item]:
        """Return some of the items, in random order."""
        left = list(items)
        return [left.pop(self.whole(0, len(left) - 1)) for _ in range(count)]

    def spread(self, low: float, high: float) -> float:
        """Return a number whose logarithm is uniform."""
        return low * math.exp(self._random.random() * math.log(high / low))

    def spread_whole(self, low: int, high: int) -> int:
        """Return a whole number whose logarithm is about uniform."""
        return min(high, int(self.spread(low, high + 1)))

    def digits(self, low: float, high: float, count: int) -> float:
        """Return a number like `spread`, rounded to so many digits."""
        return float(f"{self.spread(low, high):.{count - 1}e}")
