"""Thread blocks: operations on channels, one block at each end of a connection."""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np

from teccl.formats.msccl.write.gpu_transfers import Integers
from teccl.formats.msccl.write.limits import DoesNotFit, Limits, TooManyBlocks
from teccl.formats.msccl.write.operations import Operations

# Of so many steps of a block that sends and receives, one is left for what it waits for.
_SPARE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBlock:
    """A thread block of a rank: its peers, -1 for none, its channel, how many real steps it has."""

    rank: int
    send: int
    recv: int
    channel: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """All thread blocks, and which of them send and receive each operation."""

    items: list[MadeBlock]
    sends: Integers
    receives: Integers


def blocks_of(
    operations: Operations, limits: Limits, fill: Integers, room: int, *, packed: bool
) -> Blocks:
    """Make the blocks of all ranks.

    Parameters
    ----------
    operations
        What they send and receive.
    limits
        Channels and peers that there may be, and how long blocks may get.
    fill
        Operations that a block of each connection may have, by sender and receiver.
    room
        Blocks that a rank may have.
    packed
        Whether all channels of a connection but the first are filled up, so that what is left for
        the first may share blocks; otherwise all get as many operations.
    """
    connection = operations.src * len(fill) + operations.dst
    part = _parts(connection, operations.position, fill.ravel(), packed=packed)
    widest = int(part.max()) + 1
    names, link = np.unique(connection * widest + part, return_inverse=True)
    lengths = np.bincount(link).tolist()
    outgoing: Counter[tuple[int, int]] = Counter()
    incoming: Counter[tuple[int, int]] = Counter()
    items: list[MadeBlock] = []
    channel = 0
    for name, length in zip(names.tolist(), lengths, strict=True):
        src, dst = divmod(name // widest, len(fill))
        channel = channel + 1 if name % widest else 0
        while max(outgoing[src, channel], incoming[dst, channel]) >= limits.peers:
            channel += 1
        if channel >= limits.channels:
            raise DoesNotFit(f"{channel + 1} channels; {limits.runtime} takes {limits.channels}")
        outgoing[src, channel] += 1
        incoming[dst, channel] += 1
        items.append(MadeBlock(rank=src, send=dst, recv=-1, channel=channel, length=length))
        items.append(MadeBlock(rank=dst, send=-1, recv=src, channel=channel, length=length))
    kept, new = _joined(items, limits, room)
    return Blocks(items=kept, sends=new[2 * link], receives=new[2 * link + 1])


def _parts(connection: Integers, position: Integers, fill: Integers, *, packed: bool) -> Integers:
    """Distribute the operations of each connection over its channels.

    Operations on the same part of their blocks go to the same channel at every connection where
    that is possible, so that few blocks wait for each other.
    """
    order = np.lexsort((position, connection))
    count = np.bincount(connection, minlength=len(fill))
    here = connection[order]
    place = np.arange(len(order)) - (np.cumsum(count) - count)[here]
    width = -(-count // fill)
    part = np.empty_like(connection)
    if packed:
        rest = (count - (width - 1) * fill)[here]
        part[order] = np.where(place < rest, 0, 1 + (place - rest) // fill[here])
    else:
        part[order] = ((place + 1) * width[here] - 1) // count[here]
    return part


def _joined(blocks: list[MadeBlock], limits: Limits, room: int) -> tuple[list[MadeBlock], Integers]:
    """Let blocks send and receive where a rank would otherwise have too many.

    The result is the blocks that remain, and the new number of every old one.
    """
    by_rank: dict[int, list[int]] = defaultdict(list)
    for number, block in enumerate(blocks):
        by_rank[block.rank].append(number)
    partner: dict[int, int] = {}
    for rank, numbers in by_rank.items():
        excess = len(numbers) - room
        if excess <= 0:
            continue
        pairs = _pairs(blocks, numbers, limits)[:excess]
        if len(pairs) < excess:
            # Blocks for which no room is left are needed, too.
            others = limits.blocks - room
            raise TooManyBlocks(rank, len(numbers) - len(pairs) + others, limits)
        partner |= {receiving: sending for sending, receiving in pairs}
    kept = [number for number in range(len(blocks)) if number not in partner]
    new = np.zeros(len(blocks), dtype=np.int64)
    new[kept] = np.arange(len(kept))
    items = [blocks[number] for number in kept]
    for receiving, sending in partner.items():
        new[receiving] = place = int(new[sending])
        length = blocks[sending].length + blocks[receiving].length
        items[place] = replace(items[place], recv=blocks[receiving].recv, length=length)
    return items, new


def _pairs(blocks: list[MadeBlock], numbers: list[int], limits: Limits) -> list[tuple[int, int]]:
    """Pairs of a sending and a receiving block of one channel that fit one, shortest first.

    As many as possible of the shortest, the shorter of one kind with the longer of the other.
    """
    ends: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number in sorted(numbers, key=lambda number: blocks[number].length):
        ends[blocks[number].channel][blocks[number].recv >= 0].append(number)
    most = limits.steps - limits.steps // _SPARE
    found: list[tuple[int, int, int]] = []
    for sending, receiving in ends.values():
        for count in range(min(len(sending), len(receiving)), 0, -1):
            pairs = list(zip(sending[:count], receiving[count - 1 :: -1], strict=True))
            lengths = [blocks[one].length + blocks[other].length for one, other in pairs]
            if max(lengths) <= most:
                found += [(n, *pair) for n, pair in zip(lengths, pairs, strict=True)]
                break
    return [(one, other) for _, one, other in sorted(found)]
