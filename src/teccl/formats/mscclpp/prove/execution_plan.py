"""Plan: what an MSCCL++ execution plan says, and the limits that its runtime does not check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# Limits of the runtime, version 0.9. Only the first is checked by it, at run time; beyond the
# others memory is overwritten.
MAX_OPS = 64
MAX_BLOCKS = 64
MAX_CHANNELS = 16
MAX_REMOTE_BUFFERS = 16
MAX_CHANNEL_IDS = 8
MAX_OPERANDS = 10
MAX_SEMAPHORE_IDS = 16
MAX_BARRIERS = 16
# Not a limit of the runtime, but of what can be judged here.
MAX_CHUNKS = 32768

CHANNEL_TYPES = ("memory", "port")


class Operand(NamedTuple):
    """Chunks of a buffer: local by letter, remote by place in the thread block's list."""

    letter: str | None
    remote: int | None
    first: int
    size: int


class Op(NamedTuple):
    """One operation of a thread block."""

    name: str
    channel_type: str | None = None
    channels: tuple[int, ...] = ()
    sources: tuple[Operand, ...] = ()
    targets: tuple[Operand, ...] = ()
    semaphores: tuple[int, ...] = ()
    barrier: int | None = None
    num_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBlock:
    """A thread block: its operations, and the GPU's channels and remote buffers that it uses.

    Parameters
    ----------
    id
        As written.
    ops
        Operations in order.
    channels, remote_buffers
        By type of channel, places in the GPU's lists; operations name places in these lists.
    """

    id: int
    ops: tuple[Op, ...]
    channels: Mapping[str, tuple[int, ...]]
    remote_buffers: Mapping[str, tuple[int, ...]]


class RemoteBuffer(NamedTuple):
    """A buffer of another rank that a GPU may write to."""

    rank: int
    letter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGpu:
    """One rank.

    Parameters
    ----------
    id
        As written.
    chunks
        Sizes of its buffers by letter.
    peers
        By type of channel, the rank at the other end of each channel.
    remote_buffers, semaphores
        Buffers of others, and initial values of semaphores.
    blocks
        Thread blocks in file order.
    """

    id: int
    chunks: Mapping[str, int]
    peers: Mapping[str, tuple[int, ...]]
    remote_buffers: tuple[RemoteBuffer, ...]
    semaphores: tuple[int, ...]
    blocks: tuple[PlanBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """A whole file."""

    name: str
    collective: str
    protocol: str
    in_place: bool
    gpus: tuple[PlanGpu, ...] = field(repr=False)
