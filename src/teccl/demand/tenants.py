"""Demands: which data must reach which GPU, as collectives of one or several tenants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from teccl._suggest import did_you_mean
from teccl.errors import DemandError
from teccl.keywords import Collective
from teccl.units import Quantity, parse_duration, parse_size

MAX_CHUNKS = 20_000_000
# The name of a tenant that nobody has named.
UNNAMED = "tenant0"


# Of schedules whose makespans are within this part of the best, the least sum of priorities times
# finishes wins.
MAKESPAN_PART = 100


class ExplicitChunk(NamedTuple):
    """One piece of data in an explicit demand: who holds it and who wants it, by rank.

    Its `size` is in bytes, None for that of the tenant.
    """

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    reduce: bool = False
    size: Fraction | None = None


class Block(NamedTuple):
    """The data that travels together in a collective before it is cut into chunks.

    For a copy the sources all hold the same data; for a reduction each contributes its own and
    every destination wants the combination.
    """

    number: int
    size: Fraction
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    reduce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One collective call among the GPUs that take part in it.

    Parameters
    ----------
    collective
        Which collective.
    size
        Bytes as nccl-tests counts them: AllGather total output, ReduceScatter per-rank input,
        AllToAll and AllReduce the per-rank buffer, Broadcast and Reduce the buffer, Scatter and
        Gather the buffer at the root; for explicit demands the bytes of each chunk that has no
        size of its own.
    ranks
        Ranks that take part, None for all.
    root
        For collectives that have one; None is the first of `ranks`.
    name
        What tables print.
    priority
        Weight of this tenant's finish time among equal makespans.
    ready
        Times in seconds, by rank, from which that rank's own data may be sent.
    matrix
        AllToAllv: bytes from the i-th to the j-th of `ranks`.
    chunks
        Explicit demands: what must go where.
    """

    collective: Collective
    size: Fraction = Fraction(0)
    ranks: tuple[int, ...] | None = None
    root: int | None = None
    name: str = UNNAMED
    priority: Fraction = Fraction(1)
    ready: Mapping[int, Fraction] = field(default_factory=dict)
    matrix: tuple[tuple[Fraction, ...], ...] | None = None
    chunks: tuple[ExplicitChunk, ...] | None = None

    def __post_init__(self) -> None:
        if self.priority <= 0:
            raise DemandError(
                f"{self.name}: priority {self.priority} is not positive; use 1 or more"
            )
        object.__setattr__(self, "ready", dict(self.ready))
        self._check_data()
        if self.ranks is not None and len(set(self.ranks)) != len(self.ranks):
            raise DemandError(f"{self.name}: ranks {list(self.ranks)[:8]} repeat; name each once")
        if self.root is not None and not self.collective.has_root:
            raise DemandError(f"{self.name}: {self.collective} has no root; drop it")

    def scaled(self, share: Fraction) -> "Tenant":
        """Return the same demand for a part of all its bytes."""
        matrix, chunks = self.matrix, self.chunks
        return replace(
            self,
            size=self.size * share,
            matrix=matrix and tuple(tuple(cell * share for cell in row) for row in matrix),
            chunks=chunks
            and tuple(
                chunk if chunk.size is None else chunk._replace(size=chunk.size * share)
                for chunk in chunks
            ),
        )

    def __hash__(self) -> int:
        key = (self.collective, self.size, self.ranks, self.root, self.name, self.priority)
        return hash((key, tuple(self.ready.items()), self.matrix, self.chunks))

    def _check_data(self) -> None:
        """Check that size, matrix and chunks are there exactly where the collective needs them."""
        is_matrix = self.collective is Collective.ALLTOALLV
        is_explicit = self.collective is Collective.EXPLICIT
        if is_matrix != (self.matrix is not None):
            wants = "needs a matrix of bytes; give it in a demand file"
            raise DemandError(
                f"{self.name}: {self.collective} {wants if is_matrix else 'takes no matrix'}"
            )
        if is_explicit != (self.chunks is not None):
            wants = "needs a list of chunks" if is_explicit else "takes no list of chunks"
            raise DemandError(f"{self.name}: {self.collective} {wants}")
        has_sizes = is_explicit and all(chunk.size is not None for chunk in self.chunks or ())
        if not is_matrix and not has_sizes and self.size <= 0:
            raise DemandError(
                f"{self.name}: size {self.size} is not positive; give for example 1MB"
            )

    def members(self, num_gpus: int) -> tuple[int, ...]:
        """Ranks that take part, checked against the number of GPUs."""
        ranks = tuple(range(num_gpus)) if self.ranks is None else self.ranks
        for rank in (*ranks, *self.ready, *(() if self.root is None else (self.root,))):
            if not 0 <= rank < num_gpus:
                raise DemandError(
                    f"{self.name}: rank {rank} does not exist; ranks are 0 to {num_gpus - 1}"
                )
        if len(ranks) < 2:
            raise DemandError(f"{self.name}: {len(ranks)} rank takes part; name at least two")
        if self.root is not None and self.root not in ranks:
            raise DemandError(f"{self.name}: root {self.root} is not among the ranks; add it")
        taking_part = set(ranks)
        absent = next((rank for rank in self.ready if rank not in taking_part), None)
        if absent is not None:
            raise DemandError(f"{self.name}: ready names rank {absent}, which takes no part")
        return ranks

    def blocks(self, num_gpus: int, *, whole: bool = False) -> Iterator[Block]:
        """Blocks of this collective, by rank number.

        Parameters
        ----------
        whole
            Make the buffer of an AllReduce one block, not one for each rank.
        """
        if whole and self.collective is Collective.ALLREDUCE:
            ranks = self.members(num_gpus)
            return iter([Block(0, self.size, ranks, ranks, reduce=True)])
        return _BLOCKS[self.collective](self, self.members(num_gpus))

    @property
    def total_size(self) -> Fraction:
        """Bytes that algbw counts; for AllToAllv the largest buffer of any rank."""
        if self.matrix is not None:
            rows = [sum(row, Fraction(0)) for row in self.matrix]
            columns = [sum(column, Fraction(0)) for column in zip(*self.matrix, strict=True)]
            return max(rows + columns)
        if self.chunks is not None:
            return sum((self.chunk_size(chunk) for chunk in self.chunks), Fraction(0))
        return self.size

    def chunk_size(self, chunk: ExplicitChunk) -> Fraction:
        """Bytes of an explicit chunk."""
        return self.size if chunk.size is None else chunk.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What must be delivered: one tenant or several sharing the network.

    Examples
    --------
    >>> Demand.collective("AllGather", size="1MB")
    Demand(allgather 1MB)
    """

    tenants: tuple[Tenant, ...]

    def __post_init__(self) -> None:
        if not self.tenants:
            raise DemandError("the demand has no collective; give at least one")
        names = set()
        for tenant in self.tenants:
            if tenant.name in names:
                raise DemandError(f"tenant name {tenant.name!r} appears twice; give unique names")
            names.add(tenant.name)

    def __repr__(self) -> str:
        return f"Demand({self.describe()})"

    def describe(self) -> str:
        """Return collectives and sizes, as messages tell them."""
        from teccl.units import format_size

        parts = [f"{t.collective} {format_size(t.size)}".removesuffix(" 0B") for t in self.tenants]
        return ", ".join(parts)

    @staticmethod
    def collective(
        collective: str | Collective,
        *,
        size: Quantity = 0,
        ranks: Sequence[int] | None = None,
        root: int | None = None,
        ready: Mapping[int, Quantity] | None = None,
        matrix: Sequence[Sequence[Quantity]] | None = None,
    ) -> "Demand":
        """Return the demand of one collective call."""
        tenant = Tenant(
            collective=parse_collective(collective),
            size=parse_size(size),
            ranks=None if ranks is None else tuple(ranks),
            root=root,
            ready={rank: parse_duration(t, what="ready") for rank, t in (ready or {}).items()},
            matrix=None
            if matrix is None
            else tuple(tuple(parse_size(b, what="matrix entry") for b in row) for row in matrix),
        )
        return Demand(tenants=(tenant,))

    @property
    def title(self) -> str:
        """The collective's name, several joined by a plus sign."""
        return "+".join(tenant.collective.value for tenant in self.tenants)

    @property
    def has_ready_times(self) -> bool:
        """Whether any rank's data comes later than time zero."""
        return any(time > 0 for tenant in self.tenants for time in tenant.ready.values())


def parse_collective(text: str | Collective) -> Collective:
    """Return the collective a name means; case, ``-`` and ``_`` do not matter.

    Examples
    --------
    >>> parse_collective("Reduce-Scatter").value
    'reducescatter'
    """
    name = str(text).strip().lower().replace("-", "").replace("_", "")
    known = [c.value for c in Collective if c is not Collective.EXPLICIT]
    if name in known:
        return Collective(name)
    raise DemandError(f"unknown collective {str(text)[:40]!r}{did_you_mean(name, known)}")


_Ranks = tuple[int, ...]


def _allgather(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    share = tenant.size / len(ranks)
    return (Block(i, share, (rank,), ranks) for i, rank in enumerate(ranks))


def _alltoall(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    n, share = len(ranks), tenant.size / len(ranks)
    if n * (n - 1) > MAX_CHUNKS:
        raise DemandError(
            f"{tenant.name}: alltoall among {n} ranks needs {n * (n - 1)} chunks, more than teccl "
            f"handles ({MAX_CHUNKS}); use fewer ranks"
        )
    return (
        Block(i * n + j, share, (src,), (dst,))
        for i, src in enumerate(ranks)
        for j, dst in enumerate(ranks)
        if i != j
    )


def _alltoallv(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    n, matrix = len(ranks), tenant.matrix or ()
    if len(matrix) != n or any(len(row) != n for row in matrix):
        raise DemandError(
            f"{tenant.name}: matrix has {len(matrix)} rows for {n} ranks; give {n} rows of {n}"
        )
    alone = [(rank,) for rank in ranks]
    return (
        Block(i * n + j, size, alone[i], alone[j])
        for i, row in enumerate(matrix)
        for j, size in enumerate(row)
        if i != j and size.numerator > 0
    )


def _reducescatter(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    share = tenant.size / len(ranks)
    return (Block(j, share, ranks, (dst,), reduce=True) for j, dst in enumerate(ranks))


def _allreduce(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    share = tenant.size / len(ranks)
    return (Block(j, share, ranks, ranks, reduce=True) for j in range(len(ranks)))


def _broadcast(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    return iter([Block(0, tenant.size, (_root(tenant, ranks),), ranks)])


def _reduce(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    return iter([Block(0, tenant.size, ranks, (_root(tenant, ranks),), reduce=True)])


def _scatter(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    root, share = _root(tenant, ranks), tenant.size / len(ranks)
    return (Block(j, share, (root,), (dst,)) for j, dst in enumerate(ranks) if dst != root)


def _gather(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    root, share = _root(tenant, ranks), tenant.size / len(ranks)
    return (Block(i, share, (src,), (root,)) for i, src in enumerate(ranks) if src != root)


def _scattergather(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    yield from _gather(tenant, ranks)
    for block in _scatter(tenant, ranks):
        yield block._replace(number=block.number + len(ranks))


def _explicit(tenant: Tenant, ranks: _Ranks) -> Iterator[Block]:
    for i, chunk in enumerate(tenant.chunks or ()):
        _check_explicit(tenant, i, chunk, ranks)
        yield Block(i, tenant.chunk_size(chunk), chunk.sources, chunk.destinations, chunk.reduce)


def _check_explicit(tenant: Tenant, i: int, chunk: ExplicitChunk, ranks: _Ranks) -> None:
    if chunk.size is not None and chunk.size <= 0:
        raise DemandError(
            f"{tenant.name}: chunk {i} has size {chunk.size}; give a positive one or drop the chunk"
        )
    if not chunk.sources or not chunk.destinations:
        raise DemandError(f"{tenant.name}: chunk {i} has no source or no destination; give both")
    for ranks_named in (chunk.sources, chunk.destinations):
        if len(set(ranks_named)) != len(ranks_named):
            raise DemandError(f"{tenant.name}: chunk {i} names a rank twice; name each once")
    for rank in (*chunk.sources, *chunk.destinations):
        if rank not in ranks:
            raise DemandError(f"{tenant.name}: chunk {i} names rank {rank}, which takes no part")


def _root(tenant: Tenant, ranks: _Ranks) -> int:
    return ranks[0] if tenant.root is None else tenant.root


_BLOCKS: dict[Collective, Callable[[Tenant, _Ranks], Iterator[Block]]] = {
    Collective.ALLGATHER: _allgather,
    Collective.ALLTOALL: _alltoall,
    Collective.REDUCESCATTER: _reducescatter,
    Collective.ALLREDUCE: _allreduce,
    Collective.BROADCAST: _broadcast,
    Collective.REDUCE: _reduce,
    Collective.SCATTER: _scatter,
    Collective.GATHER: _gather,
    Collective.SCATTERGATHER: _scattergather,
    Collective.ALLTOALLV: _alltoallv,
    Collective.EXPLICIT: _explicit,
}
