"""Layout: where each chunk lies in the buffers of a collective call."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from teccl.demand import Collective
from teccl.errors import ExportError

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


def buffer_of(place: Place) -> str:
    """The letter of a place's buffer."""
    return "ios"[place >> _SHIFT]


def offset_of(place: Place) -> int:
    """The chunk's index in its buffer."""
    return place & ((1 << _SHIFT) - 1)


class Copy(NamedTuple):
    """Neighbouring chunks that a GPU copies for itself."""

    source: Place
    target: Place
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Buffers of a collective call with `pieces` chunks per block.

    Parameters
    ----------
    collective, ranks, pieces, root, in_place
        The call.
    own
        Place of a rank's own data of (block, piece); meaningless where it has none.
    home
        Place of what arrives at a rank of (block, piece), None where it needs scratch.
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
    own: Callable[[int, int, int], Place | None]
    home: Callable[[int, int, int], Place | None]
    copies: Callable[[int], list[Copy]]
    sizes: tuple[int, int]
    loop: int

    def scaled(self, instances: int) -> "Layout":
        """The layout whose every block holds the shares of several instances."""
        return replace(
            self,
            sizes=(self.sizes[0] * instances, self.sizes[1] * instances),
            loop=self.loop * instances,
        )


def layout_of(
    collective: Collective, *, ranks: int, pieces: int, root: int, in_place: bool
) -> Layout:
    """Lay a collective out.

    `own` returning None means that the data must first be copied to scratch, because its own
    place is overwritten while it waits.
    """
    n, c = ranks, pieces

    def none(_: int) -> list[Copy]:
        return []

    def build(own: _Where, home: _Where, copies: _Copies, sizes: tuple[int, int]) -> Layout:
        return Layout(
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
            lambda _r, b, q: None if in_place else INPUT + b % n * c + q,
            lambda r, b, q: OUTPUT + b // n * c + q if b % n == r else None,
            lambda r: [Copy(INPUT + r * c, OUTPUT + r * c, c)],
            (n * c, n * c),
        )
    if collective is Collective.REDUCESCATTER:
        return build(
            lambda r, b, q: OUTPUT + q if in_place and b == r else INPUT + b * c + q,
            lambda r, b, q: OUTPUT + q if b == r else None,
            none,
            (n * c, c),
        )
    if collective is Collective.ALLREDUCE:
        return build(
            lambda _r, b, q: here + b * c + q,
            lambda _r, b, q: OUTPUT + b * c + q,
            none,
            (n * c, n * c),
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
            lambda r, _b, q: (here if r == root else INPUT) + q,
            lambda r, _b, q: OUTPUT + q if r == root else None,
            none,
            (c, c),
        )
    known = ", ".join(one.value for one in SUPPORTED)
    raise ExportError(f"programs know no {collective.value}; export one of {known}")


_Where = Callable[[int, int, int], Place | None]
_Copies = Callable[[int], list[Copy]]
