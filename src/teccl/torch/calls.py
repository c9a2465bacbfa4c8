"""Calls: every call form of torch.distributed as one flat send and one flat recv buffer."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from teccl.demand import Collective

Combine = Callable[..., Tensor]

_OPS: tuple[tuple[str, Combine], ...] = (
    ("SUM", torch.add),
    ("PRODUCT", torch.mul),
    ("MIN", torch.minimum),
    ("MAX", torch.maximum),
    ("BAND", torch.bitwise_and),
    ("BOR", torch.bitwise_or),
    ("BXOR", torch.bitwise_xor),
)
_INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Call(NamedTuple):
    """A collective as schedules have it.

    Parameters
    ----------
    collective
        What to do.
    send, recv
        This rank's flat buffers, None where it has none.
    elements
        How many there are, as nccl-tests counts them.
    root
        Rank in the group, None where there is none.
    op
        How reductions combine, None where there are none.
    results
        The user's tensors that are written, as the call's future gives them.
    copies
        Pairs of a user's tensor and the part of `recv` that it gets in the end.
    is_staged
        Whether `send` shares memory with `recv` and must be kept aside while the call runs.
    """

    collective: Collective
    send: Tensor | None
    recv: Tensor | None
    elements: int
    root: int | None = None
    op: object | None = None
    results: Sequence[object] = ()
    copies: Sequence[tuple[Tensor, Tensor]] = ()
    is_staged: bool = False

    @property
    def tensor(self) -> Tensor:
        """One of the buffers, for its type and device."""
        found = self.send if self.send is not None else self.recv
        assert found is not None
        return found


def combiner(op: object, dtype: torch.dtype) -> Combine | None:
    """Return how an operation combines tensors of a type, None where schedules cannot."""
    for name, combine in _OPS:
        if op == getattr(dist.ReduceOp, name):
            bitwise = name in ("BAND", "BOR", "BXOR")
            return combine if dtype in (_INTEGERS if bitwise else _INTEGERS + _FLOATS) else None
    return None


def one(tensors: Any) -> Tensor:
    """Return the tensor of a call that has one, alone or in a list."""
    return tensors if isinstance(tensors, Tensor) else tensors[0]


def lists(tensors: Any) -> list[Tensor]:
    """Return the tensors of a call that has several, in a list or in a list of lists."""
    return list(tensors if isinstance(tensors[0], Tensor) else tensors[0])


def are_parts(tensors: Sequence[Tensor], part: Tensor, size: int) -> bool:
    """Whether there is a tensor like another for each rank."""
    return len(tensors) == size and all(
        t.numel() == part.numel() and t.dtype == part.dtype for t in tensors
    )


def is_split(whole: Tensor, part: Tensor, size: int) -> bool:
    """Whether a tensor has a part like another for each rank."""
    return whole.numel() == part.numel() * size and whole.dtype == part.dtype


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor's elements in a row: itself where they lie so, else a copy."""
    if tensor.dim() == 1 and not tensor.requires_grad and tensor.is_contiguous():
        return tensor
    return tensor.detach().contiguous().view(-1)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors one after the other: their own memory where they lie so, else a copy."""
    if len(tensors) == 1:
        return flat(tensors[0])
    return _together(tensors) if _lie_together(tensors) else torch.cat([flat(t) for t in tensors])


def room(tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[tuple[Tensor, Tensor]]]:
    """Return a flat buffer for some results, and what is to be copied out of it."""
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return flat(tensors[0]), ()
    if _lie_together(tensors):
        return _together(tensors), ()
    buffer = tensors[0].new_empty(sum(t.numel() for t in tensors))
    copies, begin = [], 0
    for tensor in tensors:
        part = buffer[begin : begin + tensor.numel()]
        copies.append((tensor.detach(), part.view(tensor.shape)))
        begin += tensor.numel()
    return buffer, copies


def _lie_together(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are neighbours in one piece of memory."""
    end = tensors[0].data_ptr()
    storage = tensors[0].untyped_storage().data_ptr()
    for tensor in tensors:
        if (
            not tensor.is_contiguous()
            or tensor.data_ptr() != end
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return False
        end += tensor.numel() * tensor.element_size()
    return True


def _together(tensors: Sequence[Tensor]) -> Tensor:
    count = sum(t.numel() for t in tensors)
    return tensors[0].detach().as_strided((count,), (1,))


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two flat tensors share memory."""
    begin, other = a.data_ptr(), b.data_ptr()
    return bool(begin < other + b.nbytes and other < begin + a.nbytes)


def allreduce(tensor: Tensor, op: object) -> Call:
    """Every rank gets the sum; in place, so that the own data is kept aside."""
    recv, copies = room([tensor])
    return Call(
        collective=Collective.ALLREDUCE,
        send=flat(tensor) if copies else recv,
        recv=recv,
        elements=tensor.numel(),
        op=op,
        results=[tensor],
        copies=copies,
        is_staged=not copies,
    )


def reduce(tensor: Tensor, op: object, *, root: int, rank: int) -> Call:
    """One rank gets the sum; the others' tensors stay."""
    at_root = rank == root
    recv, copies = room([tensor]) if at_root else (None, ())
    return Call(
        collective=Collective.REDUCE,
        send=flat(tensor),
        recv=recv,
        elements=tensor.numel(),
        root=root,
        op=op,
        results=[tensor],
        copies=copies,
        is_staged=at_root and not copies,
    )


def broadcast(tensor: Tensor, *, root: int, rank: int) -> Call:
    """Every rank gets the root's data."""
    at_root = rank == root
    recv, copies = (flat(tensor), ()) if at_root else room([tensor])
    return Call(
        collective=Collective.BROADCAST,
        send=recv if at_root else None,
        recv=recv,
        elements=tensor.numel(),
        root=root,
        results=[tensor],
        copies=copies,
    )


def allgather(outputs: Sequence[Tensor], own: Tensor, *, rank: int) -> Call:
    """Every rank gets the data of all, one tensor each or one for all."""
    call = _apart(Collective.ALLGATHER, flat(own), outputs, sum(t.numel() for t in outputs))
    if call.is_staged and call.send is not None and call.recv is not None:
        begin = call.send.data_ptr() - call.recv.data_ptr()
        # An own block that lies where it belongs is never written.
        return call._replace(is_staged=begin != rank * call.send.nbytes)
    return call


def reduce_scatter(output: Tensor, inputs: Sequence[Tensor], op: object) -> Call:
    """Each rank gets its block of the sum."""
    send = joined(inputs)
    return _apart(Collective.REDUCESCATTER, send, [output], send.numel(), op=op)


def alltoall(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Call:
    """Each rank gets a block of every other's."""
    send = joined(inputs)
    return _apart(Collective.ALLTOALL, send, outputs, send.numel())


def gather(outputs: Sequence[Tensor], own: Tensor, *, root: int, size: int) -> Call:
    """One rank gets the data of all; the others have no outputs."""
    return _apart(Collective.GATHER, flat(own), outputs, own.numel() * size, root=root)


def scatter(output: Tensor, inputs: Sequence[Tensor], *, root: int, size: int) -> Call:
    """Each rank gets a block of the root's; the others have no inputs."""
    send = joined(inputs) if inputs else None
    return _apart(Collective.SCATTER, send, [output], output.numel() * size, root=root)


def _apart(
    collective: Collective,
    send: Tensor | None,
    outputs: Sequence[Tensor],
    elements: int,
    *,
    root: int | None = None,
    op: object | None = None,
) -> Call:
    """Return a call that reads other tensors than it writes, if they do not share memory."""
    recv, copies = room(outputs) if outputs else (None, ())
    is_staged = send is not None and recv is not None and overlap(send, recv)
    return Call(collective, send, recv, elements, root, op, outputs, copies, is_staged)
