"""Steps: what each thread block does, in the global order, and what it waits for.

Candidates for waits come from memory: a step waits for the last writer of what it reads or writes,
and for the readers of what it writes. Clocks then tell which of them are ordered already, by the
order within thread blocks, by other waits or by messages: this is the transitive reduction of the
order, over all GPUs. Messages order memory only where a fence precedes them, as the protocol says.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from teccl.formats.msccl.write.blocks import Blocks, MadeBlock
from teccl.formats.msccl.write.gpu_transfers import Integers
from teccl.formats.msccl.write.making import MadeStep, Message
from teccl.formats.msccl.write.memory_map import NOWHERE, MemoryMap, buffer_index, offset_of
from teccl.formats.msccl.write.operations import Operations

KINDS = ("s", "r", "rrc", "cpy", "re")
_SEND, _RECEIVE, _COMBINE, _COPY, _ADD = range(len(KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """All real steps in the global order.

    Parameters
    ----------
    kind
        Index in `KINDS`.
    block, place
        The thread block, and the place among its real steps.
    count
        Number of chunks.
    source, target
        Addresses as the file gives them; for a send the target, and for a receive the source,
        are the peer's.
    order
        Place in the global order.
    first_wait, waits
        Where in `waits` the steps stand that each waits for, and the end of the last.
    """

    kind: Integers
    block: Integers
    place: Integers
    count: Integers
    source: Integers
    target: Integers
    order: Integers
    first_wait: Integers
    waits: Integers

    @property
    def lines(self) -> Integers:
        """How many steps of the file each one takes: further waits are steps of their own."""
        return np.maximum(1, np.diff(self.first_wait))


def steps_of(
    operations: Operations, blocks: Blocks, layout: MemoryMap, *, fenced: bool
) -> tuple[list[MadeBlock], Steps]:
    """Put operations and copies in order and find what they wait for.

    Ranks that copy something get a block without peers for that. `fenced` says whether a message
    comes after what its sender did to memory before.
    """
    from teccl.formats.msccl.write.compiled import waits

    items, copied = _with_copies(operations, blocks.items)
    number = np.arange(len(operations))
    own, none = np.arange(len(copied)), np.full(len(operations), NOWHERE)
    combines = operations.local != NOWHERE
    kinds = (none * 0 + _SEND, np.where(combines, _COMBINE, _RECEIVE), own * 0 + _COPY)
    from_where = np.where(combines, operations.local, operations.source)
    # Copies come first; an operation is received after the send that it follows.
    key = np.concatenate([2 * number, 2 * operations.received + 1, own * 0 - 1])
    order = np.lexsort((np.concatenate([number, number, own]), key))

    def put(*parts: Integers) -> Integers:
        return np.concatenate(parts)[order]

    place_of = np.argsort(order)
    pair = put(none, place_of[: len(number)] if fenced else none, own * 0 - 1)
    block = put(blocks.sends, blocks.receives, copied[:, 0])
    place = _places(block)
    count = put(operations.length, operations.length, copied[:, 3])
    rank = np.array([item.rank for item in items])[block]
    reads = put(operations.source, operations.local, copied[:, 1])
    writes = put(none, operations.target, copied[:, 2])
    sizes = (*layout.sizes, max(operations.scratch))
    first_wait, found = waits(
        block,
        place,
        pair,
        _cells(rank, reads, sizes),
        _cells(rank, writes, sizes),
        count,
        len(items),
        layout.ranks * sum(sizes),
    )
    steps = Steps(
        kind=put(*kinds),
        block=block,
        place=place,
        count=count,
        source=put(operations.source, from_where, copied[:, 1]),
        target=put(operations.target, operations.target, copied[:, 2]),
        order=np.arange(len(order)),
        first_wait=first_wait,
        waits=found,
    )
    return items, steps


def steps_of_actions(
    messages: Sequence[Message],
    actions: Sequence[MadeStep],
    blocks: Blocks,
    layout: MemoryMap,
    scratch: Sequence[int],
    *,
    fenced: bool,
    fused: int,
) -> tuple[list[MadeBlock], Steps]:
    """Take actions in the order in which they stand and find what they wait for.

    Ranks that copy or add something for themselves get blocks without peers for that, each with at
    most `fused` additions right after another to the same place. `fenced` is that of `steps_of`.
    """
    from teccl.formats.msccl.write.compiled import waits

    columns = np.array(actions, dtype=np.int64).reshape(-1, 5).T
    kind, rank, source, target, message = columns
    alone = np.flatnonzero(message < 0)
    names = [
        (int(r), part)
        for r, part in zip(rank[alone], _own_parts(actions, alone.tolist(), fused), strict=True)
    ]
    number = {name: len(blocks.items) + i for i, name in enumerate(sorted(set(names)))}
    lengths = Counter(names)
    items = [*blocks.items]
    items += [
        MadeBlock(rank=r, send=-1, recv=-1, channel=0, length=lengths[r, p]) for r, p in number
    ]
    block = np.where(kind == _SEND, blocks.sends[message], blocks.receives[message])
    block[alone] = [number[name] for name in names]
    place = _places(block)
    sent = np.full(len(messages), -1, dtype=np.int64)
    sent[message[kind == _SEND]] = np.flatnonzero(kind == _SEND)
    receives = (kind == _RECEIVE) | (kind == _COMBINE)
    sizes = (*layout.sizes, max(scratch))
    count = np.ones(len(actions), dtype=np.int64)
    first_wait, found = waits(
        block,
        place,
        np.where(receives & fenced, sent[message], -1),
        _cells(rank, np.where(kind == _RECEIVE, NOWHERE, source), sizes),
        _cells(rank, np.where(kind == _SEND, NOWHERE, target), sizes),
        count,
        len(items),
        layout.ranks * sum(sizes),
    )
    steps = Steps(
        kind=kind.copy(),
        block=block,
        place=place,
        count=count,
        source=source.copy(),
        target=target.copy(),
        order=np.arange(len(actions)),
        first_wait=first_wait,
        waits=found,
    )
    return items, steps


def _own_parts(actions: Sequence[MadeStep], alone: list[int], fused: int) -> list[int]:
    """Which of its rank's blocks without peers each of these actions goes to."""
    last: dict[int, int] = {}
    seen: Counter[int] = Counter()
    parts = []
    for action in (actions[i] for i in alone):
        target = action.target if action.kind == _ADD else NOWHERE
        is_next = target != NOWHERE and last.get(action.rank) == target
        last[action.rank] = target
        seen[action.rank] += is_next
        parts.append(max(0, seen[action.rank] - 1) // fused)
    return parts


def _with_copies(
    operations: Operations, items: list[MadeBlock]
) -> tuple[list[MadeBlock], Integers]:
    """Add blocks for copies; return all blocks, and rows of (block, source, target, length)."""
    items = [*items]
    rows: list[tuple[int, ...]] = []
    for rank, copies in enumerate(operations.copies):
        rows += [(len(items), *copy) for copy in copies]
        if copies:
            items.append(MadeBlock(rank=rank, send=-1, recv=-1, channel=0, length=len(copies)))
    return items, np.array(rows, dtype=np.int64).reshape(-1, 4)


def _places(block: Integers) -> Integers:
    """Number the steps of each block."""
    order = np.argsort(block, kind="stable")
    count = np.bincount(block)
    place = np.empty_like(block)
    place[order] = np.arange(len(block)) - np.repeat(np.cumsum(count) - count, count)
    return place


def _cells(rank: Integers, place: Integers, sizes: tuple[int, ...]) -> Integers:
    """Number the chunks of all buffers of all ranks through."""
    first = np.cumsum((0, *sizes[:-1]))
    cell = rank * sum(sizes) + first[buffer_index(place)] + offset_of(place)
    return np.where(place == NOWHERE, -1, cell)
