"""Programs for the MSCCL interpreters: lowered, proven as text, with how to run them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from teccl._collect import collection_paused
from teccl.demand import Collective
from teccl.errors import ExportError, ExportRefused
from teccl.formats.msccl.prove import Proof, prove_text
from teccl.formats.msccl.write.build import Built, Wishes, build
from teccl.formats.msccl.write.instances import replicate
from teccl.formats.msccl.write.limits import DoesNotFit, Limits
from teccl.formats.msccl.write.serving import ServedSizes, protocol_of, sizes_of
from teccl.formats.msccl.write.text import program_text
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.schedule import Schedule

# Part of the limits that what is left of a schedule may use, where it stands for another one.
_ROOM = 0.9
PROTOCOLS = ("Simple", "LL", "LL128")
# With these a system fence precedes each message; the others write data and flag at once without.
_FENCED = ("Simple",)
# Streaming multiprocessors of a V100, the smallest GPU of the presets: all blocks must be resident.
_FEWEST_PROCESSORS = 80
# Smaller chunks spend most of their time in the runtime's own overhead, which no model counts.
_SMALL_CHUNK_BYTES = 16 * 1024
_TESTS = {
    Collective.ALLGATHER: "all_gather_perf",
    Collective.ALLTOALL: "alltoall_perf",
    Collective.REDUCESCATTER: "reduce_scatter_perf",
    Collective.ALLREDUCE: "all_reduce_perf",
    Collective.BROADCAST: "broadcast_perf",
    Collective.REDUCE: "reduce_perf",
}


def render_program(
    schedule: Schedule,
    path: Path,
    options: ExportOptions,
    limits: Limits,
    environment: Mapping[str, str],
) -> Export:
    """Make a program, prove its text and say how to run it.

    Raises
    ------
    ExportError
        If programs cannot express the schedule, or an option is wrong.
    ExportRefused
        If a limit is exceeded, or the text fails its proof.
    """
    protocol = protocol_of(options.protocol, schedule.problem.size_bytes, PROTOCOLS)
    wishes = _wishes(options, limits, fenced=protocol in _FENCED)
    with collection_paused():
        try:
            built = build(schedule, limits, wishes)
        except DoesNotFit as reason:
            raise _refusal(schedule, limits, wishes, str(reason)) from None
        built = replicate(built, wishes.instances)
        loop = built.layout.loop
        sizes = sizes_of(
            schedule.problem.size_bytes,
            loop=loop,
            ranks=built.layout.ranks,
            options=options,
            protocol=protocol,
        )
        text = program_text(built, _attributes(built, sizes, limits))
        (proof,) = prove_text(text, runtime=limits.target)
    if not proof.ok:
        raise ExportRefused(
            f"the program for {limits.runtime} fails its proof and is not written: "
            f"{proof.findings[0]}"
        )
    return Export(
        target=limits.target,
        files=(OutputFile(path=path, content=text),),
        facts=_facts(proof, built, sizes),
        notes=tuple(_notes(built, sizes, proof, schedule.problem.num_chunks)),
        environment=environment,
        command=_command(built, sizes),
    )


def _wishes(options: ExportOptions, limits: Limits, *, fenced: bool) -> Wishes:
    """Check the options that shape the program."""
    instances = 1 if options.instances is None else options.instances
    if not 1 <= instances <= limits.channels:
        raise ExportError(f"instances {instances} is out of range; use 1 to {limits.channels}")
    most = limits.channels // instances
    if options.channels is not None and not 1 <= options.channels <= most:
        raise ExportError(
            f"channels {options.channels} is out of range; with {instances} "
            f"{'instance' if instances == 1 else 'instances'} use 1 to {most}"
        )
    return Wishes(
        in_place=bool(options.in_place),
        channels=options.channels,
        instances=instances,
        fenced=fenced,
    )


def _attributes(built: Built, sizes: ServedSizes, limits: Limits) -> dict[str, object]:
    """Attributes of the root; RCCL needs two of its own."""
    layout = built.layout
    values: dict[str, object] = {
        "name": f"teccl_{layout.collective.value}_{layout.ranks}",
        "proto": sizes.protocol,
        "nchannels": 1 + max(block.channel for block in built.blocks),
        "nchunksperloop": layout.loop,
        "ngpus": layout.ranks,
        "coll": limits.collectives[layout.collective.value],
        "inplace": int(layout.in_place),
    }
    if limits.target == "rccl":
        values["outofplace"] = int(not layout.in_place)
    return {**values, "minBytes": sizes.low, "maxBytes": sizes.high}


def _facts(proof: Proof, built: Built, sizes: ServedSizes) -> dict[str, Any]:
    loop = built.layout.loop
    return {
        "collective": built.layout.collective.value,
        "num_gpus": built.layout.ranks,
        "in_place": built.layout.in_place,
        "protocol": sizes.protocol,
        "chunks": loop,
        "channels": proof.facts["channels"],
        "thread_blocks": proof.facts["thread_blocks"],
        "steps": proof.facts["steps"],
        "steps_per_block": proof.facts["steps_per_block"],
        "min_bytes": sizes.low,
        "max_bytes": sizes.high,
        "scratch_bytes": -(-sizes.high * max(built.scratch) // loop),
        "keeps_order": built.window is None,
        "verified": True,
    }


def _notes(built: Built, sizes: ServedSizes, proof: Proof, chunks: int) -> list[str]:
    """Sentences that a user should know before running the file."""
    layout, loop = built.layout, built.layout.loop
    notes = sizes.notes(loop)
    if layout.collective in (Collective.BROADCAST, Collective.REDUCE):
        notes.append(f"the program is for root {layout.root}; the runtime does not check the root")
    if built.window is not None:
        notes.append(
            f"transfers that start within {built.window:.3g} of the schedule's time were joined "
            "to respect the runtime's limits; fewer chunks (solve --max-chunks) keep the order"
        )
    if sizes.fitting // loop < _SMALL_CHUNK_BYTES and chunks > 1:
        notes.append(
            f"chunks have {sizes.fitting // loop} bytes; a step's overhead in the runtime, which "
            "the model does not count, may dominate: compare with solve --max-chunks 1"
        )
    if proof.facts["thread_blocks"] > _FEWEST_PROCESSORS:
        notes.append(
            f"{proof.facts['thread_blocks']} thread blocks must be resident on a gpu at once; "
            "one with fewer multiprocessors hangs"
        )
    return notes


def _command(built: Built, sizes: ServedSizes) -> str:
    """A run of nccl-tests (rccl-tests has the same names and options) at the fitting size."""
    layout = built.layout
    words = [
        *("mpirun", "-np", layout.ranks, f"./build/{_TESTS[layout.collective]}"),
        *("-b", sizes.fitting, "-e", sizes.fitting, "-d", sizes.dtype),
    ]
    if layout.collective.reduces:
        words += ["-o", "sum"]
    if layout.collective.has_root:
        words += ["-r", layout.root]
    words += ["-g", 1, "-c", 1, "-w", 5, "-n", 20]
    return " ".join(str(word) for word in words)


def _refusal(
    schedule: Schedule, limits: Limits, wishes: Wishes, reason: str
) -> ExportError | ExportRefused:
    """Name the limit and what would help; options of the user's that do not fit are bad input."""
    if wishes.instances > 1:
        return ExportError(
            f"{wishes.instances} instances share the limits: in each, {reason}; "
            "give fewer --instances"
        )
    if wishes.channels is not None:
        return ExportError(f"with {wishes.channels} channels {reason}; leave --channels to teccl")
    if schedule.sums is not None:
        return ExportRefused(f"{reason}; solve with fewer chunks (--max-chunks)")
    chunks = _fitting_chunks(schedule, limits, wishes)
    if chunks is None:
        return ExportRefused(f"{reason}; no number of chunks helps on so many gpus")
    return ExportRefused(f"{reason}; solve with --max-chunks {chunks}, which should fit")


def _fitting_chunks(schedule: Schedule, limits: Limits, wishes: Wishes) -> int | None:
    """Find a number of chunks that would fit, by leaving out some of this schedule's.

    A schedule for fewer chunks takes other ways, though about as many, hence the room that is left.
    """
    room = replace(
        limits,
        steps=int(limits.steps * _ROOM),
        blocks=int(limits.blocks * _ROOM),
        elements=int(limits.elements * _ROOM),
    )
    chunks = 1 << (schedule.problem.num_chunks - 1).bit_length()
    while chunks > 1:
        chunks //= 2
        try:
            build(schedule, limits if chunks == 1 else room, wishes, chunks=chunks)
        except DoesNotFit:
            continue
        return chunks
    return None
