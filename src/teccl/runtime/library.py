"""Library: the MPI library's own collectives on the buffers of a schedule, to compare with."""

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl.demand import Collective, Tenant
from teccl.runtime.layout import TenantLayout

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]
Call = Callable[[], None]


def library_name() -> str:
    """Name and version of the MPI library."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(str(part) for part in version)}"


def library_call(
    layout: TenantLayout,
    members: tuple[int, ...],
    comm: "MPI.Comm",
    *,
    send: Array,
    recv: Array,
    op: str,
) -> Call | None:
    """Return the library's call for one tenant; None where MPI has no such collective.

    Parameters
    ----------
    members
        GPU ranks that take part, in order.
    comm
        Their communicator, in the same order.
    send, recv
        This rank's buffers.
    op
        How reductions combine.
    """
    tenant = layout.tenant
    if layout.rank not in members:
        return _nothing
    if tenant.collective is Collective.EXPLICIT or not _reduces_type(tenant, comm, send, op):
        return None
    root = members.index(members[0] if tenant.root is None else tenant.root)
    return _CALLS[tenant.collective](layout, members, comm, send, recv, _op(op), root)


def _nothing() -> None:
    """Take no part."""


def _op(name: str) -> Any:
    from mpi4py import MPI

    return {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX, "prod": MPI.PROD}[name]


def _reduces_type(tenant: Tenant, comm: "MPI.Comm", send: Array, op: str) -> bool:
    """Whether the library reduces the type; not every one knows float16."""
    from mpi4py import MPI

    if not tenant.collective.reduces:
        return True
    probe = np.ones(1, dtype=send.dtype)
    try:
        comm.Allreduce(MPI.IN_PLACE, probe, op=_op(op))
    except (MPI.Exception, KeyError, ValueError):
        return False
    return True


def _allgather(*args: Any) -> Call:
    _, _, comm, send, recv, _, _ = args
    return lambda: comm.Allgather(send, recv)


def _alltoall(*args: Any) -> Call:
    _, _, comm, send, recv, _, _ = args
    return lambda: comm.Alltoall(send, recv)


def _reducescatter(*args: Any) -> Call:
    _, _, comm, send, recv, op, _ = args
    return lambda: comm.Reduce_scatter_block(send, recv, op=op)


def _allreduce(*args: Any) -> Call:
    _, _, comm, send, recv, op, _ = args
    return lambda: comm.Allreduce(send, recv, op=op)


def _broadcast(*args: Any) -> Call:
    _, _, comm, send, recv, _, root = args

    def call() -> None:
        if comm.Get_rank() == root:
            np.copyto(recv, send)
        comm.Bcast(recv, root=root)

    return call


def _reduce(*args: Any) -> Call:
    _, _, comm, send, recv, op, root = args
    into = recv if comm.Get_rank() == root else None
    return lambda: comm.Reduce(send, into, op=op, root=root)


def _scatter(*args: Any) -> Call:
    _, _, comm, send, recv, _, root = args
    out = send if comm.Get_rank() == root else None
    return lambda: comm.Scatter(out, recv, root=root)


def _gather(*args: Any) -> Call:
    _, _, comm, send, recv, _, root = args
    into = recv if comm.Get_rank() == root else None
    return lambda: comm.Gather(send, into, root=root)


def _scattergather(*args: Any) -> Call:
    _, members, comm, send, recv, _, root = args
    if comm.Get_rank() != root:

        def call() -> None:
            comm.Gather(send, None, root=root)
            comm.Scatter(None, recv, root=root)

        return call
    size = len(recv) // len(members)
    own = slice(root * size, (root + 1) * size)

    def call_at_root() -> None:
        comm.Gather(send[own], recv, root=root)
        comm.Scatter(send, recv[own], root=root)

    return call_at_root


def _alltoallv(*args: Any) -> Call:
    layout, members, comm, send, recv, _, _ = args
    me, itemsize = members.index(layout.rank), send.dtype.itemsize
    matrix = layout.tenant.matrix or ()

    def elements(size: Any) -> int:
        return int(-(-size // itemsize))

    out = [elements(cell) for cell in matrix[me]]
    into = [elements(row[me]) for row in matrix]
    send_at = [0, *accumulate(out)][:-1]
    recv_at = [0, *accumulate(into)][:-1]
    return lambda: comm.Alltoallv([send, (out, send_at)], [recv, (into, recv_at)])


_CALLS: dict[Collective, Callable[..., Call]] = {
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
}
