"""What a collective's buffers hold before and must hold after, chunk by chunk, and what they share.

Data is symbolic: a *value* is the sum of one chunk of the input over some ranks, written as
``chunk << ranks | mask of ranks``. No collective wants anything else, so that memory that nobody
wrote, a contribution that is counted twice and a sum of different chunks have a mark each.
"""

from dataclasses import dataclass

from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.msccl.prove.program_tree import Program
from teccl.formats.msccl.prove.runtimes import Runtime

Value = int

UNWRITTEN: Value = -1
TWICE: Value = -2
MIXED: Value = -3
_MARKS = {
    UNWRITTEN: "memory that nobody wrote",
    TWICE: "a sum with a contribution counted twice",
    MIXED: "a sum of different chunks",
}
# Cells of a GPU are numbered through; buffers reach to 32767 + 71 chunks at most.
_BASES = {"o": 0, "i": 100_000, "s": 200_000}
_SPLIT = ("allgather", "alltoall", "reducescatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way of calling a collective: its meaning, and whether input and output overlap.

    Parameters
    ----------
    collective
        Its name in this package, None where the result is not known.
    ranks, loop
        Number of GPUs, and chunks of the larger buffer.
    in_place
        Whether the buffers overlap.
    """

    collective: str | None
    ranks: int
    loop: int
    in_place: bool

    @property
    def share(self) -> int:
        """Chunks of one rank's part of the larger buffer."""
        return self.loop // self.ranks

    @property
    def title(self) -> str:
        """As sentences name the way of calling."""
        return "in place" if self.in_place else "out of place"

    def bases(self, rank: int) -> dict[str, int]:
        """Number of the first cell of each buffer; overlapping buffers share cells."""
        bases = dict(_BASES)
        if not self.in_place:
            return bases
        if self.collective == "reducescatter":
            bases["o"] = bases["i"] + rank * self.share
        elif self.collective == "allgather":
            bases["i"] = bases["o"] + rank * self.share
        else:
            bases["i"] = bases["o"]
        return bases

    def initial(self, rank: int) -> dict[int, Value]:
        """Values of the cells that hold input."""
        count = self.share if self.collective == "allgather" else self.loop
        base = self.bases(rank)["i"]
        return {base + k: self._input(rank, k) for k in range(count)}

    def wanted(self, rank: int, root: int) -> dict[int, Value]:
        """Values that the output must hold in the end, by chunk of the output."""
        share, loop = self.share, self.loop
        if self.collective == "allgather":
            return {k: self._input(k // share, k % share) for k in range(loop)}
        if self.collective == "alltoall":
            here = rank * share
            return {k: self._input(k // share, here + k % share) for k in range(loop)}
        if self.collective == "reducescatter":
            return {k: self._sum(rank * share + k) for k in range(share)}
        if self.collective == "allreduce" or (self.collective == "reduce" and rank == root):
            return {k: self._sum(k) for k in range(loop)}
        if self.collective == "broadcast":
            return {k: self._input(root, k) for k in range(loop)}
        return {}

    def _input(self, rank: int, chunk: int) -> Value:
        return chunk << self.ranks | 1 << rank

    def _sum(self, chunk: int) -> Value:
        return chunk << self.ranks | (1 << self.ranks) - 1

    def combine(self, one: Value, other: Value) -> Value:
        """Return the reduction of two values."""
        if one < 0 or other < 0:
            return min(one, other)
        if (one ^ other) >> self.ranks:
            return MIXED
        both = one & other & ((1 << self.ranks) - 1)
        return TWICE if both else one | other

    def contributors(self, value: Value) -> list[int]:
        """Ranks whose input a value holds; none for values that are marked."""
        left = value & ((1 << self.ranks) - 1) if value >= 0 else 0
        ranks = []
        while left:
            ranks.append((left & -left).bit_length() - 1)
            left &= left - 1
        return ranks

    def describe(self, value: Value) -> str:
        """A value in words."""
        if value in _MARKS:
            return _MARKS[value]
        ranks, chunk = self.contributors(value), value >> self.ranks
        if len(ranks) == 1:
            return f"rank {ranks[0]}'s input chunk {chunk}"
        return f"the sum of chunk {chunk} over {len(ranks)} ranks ({_few(ranks)})"


def settings_of(program: Program, runtime: Runtime, findings: Findings) -> list[Setting]:
    """Ways of calling for which the runtime would choose the file."""
    collective = runtime.collectives.get(program.attributes.get("coll", ""))
    ranks, loop = len(program.gpus), program.number("nchunksperloop", 0) or 0
    if collective in _SPLIT and loop % ranks:
        findings.add(
            FindingKind.ATTRIBUTE,
            f"nchunksperloop {loop} is not a multiple of the {ranks} ranks",
        )
        return []
    # Work and memory grow with what the output of all ranks holds.
    if ranks * loop > 16 * 2**20 or loop > runtime.max_offset + 1:
        findings.add(FindingKind.LIMIT, f"nchunksperloop {loop} is more than offsets can reach")
        return []
    in_place = bool(program.number("inplace", 0))
    modes = [in_place]
    if "outofplace" in runtime.required:
        out_of_place = bool(program.number("outofplace", 0))
        modes = [mode for mode, used in ((True, in_place), (False, out_of_place)) if used]
    elif collective == "alltoall":
        # The NCCL fork does not look at the flag here, and its API refuses overlapping buffers.
        modes = [False]
    return [Setting(collective=collective, ranks=ranks, loop=loop, in_place=mode) for mode in modes]


def _few(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown}, ..."
