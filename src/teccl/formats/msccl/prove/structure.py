"""What can be judged without running a program: attributes, limits, addresses, peers."""

from collections import Counter

from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.msccl.prove.program_tree import Gpu, Program, ProgramStep, StepType, ThreadBlock
from teccl.formats.msccl.prove.runtimes import FIFO_DEPTH, Runtime


def check_structure(program: Program, runtime: Runtime, findings: Findings) -> None:
    """Check everything that one element, or the elements of one GPU, show by themselves."""
    for remark in program.remarks:
        findings.add(FindingKind.SYNTAX, remark)
    _check_root(program, runtime, findings)
    _check_ranks(program, runtime, findings)
    _check_nodes(program, runtime, findings)
    num_channels = program.number("nchannels", runtime.max_channels) or 0
    for gpu in program.gpus:
        _check_buffers(gpu, program, runtime, findings)
        _check_gpu(gpu, runtime, findings)
        for block in gpu.blocks:
            note = _Notes(findings, gpu, block)
            _check_peers(gpu, block, len(program.gpus), note)
            _check_channel(block, num_channels, runtime, note)
            _check_steps(gpu, block, runtime, note)
            _check_order(gpu, block, findings)
            _check_fused_reductions(gpu, block, runtime, findings)


def _check_root(program: Program, runtime: Runtime, findings: Findings) -> None:
    attributes = program.attributes
    for key in runtime.required:
        if key not in attributes:
            findings.add(FindingKind.ATTRIBUTE, f"<algo> lacks {key}, which {runtime.title} needs")
    numbers = ["ngpus", "nchunksperloop", "nchannels", "inplace"]
    numbers += [key for key in ("outofplace", "minBytes", "maxBytes") if key in runtime.required]
    for key in numbers:
        value = program.number(key)
        if key in attributes and (value is None or value < 0):
            findings.add(
                FindingKind.ATTRIBUTE, f"{key} is {attributes[key][:20]!r}; give a whole number"
            )
    if attributes.get("proto", "Simple") not in FIFO_DEPTH:
        known = ", ".join(FIFO_DEPTH)
        findings.add(FindingKind.ATTRIBUTE, f"proto is {attributes['proto'][:20]!r}; use {known}")
    coll = attributes.get("coll", "")
    if "coll" in attributes and coll not in (*runtime.collectives, *runtime.opaque):
        known = ", ".join(runtime.collectives)
        findings.add(FindingKind.ATTRIBUTE, f"coll is {coll[:20]!r}; {runtime.title} knows {known}")
    if coll == "alltoall" and attributes.get("name") == "2D" and runtime.checks_buffers:
        findings.add(
            FindingKind.ATTRIBUTE,
            "the name 2D makes the runtime use an algorithm of its own; choose another",
        )
    _check_use(program, runtime, findings)


def _check_use(program: Program, runtime: Runtime, findings: Findings) -> None:
    """Check that there is a call for which the runtime would choose the file."""
    low, high = program.number("minBytes", 0) or 0, program.number("maxBytes")
    if runtime.checks_buffers and high is not None and high <= low:
        findings.add(
            FindingKind.ATTRIBUTE,
            f"maxBytes {high} is not above minBytes {low}: the file is never used",
        )
    if not runtime.checks_buffers and high and high < low:
        findings.add(
            FindingKind.ATTRIBUTE,
            f"maxBytes {high} is below minBytes {low}: the file is never used",
        )
    flags = [key for key in ("inplace", "outofplace") if key in runtime.required]
    if len(flags) == 2 and not any(program.number(key, 0) for key in flags):
        findings.add(
            FindingKind.ATTRIBUTE, "inplace and outofplace are both 0: the file is never used"
        )
    if program.number("nchunksperloop") == 0:
        findings.add(FindingKind.ATTRIBUTE, "nchunksperloop is 0; give the number of chunks")


def _check_ranks(program: Program, runtime: Runtime, findings: Findings) -> None:
    num_gpus = program.number("ngpus", len(program.gpus)) or 0
    seen = Counter(gpu.id for gpu in program.gpus)
    for rank in sorted(seen):
        if seen[rank] > 1:
            findings.add(FindingKind.ATTRIBUTE, f"gpu {rank} appears {seen[rank]} times", gpu=rank)
        if not 0 <= rank < num_gpus:
            findings.add(FindingKind.ATTRIBUTE, f"ngpus is {num_gpus}", gpu=rank)
    if len(seen) < num_gpus:
        missing = next(rank for rank in range(num_gpus) if rank not in seen)
        findings.add(
            FindingKind.ATTRIBUTE,
            f"ngpus is {num_gpus} but gpu {missing} does not appear; every rank must",
        )
    if len(program.gpus) > runtime.max_children:
        findings.add(
            FindingKind.LIMIT,
            f"{len(program.gpus)} gpus are more than {runtime.max_children} children of an element",
        )


def _check_buffers(gpu: Gpu, program: Program, runtime: Runtime, findings: Findings) -> None:
    for letter, size in gpu.chunks.items():
        # Offsets are kept in 16 bits, so nothing beyond them could be reached.
        if not 0 <= size <= runtime.max_offset + 1:
            findings.add(
                FindingKind.LIMIT,
                f"{letter}_chunks is {size}; offsets reach from 0 to {runtime.max_offset}",
                gpu=gpu.id,
            )
    if not runtime.checks_buffers:
        return
    loop = program.number("nchunksperloop", 0)
    ranks = program.number("ngpus", 1) or 1
    scaled = {"allgather": "i", "reduce_scatter": "o"}.get(program.attributes.get("coll", ""))
    for letter in "io":
        size = gpu.chunks[letter] * (ranks if letter == scaled else 1)
        if size and size != loop and program.attributes.get("coll") != "custom":
            findings.add(
                FindingKind.ATTRIBUTE,
                f"{letter}_chunks {gpu.chunks[letter]} does not fit nchunksperloop {loop}",
                gpu=gpu.id,
            )


def _check_gpu(gpu: Gpu, runtime: Runtime, findings: Findings) -> None:
    blocks = gpu.blocks
    if len(blocks) > runtime.max_blocks:
        findings.add(
            FindingKind.LIMIT,
            f"{len(blocks)} thread blocks; {runtime.title} takes {runtime.max_blocks}",
            gpu=gpu.id,
        )
    ids = sorted(block.id for block in blocks)
    if ids != list(range(len(blocks))):
        findings.add(
            FindingKind.ATTRIBUTE, "thread block ids are not 0, 1, 2 ... without gaps", gpu=gpu.id
        )
    for field, others in (("send", "send to"), ("recv", "receive from")):
        per_channel = Counter(b.chan for b in blocks if getattr(b, field) >= 0)
        for channel, count in per_channel.items():
            if count > runtime.max_peers:
                findings.add(
                    FindingKind.LIMIT,
                    f"{count} thread blocks {others} peers on channel {channel}; "
                    f"at most {runtime.max_peers} may",
                    gpu=gpu.id,
                )


def _check_nodes(program: Program, runtime: Runtime, findings: Findings) -> None:
    """Check the number of elements that each rank keeps in memory."""
    for gpu in program.gpus:
        own = len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
        nodes = 1 + len(program.gpus) + own
        if nodes > runtime.max_nodes:
            findings.add(
                FindingKind.LIMIT,
                f"{nodes} elements (1 + gpus + own thread blocks and steps); a rank keeps "
                f"{runtime.max_nodes}",
                gpu=gpu.id,
            )


class _Notes:
    """Adds findings about one thread block."""

    def __init__(self, findings: Findings, gpu: Gpu, block: ThreadBlock) -> None:
        self.findings, self.gpu, self.block = findings, gpu.id, block.id

    def __call__(self, kind: FindingKind, detail: str, step: int | None = None) -> None:
        self.findings.add(kind, detail, gpu=self.gpu, block=self.block, step=step)


def _check_peers(gpu: Gpu, block: ThreadBlock, num_gpus: int, note: _Notes) -> None:
    for field in ("send", "recv"):
        peer = getattr(block, field)
        if not -1 <= peer < num_gpus:
            note(FindingKind.PEER, f"{field} is {peer}; ranks are 0 to {num_gpus - 1}")
        elif peer == gpu.id:
            note(FindingKind.PEER, f"{field} is its own rank; a gpu has no connection to itself")


def _check_channel(block: ThreadBlock, num_channels: int, runtime: Runtime, note: _Notes) -> None:
    if not 0 <= block.chan < runtime.max_channels:
        note(
            FindingKind.LIMIT,
            f"chan is {block.chan}; {runtime.title} takes 0 to {runtime.max_channels - 1}",
        )
    elif block.chan >= num_channels:
        note(FindingKind.ATTRIBUTE, f"chan is {block.chan} but nchannels is {num_channels}")


def _check_steps(gpu: Gpu, block: ThreadBlock, runtime: Runtime, note: _Notes) -> None:
    """Check the steps of a block, each by itself."""
    if len(block.steps) > runtime.max_steps:
        number, most = len(block.steps), runtime.max_steps
        note(FindingKind.LIMIT, f"{number} steps; {runtime.title} takes {most}")
    by_id = {other.id: other for other in gpu.blocks}
    for place, step in enumerate(block.steps):
        if _is_plain(step, place, block, gpu.chunks, runtime):
            continue
        if step.number != place:
            note(
                FindingKind.ATTRIBUTE,
                f"s is {step.number} at place {place}; steps run in the order of the file",
                place,
            )
        if step.hasdep not in (0, 1):
            note(FindingKind.ATTRIBUTE, f"hasdep is {step.hasdep}; it must be 0 or 1", place)
        if step.type is not StepType.NOTHING:
            _check_addresses(gpu, block, step, runtime, note)
        elif step.cnt != 0:
            note(FindingKind.ATTRIBUTE, f"cnt of a nop is {step.cnt}; it must be 0", place)
        if step.depid >= 0:
            _check_target(by_id, step, runtime, note)


def _is_plain(
    step: ProgramStep, place: int, block: ThreadBlock, sizes: dict[str, int], runtime: Runtime
) -> bool:
    """Whether nothing can be wrong with a step, seen by itself; most are like that."""
    number, kind, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, _, hasdep, _ = step
    return (
        number == place
        and depid < 0
        and 0 <= hasdep <= 1
        and 1 <= cnt <= runtime.max_count
        and not (kind.sends and block.send < 0)
        and not (kind.receives and block.recv < 0)
        and (not kind.reads_source or 0 <= srcoff <= sizes[srcbuf] - cnt)
        and (not kind.writes_target or 0 <= dstoff <= sizes[dstbuf] - cnt)
    )


def _check_addresses(
    gpu: Gpu, block: ThreadBlock, step: ProgramStep, runtime: Runtime, note: _Notes
) -> None:
    """Check count, peers and the chunks that a real step touches."""
    kind, place = step.type, step.number
    if not 1 <= step.cnt <= runtime.max_count:
        note(FindingKind.LIMIT, f"cnt is {step.cnt}; it may be 1 to {runtime.max_count}", place)
        return
    if kind.sends and block.send < 0:
        note(FindingKind.PEER, f"{kind.code} sends but the thread block has no send peer", place)
    if kind.receives and block.recv < 0:
        note(FindingKind.PEER, f"{kind.code} receives but the thread block has no recv peer", place)
    sides = (
        (kind.reads_source, step.srcbuf, step.srcoff),
        (kind.writes_target, step.dstbuf, step.dstoff),
    )
    for used, letter, offset in sides:
        if used and not 0 <= offset <= gpu.chunks[letter] - step.cnt:
            note(
                FindingKind.BOUNDS,
                f"chunks {letter}[{offset}..{offset + step.cnt - 1}] lie outside of the buffer's "
                f"{gpu.chunks[letter]}",
                place,
            )


def _check_target(
    by_id: dict[int, ThreadBlock], step: ProgramStep, runtime: Runtime, note: _Notes
) -> None:
    """Check that a dependency points to an existing step of the same GPU."""
    target, place = by_id.get(step.depid), step.number
    if target is None:
        note(
            FindingKind.DEPENDENCY, f"waits for tb {step.depid}, which the gpu does not have", place
        )
    elif not 0 <= step.deps < len(target.steps):
        note(
            FindingKind.DEPENDENCY,
            f"waits for step {step.deps} of tb {step.depid}, which has {len(target.steps)} steps",
            place,
        )
    if step.depid > runtime.max_target:
        note(
            FindingKind.LIMIT,
            f"waits for tb {step.depid}; {runtime.title} takes ids up to {runtime.max_target}",
            place,
        )


def _check_order(gpu: Gpu, block: ThreadBlock, findings: Findings) -> None:
    """Check that every nop carries a dependency of a real step that follows and has one too."""
    previous: ProgramStep | None = None
    for place, step in enumerate(block.steps):
        after_nop = previous is not None and previous.type is StepType.NOTHING
        if step.depid < 0 and (step.type is StepType.NOTHING or after_nop):
            what = "a nop" if step.type is StepType.NOTHING else "a step after a nop"
            findings.add(
                FindingKind.DEPENDENCY,
                f"{what} has no dependency; the runtime's step numbers shift or it refuses",
                gpu=gpu.id,
                block=block.id,
                step=place,
            )
        previous = step
    if previous is not None and previous.type is StepType.NOTHING:
        findings.add(
            FindingKind.DEPENDENCY,
            "the last step is a nop; nops belong right before a real step",
            gpu=gpu.id,
            block=block.id,
            step=len(block.steps) - 1,
        )


def _check_fused_reductions(
    gpu: Gpu, block: ThreadBlock, runtime: Runtime, findings: Findings
) -> None:
    """Count local reductions that the runtime fuses; its counter runs over the whole block."""
    fused = 0
    for before, step in zip(block.steps, block.steps[1:], strict=False):
        fused += (
            before.type is step.type is StepType.REDUCE
            and (before.dstbuf, before.dstoff, before.srcbuf)
            == (step.dstbuf, step.dstoff, step.srcbuf)
            and step.depid < 0
            and not before.hasdep
        )
    if fused > runtime.max_fused_reductions:
        findings.add(
            FindingKind.LIMIT,
            f"{fused} fused reductions; the runtime keeps {runtime.max_fused_reductions}",
            gpu=gpu.id,
            block=block.id,
        )
