"""Steps: symmetries that take every vertex of a graph along one of its links, and their product.

On a torus the next vertex along an axis is one link away, wherever one is. A step is found from one
vertex and the neighbour that it goes to: every other vertex has to go to a neighbour, too, and its
links have to go with it, which leaves one choice nearly everywhere. Steps that commute make a
product of cyclic groups, whose elements are the coordinates of vertices.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from teccl._arrays import IntArray
from teccl.orbit.lattice import Lattice

# Vertices that are looked at for one step, for each vertex: most need one look for each link.
_LOOKS = 64
# Neighbours of a vertex that are tried as the other end of a step.
_TRIED = 16


@dataclass(frozen=True)
class Graph:
    """Neighbours of every vertex, each with what the links there and back are; none is its own."""

    around: Sequence[dict[int, int]]
    colour: Sequence[int]

    def is_kept(self, image: Sequence[int]) -> bool:
        """Whether a permutation maps the graph onto itself."""
        return len(set(image)) == len(self.around) and all(
            self.colour[image[x]] == self.colour[x]
            and len(self.around[image[x]]) == len(links)
            and all(self.around[image[x]].get(image[y]) == kind for y, kind in links.items())
            for x, links in enumerate(self.around)
        )


def coordinates(graph: Graph) -> tuple[Lattice, IntArray]:
    """A group of steps, and by vertex the element and the orbit that it is in.

    Returns
    -------
    Lattice
        The group; one element where no step was found.
    IntArray
        Row 0 has elements, row 1 orbits, counted by their first vertex.
    """
    shape: list[int] = []
    # Vertices by element of the group, one column an orbit.
    table = np.arange(len(graph.around)).reshape(1, -1)
    for far in list(graph.around[0])[:_TRIED]:
        is_reached = far in table[:, 0]
        step = None if is_reached else _step(graph, far, _shifts(table, shape))
        found = None if step is None else _extended(table, shape, step)
        if found is not None:
            shape, table = found
    lattice = Lattice(tuple(shape) or (1,))
    places = np.empty((2, len(graph.around)), dtype=np.int64)
    element, orbit = np.indices(table.shape)
    places[0, table], places[1, table] = element, orbit
    return lattice, places


def _step(graph: Graph, far: int, shifts: list[IntArray]) -> IntArray | None:
    """Find a step of the first vertex that commutes with others and moves all equally often."""
    image = _Search(graph, far, [shift.tolist() for shift in shifts]).run()
    if image is None or not graph.is_kept(image):
        return None
    step = np.array(image, dtype=np.int64)
    commutes = all(np.array_equal(step[shift], shift[step]) for shift in shifts)
    return step if commutes and _is_even(step) else None


def _shifts(table: IntArray, shape: list[int]) -> list[IntArray]:
    """Where one step along each axis of a group takes vertices; columns are its orbits."""
    lattice, shifts = Lattice(tuple(shape)), []
    for axis in range(len(shape)):
        unit = [int(i == axis) for i in range(len(shape))]
        shift = np.empty(table.size, dtype=np.int64)
        shift[table] = table[lattice.image(np.arange(lattice.order), lattice, unit)]
        shifts.append(shift)
    return shifts


def _is_even(step: IntArray) -> bool:
    """Whether all cycles of a permutation are equally long."""
    start = np.arange(len(step))
    power, length = step, 1
    while not (back := power == start).any():
        power, length = step[power], length + 1
    return bool(back.all())


def _extended(
    table: IntArray, shape: list[int], step: IntArray
) -> tuple[list[int], IntArray] | None:
    """Add a step to a group that it commutes with; None where that is no product of cyclic ones."""
    count = table.size
    element, orbit = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    element[table], orbit[table] = np.indices(table.shape)
    lattice = Lattice(tuple(shape) or (1,))
    # How often it is taken until every vertex is in its orbit again, and by which element then.
    power, order = step, 1
    while orbit[power[table[0, 0]]] != orbit[table[0, 0]]:
        power, order = step[power], order + 1
    if order == 1:
        return None
    back = lattice.digits(element[power[table[0]]] - element[table[0]])[:, 0]
    turn = [
        next((k for k in range(size) if (over + order * k) % size == 0), None)
        for over, size in zip(back.tolist(), lattice.moduli, strict=True)
    ]
    if None in turn:
        return None
    shifted = lattice.image(np.arange(lattice.order), lattice, [k or 0 for k in turn])
    moved = step.copy()
    moved[table] = step[table[shifted]]
    rows, reached, left = [], np.zeros(count, dtype=bool), []
    for column in range(table.shape[1]):
        if not reached[table[0, column]]:
            left.append(column)
            points = table[:, column]
            for _ in range(order):
                reached[points] = True
                points = moved[points]
    points = table[:, left]
    for _ in range(order):
        rows.append(points)
        points = moved[points]
    whole = np.stack(rows, axis=1).reshape(-1, len(left))
    if whole.size != count or len(np.unique(whole)) != count or not np.array_equal(points, rows[0]):
        return None
    return [*shape, order], whole


@dataclass
class _Search:
    """Looks for a step of vertex 0 to a neighbour, by links that leave few choices.

    What is said of one vertex is said of its images under `shifts`, with which steps commute.
    """

    graph: Graph
    far: int
    shifts: Sequence[Sequence[int]]
    image: list[int] = field(init=False)
    source: list[int] = field(init=False)
    trail: list[int] = field(init=False, default_factory=list)
    looks: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.image = [-1] * len(self.graph.around)
        self.source = [-1] * len(self.graph.around)

    def run(self) -> list[int] | None:
        """Return images of all vertices that the first one reaches, None if there are none."""
        choices: list[tuple[int, int, list[int]]] = []
        pending = (0, self.far) if self._may(0, self.far) else None
        while True:
            holds = pending is not None and self._assign(*pending)
            vertex = self._open() if holds else -1
            if holds and vertex < 0:
                return self.image if -1 not in self.image else None
            if holds:
                choices.append((len(self.trail), vertex, self._sorted(vertex)))
            while choices and not choices[-1][2]:
                choices.pop()
            if not choices or self.looks > _LOOKS * len(self.image):
                return None
            mark, vertex, others = choices[-1]
            self._undo(mark)
            pending = (vertex, others.pop(0))

    def _may(self, vertex: int, image: int) -> bool:
        around, image_of = self.graph.around, self.image
        if self.source[image] >= 0 or self.graph.colour[vertex] != self.graph.colour[image]:
            return False
        there = around[image]
        return len(there) == len(around[vertex]) and all(
            image_of[x] < 0 or there.get(image_of[x]) == kind for x, kind in around[vertex].items()
        )

    def _candidates(self, vertex: int) -> list[int]:
        self.looks += 1
        kind = self.graph.around[0][self.far]
        return [
            z for z, k in self.graph.around[vertex].items() if k == kind and self._may(vertex, z)
        ]

    def _sorted(self, vertex: int) -> list[int]:
        """Candidates, first those that go on themselves, and not back: cycles become long."""
        return sorted(
            self._candidates(vertex),
            key=lambda z: (self.image[z] == vertex, self.image[z] < 0),
        )

    def _assign(self, vertex: int, image: int) -> bool:
        """Fix one image and all that follow from it."""
        queue = deque([(vertex, image)])
        while queue:
            x, z = queue.popleft()
            if self.image[x] == z:
                continue
            if self.image[x] >= 0 or not self._may(x, z):
                return False
            self.image[x], self.source[z] = z, x
            self.trail.append(x)
            queue.extend((shift[x], shift[z]) for shift in self.shifts)
            # Neighbours have fewer choices now, and so has who could have gone there.
            for y in (*self.graph.around[x], *self.graph.around[z]):
                if self.image[y] < 0:
                    found = self._candidates(y)
                    if not found:
                        return False
                    if len(found) == 1:
                        queue.append((y, found[0]))
        return True

    def _open(self) -> int:
        """A vertex without an image, next to one that has one, with the fewest choices."""
        near = [y for x in self.trail for y in self.graph.around[x] if self.image[y] < 0]
        return min(near, key=lambda y: len(self._candidates(y)), default=-1)

    def _undo(self, mark: int) -> None:
        for x in self.trail[mark:]:
            self.source[self.image[x]], self.image[x] = -1, -1
        del self.trail[mark:]
