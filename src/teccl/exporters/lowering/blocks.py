"""Thread blocks: operations on channels, one block at each end of a connection."""

from collections import defaultdict
from dataclasses import dataclass, field

from teccl.exporters.lowering.layout import Copy, Place
from teccl.exporters.lowering.limits import DoesNotFit, Limits
from teccl.exporters.lowering.operations import Operation, Operations


@dataclass(slots=True, eq=False)
class Step:
    """One real step of a thread block; dependencies are filled in later.

    Parameters
    ----------
    kind
        As the file names it.
    order
        Place in the global order.
    count
        Number of chunks.
    source, target
        Addresses as the file gives them; for a send the target, and for a receive the source,
        are the peer's.
    reads, writes
        Places of this GPU that are touched.
    pair
        The send that a receive takes its data from.
    """

    kind: str
    order: tuple[int, int]
    count: int
    source: Place
    target: Place
    reads: Place | None = None
    writes: Place | None = None
    pair: "Step | None" = None
    block: "Block | None" = None
    place: int = 0
    waits: list["Step"] = field(default_factory=list)
    is_awaited: bool = False


@dataclass(slots=True, eq=False)
class Block:
    """A thread block of a rank: peers, channel and steps in order."""

    rank: int
    send: int
    recv: int
    channel: int
    steps: list[Step]
    index: int = 0
    id: int = 0

    @property
    def length(self) -> int:
        """Steps in the file: further dependencies of a step are steps of their own."""
        return sum(max(1, len(step.waits)) for step in self.steps)


Connection = tuple[int, int]


def spread(operations: Operations, width: dict[Connection, int]) -> list[list[list[int]]]:
    """Distribute the operations of each connection over its channels.

    Operations on the same part of their blocks go to the same channel at every connection where
    that is possible, so that few blocks wait for each other.
    """
    by_connection: dict[Connection, list[int]] = defaultdict(list)
    for number, item in enumerate(operations.items):
        by_connection[item.src, item.dst].append(number)
    parts = []
    for connection in sorted(by_connection):
        numbers = by_connection[connection]
        count = min(width.get(connection, 1), len(numbers))
        numbers.sort(key=lambda number: (operations.items[number].position, number))
        cuts = [len(numbers) * i // count for i in range(count + 1)]
        parts.append([sorted(numbers[cuts[i] : cuts[i + 1]]) for i in range(count)])
    return parts


def blocks_of(operations: Operations, limits: Limits, width: dict[Connection, int]) -> list[Block]:
    """Make the blocks of all ranks, a sending and a receiving one for each connection's channel."""
    outgoing: dict[tuple[int, int], int] = defaultdict(int)
    incoming: dict[tuple[int, int], int] = defaultdict(int)
    blocks: list[Block] = []
    for parts in spread(operations, width):
        first = operations.items[parts[0][0]]
        channel = 0
        for part in parts:
            while max(outgoing[first.src, channel], incoming[first.dst, channel]) >= limits.peers:
                channel += 1
            outgoing[first.src, channel] += 1
            incoming[first.dst, channel] += 1
            sends = [_send(operations.items[number]) for number in part]
            receives = [
                _receive(operations.items[number], send)
                for number, send in zip(part, sends, strict=True)
            ]
            blocks.append(Block(first.src, first.dst, -1, channel, sends))
            blocks.append(Block(first.dst, -1, first.src, channel, receives))
            channel += 1
        if channel > limits.channels:
            raise DoesNotFit(f"{channel} channels; {limits.runtime} takes {limits.channels}")
    return blocks


def _send(item: Operation) -> Step:
    return Step("s", (item.sent, 0), item.length, item.source, item.target, reads=item.source)


def _receive(item: Operation, pair: Step) -> Step:
    order = (item.received, 1)
    if item.local is None:
        return Step(
            "r", order, item.length, item.source, item.target, writes=item.target, pair=pair
        )
    return Step(
        "rrc",
        order,
        item.length,
        item.local,
        item.target,
        reads=item.local,
        writes=item.target,
        pair=pair,
    )


def copy_blocks(operations: Operations) -> list[Block]:
    """Make a block without peers for each rank that copies something for itself."""
    return [
        Block(rank, -1, -1, 0, [_copy(copy) for copy in copies])
        for rank, copies in enumerate(operations.copies)
        if copies
    ]


def _copy(copy: Copy) -> Step:
    order = (-1, 0)
    return Step(
        "cpy",
        order,
        copy.length,
        copy.source,
        copy.target,
        reads=copy.source,
        writes=copy.target,
    )


def join_blocks(blocks: list[Block], limits: Limits, copies: int) -> list[Block]:
    """Let blocks send and receive where a rank would otherwise have too many.

    Parameters
    ----------
    blocks
        Blocks with one direction each.
    limits
        How many there may be, and how long.
    copies
        Blocks per rank to leave room for.
    """
    by_rank: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        by_rank[block.rank].append(block)
    joined: list[Block] = []
    for rank in sorted(by_rank):
        joined += _join_rank(by_rank[rank], limits, limits.blocks - copies)
    return joined


def _join_rank(blocks: list[Block], limits: Limits, room: int) -> list[Block]:
    """Join the shortest sending and receiving blocks of a channel until there is room."""
    excess = len(blocks) - room
    if excess <= 0:
        return blocks
    pairs = []
    for channel in {block.channel for block in blocks}:
        here = [block for block in blocks if block.channel == channel]
        sending = sorted((b for b in here if b.send >= 0), key=lambda b: (len(b.steps), b.send))
        receiving = sorted((b for b in here if b.recv >= 0), key=lambda b: (len(b.steps), b.recv))
        pairs += [
            (len(a.steps) + len(b.steps), a, b) for a, b in zip(sending, receiving, strict=False)
        ]
    pairs.sort(key=lambda pair: (pair[0], pair[1].channel, pair[1].send))
    kept = list(blocks)
    for length, one, other in pairs[:excess]:
        if length > limits.steps:
            break
        kept.remove(one)
        kept.remove(other)
        kept.append(join(one, other))
    if len(kept) > room:
        raise DoesNotFit(
            f"gpu {blocks[0].rank} needs {len(kept)} thread blocks; {limits.runtime} takes {room}"
        )
    return kept


def join(sending: Block, receiving: Block) -> Block:
    """Make one block of a sending and a receiving one."""
    steps = sorted(sending.steps + receiving.steps, key=lambda step: step.order)
    return Block(sending.rank, sending.send, receiving.recv, sending.channel, steps)
