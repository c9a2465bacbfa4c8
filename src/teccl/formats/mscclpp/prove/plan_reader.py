"""Reading an execution plan: JSON in the layout of MSCCL++ 0.9, with limits on everything."""

from collections.abc import Mapping
from typing import Any

from teccl import _files as files
from teccl.errors import ProgramError
from teccl.formats.mscclpp.prove.execution_plan import (
    CHANNEL_TYPES,
    ExecutionPlan,
    Op,
    Operand,
    PlanBlock,
    PlanGpu,
    RemoteBuffer,
)

MAX_TEXT = 64 * 2**20
_MAX_CONTAINERS = 3_000_000
_MAX_GPUS = 4096
_LARGEST = 2**31 - 1


def read_plan(text: str, source: str = "plan") -> ExecutionPlan:
    """Read the text of an execution plan.

    Raises
    ------
    ProgramError
        If the text is no plan, or lacks something without which it means nothing.
    """
    if len(text) > MAX_TEXT or text.count("{") + text.count("[") > _MAX_CONTAINERS:
        raise ProgramError(f"{source} is larger than any plan; give an MSCCL++ execution plan")
    document = files.parse_json(text, source, ProgramError)
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        raise ProgramError(f"{source} has no list 'gpus'; give an MSCCL++ execution plan")
    if not 1 <= len(document["gpus"]) <= _MAX_GPUS:
        count = len(document["gpus"])
        raise ProgramError(f"{source} has {count} gpus; a plan has 1 to {_MAX_GPUS}")
    return ExecutionPlan(
        name=_text(document, "name", source),
        collective=_text(document, "collective", source),
        protocol=_text(document, "protocol", source),
        in_place=files.expect_bool(document.get("inplace"), f"{source}: inplace", ProgramError),
        gpus=tuple(_gpu(gpu, f"{source}: gpus[{i}]") for i, gpu in enumerate(document["gpus"])),
    )


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    return files.expect_text(entry.get(key), f"{where}: {key}", ProgramError)


def _whole(entry: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = entry.get(key, default)
    return files.expect_int(value, f"{where}: {key}", ProgramError, low=0, high=_LARGEST)


def _objects(entry: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = files.expect_list(entry.get(key, []), f"{where}: {key}", ProgramError)
    for i, value in enumerate(entries):
        if not isinstance(value, dict):
            raise ProgramError(f"{where}: {key}[{i}] is {files.shown(value)}; give an object")
    return entries


def _wholes(entry: Mapping[str, Any], key: str, where: str) -> tuple[int, ...]:
    values = files.expect_list(entry.get(key, []), f"{where}: {key}", ProgramError)
    for value in values:
        files.expect_int(value, f"{where}: {key}", ProgramError, low=0, high=_LARGEST)
    return tuple(values)


def _channel_type(entry: Mapping[str, Any], key: str, where: str) -> str:
    kind = _text(entry, key, where)
    if kind not in CHANNEL_TYPES:
        raise ProgramError(
            f"{where}: {key} is {files.shown(kind)}; only {' and '.join(CHANNEL_TYPES)} channels "
            "can be judged"
        )
    return kind


def _letter(entry: Mapping[str, Any], where: str) -> str:
    letter = _text(entry, "type", where)
    if letter not in ("i", "o", "s"):
        raise ProgramError(f"{where}: type is {files.shown(letter)}; give i, o or s")
    return letter


def _by_type(
    entry: Mapping[str, Any], key: str, kind_key: str, list_key: str, where: str
) -> dict[str, tuple[int, ...]]:
    """Read entries of lists by type of channel; several of one type follow each other."""
    found: dict[str, tuple[int, ...]] = dict.fromkeys(CHANNEL_TYPES, ())
    for value in _objects(entry, key, where):
        kind = _channel_type(value, kind_key, f"{where}: {key}")
        found[kind] += _wholes(value, list_key, f"{where}: {key}")
    return found


def _gpu(value: Any, where: str) -> PlanGpu:
    if not isinstance(value, dict):
        raise ProgramError(f"{where} is {files.shown(value)}; give an object")
    return PlanGpu(
        id=_whole(value, "id", where),
        chunks={
            "i": _whole(value, "input_chunks", where),
            "o": _whole(value, "output_chunks", where),
            "s": _whole(value, "scratch_chunks", where),
        },
        peers=_by_type(value, "channels", "channel_type", "connected_to", where),
        remote_buffers=tuple(
            RemoteBuffer(
                rank=_whole(buffer, "rank", f"{where}: remote_buffers"),
                letter=_letter(buffer, f"{where}: remote_buffers"),
            )
            for buffer in _objects(value, "remote_buffers", where)
        ),
        semaphores=tuple(
            _whole(semaphore, "init_value", f"{where}: semaphores")
            for semaphore in _objects(value, "semaphores", where)
        ),
        blocks=tuple(
            _block(block, f"{where}: threadblocks[{i}]")
            for i, block in enumerate(_objects(value, "threadblocks", where))
        ),
    )


def _block(value: Mapping[str, Any], where: str) -> PlanBlock:
    return PlanBlock(
        id=_whole(value, "id", where),
        ops=tuple(
            _op(op, f"{where}: ops[{i}]") for i, op in enumerate(_objects(value, "ops", where))
        ),
        channels=_by_type(value, "channels", "channel_type", "channel_ids", where),
        remote_buffers=_by_type(
            value, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids", where
        ),
    )


def _op(value: Mapping[str, Any], where: str) -> Op:
    is_barrier = "barrier_id" in value
    return Op(
        name=_text(value, "name", where),
        channel_type=_channel_type(value, "channel_type", where)
        if "channel_type" in value
        else None,
        channels=_wholes(value, "channel_ids", where),
        sources=_operands(value, "src_buff", where),
        targets=_operands(value, "dst_buff", where),
        semaphores=_wholes(value, "semaphore_ids", where),
        barrier=_whole(value, "barrier_id", where) if is_barrier else None,
        num_blocks=_whole(value, "num_threadblocks", where) if is_barrier else 0,
    )


def _operands(value: Mapping[str, Any], key: str, where: str) -> tuple[Operand, ...]:
    where = f"{where}: {key}"
    return tuple(
        Operand(
            letter=None if "buffer_id" in entry else _letter(entry, where),
            remote=_whole(entry, "buffer_id", where) if "buffer_id" in entry else None,
            first=_whole(entry, "index", where),
            size=_whole(entry, "size", where),
        )
        for entry in _objects(value, key, where)
    )
