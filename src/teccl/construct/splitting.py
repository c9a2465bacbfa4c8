"""Edge splitting: nodes that only pass data on are taken out of a graph, without loss of rate.

A passage over a node, from a link into it to a link out of it, becomes an arc of its own, as much
of it as leaves every member as well connected as it must be. Where as much leads into a node as
out of it, all of it can be split off so (Bang-Jensen, Frank and Jackson).
"""

from collections.abc import Iterator

import numpy as np

from teccl.construct.instance import IntArray
from teccl.construct.throughput import Spreading

# A way over links, and how much of its capacity is there.
Strand = tuple[int, tuple[int, ...]]


class Cable:
    """Ways from one node to another, of which each carries so much."""

    def __init__(self, strands: list[Strand]) -> None:
        self.strands = strands

    def take(self, amount: int) -> list[Strand]:
        """Take some of it away, the ways that were there first before others."""
        taken = []
        while amount:
            size, way = self.strands[0]
            part = min(size, amount)
            taken.append((part, way))
            amount -= part
            if part == size:
                del self.strands[0]
            else:
                self.strands[0] = (size - part, way)
        return taken


class Splitting:
    """A graph on its way to one of members only, with the ways that its arcs stand for."""

    def __init__(
        self, spreading: Spreading, rate: int, cables: dict[tuple[int, int], Cable]
    ) -> None:
        self.members, self.source = spreading.members, len(spreading.weight)
        self.arcs = spreading.with_source(1, rate)
        self.limit = int(spreading.weight.sum()) * rate
        self.cables = cables

    @property
    def capacity(self) -> IntArray:
        """The graph as it is now, without the source."""
        return self.arcs[: self.source, : self.source]

    def split_all(self) -> None:
        """Take out every node that is no member, those that are farthest from members first.

        So ways lead up through the stages of a fabric and down again.
        """
        distance = self._distances()
        for node in sorted(range(self.source), key=lambda node: (-distance[node], node)):
            if distance[node]:
                self._split(node)

    def _distances(self) -> list[int]:
        """Return how many arcs lead to each node from the nearest member at least."""
        inside = np.zeros(self.source, dtype=bool)
        inside[self.members] = True
        distance = np.where(inside, 0, self.source)
        for step in range(1, self.source):
            inside = self.capacity[inside].any(axis=0) & (distance == self.source)
            distance[inside] = step
        return [int(each) for each in distance]

    def _split(self, node: int) -> None:
        for pairs, amount in self._layers(node):
            self._try(node, pairs, amount)
        for origin, end in self._single_pairs(node):
            room = min(self.arcs[origin, node], self.arcs[node, end])
            if room:
                self._try(node, [(origin, end)], int(room))
        # What is left leads nowhere, or comes from nowhere.
        for other in range(self.source):
            for pair in ((other, node), (node, other)):
                self.arcs[pair] = 0
                self.cables.pop(pair, None)

    def _layers(self, node: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
        """Yield pairs that are likely to be split off, with how much of each.

        Nodes that are connected without this one are a group. A node sends to one node of each
        other group in equal parts; where there is one group only, to all others.
        """
        from teccl.construct.flows import reached

        ends = [v for v in range(self.source) if self.arcs[node, v] or self.arcs[v, node]]
        without = self.arcs.copy()
        without[node, :] = without[:, node] = without[self.source, :] = 0
        without = np.minimum(1, without + without.T)
        groups: list[list[int]] = []
        for end in ends:
            if not any(end in group for group in groups):
                inside = reached(without, end)
                groups.append([v for v in ends if inside[v]])
        if len(groups) == 1:
            groups = [[end] for end in ends]
        if len(groups) <= 1:
            return
        widest = max(len(group) for group in groups)
        capacity = max(int(self.arcs[end, node]) for end in ends)
        amount = max(1, capacity // (len(groups) - 1))
        for turn in range(widest):
            for step in far_apart(len(groups))[1:]:
                pairs = []
                for number, group in enumerate(groups):
                    others = groups[(number + step) % len(groups)]
                    pairs += [
                        (origin, others[(place + turn) % len(others)])
                        for place, origin in enumerate(group)
                    ]
                yield pairs, amount
            if not self.arcs[:, node].any() or not self.arcs[node].any():
                return

    def _single_pairs(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield all pairs that are left, ways back to where they came from last."""
        origins = np.flatnonzero(self.arcs[:, node]).tolist()
        ends = np.flatnonzero(self.arcs[node]).tolist()
        yield from ((a, b) for a in origins for b in ends if a != b)
        yield from ((a, a) for a in origins if a in ends)

    def _try(self, node: int, pairs: list[tuple[int, int]], amount: int) -> None:
        """Split off some pairs together, or, where that is too much, in two halves."""
        from teccl.construct.flows import narrowest

        parts = self._move(node, pairs, amount)
        if not parts:
            return
        least, worst = narrowest(self.arcs, self.source, self.members, self.limit)
        if worst < 0:
            for pair, part in parts:
                self._join(node, pair, part)
            return
        self._move_back(node, parts)
        if len(parts) > 1:
            kept = [pair for pair, _ in parts]
            middle = len(kept) // 2
            self._try(node, kept[:middle], amount)
            self._try(node, kept[middle:], amount)
            return
        # Every cut that became narrower did so by the whole amount.
        pair, part = parts[0]
        part -= int(self.limit - least)
        if part > 0:
            self._move(node, [pair], part)
            self._join(node, pair, part)

    def _move(
        self, node: int, pairs: list[tuple[int, int]], amount: int
    ) -> list[tuple[tuple[int, int], int]]:
        parts = []
        for origin, end in pairs:
            part = int(min(amount, self.arcs[origin, node], self.arcs[node, end]))
            if part:
                self.arcs[origin, node] -= part
                self.arcs[node, end] -= part
                self.arcs[origin, end] += part * (origin != end)
                parts.append(((origin, end), part))
        return parts

    def _move_back(self, node: int, parts: list[tuple[tuple[int, int], int]]) -> None:
        for (origin, end), part in parts:
            self.arcs[origin, node] += part
            self.arcs[node, end] += part
            self.arcs[origin, end] -= part * (origin != end)

    def _join(self, node: int, pair: tuple[int, int], amount: int) -> None:
        """Remember the ways over a node that an arc now stands for."""
        first = Cable(self.cables[pair[0], node].take(amount))
        second = Cable(self.cables[node, pair[1]].take(amount))
        if pair[0] == pair[1]:
            return
        joined = self.cables.setdefault(pair, Cable([])).strands
        while first.strands:
            part = min(first.strands[0][0], second.strands[0][0])
            joined.append((part, first.take(part)[0][1] + second.take(part)[0][1]))


def far_apart(count: int) -> list[int]:
    """Return the numbers below another in an order in which any few in a row are far apart.

    Examples
    --------
    >>> far_apart(8)
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    digits = count.bit_length()
    return sorted(range(count), key=lambda number: f"{number:0{digits}b}"[::-1])
