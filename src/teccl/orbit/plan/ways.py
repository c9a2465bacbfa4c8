"""Ways: how data gets from a GPU to the next, straight or through one switch, orbit by orbit.

A *way* is one link orbit between GPUs, or one into switches followed by one out of them. In the
quotient it uses each of its link orbits as one resource. A straight way takes a GPU to one other;
a way through switches joins all GPUs that share a switch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from teccl._arrays import IntArray, ints
from teccl.errors import MethodError
from teccl.orbit.fabric import Fabric
from teccl.orbit.problem import FabricProblem
from teccl.units import picoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """All ways of a fabric over links that no element of the group leaves in place.

    Parameters
    ----------
    first, second
        Link orbits of each way; `second` is -1 where it is straight.
    held, alpha
        Picoseconds for which a chunk holds each link orbit, and its latency.
    target
        By way and rank, the rank that a straight way leads to, -1 where none.
    entered, left
        By way and rank, the switch that a way through one enters from there, and the one that it
        leaves to get there, -1 where none.
    """

    first: IntArray
    second: IntArray
    held: IntArray
    alpha: IntArray
    target: IntArray
    entered: IntArray
    left: IntArray

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lag(self) -> IntArray:
        """By way, picoseconds from its start until the second link is used."""
        return np.where(self.second < 0, 0, self.held[self.first] + self.alpha[self.first])

    @property
    def length(self) -> IntArray:
        """By way, picoseconds from its start until the far end has the chunk."""
        last = np.where(self.second < 0, self.first, self.second)
        return self.lag + self.held[last] + self.alpha[last]

    @staticmethod
    def of(problem: FabricProblem) -> "Ways":
        """Find the ways of a problem's fabric.

        Raises
        ------
        MethodError
            If links share capacities, which are no matter of single links.
        """
        if problem.fabric.shared:
            raise MethodError("links share capacities, which orbits are not planned with")
        fabric, size = problem.fabric, problem.chunk_bytes
        order = fabric.group.order
        free = [i for i, x in enumerate(fabric.link_lattices) if x.order == order]
        pairs = [(i, -1) for i in free if not _switches(fabric, i)]
        into = [i for i in free if _switches(fabric, i) == (False, True)]
        out = [i for i in free if _switches(fabric, i) == (True, False)]
        pairs += [(i, j) for i in into for j in out if fabric.links[i].dst == fabric.links[j].src]
        held = [
            picoseconds(link.overhead) + picoseconds(size / fabric.rate(link))
            for link in fabric.links
        ]
        return Ways(
            first=ints([i for i, _ in pairs]),
            second=ints([j for _, j in pairs]),
            held=ints(held),
            alpha=ints([picoseconds(link.alpha) for link in fabric.links]),
            target=_tables(fabric, [(i, 0) if j < 0 else None for i, j in pairs]),
            entered=_tables(fabric, [None if j < 0 else (i, 0) for i, j in pairs]),
            left=_tables(fabric, [None if j < 0 else (j, 1) for i, j in pairs]),
        )


def _switches(fabric: Fabric, orbit: int) -> tuple[bool, bool] | tuple[()]:
    """Whether a link orbit begins and ends at switches; empty where it does neither."""
    link = fabric.links[orbit]
    found = fabric.nodes[link.src].is_switch, fabric.nodes[link.dst].is_switch
    return found if any(found) else ()


def _tables(fabric: Fabric, wanted: Sequence[tuple[int, int] | None]) -> IntArray:
    """By rank, the node at the other end of its link of an orbit.

    Parameters
    ----------
    wanted
        For each row the orbit, and the end at which the ranks are; None leaves a row at -1.
    """
    tables = np.full((len(wanted), fabric.num_gpus), -1, dtype=np.int64)
    for row, entry in zip(tables, wanted, strict=True):
        if entry is not None:
            orbit, end = entry
            links = np.arange(fabric.link_base[orbit], fabric.link_base[orbit + 1])
            ends = fabric.link_ends(links)
            row[ends[end]] = ends[1 - end]
    return tables
