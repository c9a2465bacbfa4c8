"""Instances: copies of a program side by side, each on its share of every block."""

from collections.abc import Callable

from teccl.exporters.lowering.blocks import Block, Step
from teccl.exporters.lowering.build import Built
from teccl.exporters.lowering.layout import SCRATCH, Place, offset_of


def replicate(built: Built, instances: int) -> tuple[list[Block], list[int]]:
    """Return the blocks of all instances, and the sizes of the scratch buffers.

    Every block of data is cut into `instances` shares, and the j-th copy of the program works on
    the j-th share of each, on channels of its own.
    """
    if instances == 1:
        return built.blocks, built.scratch
    blocks = [block for share in range(instances) for block in _copy_of(built, share, instances)]
    return blocks, [size * instances for size in built.scratch]


def _copy_of(built: Built, share: int, instances: int) -> list[Block]:
    """One instance: steps with new addresses that wait for each other as the old ones do."""
    pieces = built.layout.pieces

    def moved(place: Place, rank: int) -> Place:
        if place >= SCRATCH:
            return place + share * built.scratch[rank]
        block, position = divmod(offset_of(place), pieces)
        return place - offset_of(place) + (block * instances + share) * pieces + position

    steps: dict[int, Step] = {}
    blocks = [_moved_block(block, share, instances, moved, steps) for block in built.blocks]
    for old_block in built.blocks:
        for old in old_block.steps:
            steps[id(old)].waits = [steps[id(wait)] for wait in old.waits]
    return blocks


def _moved_block(
    block: Block,
    share: int,
    instances: int,
    moved: Callable[[Place, int], Place],
    steps: dict[int, Step],
) -> Block:
    copy = Block(block.rank, block.send, block.recv, block.channel * instances + share, [])
    for old in block.steps:
        # A send names the receiver's place and a pure receive the sender's.
        source_rank = block.recv if old.kind == "r" else block.rank
        target_rank = block.send if old.kind == "s" else block.rank
        step = Step(
            old.kind,
            old.order,
            old.count,
            moved(old.source, source_rank),
            moved(old.target, target_rank),
            is_awaited=old.is_awaited,
            block=copy,
        )
        steps[id(old)] = step
        copy.steps.append(step)
    return copy
