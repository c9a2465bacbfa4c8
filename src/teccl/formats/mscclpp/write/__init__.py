"""MSCCL++ execution plans (the JSON of version 0.9): one-sided puts, signals and waits.

All GPUs give a chunk to the thread block of the same number, so that whoever touches it on one GPU
is one block, and no order between blocks is needed. A block works through its chunks in *waves*,
and through a wave in *rounds*: wait for what the round before brought, reduce, put, signal. Round r
needs nothing but rounds before it, on any GPU, which is why nothing can deadlock.
"""

import json
from bisect import bisect_left
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl.errors import ExportError, ExportRefused
from teccl.formats.mscclpp.write.plan_blocks import BlockBuilder, Wave
from teccl.formats.mscclpp.write.plan_slots import Slots
from teccl.formats.mscclpp.write.plan_sums import SumBlockBuilder, SumTable
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.formats.shared.gpu_sends import GpuSend, gpu_sends
from teccl.schedule import Schedule

ALIGNMENT = 16
MAX_OPS = 64
# Thread blocks of a GPU, fewest first: each occupies a multiprocessor.
_NUM_BLOCKS = (16, 32, 64)
# A size range around the schedule's own, in which its chunks still suit.
_RANGE = 2


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:
    """Make a plan and prove it.

    Raises
    ------
    ExportError
        If MSCCL++ has no such collective, or the schedule reduces in switches.
    ExportRefused
        If a limit of the runtime is exceeded.
    """
    from teccl.formats.mscclpp.prove import prove_plan_text

    slots = Slots(schedule, in_place=bool(options.in_place))
    sends = gpu_sends(schedule)
    blocks = _fit(schedule, slots, sends)
    text = json.dumps(_document(schedule, slots, blocks, options), indent=1) + "\n"
    proof = prove_plan_text(text)
    if not proof.ok:
        raise ExportRefused(f"mscclpp: the plan failed its proof: {proof.findings[0]}")
    facts = {key: value for key, value in proof.facts.items() if key != "num_gpus"}
    return Export(
        target="mscclpp",
        files=(OutputFile(path=path, content=text),),
        facts={**facts, "proven": True},
        notes=_notes(schedule, slots),
        command=_command(schedule, slots, path),
    )


def _fit(schedule: Schedule, slots: Slots, sends: list[GpuSend]) -> list[list[BlockBuilder]]:
    """Return for each thread block its operations on each GPU, in as many waves as fit."""
    packer = _Packer(schedule, slots, sends)
    for count in _NUM_BLOCKS[:-1]:
        blocks = packer.pack(min(count, packer.num_chunks), coarsen=False)
        if blocks is not None:
            return blocks
    blocks = packer.pack(min(_NUM_BLOCKS[-1], packer.num_chunks), coarsen=True)
    if blocks is not None:
        return blocks
    fitting = max(1, schedule.problem.num_chunks * MAX_OPS // (packer.most + 8))
    raise ExportRefused(
        f"mscclpp: {packer.num_chunks} chunks need {packer.most} operations in a thread block; the "
        f"limit is {MAX_OPS} in each of {_NUM_BLOCKS[-1]} blocks; solve with --max-chunks {fitting}"
    )


class _Packer:
    """Deals chunks to thread blocks.

    Attributes
    ----------
    num_chunks
        Chunks that travel.
    most
        Operations of the largest block that was too large.
    """

    def __init__(self, schedule: Schedule, slots: Slots, sends: list[GpuSend]) -> None:
        self._slots = slots
        self._rounds = _rounds(sends)
        self._by_chunk: dict[int, list[GpuSend]] = {}
        for send in sends:
            self._by_chunk.setdefault(send.chunk, []).append(send)
        self._chunks = list(self._by_chunk)  # In order of their first start, as sends are.
        topology = schedule.problem.topology
        # Channels between machines go through ports.
        self._groups = [topology.nodes[gpu].group for gpu in topology.gpus]
        self.num_chunks = len(self._chunks)
        self.most = 0
        self._table: SumTable | None = None
        if schedule.sums is not None:
            rank = {int(node): i for i, node in enumerate(topology.gpus)}
            self._table = SumTable(schedule.sums, sends, rank, slots)

    def pack(self, num_blocks: int, *, coarsen: bool) -> list[list[BlockBuilder]] | None:
        """Deal all chunks in order of time, moving on what does not fit; None if some remain."""
        blocks = []
        dealt: list[list[int]] = []
        left: list[int] = []
        for b in range(num_blocks):
            mine = self._chunks[b::num_blocks]
            builders = self._try(mine, b, coarsen=coarsen)
            if builders is None and coarsen:
                fits = range(1, len(mine) + 1)
                count = bisect_left(
                    fits, True, key=lambda n: not self._try(mine[:n], b, coarsen=True)
                )
                left += mine[count:]
                mine = mine[:count]
                builders = self._try(mine, b, coarsen=True) if mine else None
            # Blocks are alike: if this one leaves more than a part, the others cannot take it.
            if builders is None or len(left) > self.num_chunks // 8:
                return None
            blocks.append(builders)
            dealt.append(mine)
        for chunk in left:
            # Those with the fewest operations have the most room.
            for b in sorted(range(num_blocks), key=lambda b: (_longest(blocks[b]), b)):
                builders = self._try([*dealt[b], chunk], b, coarsen=coarsen)
                if builders is not None:
                    blocks[b] = builders
                    dealt[b].append(chunk)
                    break
            else:
                return None
        return blocks

    def _try(self, chunks: list[int], block: int, *, coarsen: bool) -> list[BlockBuilder] | None:
        """Return a block with some chunks, in as many waves as fit, None if it cannot hold them."""
        longest = 0
        for num_waves in _wave_counts(len(chunks)) if coarsen else [len(chunks)]:
            waves = self._cut(chunks, num_waves)
            builders = [
                self._builder(rank, waves, copies_own=block == 0)
                for rank in range(len(self._groups))
            ]
            for builder in builders:
                builder.build()
            longest = _longest(builders)
            if longest <= MAX_OPS:
                return builders
        self.most = max(self.most, longest)
        return None

    def _builder(self, rank: int, waves: list[Wave], *, copies_own: bool) -> BlockBuilder:
        if self._table is not None:
            return SumBlockBuilder(rank, waves, self._slots, self._groups, self._table)
        return BlockBuilder(rank, waves, self._slots, self._groups, copies_own=copies_own)

    def _cut(self, chunks: list[int], num_waves: int) -> list[Wave]:
        """Deal chunks into waves in order of time; a wave lists transfers by round."""
        waves = []
        for w in range(num_waves):
            wave: Wave = {}
            for chunk in chunks[w * len(chunks) // num_waves : (w + 1) * len(chunks) // num_waves]:
                for send in self._by_chunk[chunk]:
                    wave.setdefault(self._rounds[send], []).append(send)
            waves.append(wave)
        return waves


def _longest(builders: list[BlockBuilder]) -> int:
    return max(len(builder.ops) for builder in builders)


def _wave_counts(num_chunks: int) -> list[int]:
    """Return numbers of waves to try, finest first."""
    counts = [num_chunks]
    while counts[-1] > 1:
        counts.append((counts[-1] + 1) // 2)
    return counts


def _rounds(sends: list[GpuSend]) -> dict[GpuSend, int]:
    """Return the round of each transfer: after those it carries on.

    Two transfers of a chunk from one GPU that carry different sums are in different rounds, unless
    these sums are kept apart.
    """
    rounds: dict[GpuSend, int] = {}
    last: dict[tuple[int, int], GpuSend] = {}
    for send in sends:
        number = max((rounds[sends[feed]] + 1 for feed in send.feeds), default=0)
        before = last.get((send.chunk, send.src))
        if before is not None and send.carries < 0:
            number = max(number, rounds[before] + (before.feeds != send.feeds))
        rounds[send] = number
        last[send.chunk, send.src] = send
    return rounds


def _document(
    schedule: Schedule, slots: Slots, blocks: list[list[BlockBuilder]], options: ExportOptions
) -> dict[str, Any]:
    size = schedule.problem.size_bytes
    low = options.min_bytes if options.min_bytes is not None else size / _RANGE
    high = options.max_bytes if options.max_bytes is not None else size * _RANGE
    if low > high:
        raise ExportError(f"min-bytes {low} is above max-bytes {high}; swap them")
    return {
        "name": f"teccl_{slots.collective}_{len(slots.sizes)}gpus",
        "collective": slots.collective,
        "protocol": "Simple",
        "inplace": slots.in_place,
        "reuse_resources": False,
        "gpus": [_gpu(rank, slots, blocks) for rank in range(len(slots.sizes))],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": ALIGNMENT,
        "min_message_size": int(low),
        "max_message_size": int(high),
    }


def _gpu(rank: int, slots: Slots, blocks: list[list[BlockBuilder]]) -> dict[str, Any]:
    """Return one rank: its channels in order of block and peer, as the other end has them."""
    peers: dict[str, list[int]] = {"memory": [], "port": []}
    buffers: dict[tuple[int, str], set[str]] = {}
    for builders in blocks:
        for kind, keys in builders[rank].remote.items():
            for key in keys:
                buffers.setdefault(key, set()).add(kind)
    buffer_ids = {key: i for i, key in enumerate(sorted(buffers))}
    listed = []
    for b, builders in enumerate(blocks):
        builder = builders[rank]
        channels = []
        for kind in ("memory", "port"):
            mine = builder.peers[kind]
            if mine:
                first = len(peers[kind])
                ids = list(range(first, first + len(mine)))
                channels.append({"channel_type": kind, "channel_ids": ids})
                peers[kind] += mine
        listed.append(
            {
                "id": b,
                "ops": builder.ops,
                "channels": channels,
                "remote_buffer_refs": [
                    {
                        "access_channel_type": kind,
                        "remote_buffer_ids": [buffer_ids[key] for key in keys],
                    }
                    for kind, keys in builder.remote.items()
                    if keys
                ],
            }
        )
    sizes = slots.sizes[rank]
    return {
        "id": rank,
        "input_chunks": sizes["i"],
        "output_chunks": sizes["o"],
        "scratch_chunks": sizes["s"],
        "threadblocks": listed,
        "channels": [
            {"channel_type": kind, "connected_to": ranks} for kind, ranks in peers.items() if ranks
        ],
        "remote_buffers": [
            {"rank": peer, "type": letter, "access_channel_types": sorted(buffers[peer, letter])}
            for peer, letter in buffer_ids
        ],
        "semaphores": [],
    }


def _notes(schedule: Schedule, slots: Slots) -> tuple[str, ...]:
    step = ALIGNMENT * slots.loop
    notes = [
        "for MSCCL++ 0.9: load it with mscclpp.ExecutionPlan and run it with mscclpp.Executor",
        "buffers must lie at the same offset of their allocation on all ranks",
        f"it serves message sizes that are multiples of {step} bytes, {ALIGNMENT} a chunk",
    ]
    size = schedule.problem.size_bytes
    if size % step:
        padded = -(-size // step) * step
        notes.append(f"the schedule's size is none of them; pad it to {padded} bytes")
    return tuple(notes)


def _command(schedule: Schedule, slots: Slots, path: Path) -> str | None:
    """Return a call of the test program in MSCCL++'s source, which knows two collectives."""
    if slots.collective not in ("allgather", "allreduce"):
        return None
    ranks = len(slots.sizes)
    size = Fraction(schedule.problem.size_bytes)
    step = ALIGNMENT * slots.loop
    padded = -(-size // step) * step
    per_rank = padded // ranks if slots.collective == "allgather" else padded
    flag = " --in_place" if slots.in_place else ""
    return (
        f"mpirun -np {ranks} python3 python/test/executor_test.py -path {path} "
        f"--size {per_rank}{flag}"
    )
