"""Operations: transfers of neighbouring chunks on one connection, joined, with their addresses."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from teccl.formats.msccl.write.gpu_transfers import Flags, GpuTransfers, Integers
from teccl.formats.msccl.write.levels import History
from teccl.formats.msccl.write.limits import DoesNotFit, Limits
from teccl.formats.msccl.write.memory_map import INPUT, NOWHERE, OUTPUT, SCRATCH, Copy, MemoryMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Neighbouring chunks that go from one GPU to another in one step of each, in global order.

    Parameters
    ----------
    src, dst
        Ranks.
    length
        Number of chunks.
    source
        Where they lie at the sender.
    target
        Where the receiver puts them.
    local
        What the receiver combines them with, `NOWHERE` where it only stores.
    received
        Place in the global order after whose send the operation is received.
    position
        Where in its block the first chunk lies.
    copies
        What each rank copies for itself.
    scratch
        Chunks of scratch by rank.
    """

    src: Integers
    dst: Integers
    length: Integers
    source: Integers
    target: Integers
    local: Integers
    received: Integers
    position: Integers
    copies: list[list[Copy]]
    scratch: list[int]

    def __len__(self) -> int:
        return len(self.src)


class OperationParts(NamedTuple):
    """What operations are made from: transfers with levels, chunks with blocks and positions."""

    transfers: GpuTransfers
    history: History
    level: Integers
    block: Integers
    position: Integers


def operations_of(
    plan: OperationParts, layout: MemoryMap, limits: Limits, *, whole_blocks: bool
) -> Operations:
    """Join transfers of one level and connection whose chunks are neighbours at both ends.

    Parameters
    ----------
    plan
        What to join.
    layout
        Where chunks lie.
    limits
        How many chunks an operation may have.
    whole_blocks
        Whether an operation may reach from one block into the next.
    """
    transfers = plan.transfers
    scratch = _Scratch(plan, layout)
    if max(scratch.sizes) > limits.offset:
        raise DoesNotFit(
            f"{max(scratch.sizes)} chunks of scratch are more than offsets reach ({limits.offset})"
        )
    group = _groups(plan, layout.ranks)
    addresses = _addresses(plan, scratch, group)
    order = np.lexsort((*addresses[::-1], group))
    follows = _follow(addresses[:, order], group[order])
    if not whole_blocks:
        follows &= np.diff(plan.block[transfers.chunk[order]], prepend=-1) == 0
    first = np.flatnonzero(_cut(follows, limits.count))
    # Transfers are numbered in the order of their start; so are operations of one level.
    rank_of = np.lexsort((np.minimum.reduceat(order, first), group[order[first]]))
    number = np.empty(len(transfers), dtype=np.int64)
    length = np.diff(first, append=len(order))
    number[order] = np.repeat(np.argsort(rank_of), length)
    leader = order[first][rank_of]
    target, source, local = addresses[:, leader]
    return Operations(
        src=transfers.src[leader],
        dst=transfers.dst[leader],
        length=length[rank_of],
        source=source,
        target=target,
        local=local,
        received=_received(plan, number, transfers.src[leader], transfers.dst[leader]),
        position=plan.position[transfers.chunk[leader]],
        copies=[
            _own_copies(rank, layout, scratch.at(rank), limits.count, whole_blocks=whole_blocks)
            for rank in range(layout.ranks)
        ],
        scratch=scratch.sizes,
    )


class _Scratch:
    """Where chunks lie, with those that need scratch numbered, neighbours side by side."""

    def __init__(self, plan: OperationParts, layout: MemoryMap) -> None:
        self.plan, self.layout = plan, layout
        transfers = plan.transfers
        needing = [
            self._keys(ranks, transfers.chunk)[where(*self._names(ranks, transfers.chunk)) < 0]
            for ranks, where in ((transfers.dst, layout.home), (transfers.src, layout.own))
        ]
        self.keys = np.unique(np.concatenate(needing))
        self.per_rank = (int(plan.block.max()) + 1) * layout.pieces
        edges = np.arange(layout.ranks + 1) * self.per_rank
        self.first = np.searchsorted(self.keys, edges)
        self.sizes: list[int] = np.diff(self.first).tolist()

    def _names(self, rank: Integers, chunk: Integers) -> tuple[Integers, Integers, Integers]:
        return rank, self.plan.block[chunk], self.plan.position[chunk]

    def _keys(self, rank: Integers, chunk: Integers) -> Integers:
        """A number for every chunk at every rank, in the order in which they would lie."""
        blocks = int(self.plan.block.max()) + 1
        block, position = self.plan.block[chunk], self.plan.position[chunk]
        return (rank * blocks + block) * self.layout.pieces + position

    def _placed(self, place: Integers, rank: Integers, chunk: Integers) -> Integers:
        """Replace places that there are none by such in scratch."""
        missing = np.flatnonzero(place < 0)
        keys = self._keys(rank[missing], chunk[missing])
        place = place.copy()
        place[missing] = SCRATCH + np.searchsorted(self.keys, keys) - self.first[rank[missing]]
        return place

    def own(self, rank: Integers, chunk: Integers) -> Integers:
        """Where ranks keep their own data of chunks."""
        return self._placed(self.layout.own(*self._names(rank, chunk)), rank, chunk)

    def home(self, rank: Integers, chunk: Integers) -> Integers:
        """Where ranks keep arrivals of chunks."""
        return self._placed(self.layout.home(*self._names(rank, chunk)), rank, chunk)

    def at(self, rank: int) -> list[tuple[int, int]]:
        """Block and position of what a rank has in scratch, in order."""
        keys = self.keys[self.first[rank] : self.first[rank + 1]] - rank * self.per_rank
        return [divmod(key, self.layout.pieces) for key in keys.tolist()]


def _groups(plan: OperationParts, ranks: int) -> Integers:
    """Number the transfers of one level and connection, by level, then by their first start."""
    transfers = plan.transfers
    connection = transfers.src * ranks + transfers.dst
    names, first, group = np.unique(
        plan.level * ranks**2 + connection, return_index=True, return_inverse=True
    )
    order = np.lexsort((first, names // ranks**2))
    return np.argsort(order)[group]


def _addresses(plan: OperationParts, scratch: _Scratch, group: Integers) -> Integers:
    """Target, source and local place of every transfer.

    A GPU's copy of a chunk lies where its own data lies until something arrives, then at home.
    """
    src, dst, chunk = plan.transfers.src, plan.transfers.dst, plan.transfers.chunk
    home = scratch.home(dst, chunk)
    has_arrived = plan.history.feeder_count > 0
    source = np.where(has_arrived, scratch.home(src, chunk), scratch.own(src, chunk))
    order = np.argsort(group, kind="stable")
    cell = dst * len(plan.block) + chunk
    _, first = np.unique(cell[order], return_index=True)
    local = home.copy()
    local[order[first]] = scratch.own(dst[order[first]], chunk[order[first]])
    local[~plan.transfers.merges] = NOWHERE
    return np.stack([home, source, local])


def _follow(addresses: Integers, group: Integers) -> Flags:
    """Say of each transfer whether it is everywhere the neighbour of the one before it."""
    steps = np.diff(addresses, axis=1)
    stores = addresses[2] == NOWHERE
    beside = np.where(stores[1:] | stores[:-1], stores[1:] & stores[:-1], steps[2] == 1)
    same = (np.diff(group) == 0) & (steps[0] == 1) & (steps[1] == 1) & beside
    return np.concatenate([[False], same])


def _cut(follows: Flags, most: int) -> Flags:
    """Say which transfers begin an operation, where none may have more than so many."""
    places = np.arange(len(follows))
    begin = np.maximum.accumulate(np.where(follows, 0, places))
    return (places - begin) % most == 0


def _received(plan: OperationParts, number: Integers, src: Integers, dst: Integers) -> Integers:
    """Places after which operations are received.

    That is after the sends from the place that one changes, and in each connection's order.
    """
    received = np.arange(len(src))
    earlier, later = plan.history.followers.T
    np.maximum.at(received, number[later], number[earlier])
    _, connection = np.unique(src * (int(dst.max()) + 1) + dst, return_inverse=True)
    order = np.argsort(connection, kind="stable")
    offset = connection[order] * len(src)
    received[order] = np.maximum.accumulate(received[order] + offset) - offset
    return received


def _own_copies(
    rank: int, layout: MemoryMap, scratch: list[tuple[int, int]], most: int, *, whole_blocks: bool
) -> list[Copy]:
    """What a rank copies for itself, in steps of allowed length."""
    staged = _staged(rank, layout, scratch, whole_blocks=whole_blocks)
    return [
        Copy(copy.source + done, copy.target + done, min(most, copy.length - done))
        for copy in (*layout.copies(rank), *staged)
        for done in range(0, copy.length, most)
    ]


def _staged(
    rank: int, layout: MemoryMap, scratch: list[tuple[int, int]], *, whole_blocks: bool
) -> list[Copy]:
    """Copies to scratch of own data whose place will be overwritten while it waits."""
    n, c = layout.ranks, layout.pieces
    owned = (np.array([rank]), np.array([rank * n]), np.array([0]))
    if layout.own(*owned)[0] != NOWHERE:
        return []
    copies: list[Copy] = []
    for place, (block, position) in enumerate(scratch):
        if block // n != rank:
            continue
        source, target = OUTPUT + block % n * c + position, SCRATCH + place
        last = copies[-1] if copies else Copy(INPUT, INPUT, 0)
        follows = last.source + last.length == source and last.target + last.length == target
        if follows and (whole_blocks or position):
            copies[-1] = last._replace(length=last.length + 1)
        else:
            copies.append(Copy(source, target, 1))
    return copies
