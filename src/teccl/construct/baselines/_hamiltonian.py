"""Hamiltonian cycles in directed graphs: exhaustive on small ones, a patient heuristic on others.

Three searches take turns, each with a fixed budget of work: backtracking, which suits narrow and
one-way graphs and may prove that there is no cycle; cycle patching, which suits grids; and
rotations of a path, which suit sparse irregular graphs.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from teccl.construct.baselines._patching import cycle_cover, patched_cycle
from teccl.construct.baselines._rotations import rotated_cycle

BoolMatrix = npt.NDArray[np.bool_]
Cycle = list[int]

# Steps of backtracking before and after the other searches.
FIRST_STEPS = 2_000
LAST_STEPS = 20_000


def may_have_cycle(adjacency: BoolMatrix) -> bool:
    """Whether the graph is strongly connected and cycles can cover it."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array(adjacency.astype(np.int8))
    count, _ = connected_components(graph, directed=True, connection="strong")
    return count == 1 and cycle_cover(adjacency) is not None


def hamiltonian_cycle(adjacency: BoolMatrix) -> Cycle | None:
    """Return a cycle through all nodes, or None if none was found.

    Examples
    --------
    >>> square = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=bool)
    >>> hamiltonian_cycle(square)
    [0, 1, 2, 3]
    """
    search = _Backtracking(adjacency)
    cycle = search.run(FIRST_STEPS)
    if cycle is not None or search.exhausted:
        return cycle
    return patched_cycle(adjacency) or rotated_cycle(adjacency) or search.run(LAST_STEPS)


class _Backtracking:
    """Depth-first search on sets of nodes that are kept as the bits of integers.

    It goes to the neighbour with the fewest ways on, and back as soon as some unvisited node can
    no longer be entered, left or reached.
    """

    def __init__(self, adjacency: BoolMatrix) -> None:
        self.ahead = [_bits(row) for row in adjacency]
        self.behind = [_bits(column) for column in adjacency.T]
        degrees = adjacency.sum(axis=0) + adjacency.sum(axis=1)
        self.start = int(degrees.argmin())
        self.unvisited = ((1 << len(adjacency)) - 1) ^ (1 << self.start)
        self.path = [self.start]
        self.options = [self._options()]
        self.exhausted = False

    def run(self, steps: int) -> Cycle | None:
        """Go on for some steps; `exhausted` says whether everything was searched."""
        for _ in range(steps):
            following = next(self.options[-1], None)
            if following is None:
                self.options.pop()
                if not self.options:
                    self.exhausted = True
                    return None
                self.unvisited |= 1 << self.path.pop()
                continue
            self.path.append(following)
            self.unvisited ^= 1 << following
            if not self.unvisited and self.ahead[following] >> self.start & 1:
                return list(self.path)
            self.options.append(self._options() if self._is_promising() else iter(()))
        return None

    def _options(self) -> Iterator[int]:
        """Return the unvisited nodes ahead, those with the fewest ways on first."""
        nodes = list(_members(self.ahead[self.path[-1]] & self.unvisited))
        nodes.sort(key=lambda node: ((self.ahead[node] & self.unvisited).bit_count(), node))
        return iter(nodes)

    def _is_promising(self) -> bool:
        """Whether every unvisited node can still be entered, left and reached."""
        unvisited, tip = self.unvisited, self.path[-1]
        if not unvisited:
            return False
        before, after = unvisited | 1 << tip, unvisited | 1 << self.start
        # Only neighbours of the node just taken can have lost a way in or out.
        for node in _members((self.ahead[self.path[-2]] | self.behind[tip]) & unvisited):
            if not (self.behind[node] & before and self.ahead[node] & after):
                return False
        return (
            _reach(self.ahead, tip, unvisited) == unvisited
            and _reach(self.behind, self.start, unvisited) == unvisited
        )


def _reach(neighbours: list[int], start: int, allowed: int) -> int:
    """Return the allowed nodes that can be reached from a start."""
    seen, frontier = 0, 1 << start
    while frontier:
        node = (frontier & -frontier).bit_length() - 1
        frontier ^= 1 << node
        new = neighbours[node] & allowed & ~seen
        seen |= new
        frontier |= new
    return seen


def _bits(row: npt.NDArray[np.bool_]) -> int:
    return sum(1 << int(node) for node in np.flatnonzero(row))


def _members(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
