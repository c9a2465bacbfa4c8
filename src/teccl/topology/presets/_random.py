"""Random regular graphs that are connected and the same everywhere."""

import random
from itertools import chain

Pair = tuple[int, int]

# Swaps tried per pair: enough to forget the circulant start (a few per pair mix well).
_SWAPS_PER_PAIR = 5


def random_pairs(count: int, degree: int, seed: int) -> list[Pair]:
    """Return the pairs of a connected graph with `degree` neighbours at each of `count` nodes.

    It starts from a circulant graph over a random order of the nodes. Its cycle stays, which
    keeps the graph connected; the other pairs are mixed by swaps that keep all degrees.

    Parameters
    ----------
    count
        Number of nodes.
    degree
        Neighbours of each; below `count`, and their product even.
    seed
        Starts the generator.
    """
    generator = random.Random(seed)  # noqa: S311, nothing here is a secret
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = _below(generator, i + 1)
        order[i], order[j] = order[j], order[i]
    offsets = range(1, degree // 2 + 1)
    cycle = [_pair(order[i], order[(i + 1) % count]) for i in range(count if degree > 1 else 0)]
    rest = [
        _pair(order[i], order[(i + offset) % count]) for offset in offsets[1:] for i in range(count)
    ]
    if degree % 2:
        half = count // 2
        rest += [_pair(order[i], order[i + half]) for i in range(half)]
    _mix(rest, set(chain(cycle, rest)), generator)
    return sorted(chain(cycle, rest))


def _mix(pairs: list[Pair], present: set[Pair], generator: random.Random) -> None:
    """Replace pairs (a, b), (c, d) by (a, d), (c, b) at random where that makes new pairs."""
    for _ in range(_SWAPS_PER_PAIR * len(pairs)):
        i, j = _below(generator, len(pairs)), _below(generator, len(pairs))
        (a, b), (c, d) = pairs[i], pairs[j]
        if _below(generator, 2):
            c, d = d, c
        new = _pair(a, d), _pair(c, b)
        if len({a, b, c, d}) < 4 or present & set(new):
            continue
        present -= {pairs[i], pairs[j]}
        present |= set(new)
        pairs[i], pairs[j] = new


def _below(generator: random.Random, limit: int) -> int:
    # Of the generator's methods only random() is promised to stay the same between versions.
    return int(generator.random() * limit)


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
