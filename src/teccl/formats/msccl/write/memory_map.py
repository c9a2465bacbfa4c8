"""Layout: where each chunk lies in the buffers of a collective call."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from teccl.demand import Collective
from teccl.errors import ExportError
from teccl.formats.msccl.write.gpu_transfers import Integers

SUPPORTED = (
    Collective.ALLGATHER,
    Collective.ALLTOALL,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
    Collective.BROADCAST,
    Collective.REDUCE,
)


# The place of a chunk is a number, so that neighbours follow each other: the buffer, input,
# output or scratch, in the high bits and the offset in the low ones.
Place = int
_SHIFT = 20
INPUT, OUTPUT, SCRATCH = (number << _SHIFT for number in range(3))
# In place of a place where there is none; it is nobody's neighbour.
NOWHERE = -1


LETTERS = "ios"


def buffer_index(place: Integers) -> Integers:
    """The buffers of places, as indices of `LETTERS`."""
    return place >> _SHIFT


def offset_of(place: Integers) -> Integers:
    """The chunks' indices in their buffers."""
    return place & ((1 << _SHIFT) - 1)


class Copy(NamedTuple):
    """Neighbouring chunks that a GPU copies for itself."""

    source: Place
    target: Place
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMap:
    """Buffers of a collective call with `pieces` chunks per block.

    Chunks of a block are alike: which of them lies where in it is free.

    Parameters
    ----------
    collective, ranks, pieces, root, in_place
        The call.
    own
        Places of ranks' own data of (block, position), as arrays; meaningless where they have
        none, `NOWHERE` where it must first be copied to scratch, because its own place is
        overwritten while it waits.
    home
        Places of what arrives at ranks of (block, position), `NOWHERE` where it needs scratch.
    copies
        What a rank copies for itself.
    sizes
        Chunks of input and output buffer.
    loop
        Chunks of the larger of them.
    """

    collective: Collective
    ranks: int
    pieces: int
    root: int
    in_place: bool
    own: "_Where"
    home: "_Where"
    copies: Callable[[int], list[Copy]]
    sizes: tuple[int, int]
    loop: int

    def scaled(self, instances: int) -> "MemoryMap":
        """The layout whose every block holds the shares of several instances."""
        return replace(
            self,
            sizes=(self.sizes[0] * instances, self.sizes[1] * instances),
            loop=self.loop * instances,
        )


def layout_of(
    collective: Collective, *, ranks: int, pieces: int, root: int, in_place: bool, owners: int = 1
) -> MemoryMap:
    """Lay a collective out.

    Parameters
    ----------
    collective, ranks, pieces, root, in_place
        The call.
    owners
        How many ranks' parts of an AllReduce are one block.
    """
    n, c = ranks, pieces

    def none(_: int) -> list[Copy]:
        return []

    def build(own: _Where, home: _Where, copies: _Copies, sizes: tuple[int, int]) -> MemoryMap:
        return MemoryMap(
            collective=collective,
            ranks=n,
            pieces=c,
            root=root,
            in_place=in_place,
            own=own,
            home=home,
            copies=none if in_place else copies,
            sizes=sizes,
            loop=max(sizes),
        )

    here = OUTPUT if in_place else INPUT
    if collective is Collective.ALLGATHER:
        return build(
            lambda _r, b, q: OUTPUT + b * c + q if in_place else INPUT + q,
            lambda _r, b, q: OUTPUT + b * c + q,
            lambda r: [Copy(INPUT, OUTPUT + r * c, c)],
            (c, n * c),
        )
    if collective is Collective.ALLTOALL:
        return build(
            lambda _r, b, q: np.full_like(b, NOWHERE) if in_place else INPUT + b % n * c + q,
            lambda r, b, q: np.where(b % n == r, OUTPUT + b // n * c + q, NOWHERE),
            lambda r: [Copy(INPUT + r * c, OUTPUT + r * c, c)],
            (n * c, n * c),
        )
    if collective is Collective.REDUCESCATTER:
        return build(
            lambda r, b, q: np.where((b == r) & in_place, OUTPUT + q, INPUT + b * c + q),
            lambda r, b, q: np.where(b == r, OUTPUT + q, NOWHERE),
            none,
            (n * c, c),
        )
    if collective is Collective.ALLREDUCE:
        return build(
            lambda _r, b, q: here + b * c + q,
            lambda _r, b, q: OUTPUT + b * c + q,
            none,
            (n // owners * c,) * 2,
        )
    if collective is Collective.BROADCAST:
        return build(
            lambda _r, _b, q: here + q,
            lambda _r, _b, q: OUTPUT + q,
            lambda r: [Copy(INPUT, OUTPUT, c)] if r == root else [],
            (c, c),
        )
    if collective is Collective.REDUCE:
        return build(
            lambda r, _b, q: np.where(r == root, here, INPUT) + q,
            lambda r, _b, q: np.where(r == root, OUTPUT + q, NOWHERE),
            none,
            (c, c),
        )
    known = ", ".join(one.value for one in SUPPORTED)
    raise ExportError(f"programs know no {collective.value}; export one of {known}")


_Where = Callable[[Integers, Integers, Integers], Integers]
_Copies = Callable[[int], list[Copy]]
