"""Rotations: a path that grows where it can and turns a part of itself round where it cannot.

If the last node of a path has a neighbour on the path, the part after that neighbour may be
reversed, which gives the path another last node (Pósa, "Hamiltonian circuits in random graphs",
1976). It needs links that go both ways.
"""

import random

import numpy as np
import numpy.typing as npt

BoolMatrix = npt.NDArray[np.bool_]
Cycle = list[int]

STEPS = 150_000


def rotated_cycle(adjacency: BoolMatrix) -> Cycle | None:
    """Return a cycle through all nodes, or None if none was found."""
    both_ways = adjacency & adjacency.T
    neighbours = [np.flatnonzero(row).tolist() for row in both_ways]
    if min(len(nodes) for nodes in neighbours) < 2:
        return None
    rng = random.Random(0)  # noqa: S311, a search needs no secrets
    path, place = [0], {0: 0}
    for _ in range(STEPS):
        last = path[-1]
        if len(path) == len(neighbours) and both_ways[last, path[0]]:
            return path
        fresh = [node for node in neighbours[last] if node not in place]
        if fresh:
            following = min(fresh, key=lambda node: _ways_on(neighbours[node], place))
            place[following] = len(path)
            path.append(following)
            continue
        # Of the generator's methods only random() is the same in all versions of Python.
        turn = place[neighbours[last][int(rng.random() * len(neighbours[last]))]] + 1
        path[turn:] = path[: turn - 1 : -1]
        for i in range(turn, len(path)):
            place[path[i]] = i
    return None


def _ways_on(neighbours: list[int], place: dict[int, int]) -> int:
    return sum(node not in place for node in neighbours)
