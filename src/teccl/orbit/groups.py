"""Groups of ranks that each have a collective of their own, all at the same time.

A group has `size` ranks that are `stride` apart: where a chassis has eight GPUs, 2048 ranks with
stride 8 are a rail, 64 with stride 1 are eight chassis. All groups together have every rank once.
"""

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from teccl._arrays import IntArray
from teccl.errors import ProblemError
from teccl.orbit.fabric import MAX_AXES, Fabric, NodeOrbit
from teccl.orbit.lattice import Moduli

_AXES = re.compile(r"(?<=[{.])\d(?=[}.*+])")


@dataclass(frozen=True, slots=True)
class Groups:
    """How ranks are divided.

    Parameters
    ----------
    size
        Ranks of a group.
    stride
        What lies between one and the next.

    Examples
    --------
    >>> Groups(2, 2).labels(8).tolist()
    [0, 1, 0, 1, 2, 3, 2, 3]
    """

    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.size < 2 or self.stride < 1:
            raise ProblemError(
                f"groups of {self.size} ranks, {self.stride} apart; give at least 2 and 1"
            )

    def __str__(self) -> str:
        return f"{self.size}:{self.stride}"

    @staticmethod
    def parse(text: str) -> "Groups":
        """Read ``SIZE`` or ``SIZE:STRIDE``.

        Raises
        ------
        ProblemError
            If the text is neither.
        """
        found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text, flags=re.ASCII)
        if not found:
            raise ProblemError(f"groups {text[:40]!r}; give SIZE or SIZE:STRIDE, such as 8 or 64:8")
        return Groups(int(found[1]), int(found[2] or 1))

    def labels(self, num_ranks: int) -> IntArray:
        """By rank, the number of its group."""
        rank = np.arange(num_ranks)
        label: IntArray = rank // (self.size * self.stride) * self.stride + rank % self.stride
        return label

    def check(self, fabric: Fabric) -> None:
        """Make sure that each element of the fabric's group takes groups to groups.

        Raises
        ------
        ProblemError
            If the groups do not divide the ranks, or some shift mixes them up.
        """
        count = fabric.num_gpus
        if fabric.ranks:
            raise ProblemError(
                f"{fabric.name}: its symmetry has the ranks in another order, which groups do not "
                "know; plan them as tenants, without orbits"
            )
        if count % (self.size * self.stride):
            raise ProblemError(
                f"groups of {self.size} ranks, {self.stride} apart, do not divide the {count} of "
                f"{fabric.name}; give sizes whose product does"
            )
        label, ranks = self.labels(count), np.arange(count)
        for axis, stride in enumerate(fabric.group.strides):
            if fabric.moduli[axis] == 1:
                continue
            moved = label[fabric.moved_nodes(ranks, np.full(count, stride))]
            if len(np.unique(label * count + moved)) != count // self.size:
                raise ProblemError(
                    f"groups of {self.size} ranks, {self.stride} apart, are mixed up by a shift of "
                    f"{fabric.name}; plan them as tenants, without orbits"
                )


def split_for(fabric: Fabric, groups: Groups) -> Fabric:
    """Return the same fabric with axes split where groups begin and end, as far as that goes.

    Where shifts along an axis by any amount are no more than permutations of equal parts (nothing
    leads from one to the next), two axes whose orders have its order as product do as well.
    """
    for mark in (groups.stride, groups.stride * groups.size):
        stride = len(fabric.gpu_orbits)
        for axis in reversed(range(len(fabric.moduli))):
            order = fabric.moduli[axis]
            inner, rest = divmod(mark, stride)
            if 1 < inner < order and not rest and order % inner == 0 and _is_loose(fabric, axis):
                fabric = _split(fabric, axis, inner)
                break
            stride *= order
    return fabric


def _is_loose(fabric: Fabric, axis: int) -> bool:
    """Whether nothing tells one place along an axis from another but its number."""
    order = fabric.moduli[axis]
    kinds = [*(each.moduli for each in fabric.nodes), *(each.moduli for each in fabric.shared)]
    still = all(link.offset[axis] == 0 for link in fabric.links)
    return still and all(moduli[axis] in (1, order) for moduli in kinds)


def _split(fabric: Fabric, axis: int, inner: int) -> Fabric:
    """Write an axis as two, the second with a given order."""
    if len(fabric.moduli) == MAX_AXES:
        return fabric

    def parts(moduli: Moduli) -> Moduli:
        both = (moduli[axis] // inner, inner) if moduli[axis] > 1 else (1, 1)
        return (*moduli[:axis], *both, *moduli[axis + 1 :])

    def renamed(text: str) -> str:
        def place(found: re.Match[str]) -> str:
            number = int(found[0])
            return f"{axis}.{axis + 1}" if number == axis else str(number + (number > axis))

        return _AXES.sub(place, text)

    def node(entry: NodeOrbit) -> NodeOrbit:
        group = None if entry.group is None else renamed(entry.group)
        return replace(entry, name=renamed(entry.name), moduli=parts(entry.moduli), group=group)

    made = replace(
        fabric,
        moduli=parts(fabric.moduli),
        nodes=tuple(node(each) for each in fabric.nodes),
        links=tuple(
            replace(x, offset=(*x.offset[:axis], 0, 0, *x.offset[axis + 1 :])) for x in fabric.links
        ),
        shared=tuple(
            replace(x, name=renamed(x.name), moduli=parts(x.moduli)) for x in fabric.shared
        ),
    )
    assert math.prod(made.moduli) == math.prod(fabric.moduli)
    return made
