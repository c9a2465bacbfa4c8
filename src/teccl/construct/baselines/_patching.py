"""Cycle patching: a cover by cycles, joined into one.

A matching gives every node a successor. Exchanging the successors of two nodes on different cycles
joins them; where no join is left, random exchanges on the same cycle make room for new ones.
"""

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

BoolMatrix = npt.NDArray[np.bool_]
Cycle = list[int]

ROUNDS = 400


def cycle_cover(adjacency: BoolMatrix) -> list[int] | None:
    """Return a successor for every node such that each node is one's successor, or None."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    successor = maximum_bipartite_matching(csr_array(adjacency), perm_type="column")
    return None if (successor < 0).any() else [int(node) for node in successor]


def patched_cycle(adjacency: BoolMatrix) -> Cycle | None:
    """Return a cycle through all nodes, or None if none was found."""
    cover = cycle_cover(adjacency)
    if cover is None:
        return None
    patches = _Patches(adjacency, cover)
    rng = random.Random(0)  # noqa: S311, a search needs no secrets
    for _ in range(ROUNDS):
        patches.join_all()
        if patches.num_cycles == 1:
            return patches.cycle(0)
        patches.disturb(rng)
    return None


class _Patches:
    """A cover by cycles, changed by exchanging the successors of two nodes."""

    def __init__(self, adjacency: BoolMatrix, successor: list[int]) -> None:
        self.adjacency = adjacency.tolist()
        self.neighbours = [np.flatnonzero(row).tolist() for row in adjacency]
        self.after = list(successor)
        self.before = [0] * len(successor)
        for node, following in enumerate(successor):
            self.before[following] = node
        self._label()

    def _label(self) -> None:
        self.label = [-1] * len(self.after)
        self.num_cycles = 0
        for node in range(len(self.after)):
            if self.label[node] < 0:
                for member in self.cycle(node):
                    self.label[member] = self.num_cycles
                self.num_cycles += 1

    def cycle(self, start: int) -> Cycle:
        """Return the cycle that a node lies on."""
        cycle = [start]
        while self.after[cycle[-1]] != start:
            cycle.append(self.after[cycle[-1]])
        return cycle

    def exchanges(self, node: int) -> Iterator[int]:
        """Yield the nodes whose successor may be exchanged with this node's."""
        mine = self.after[node]
        for following in self.neighbours[node]:
            other = self.before[following]
            if other != node and self.adjacency[other][mine]:
                yield other

    def exchange(self, a: int, b: int) -> None:
        """Exchange the successors of two nodes: joins two cycles or splits one."""
        self.after[a], self.after[b] = self.after[b], self.after[a]
        self.before[self.after[a]], self.before[self.after[b]] = a, b

    def join_all(self) -> None:
        """Join cycles while two of them can be joined as they are or one of them reversed."""
        while self.num_cycles > 1 and (self._join_one() or self._join_reversed()):
            pass

    def _join_one(self) -> bool:
        joined = False
        for a in range(len(self.after)):
            for b in self.exchanges(a):
                if self.label[a] != self.label[b]:
                    self.exchange(a, b)
                    gone, kept = self.label[b], self.label[a]
                    self.label = [kept if label == gone else label for label in self.label]
                    self.num_cycles -= 1
                    joined = True
                    break
        return joined

    def _join_reversed(self) -> bool:
        """Reverse a cycle if that makes a join possible."""
        for label in sorted(set(self.label)):
            cycle = self.cycle(self.label.index(label))
            if len(cycle) > 2 and self._reverse(cycle):
                if any(self.label[b] != label for a in cycle for b in self.exchanges(a)):
                    return True
                self._reverse(cycle[::-1])
        return False

    def _reverse(self, cycle: Cycle) -> bool:
        pairs = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        if not all(self.adjacency[b][a] for a, b in pairs):
            return False
        for a, b in pairs:
            self.after[b], self.before[a] = a, b
        return True

    def disturb(self, rng: random.Random) -> None:
        """Make some random exchanges."""
        for _ in range(max(2, len(self.after) // 16)):
            # Of the generator's methods only random() is the same in all versions of Python.
            node = int(rng.random() * len(self.after))
            others = list(self.exchanges(node))
            if others:
                self.exchange(node, others[int(rng.random() * len(others))])
        self._label()
