"""Layout: where the blocks and chunks of a demand lie in a rank's buffers, in whole elements.

Buffers are those of the MPI call of the same name. With n ranks and blocks of B elements:

| collective | send | recv |
|---|---|---|
| allgather | B | n B |
| alltoall | n B | n B |
| reducescatter | n B | B |
| allreduce | count | count |
| broadcast | count at the root | count |
| reduce | count | count at the root |
| scatter | n B at the root | B |
| gather | B | n B at the root |
| scattergather | B, n B at the root | B, n B at the root |
| alltoallv | one block per row entry | one block per column entry |
| explicit | chunks held, one after the other | chunks wanted, one after the other |

A block whose bytes are no whole number of elements is padded to the next one, except in AllReduce,
Broadcast and Reduce, where only the whole buffer is. Chunks split their block as evenly as whole
elements allow; a chunk may be empty.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from teccl.demand import Block, Collective, Tenant
from teccl.errors import ScheduleError
from teccl.problem import Problem


class Span(NamedTuple):
    """Part of a buffer, in elements."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.stop - self.start


class SelfCopy(NamedTuple):
    """A block that a rank sends to itself, which no schedule carries."""

    send: Span
    recv: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLayout:
    """Buffers of one tenant on one rank.

    Parameters
    ----------
    tenant
        The collective.
    rank
        GPU rank whose buffers these are.
    send_count, recv_count
        Elements of its buffers, 0 where it needs none.
    blocks
        All blocks of the collective, by number.
    block_elements
        Elements of each block, by number.
    send, recv
        Where the blocks that this rank holds or wants begin, by number.
    self_copies
        Blocks that stay on this rank.
    """

    tenant: Tenant
    rank: int
    send_count: int
    recv_count: int
    blocks: dict[int, Block]
    block_elements: dict[int, int]
    send: dict[int, int]
    recv: dict[int, int]
    self_copies: tuple[SelfCopy, ...]

    def piece(self, number: int, index: int, piece_bytes: Fraction) -> Span:
        """Elements of a block that a piece covers, counted from the block's begin."""
        size, elements = self.blocks[number].size, self.block_elements[number]
        edges = [min(i * piece_bytes, size) * elements // size for i in (index, index + 1)]
        return Span(*edges)


def tenant_layout(
    problem: Problem, tenant: Tenant, rank: int, *, itemsize: int, count: int | None = None
) -> TenantLayout:
    """Lay out one tenant's buffers on one rank.

    Parameters
    ----------
    itemsize
        Bytes of an element.
    count
        Elements that replace the tenant's size (AllGather: of the whole output, and so on); None
        for the size itself, padded onto whole elements.

    Raises
    ------
    ScheduleError
        If a count is given where the demand says how many bytes go where.
    """
    members = tenant.members(problem.topology.num_gpus)
    blocks = {block.number: block for block in problem.blocks(tenant)}
    share = _Share(tenant, len(members), itemsize, count, cuts=len(blocks))
    elements = {number: share.of(block) for number, block in blocks.items()}
    places = _PLACES[tenant.collective](tenant, members, rank, share, elements)
    return TenantLayout(
        tenant=tenant,
        rank=rank,
        send_count=places.send_count,
        recv_count=places.recv_count,
        blocks=blocks,
        block_elements=elements,
        send={n: places.send(n) for n, b in blocks.items() if rank in b.sources},
        recv={n: places.recv(n) for n, b in blocks.items() if rank in b.destinations},
        self_copies=places.self_copies,
    )


def padded_bytes(problem: Problem, tenant: Tenant, itemsize: int, count: int | None = None) -> int:
    """Bytes that a tenant's size comes to on whole elements."""
    members = tenant.members(problem.topology.num_gpus)
    share = _Share(tenant, len(members), itemsize, count)
    if tenant.collective in _WHOLE:
        return share.total * itemsize
    if tenant.matrix is None:
        many = len(tenant.chunks or ()) if tenant.chunks is not None else len(members)
        return share.block * many * itemsize
    cells = [[_ceil(cell / itemsize) for cell in row] for row in tenant.matrix]
    return itemsize * max(*map(sum, cells), *map(sum, zip(*cells, strict=True)))


# Collectives whose buffer is cut into blocks wherever an element ends.
_WHOLE = (Collective.ALLREDUCE, Collective.BROADCAST, Collective.REDUCE)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


class _Share:
    """Elements of the blocks of a tenant."""

    def __init__(
        self, tenant: Tenant, n: int, itemsize: int, count: int | None, *, cuts: int = 1
    ) -> None:
        self.tenant, self.n, self.itemsize, self.cuts = tenant, n, itemsize, cuts
        if count is not None and (tenant.matrix is not None or tenant.chunks is not None):
            raise ScheduleError(
                f"{tenant.name}: count {count} has no meaning for {tenant.collective}, whose "
                "demand says how many bytes go where; drop it"
            )
        if count is not None and count < 1:
            raise ScheduleError(f"count {count} is not positive; give the number of elements")
        self.total = _ceil(tenant.size / itemsize) if count is None else count
        parts = 1 if tenant.chunks is not None else n
        exact = tenant.size / itemsize if count is None else Fraction(count)
        self.block = _ceil(exact / parts)

    def edge(self, number: int) -> int:
        """Where a block of a buffer that is not padded begins."""
        return number * self.total // self.cuts

    def of(self, block: Block) -> int:
        """Elements of a block."""
        collective = self.tenant.collective
        if collective is Collective.ALLREDUCE:
            return self.edge(block.number + 1) - self.edge(block.number)
        if collective in _WHOLE:
            return self.total
        if self.tenant.matrix is not None:
            return _ceil(block.size / self.itemsize)
        return self.block


class _Places(NamedTuple):
    send_count: int
    recv_count: int
    send: Callable[[int], int]
    recv: Callable[[int], int]
    self_copies: tuple[SelfCopy, ...] = ()


_Elements = dict[int, int]
_Ranks = tuple[int, ...]


def _zero(_number: int) -> int:
    return 0


def _root(tenant: Tenant, members: _Ranks) -> int:
    return members[0] if tenant.root is None else tenant.root


def _nowhere() -> _Places:
    return _Places(0, 0, _zero, _zero)


def _allgather(
    _tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    return _Places(share.block, share.n * share.block, _zero, lambda i: i * share.block)


def _reducescatter(
    _tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    return _Places(share.n * share.block, share.block, lambda j: j * share.block, _zero)


def _allreduce(
    _tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    return _Places(share.total, share.total, share.edge, share.edge)


def _alltoall(
    _tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    n, size = share.n, share.block
    own = Span(members.index(rank) * size, (members.index(rank) + 1) * size)
    return _Places(
        n * size,
        n * size,
        lambda number: number % n * size,
        lambda number: number // n * size,
        (SelfCopy(own, own),),
    )


def _alltoallv(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members or tenant.matrix is None:
        return _nowhere()
    n, me = share.n, members.index(rank)
    row = [_ceil(cell / share.itemsize) for cell in tenant.matrix[me]]
    column = [_ceil(line[me] / share.itemsize) for line in tenant.matrix]
    out = [0, *accumulate(row)]
    into = [0, *accumulate(column)]
    own = SelfCopy(Span(out[me], out[me + 1]), Span(into[me], into[me + 1]))
    return _Places(out[n], into[n], lambda x: out[x % n], lambda x: into[x // n], (own,))


def _broadcast(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    at_root = rank == _root(tenant, members)
    return _Places(share.total * at_root, share.total if rank in members else 0, _zero, _zero)


def _reduce(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    at_root = rank == _root(tenant, members)
    return _Places(share.total if rank in members else 0, share.total * at_root, _zero, _zero)


def _scatter(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    size = share.block
    if rank != _root(tenant, members):
        return _Places(0, size, _zero, _zero)
    own = members.index(rank) * size
    copies = (SelfCopy(Span(own, own + size), Span(0, size)),)
    return _Places(share.n * size, size, lambda j: j * size, _zero, copies)


def _gather(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    size = share.block
    if rank != _root(tenant, members):
        return _Places(size, 0, _zero, _zero)
    own = members.index(rank) * size
    copies = (SelfCopy(Span(0, size), Span(own, own + size)),)
    return _Places(size, share.n * size, _zero, lambda i: i * size, copies)


def _scattergather(
    tenant: Tenant, members: _Ranks, rank: int, share: _Share, _elements: _Elements
) -> _Places:
    if rank not in members:
        return _nowhere()
    n, size = share.n, share.block
    if rank != _root(tenant, members):
        return _Places(size, size, _zero, _zero)
    own = Span(members.index(rank) * size, (members.index(rank) + 1) * size)
    return _Places(
        n * size,
        n * size,
        lambda number: (number - n) * size,
        lambda number: number * size,
        (SelfCopy(own, own),),
    )


def _explicit(
    tenant: Tenant, _members: _Ranks, rank: int, _share: _Share, elements: _Elements
) -> _Places:
    chunks = tenant.chunks or ()

    def packed(holds: Iterator[bool]) -> list[int]:
        sizes = (elements[i] * held for i, held in enumerate(holds))
        return [0, *accumulate(sizes)]

    out = packed(rank in chunk.sources for chunk in chunks)
    into = packed(rank in chunk.destinations for chunk in chunks)
    return _Places(out[-1], into[-1], out.__getitem__, into.__getitem__)


_PLACES: dict[Collective, Callable[[Tenant, _Ranks, int, _Share, _Elements], _Places]] = {
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
