"""Problem: topology, demand and modelling options, frozen and validated; the table of chunks."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from teccl._ratios import Ratios
from teccl.demand import MAX_CHUNKS, Block, Demand, Tenant
from teccl.errors import ProblemError
from teccl.keywords import SwitchMode, Transit
from teccl.topology import Topology
from teccl.units import MAX_SECONDS, PICOSECONDS, picoseconds

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Key = TypeVar("_Key", bound=Hashable)

# Products of so many bits are computed in machine integers, larger ones in Python's.
_MACHINE_BITS = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTable:
    """All chunks of a problem, one array entry each.

    Parameters
    ----------
    sizes
        The different chunk sizes in bytes, `size_index` says which one a chunk has.
    sets
        Node sets (sorted node indices) that `source_set` and `destination_set` refer to.
    reduce
        Whether the sources' contributions are to be combined (else all hold the same data).
    tenant, block, piece
        Where the chunk comes from: the tenant, its block, the piece of the block.
    """

    sizes: Ratios
    sets: tuple[IntArray, ...]
    size_index: IntArray
    source_set: IntArray
    destination_set: IntArray
    reduce: BoolArray
    tenant: IntArray
    block: IntArray
    piece: IntArray

    def __len__(self) -> int:
        return len(self.size_index)

    def sources(self, chunk: int) -> IntArray:
        """Nodes that hold the chunk, or contribute to it, at the start."""
        return self.sets[self.source_set[chunk]]

    def destinations(self, chunk: int) -> IntArray:
        """Nodes that want the chunk; they may include sources."""
        return self.sets[self.destination_set[chunk]]

    def size(self, chunk: int) -> Fraction:
        """Bytes of a chunk."""
        return self.sizes[self.size_index[chunk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything that decides which schedules are correct.

    Parameters
    ----------
    topology, demand
        The network and what must be delivered on it.
    num_chunks
        Pieces into which the largest block is cut; all chunks have that piece's size, the last
        of a smaller block may be shorter.
    switch, transit
        How switches behave.
    buffer
        Received chunks that may wait at a GPU to be forwarded, None for any number.
    copy
        Whether nodes may copy; without it every delivery uses up one arrival.
    whole_buffer
        Cut the buffer of an AllReduce into pieces as a whole, so that S bytes make `num_chunks`
        chunks of S / `num_chunks`; otherwise the share of each rank is cut into that many.

    Examples
    --------
    >>> Problem(
    ...     topology=Topology.parse("ring:gpus=4"),
    ...     demand=Demand.collective("allgather", size="1MB"),
    ... )
    Problem(allgather on Topology('ring', 4 gpus, 0 switches, 8 links), 4 chunks of 250KB)
    """

    topology: Topology
    demand: Demand
    num_chunks: int = 1
    switch: SwitchMode = SwitchMode.COPY
    transit: Transit = Transit.STORE_AND_FORWARD
    buffer: int | None = None
    copy: bool = True
    whole_buffer: bool = False

    chunks: ChunkTable = field(init=False, repr=False, compare=False)
    chunk_bytes: Fraction = field(init=False, repr=False, compare=False)
    _transmission_ps: IntArray | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.num_chunks < 1:
            raise ProblemError(f"chunks {self.num_chunks} is not positive; use 1 or more")
        if self.buffer is not None and self.buffer < 0:
            raise ProblemError(f"buffer {self.buffer} is negative; use 0 (none) or more")
        self._check_profiles()
        by_tenant = [list(self.blocks(tenant)) for tenant in self.demand.tenants]
        blocks = list(chain.from_iterable(by_tenant))
        if not blocks:
            raise ProblemError("the demand moves no data; give an entry that is not zero")
        sizes = Ratios.of([block.size for block in blocks])
        piece = sizes.largest() / self.num_chunks
        tenant = np.repeat(np.arange(len(by_tenant)), [len(each) for each in by_tenant])
        object.__setattr__(self, "chunk_bytes", piece)
        object.__setattr__(
            self, "chunks", _chunk_table(self.topology, blocks, tenant, _cut(sizes, piece))
        )
        self._check_times()

    def __repr__(self) -> str:
        from teccl.units import format_size

        size = format_size(self.chunk_bytes)
        chunks = f"{len(self.chunks)} chunks of {size}"
        return f"Problem({self.demand.title} on {self.topology!r}, {chunks})"

    def _check_profiles(self) -> None:
        circuits = (
            self.transit is Transit.CUT_THROUGH or self.switch is SwitchMode.HYPER_EDGE
        ) and self.topology.num_switches > 0
        if circuits and self.topology.has_profiles:
            raise ProblemError(
                "bandwidth profiles and circuits through switches do not go together; "
                "use --transit store-and-forward with --switch copy or no-copy"
            )

    def _check_times(self) -> None:
        """Refuse problems whose times would overflow int64 picoseconds."""
        if not self.topology.links:
            return
        steps = self.topology.each_kind(self.topology.rate_steps)
        slowest = min(rate for each in steps for _, rate in each)
        wait = max(self.topology.each_kind(lambda link: link.alpha + link.overhead))
        longest = self.chunk_bytes / slowest + wait
        hops = max(1, len(self.chunks)) * max(1, self.topology.num_nodes)
        if longest * hops > MAX_SECONDS:
            raise ProblemError(
                f"a chunk of {self.chunk_bytes} bytes at {slowest} bytes/s takes too long to "
                "schedule in picoseconds; give a smaller size or a faster link"
            )

    def blocks(self, tenant: Tenant) -> Iterator[Block]:
        """Blocks of one tenant's collective, by rank number."""
        return tenant.blocks(self.topology.num_gpus, whole=self.whole_buffer)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs that take part in some collective."""
        members = [set(t.members(self.topology.num_gpus)) for t in self.demand.tenants]
        return len(set().union(*members))

    @property
    def size_bytes(self) -> Fraction:
        """Bytes that algbw counts, all tenants together."""
        return sum((t.total_size for t in self.demand.tenants), Fraction(0))

    @property
    def has_circuits(self) -> bool:
        """Whether a passage holds all of its links for as long as the slowest takes."""
        return self.switch is SwitchMode.HYPER_EDGE or self.transit is Transit.CUT_THROUGH

    @property
    def has_reductions(self) -> bool:
        """Whether some chunk combines several sources."""
        return bool(self.chunks.reduce.any())

    @property
    def transmission_ps(self) -> IntArray:
        """Picoseconds a chunk's bytes take on a link, rounded up: rows are links, columns sizes."""
        if self._transmission_ps is None:
            table = self.kind_transmission_ps[self.topology.link_kind]
            table.setflags(write=False)
            object.__setattr__(self, "_transmission_ps", table)
        assert self._transmission_ps is not None
        return self._transmission_ps

    @property
    def kind_transmission_ps(self) -> IntArray:
        """The same with one row for each kind of link, see `Topology.link_kind`."""
        return _transmissions(self.chunks.sizes, self.topology.each_kind(self.topology.rate))

    @property
    def hold_ps(self) -> IntArray:
        """Picoseconds a chunk alone on its way holds a link: the overhead, then its bytes."""
        return self.transmission_ps + self.topology.overhead_ps[:, None]

    def ready_ps(self) -> IntArray:
        """Picoseconds from which each node's own data of each tenant may be sent."""
        table = np.zeros((len(self.demand.tenants), self.topology.num_nodes), dtype=np.int64)
        for t, tenant in enumerate(self.demand.tenants):
            for rank, time in tenant.ready.items():
                table[t, self.topology.gpus[rank]] = picoseconds(time)
        return table

    def chunk_name(self, chunk: int) -> str:
        """A chunk as people read it: where it starts (and ends) and which piece it is."""
        table, nodes = self.chunks, self.topology.nodes
        sources, wanted = table.sources(chunk), table.destinations(chunk)
        label = f"chunk {chunk} ("
        label += "sum" if table.reduce[chunk] else nodes[sources[0]].name
        if len(wanted) == 1:
            label += f" to {nodes[wanted[0]].name}"
        return label + f", piece {table.piece[chunk]})"


def _transmissions(sizes: Ratios, rates: Sequence[Fraction]) -> IntArray:
    """Return picoseconds that sizes take at rates, rounded up; machine integers where they do."""
    n, d = sizes.numerators, sizes.denominators
    largest, finest = max(n), max(d)
    kind = np.int64 if max(largest, finest) < 2**_MACHINE_BITS else object
    whole, part = np.array(n, dtype=kind), np.array(d, dtype=kind)
    table = np.empty((len(rates), len(sizes)), dtype=np.int64)
    for row, rate in enumerate(rates):
        up, down = (PICOSECONDS / rate).as_integer_ratio()
        if max(largest * up, finest * down) < 2**_MACHINE_BITS:
            table[row] = -(-whole * up // (part * down))
        else:
            table[row] = [picoseconds(size / rate) for size in sizes]
    return table


class _Cuts(NamedTuple):
    """How blocks are cut: the size of pieces, how many each has, and the last one's size."""

    piece: Fraction
    counts: list[int]
    last: list[tuple[int, int]]


def _cut(sizes: Ratios, piece: Fraction) -> _Cuts:
    """Cut each block into pieces of one size, the last shorter if it does not divide."""
    n, d = sizes.numerators, sizes.denominators
    largest = max(max(n) * piece.denominator, max(d) * max(piece.as_integer_ratio()))
    kind = np.int64 if largest < 2**_MACHINE_BITS else object
    size, part = np.array(n, dtype=kind), np.array(d, dtype=kind)
    # In units of one over both denominators.
    whole, one, unit = size * piece.denominator, part * piece.numerator, part * piece.denominator
    count = -(-whole // one)
    last = whole - (count - 1) * one
    common = np.gcd(last, unit)
    ratios = zip((last // common).tolist(), (unit // common).tolist(), strict=True)
    return _Cuts(piece, count.tolist(), list(ratios))


def _chunk_table(
    topology: Topology, blocks: list[Block], tenant: IntArray, cuts: _Cuts
) -> ChunkTable:
    """List the pieces of all blocks."""
    num_chunks = sum(cuts.counts)
    if num_chunks > MAX_CHUNKS:
        raise ProblemError(
            f"{num_chunks} chunks are more than teccl handles ({MAX_CHUNKS}); use fewer"
        )
    number, _, sources, destinations, reduce = zip(*blocks, strict=True)
    set_of = _numbered(chain.from_iterable(zip(sources, destinations, strict=True)))
    # There may be thousands of sizes, and fractions take long to hash.
    size_of = _numbered([cuts.piece.as_integer_ratio(), *cuts.last])
    rows: dict[str, Any] = {
        "source_set": [set_of[ranks] for ranks in sources],
        "destination_set": [set_of[ranks] for ranks in destinations],
        "reduce": reduce,
        "tenant": tenant,
        "block": number,
    }
    repeats = np.array(cuts.counts)
    ends = np.cumsum(repeats)
    size_index = np.zeros(num_chunks, dtype=np.int64)
    size_index[ends - 1] = [size_of[ratio] for ratio in cuts.last]
    columns: dict[str, Any] = {
        **{name: np.repeat(np.array(row), repeats) for name, row in rows.items()},
        "piece": np.arange(num_chunks) - np.repeat(ends - repeats, repeats),
        "size_index": size_index,
    }
    node_sets = [np.sort(topology.gpus[list(ranks)]) for ranks in set_of]
    for array in (*columns.values(), *node_sets):
        array.setflags(write=False)
    numerators, denominators = zip(*size_of, strict=True)
    return ChunkTable(sizes=Ratios(numerators, denominators), sets=tuple(node_sets), **columns)


def _numbered(values: Iterable[_Key]) -> dict[_Key, int]:
    """Number different values in the order in which they come."""
    return {value: i for i, value in enumerate(dict.fromkeys(values))}
