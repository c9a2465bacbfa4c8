"""What the two runtimes accept: names, required attributes and limits, checked or not by them."""

from dataclasses import dataclass

# Transfers that may wait on one connection before a send blocks. All protocols have 8 slots;
# Simple takes 4 of them per transfer.
FIFO_DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
# Whether a system fence stands between what a block did before and its message. LL and LL128 write
# data with its flags: who receives it knows the data, and nothing of other memory.
FENCED = {"Simple": True, "LL": False, "LL128": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One interpreter of program files.

    Parameters
    ----------
    name
        As ``--to`` names it.
    title
        As sentences name it.
    collectives
        Names that files use for the collectives whose result is known.
    opaque
        Names of collectives that the runtime takes but whose result cannot be judged.
    required
        Attributes of the root without which a file is refused.
    checks_buffers
        Whether the sizes of input and output must agree with `nchunksperloop`.
    max_steps, max_blocks, max_channels
        Steps of a thread block (nops included), thread blocks of a GPU, channels.
    max_target
        Largest id of a thread block that others may wait for.
    """

    name: str
    title: str
    collectives: dict[str, str]
    opaque: tuple[str, ...]
    required: tuple[str, ...]
    checks_buffers: bool
    max_steps: int
    max_blocks: int
    max_channels: int
    max_target: int
    # Equal in both.
    max_peers: int = 32
    max_count: int = 71
    max_offset: int = 32767
    max_nodes: int = 4095
    max_children: int = 1024
    max_fused_reductions: int = 16


_COMMON = {
    "allgather": "allgather",
    "alltoall": "alltoall",
    "allreduce": "allreduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_REQUIRED = ("ngpus", "nchunksperloop", "nchannels", "proto", "coll", "inplace")

RUNTIMES = {
    "msccl": Runtime(
        name="msccl",
        title="MSCCL (NCCL fork)",
        collectives={**_COMMON, "reduce_scatter": "reducescatter"},
        opaque=("custom",),
        required=("name", *_REQUIRED),
        checks_buffers=True,
        max_steps=256,
        max_blocks=216,
        max_channels=32,
        max_target=127,
    ),
    "rccl": Runtime(
        name="rccl",
        title="RCCL",
        collectives={**_COMMON, "reducescatter": "reducescatter"},
        opaque=("alltoallv", "gather", "scatter", "send", "recv"),
        required=(*_REQUIRED, "outofplace", "minBytes", "maxBytes"),
        checks_buffers=False,
        max_steps=64,
        max_blocks=64,
        max_channels=128,
        max_target=63,
    ),
}
