"""Programs of schedules with partial sums: messages, local additions and scratch for both."""

from collections.abc import Iterator

import numpy as np

from teccl.demand import Collective
from teccl.errors import ExportError
from teccl.formats.msccl.write.blocks import Blocks, MadeBlock, blocks_of
from teccl.formats.msccl.write.gpu_transfers import Integers, ranks_of, refuse_strangers
from teccl.formats.msccl.write.limits import DoesNotFit, Limits, TooManyBlocks
from teccl.formats.msccl.write.making import COMBINE, SEND, Homes, MadeStep, Maker, Message
from teccl.formats.msccl.write.memory_map import NOWHERE, MemoryMap
from teccl.formats.msccl.write.operations import Operations
from teccl.formats.msccl.write.steps import Steps, steps_of_actions
from teccl.schedule import Schedule
from teccl.schedule.folding import ends_of_messages

# Thread blocks hold half as many operations so often until their steps fit.
_TRIES = 6


def lowered_sums(
    schedule: Schedule, layout: MemoryMap, limits: Limits, channels: int | None, *, fenced: bool
) -> tuple[list[MadeBlock], Steps, list[int]]:
    """Lower a schedule all of whose chunks are kept in partial sums.

    Parameters
    ----------
    layout, limits
        Where the call has its data, and what the target takes.
    channels
        Channels to spread every connection over, None for as few as fit.
    fenced
        Whether a message comes after what its sender did to memory before.

    Returns
    -------
    blocks, steps, scratch
        Thread blocks, what they do, and chunks of scratch by rank.

    Raises
    ------
    ExportError
        If programs cannot express the schedule.
    DoesNotFit
        If a limit is exceeded.
    """
    rank = ranks_of(schedule.problem)
    messages = messages_by_start(schedule, rank)
    numbers = {node: int(number) for node, number in enumerate(rank.tolist())}
    maker = Maker(schedule, numbers, messages, homes_of(schedule, layout, rank))
    actions = maker.run()
    scratch = [maker.scratch[number] for number in range(layout.ranks)]
    if max(scratch) > limits.offset:
        raise DoesNotFit(
            f"{max(scratch)} chunks of scratch are more than offsets reach ({limits.offset})"
        )
    operations = _operations(messages, actions, layout, scratch)
    longest = 0
    for fill in _fills(operations, layout, limits, channels):
        made = _blocks(operations, limits, fill)
        blocks, steps = steps_of_actions(
            messages, actions, made, layout, scratch, fenced=fenced, fused=limits.fused
        )
        length = np.bincount(steps.block, weights=steps.lines).astype(np.int64)
        longest = int(length.max())
        if longest <= limits.steps:
            _check_elements(blocks, length, layout, limits)
            return blocks, steps, scratch
    raise DoesNotFit(f"a thread block has {longest} steps; {limits.runtime} takes {limits.steps}")


def messages_by_start(schedule: Schedule, rank: Integers) -> list[Message]:
    """Messages between ranks in the order of their starts.

    Raises
    ------
    ExportError
        If a switch merges partial sums, or a GPU that takes no part forwards some.
    """
    sends, topology = schedule.sends, schedule.problem.topology
    roots, leaves = ends_of_messages(schedule)
    if len(np.unique(leaves)) < len(leaves):
        raise ExportError(
            "a switch merges partial sums; programs have none for that, so solve without reducing "
            "switches"
        )
    ends = topology.link_src[sends["link"][roots]], topology.link_dst[sends["link"][leaves]]
    refuse_strangers(schedule.problem, rank, np.concatenate(ends))
    src, dst = rank[ends[0]], rank[ends[1]]
    order = np.lexsort((dst, src, leaves, sends["start_ps"][roots]))
    return [
        Message(int(src[i]), int(dst[i]), int(chunk), int(carries), int(becomes))
        for i, chunk, carries, becomes in zip(
            order,
            sends["chunk"][roots[order]],
            sends["carries"][roots[order]],
            sends["becomes"][leaves[order]],
            strict=True,
        )
    ]


def homes_of(schedule: Schedule, layout: MemoryMap, rank: Integers) -> Homes:
    """Where own contributions and results of all partial sums lie."""
    sums, table = schedule.sums, schedule.problem.chunks
    if sums is None:
        raise ExportError("the schedule has no partial sums; nothing is to be made of them")
    arrived = np.zeros(len(sums), dtype=bool)
    arrived[schedule.sends["becomes"][schedule.sends["becomes"] >= 0]] = True
    rows = np.arange(len(sums))
    at = rank[sums["node"]]
    block, piece = table.block[sums["chunk"]], table.piece[sums["chunk"]]
    own_place, home = layout.own(at, block, piece), layout.home(at, block, piece)
    own = rows[~arrived & (sums["left"] < 0)].tolist()
    results = rows[sums["result"]].tolist()
    if (home[sums["result"]] == NOWHERE).any():
        raise ExportError("a result has no place in the output; verify the schedule first")
    return Homes(
        own={row: int(own_place[row]) for row in own},
        result={row: int(home[row]) for row in results},
        in_place=layout.in_place and layout.collective is not Collective.ALLGATHER,
    )


def _fills(
    operations: Operations, layout: MemoryMap, limits: Limits, channels: int | None
) -> Iterator[Integers]:
    """Yield how many operations a block of each connection may have, most first."""
    ranks = layout.ranks
    if channels is not None:
        connection = operations.src * ranks + operations.dst
        count = np.bincount(connection, minlength=ranks**2).reshape(ranks, ranks)
        yield np.maximum(1, -(-count // channels))
        return
    for halvings in range(_TRIES):
        yield np.full((ranks, ranks), max(1, limits.steps >> halvings))


def _blocks(operations: Operations, limits: Limits, fill: Integers) -> Blocks:
    try:
        return blocks_of(operations, limits, fill, limits.blocks - 1, packed=False)
    except TooManyBlocks:
        return blocks_of(operations, limits, fill, limits.blocks - 1, packed=True)


def _operations(
    messages: list[Message], actions: list[MadeStep], layout: MemoryMap, scratch: list[int]
) -> Operations:
    """Messages as operations of one chunk each, in their order."""
    columns = np.array([(m.src, m.dst) for m in messages], dtype=np.int64).reshape(-1, 2).T
    sent = [action for action in actions if action.kind == SEND]
    local = {a.message: a.source for a in actions if a.kind == COMBINE}
    number = np.arange(len(messages))
    return Operations(
        src=columns[0],
        dst=columns[1],
        length=np.ones(len(messages), dtype=np.int64),
        source=np.array([action.source for action in sent], dtype=np.int64),
        target=np.array([action.target for action in sent], dtype=np.int64),
        local=np.array([local.get(i, NOWHERE) for i in number.tolist()], dtype=np.int64),
        received=number,
        position=np.array([m.chunk for m in messages], dtype=np.int64),
        copies=[[] for _ in range(layout.ranks)],
        scratch=scratch,
    )


def _check_elements(
    items: list[MadeBlock], length: Integers, layout: MemoryMap, limits: Limits
) -> None:
    """Check what depends on all blocks of a rank together."""
    elements = np.bincount([item.rank for item in items], weights=1 + length).astype(np.int64)
    most = 1 + layout.ranks + int(elements.max())
    if most > limits.elements:
        raise DoesNotFit(
            f"gpu {int(elements.argmax())} needs {most} elements (gpus, thread blocks and steps); "
            f"{limits.runtime} keeps {limits.elements}"
        )
    if len(items) and layout.loop - 1 > limits.offset:
        raise DoesNotFit(f"{layout.loop} chunks are more than offsets reach ({limits.offset})")
    busiest = int(np.bincount([item.rank for item in items]).max())
    if busiest > limits.blocks:
        raise DoesNotFit(
            f"a gpu needs {busiest} thread blocks; {limits.runtime} takes {limits.blocks}"
        )
