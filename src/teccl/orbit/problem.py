"""Problem of a fabric: which collective all its GPUs take part in, chunk orbit by chunk orbit.

The group acts freely on the chunks: each belongs to one GPU, which is its source (AllGather,
AllToAll), its destination (ReduceScatter) or the rank whose share of the buffer it is (AllReduce).
The *first* chunk of an orbit belongs to the GPU that the identity stands for.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl._arrays import BoolArray, IntArray
from teccl.demand import Collective
from teccl.errors import ProblemError
from teccl.keywords import SwitchMode
from teccl.orbit.fabric import Fabric
from teccl.orbit.groups import Groups
from teccl.units import MAX_SECONDS, format_size

COLLECTIVES = (
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
    Collective.ALLTOALL,
)
MAX_CHUNK_ORBITS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricProblem:
    """A collective of all GPUs of a fabric, stored and forwarded by switches, with any buffers.

    Parameters
    ----------
    fabric
        The network.
    collective, size
        What is to be done, and bytes as nccl-tests counts them.
    num_chunks
        Pieces into which every block is cut.
    switch
        Whether switches copy; hyper-edges are refused.
    groups
        Ranks that each have the collective for themselves, all at the same time; None for one of
        all. The size is that of each group.
    """

    fabric: Fabric
    collective: Collective
    size: Fraction
    num_chunks: int = 1
    switch: SwitchMode = SwitchMode.COPY
    groups: Groups | None = None

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            names = ", ".join(each.value for each in COLLECTIVES)
            raise ProblemError(f"{self.collective.value} is no orbit of chunks; use {names}")
        if self.switch is SwitchMode.HYPER_EDGE:
            raise ProblemError("orbits know no hyper-edges; use --switch copy or no-copy")
        if self.size <= 0:
            raise ProblemError(f"size {self.size} is not positive; give for example 1MB")
        if not 1 <= self.num_chunks <= 10**6 or self.num_chunk_orbits > MAX_CHUNK_ORBITS:
            raise ProblemError(
                f"{self.num_chunks} chunks make {self.num_chunk_orbits} orbits of chunks; "
                f"give at least 1 and at most {MAX_CHUNK_ORBITS} orbits"
            )
        if self.groups is not None:
            self.groups.check(self.fabric)
        slowest = max(
            link.alpha + link.overhead + self.chunk_bytes / self.fabric.rate(link)
            for link in self.fabric.links
        )
        if slowest * self.fabric.num_nodes * self.num_chunk_orbits > MAX_SECONDS:
            raise ProblemError(
                f"chunks of {format_size(self.chunk_bytes)} take too long to schedule in "
                "picoseconds; give a smaller size"
            )

    def __repr__(self) -> str:
        size = format_size(self.chunk_bytes)
        return f"FabricProblem({self.collective.value} on {self.fabric!r}, chunks of {size})"

    @property
    def chunk_bytes(self) -> Fraction:
        """Bytes of a chunk."""
        return self.size / (self.group_size * self.num_chunks)

    @property
    def group_size(self) -> int:
        """Ranks that have a collective together."""
        return self.fabric.num_gpus if self.groups is None else self.groups.size

    @property
    def labels(self) -> IntArray:
        """By rank, the number of its group."""
        if self.groups is None:
            return np.zeros(self.fabric.num_gpus, dtype=np.int64)
        return self.groups.labels(self.fabric.num_gpus)

    def members(self, rank: int) -> IntArray:
        """Ranks of the group that one is in."""
        label = self.labels
        return np.flatnonzero(label == label[rank])

    @property
    def reduces(self) -> bool:
        """Whether chunks are sums."""
        return self.collective.reduces

    @property
    def targets_per_owner(self) -> int:
        """Different destinations that an owner's blocks have: all ranks in an AllToAll."""
        return self.fabric.num_gpus if self.collective is Collective.ALLTOALL else 1

    @property
    def num_chunk_orbits(self) -> int:
        """Number of orbits of chunks, those from a GPU to itself included, which nobody sends."""
        return len(self.fabric.gpu_orbits) * self.targets_per_owner * self.num_chunks

    def owner(self, chunks: IntArray) -> IntArray:
        """Rank that the first chunk of each orbit belongs to."""
        return chunks // (self.targets_per_owner * self.num_chunks)

    def target(self, chunks: IntArray) -> IntArray:
        """In an AllToAll, the rank that the first chunk of each orbit goes to."""
        return chunks // self.num_chunks % self.targets_per_owner

    def is_moved(self, chunks: IntArray) -> BoolArray:
        """Whether a chunk has to go anywhere: not from a GPU to itself, nor to another group."""
        if self.collective is not Collective.ALLTOALL:
            return np.ones(len(chunks), dtype=bool)
        owner, target, label = self.owner(chunks), self.target(chunks), self.labels
        moved: BoolArray = (owner != target) & (label[owner] == label[target])
        return moved

    def chunk_name(self, chunk: int) -> str:
        """The first chunk of an orbit, as violations name it."""
        each = np.array([chunk])
        name = self.fabric.node_name(int(self.owner(each)[0]))
        if self.collective is Collective.ALLTOALL:
            name += f" to {self.fabric.node_name(int(self.target(each)[0]))}"
        return f"chunk orbit {chunk} ({name}, piece {chunk % self.num_chunks})"
