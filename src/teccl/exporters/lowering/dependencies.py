"""Dependencies: what each step must wait for on its own GPU, and nothing that follows anyway.

Candidates come from memory: a step waits for the last writer of what it reads or writes, and for
the readers of what it writes. Clocks then tell which of them are ordered already, by the order
within thread blocks, by other waits or by data that came over the network: this is the transitive
reduction of the order, over all GPUs.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from teccl.exporters.lowering.blocks import Block, Step

Clock = npt.NDArray[np.int16]


def add_dependencies(blocks: list[Block]) -> None:
    """Fill in `waits` and `is_awaited` of all steps."""
    for index, block in enumerate(blocks):
        block.index = index
        for place, step in enumerate(block.steps):
            step.block, step.place, step.waits, step.is_awaited = block, place, [], False
    order = sorted((step for block in blocks for step in block.steps), key=lambda s: s.order)
    candidates = _candidates(order)
    uses = Counter(id(step) for steps in candidates for step in steps)
    clock: Clock = np.zeros((len(blocks), len(blocks)), dtype=np.int16)
    after: dict[int, Clock] = {}
    sent: dict[int, Clock] = {}
    for step, steps in zip(order, candidates, strict=True):
        own = step.block
        assert own is not None
        now = clock[own.index]
        if step.pair is not None:
            np.maximum(now, sent.pop(id(step.pair)), out=now)
        # Later steps know of earlier ones, so those that remain are tried from the last back.
        for other in reversed(steps):
            assert other.block is not None
            if now[other.block.index] <= other.place:
                step.waits.append(other)
                other.is_awaited = True
                np.maximum(now, after[id(other)], out=now)
            uses[id(other)] -= 1
            if not uses[id(other)]:
                del after[id(other)]
        now[own.index] = step.place + 1
        if step.kind == "s":
            sent[id(step)] = now.copy()
        if uses[id(step)]:
            after[id(step)] = now.copy()


def _candidates(order: list[Step]) -> list[list[Step]]:
    """For each step, the latest step of every other block whose accesses it must come after."""
    written: dict[int, Step] = {}
    read: dict[int, list[Step]] = {}
    found: list[list[Step]] = []
    for step in order:
        block = step.block
        assert block is not None
        before: dict[int, Step] = {}
        # Cells of all ranks are numbered through; a place needs fewer than 24 bits.
        base = block.rank << 24
        if step.reads is not None:
            for cell in range(base + step.reads, base + step.reads + step.count):
                if cell in written:
                    _keep_latest(before, written[cell])
                read.setdefault(cell, []).append(step)
        if step.writes is not None:
            for cell in range(base + step.writes, base + step.writes + step.count):
                if cell in written:
                    _keep_latest(before, written[cell])
                for reader in read.pop(cell, ()):
                    _keep_latest(before, reader)
                written[cell] = step
        before.pop(block.index, None)
        found.append(
            sorted(before.values(), key=lambda s: s.order)
            if len(before) > 1
            else [*before.values()]
        )
    return found


def _keep_latest(before: dict[int, Step], step: Step) -> None:
    assert step.block is not None
    known = before.get(step.block.index)
    if known is None or known.place < step.place:
        before[step.block.index] = step
