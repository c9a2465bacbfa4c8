"""Instances: copies of a program side by side, each on its share of every block."""

from dataclasses import replace

import numpy as np

from teccl.formats.msccl.write.build import Built
from teccl.formats.msccl.write.gpu_transfers import Integers
from teccl.formats.msccl.write.memory_map import SCRATCH, offset_of
from teccl.formats.msccl.write.steps import KINDS, Steps


def replicate(built: Built, instances: int) -> Built:
    """Return the program of all instances.

    Every block of data is cut into `instances` shares, and the j-th copy of the program works on
    the j-th share of each, on channels of its own.
    """
    if instances == 1:
        return built
    shares = [_copy_of(built, share, instances) for share in range(instances)]
    starts = np.arange(instances) * len(built.steps.waits)
    ends = [steps.first_wait[1:] + start for steps, start in zip(shares, starts, strict=True)]
    return replace(
        built,
        blocks=[
            replace(block, channel=block.channel * instances + share)
            for share in range(instances)
            for block in built.blocks
        ],
        steps=Steps(
            kind=np.concatenate([steps.kind for steps in shares]),
            block=np.concatenate([steps.block for steps in shares]),
            place=np.concatenate([steps.place for steps in shares]),
            count=np.concatenate([steps.count for steps in shares]),
            source=np.concatenate([steps.source for steps in shares]),
            target=np.concatenate([steps.target for steps in shares]),
            order=np.concatenate([steps.order for steps in shares]),
            first_wait=np.concatenate([[0], *ends]),
            waits=np.concatenate([steps.waits for steps in shares]),
        ),
        layout=built.layout.scaled(instances),
        scratch=[size * instances for size in built.scratch],
    )


def _copy_of(built: Built, share: int, instances: int) -> Steps:
    """One instance: steps with new addresses that wait for each other as the old ones do."""
    steps, pieces = built.steps, built.layout.pieces
    scratch = np.array(built.scratch)

    def moved(place: Integers, rank: Integers) -> Integers:
        block, position = np.divmod(offset_of(place), pieces)
        inside = place - offset_of(place) + (block * instances + share) * pieces + position
        return np.where(place >= SCRATCH, place + share * scratch[rank], inside)

    blocks = [(block.rank, block.send, block.recv) for block in built.blocks]
    rank, send, recv = np.array(blocks).T[:, steps.block]
    # A send names the receiver's place and a pure receive the sender's.
    return replace(
        steps,
        block=steps.block + share * len(built.blocks),
        source=moved(steps.source, np.where(steps.kind == KINDS.index("r"), recv, rank)),
        target=moved(steps.target, np.where(steps.kind == KINDS.index("s"), send, rank)),
        waits=steps.waits + share * len(steps.kind),
    )
