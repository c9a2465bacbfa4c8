"""What can be judged of a plan without running it: limits, references, bounds."""

from collections import Counter

from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.mscclpp.prove.execution_plan import (
    CHANNEL_TYPES,
    MAX_BARRIERS,
    MAX_BLOCKS,
    MAX_CHANNEL_IDS,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_OPERANDS,
    MAX_OPS,
    MAX_REMOTE_BUFFERS,
    MAX_SEMAPHORE_IDS,
    ExecutionPlan,
    Op,
    Operand,
    PlanBlock,
    PlanGpu,
)

COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce")
# For each operation the numbers of sources and targets it takes, and whether it uses channels.
_SHAPES = {
    "nop": (0, 0, False),
    "barrier": (0, 0, False),
    "signal": (0, 0, True),
    "wait": (0, 0, True),
    "rlxsignal": (0, 0, True),
    "rlxwait": (0, 0, True),
    "sem_acquire": (0, 0, False),
    "sem_release": (0, 0, False),
    "copy": (1, 1, False),
    "re": (None, 1, False),
    "put": (1, 1, False),
    "pws": (1, 1, True),
    "pwsf": (1, 1, True),
}
_REMOTE = ("put", "pws", "pwsf")


def check_plan(plan: ExecutionPlan, findings: Findings) -> None:
    """Check everything that one element, or two ends of a channel, show by themselves."""
    if plan.collective not in COLLECTIVES:
        findings.add(
            FindingKind.ATTRIBUTE,
            f"collective is {plan.collective[:40]!r}; {', '.join(COLLECTIVES)} can be judged",
        )
    if plan.protocol != "Simple":
        findings.add(
            FindingKind.ATTRIBUTE, f"protocol is {plan.protocol[:40]!r}; Simple can be judged"
        )
    for rank, gpu in enumerate(plan.gpus):
        _check_gpu(plan, rank, gpu, findings)
        for block in gpu.blocks:
            _check_block(plan, rank, block, findings)
    _check_pairs(plan, findings)


def _check_gpu(plan: ExecutionPlan, rank: int, gpu: PlanGpu, findings: Findings) -> None:
    if gpu.id != rank:
        findings.add(FindingKind.ATTRIBUTE, f"has id {gpu.id}; ids are ranks, in order", gpu=rank)
    for letter, name in (("i", "input"), ("o", "output")):
        if gpu.chunks[letter] < 1:
            detail = f"{name}_chunks is 0, by which the runtime divides; give 1 or more"
            findings.add(FindingKind.LIMIT, detail, gpu=rank)
    if max(gpu.chunks.values()) > MAX_CHUNKS:
        findings.add(FindingKind.LIMIT, f"has a buffer of over {MAX_CHUNKS} chunks", gpu=rank)
    if len(gpu.blocks) > MAX_BLOCKS:
        detail = f"has {len(gpu.blocks)} thread blocks; the limit is {MAX_BLOCKS}"
        findings.add(FindingKind.LIMIT, detail, gpu=rank)
    for place, block in enumerate(gpu.blocks):
        if block.id != place:
            detail = f"thread block {place} has id {block.id}; list them in order of id"
            findings.add(FindingKind.ATTRIBUTE, detail, gpu=rank)
    for kind in CHANNEL_TYPES:
        for peer in gpu.peers[kind]:
            if not 0 <= peer < len(plan.gpus) or peer == rank:
                detail = f"has a {kind} channel to rank {peer}, which is none of the others"
                findings.add(FindingKind.PEER, detail, gpu=rank)
    for buffer in gpu.remote_buffers:
        if not 0 <= buffer.rank < len(plan.gpus) or buffer.rank == rank:
            detail = f"names a buffer of rank {buffer.rank}, which is none of the others"
            findings.add(FindingKind.PEER, detail, gpu=rank)


def _check_block(plan: ExecutionPlan, rank: int, block: PlanBlock, findings: Findings) -> None:
    gpu = plan.gpus[rank]

    def limit(count: int, most: int, what: str, op: int | None = None) -> None:
        if count > most:
            detail = f"has {count} {what}; the limit is {most}"
            findings.add(FindingKind.LIMIT, detail, gpu=rank, block=block.id, step=op)

    limit(len(block.ops), MAX_OPS, "operations")
    for kind in CHANNEL_TYPES:
        limit(len(block.channels[kind]), MAX_CHANNELS, f"{kind} channels")
        limit(len(block.remote_buffers[kind]), MAX_REMOTE_BUFFERS, f"remote buffers by {kind}")
        for places, most, what in (
            (block.channels[kind], len(gpu.peers[kind]), f"{kind} channel"),
            (block.remote_buffers[kind], len(gpu.remote_buffers), "remote buffer"),
        ):
            if max(places, default=-1) >= most:
                detail = f"names {what} {max(places)} of a GPU that has {most}"
                findings.add(FindingKind.BOUNDS, detail, gpu=rank, block=block.id)
    for place, op in enumerate(block.ops):
        limit(len(op.channels), MAX_CHANNEL_IDS, "channel ids", place)
        limit(len(op.sources), MAX_OPERANDS, "sources", place)
        limit(len(op.targets), MAX_OPERANDS, "targets", place)
        limit(len(op.semaphores), MAX_SEMAPHORE_IDS, "semaphore ids", place)
        problem = _op_problem(op, block, gpu)
        if problem is not None:
            kind_of_problem, detail = problem
            findings.add(kind_of_problem, detail, gpu=rank, block=block.id, step=place)
        elif not findings:
            _check_operands(plan, rank, block, place, findings)


def _op_problem(op: Op, block: PlanBlock, gpu: PlanGpu) -> tuple[FindingKind, str] | None:
    """Return what is wrong with an operation by itself."""
    if op.name not in _SHAPES:
        known = ", ".join(_SHAPES)
        return FindingKind.ATTRIBUTE, f"operation {op.name[:40]!r} cannot be judged; known: {known}"
    shape = _shape_problem(op)
    if shape is not None:
        return FindingKind.ATTRIBUTE, f"{op.name} {shape}"
    return _range_problem(op, block, gpu)


def _shape_problem(op: Op) -> str | None:
    """Return what an operation lacks or has too much of."""
    num_sources, num_targets, uses_channels = _SHAPES[op.name]
    uses_channels |= op.name == "put" and op.channel_type == "port"
    if len(op.sources) != (max(2, len(op.sources)) if num_sources is None else num_sources):
        return f"has {len(op.sources)} sources, not {num_sources or 'two or more'}"
    if len(op.targets) != num_targets:
        return f"has {len(op.targets)} targets, not {num_targets}"
    if (op.name in _REMOTE or op.channels or uses_channels) and op.channel_type is None:
        return "has no channel_type"
    if op.name in ("pws", "pwsf") and op.channel_type != "port":
        return "needs a port channel"
    if uses_channels and not op.channels:
        return "has no channel_ids"
    if op.name.startswith("sem_") and not op.semaphores:
        return "has no semaphore_ids"
    return None


def _range_problem(op: Op, block: PlanBlock, gpu: PlanGpu) -> tuple[FindingKind, str] | None:
    if op.channel_type is not None:
        most = len(block.channels[op.channel_type])
        if max(op.channels, default=-1) >= most:
            detail = f"{op.name} names channel {max(op.channels)} of a block that has {most}"
            return FindingKind.BOUNDS, detail
    if max(op.semaphores, default=-1) >= len(gpu.semaphores):
        return FindingKind.BOUNDS, f"{op.name} names semaphore {max(op.semaphores)}, not there"
    if op.name == "barrier" and (op.barrier is None or op.barrier >= MAX_BARRIERS):
        return FindingKind.LIMIT, f"barrier id {op.barrier}; ids are 0 to {MAX_BARRIERS - 1}"
    return None


def _check_operands(
    plan: ExecutionPlan, rank: int, block: PlanBlock, place: int, findings: Findings
) -> None:
    """Check that operands are local where they must be, fit and are equally long."""
    op = block.ops[place]

    def add(kind: FindingKind, detail: str) -> None:
        findings.add(kind, f"{op.name} {detail}", gpu=rank, block=block.id, step=place)

    sizes = {operand.size for operand in (*op.sources, *op.targets)}
    if len(sizes) > 1 or 0 in sizes:
        add(FindingKind.COUNT_MISMATCH, f"has operands of sizes {sorted(sizes)}; make them equal")
    for operand, is_target in (
        *((operand, False) for operand in op.sources),
        *((operand, True) for operand in op.targets),
    ):
        if (operand.remote is not None) != (is_target and op.name in _REMOTE):
            side = "target" if is_target else "source"
            where = "local" if operand.remote is None else "remote"
            add(FindingKind.ATTRIBUTE, f"has a {where} {side}, which it cannot have")
            continue
        size = _buffer_size(plan, rank, block, op, operand)
        if size is None:
            add(FindingKind.BOUNDS, f"names remote buffer {operand.remote} that it does not have")
        elif operand.first + operand.size > size:
            last = operand.first + operand.size - 1
            add(FindingKind.BOUNDS, f"reaches chunk {last} of a buffer of {size}")
    if op.name == "put" and op.channel_type == "port" and len(op.channels) != 1:
        add(FindingKind.ATTRIBUTE, "through several port channels cannot be judged")


def _buffer_size(
    plan: ExecutionPlan, rank: int, block: PlanBlock, op: Op, operand: Operand
) -> int | None:
    if operand.letter is not None:
        return plan.gpus[rank].chunks[operand.letter]
    assert op.channel_type is not None
    places = block.remote_buffers[op.channel_type]
    if operand.remote is None or operand.remote >= len(places):
        return None
    buffer = plan.gpus[rank].remote_buffers[places[operand.remote]]
    return plan.gpus[buffer.rank].chunks[buffer.letter]


def _check_pairs(plan: ExecutionPlan, findings: Findings) -> None:
    """Check that two ranks have equally many channels of a type to each other."""
    for kind in CHANNEL_TYPES:
        counts = Counter((r, peer) for r, gpu in enumerate(plan.gpus) for peer in gpu.peers[kind])
        for (rank, peer), count in counts.items():
            back = counts.get((peer, rank), 0)
            if back != count:
                detail = f"has {count} {kind} channels to rank {peer}, which has {back} back"
                findings.add(FindingKind.PEER, detail, gpu=rank)
