"""What a program for each target may contain; the runtimes check only a part of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and names of one target.

    Parameters
    ----------
    target
        As ``--to`` names it.
    runtime
        As sentences name it.
    steps, blocks, channels
        Steps of a thread block, thread blocks of a GPU, channels.
    elements
        File elements that a rank keeps: the root, all GPUs, its own thread blocks and steps.
    peers
        Thread blocks of a GPU that may send (or receive) on one channel.
    count, offset
        Chunks that one step moves, largest chunk index.
    fused
        Additions to one place that a thread block may make right after another such.
    collectives
        What files call the collectives.
    """

    target: str
    runtime: str
    steps: int
    blocks: int
    channels: int
    elements: int
    peers: int
    count: int
    offset: int
    fused: int
    collectives: dict[str, str]


_NAMES = ("allgather", "alltoall", "allreduce", "broadcast", "reduce")

MSCCL = Limits(
    target="msccl",
    runtime="the NCCL fork",
    steps=256,
    # 216 would be taken, but a block can wait only for those with an id up to 127.
    blocks=128,
    channels=32,
    elements=4095,
    peers=32,
    count=71,
    offset=32767,
    fused=16,
    collectives={**{name: name for name in _NAMES}, "reducescatter": "reduce_scatter"},
)
RCCL = Limits(
    target="rccl",
    runtime="RCCL",
    steps=64,
    blocks=64,
    channels=128,
    elements=4095,
    peers=32,
    count=71,
    offset=32767,
    fused=16,
    collectives={**{name: name for name in _NAMES}, "reducescatter": "reducescatter"},
)


class DoesNotFit(Exception):  # noqa: N818, it drives a search, nobody outside sees it
    """A limit is exceeded by one way of lowering; another may fit."""


class TooManyBlocks(DoesNotFit):
    """A GPU would need more thread blocks than there may be; fuller ones may help."""

    def __init__(self, rank: int, blocks: int, limits: Limits) -> None:
        super().__init__(
            f"gpu {rank} needs {blocks} thread blocks; {limits.runtime} takes {limits.blocks}"
        )
