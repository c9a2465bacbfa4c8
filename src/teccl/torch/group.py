"""The process group: every collective by a schedule where one covers it, else by the inner group.

Methods have the names that torch.distributed calls; some changed in version 2.13, both are here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from teccl.demand import Collective
from teccl.torch import calls
from teccl.torch.calls import Call
from teccl.torch.choice import Choice, Chosen
from teccl.torch.failures import Faults, is_refusal
from teccl.torch.named import NamedGroup
from teccl.torch.records import Record, RecordBook
from teccl.torch.runner import Runner
from teccl.torch.works import CallWork, InnerWork, JoinedWork

Inner = Callable[[], Any]


class TecclProcessGroup(NamedGroup):
    """A process group that executes teccl's schedules.

    Parameters
    ----------
    rank, size
        Of this process, and of the group.
    inner
        The group that does what no schedule covers.
    choice
        Which schedule serves a call.
    runner
        What executes schedules.
    faults
        What names the rank that caused an error.
    """

    def __init__(
        self, rank: int, size: int, *, inner: Any, choice: Choice, runner: Runner, faults: Faults
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._inner, self._choice, self._runner, self._faults = inner, choice, runner, faults
        self._book = RecordBook()
        # Calls since `_start_coalescing`, None outside of it.
        self._gathered: list[Any] | None = None

    def records(self) -> tuple[Record, ...]:
        """Return what this group has run how."""
        return self._book.records(self._name)

    def _find(self, collective: Collective, part: Tensor, times: int = 1, **what: Any) -> Chosen:
        """Return what runs a call, as `Choice.find` does, unless one has failed before."""
        self._faults.check()
        return self._choice.find(collective, part, times, **what)

    def _collective(
        self,
        chosen: Chosen,
        build: Callable[[], Call],
        inner: Callable[..., Any],
        tensors: Sequence[Sequence[Tensor]],
        opts: Any,
    ) -> Any:
        """Make a collective by its schedule, or by the inner group.

        Parameters
        ----------
        build
            Returns the call as schedules have it.
        inner
            Makes the inner group's call with lists of tensors, each as in `tensors`.
        tensors
            What is written, then what is only read.
        """
        self._book.add(chosen.line)
        if chosen.entry is None:
            work = self._inner_collective(inner, tensors, chosen.line[0])
        else:
            now = not getattr(opts, "asyncOp", True)
            work = self._runner.run(chosen.entry, build(), chosen.combine, now=now)
        if self._gathered is not None:
            self._gathered.append(work)
        return work

    def _start_coalescing(self, device: torch.device) -> None:  # noqa: ARG002, torch gives it
        """Gather the collectives that follow into one work; each is made when it is called."""
        self._gathered = []

    def _end_coalescing(self, device: torch.device) -> Any:  # noqa: ARG002
        """Return the work of all collectives since `_start_coalescing`."""
        works, self._gathered = self._gathered or [], None
        return JoinedWork(works)

    def _inner_collective(
        self, inner: Callable[..., Any], tensors: Sequence[Sequence[Tensor]], what: str
    ) -> Any:
        """Make a collective of the inner group.

        Gloo takes any memory for contiguous, so that other tensors go by a copy, and at once.
        """
        if all(t.is_contiguous() or t.layout != torch.strided for each in tensors for t in each):
            return self._inner_work(lambda: inner(*tensors), what)
        dense = [[t.detach().contiguous() for t in each] for each in tensors]
        self._inner_work(lambda: inner(*dense), what).wait()
        for target, source in zip(tensors[0], dense[0], strict=True):
            target.detach().copy_(source)
        work = CallWork(tensors[0])
        work.succeed()
        return work

    def _inner_work(self, inner: Inner, what: str, peer: int | None = None) -> Any:
        """Make a call of the inner group."""
        self._faults.check()

        def named(reason: BaseException) -> BaseException:
            return reason if is_refusal(reason) else self._faults.of(reason, peer, what)

        try:
            work = inner()
        except RuntimeError as reason:
            raise named(reason) from None
        return work if work is None else InnerWork(work, named)

    # all_reduce

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Make an all_reduce of one tensor."""
        tensor, opts = calls.one(tensors), opts or dist.AllreduceOptions()
        return self._collective(
            self._find(Collective.ALLREDUCE, tensor, op=opts.reduceOp),
            lambda: calls.allreduce(tensor, opts.reduceOp),
            lambda written: self._inner.allreduce(written, opts),
            [[tensor]],
            opts,
        )

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Make an all_reduce of several tensors."""
        options = dist.AllreduceOptions()
        if opts is not None:
            options.reduceOp = opts.reduceOp
            options.timeout = opts.timeout
        return JoinedWork([self.allreduce([tensor], options) for tensor in tensors])

    # broadcast, reduce

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Make a broadcast of one tensor."""
        tensor, opts = calls.one(tensors), opts or dist.BroadcastOptions()
        return self._collective(
            self._find(Collective.BROADCAST, tensor, root=opts.rootRank),
            lambda: calls.broadcast(tensor, root=opts.rootRank, rank=self._rank),
            lambda written: self._inner.broadcast(written, opts),
            [[tensor]],
            opts,
        )

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Make a reduce of one tensor."""
        tensor, opts = calls.one(tensors), opts or dist.ReduceOptions()
        return self._collective(
            self._find(Collective.REDUCE, tensor, op=opts.reduceOp, root=opts.rootRank),
            lambda: calls.reduce(tensor, opts.reduceOp, root=opts.rootRank, rank=self._rank),
            lambda written: self._inner.reduce(written, opts),
            [[tensor]],
            opts,
        )

    # all_gather

    def allgather(self, output_lists: Any, tensors: Any, opts: Any = None) -> Any:
        """Make an all_gather into a list of tensors."""
        outputs, own = calls.lists(output_lists), calls.one(tensors)
        opts = opts or dist.distributed_c10d.AllgatherOptions()
        is_even = calls.are_parts(outputs, own, self._size)
        return self._collective(
            self._find(Collective.ALLGATHER, own, self._size, is_even=is_even),
            lambda: calls.allgather(outputs, own, rank=self._rank),
            lambda written, read: self._inner.allgather([written], read, opts),
            [outputs, [own]],
            opts,
        )

    def all_gather_single(self, output: Tensor, own: Tensor, opts: Any = None) -> Any:
        """Make an all_gather into one tensor."""
        opts = opts or dist.distributed_c10d.AllgatherOptions()
        is_even = calls.is_split(output, own, self._size)
        return self._collective(
            self._find(Collective.ALLGATHER, own, self._size, is_even=is_even),
            lambda: calls.allgather([output], own, rank=self._rank),
            lambda written, read: self._inner._allgather_base(  # noqa: SLF001
                written[0], read[0], opts
            ),
            [[output], [own]],
            opts,
        )

    _allgather_base = all_gather_single

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], tensors: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Make all_gathers of several tensors into lists, one list for each rank."""
        by_tensor = [[list(outputs)] for outputs in zip(*output_lists, strict=True)]
        return _each(self.allgather, by_tensor, [[tensor] for tensor in tensors], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Make all_gathers of several tensors, each into one."""
        return _each(self.all_gather_single, outputs, tensors, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    # reduce_scatter

    def reduce_scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Any:
        """Make a reduce_scatter of a list of tensors."""
        output, inputs = calls.one(outputs), calls.lists(input_lists)
        opts = opts or dist.ReduceScatterOptions()
        is_even = calls.are_parts(inputs, output, self._size)
        return self._collective(
            self._find(
                Collective.REDUCESCATTER, output, self._size, op=opts.reduceOp, is_even=is_even
            ),
            lambda: calls.reduce_scatter(output, inputs, opts.reduceOp),
            lambda written, read: self._inner.reduce_scatter(written, [read], opts),
            [[output], inputs],
            opts,
        )

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Make a reduce_scatter of one tensor."""
        opts = opts or dist.ReduceScatterOptions()
        is_even = calls.is_split(tensor, output, self._size)
        return self._collective(
            self._find(
                Collective.REDUCESCATTER, output, self._size, op=opts.reduceOp, is_even=is_even
            ),
            lambda: calls.reduce_scatter(output, [tensor], opts.reduceOp),
            lambda written, read: self._inner._reduce_scatter_base(  # noqa: SLF001
                written[0], read[0], opts
            ),
            [[output], [tensor]],
            opts,
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], tensors: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Make reduce_scatters of several tensors."""
        return _each(self.reduce_scatter_single, outputs, tensors, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # all_to_all

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Make an all_to_all of lists."""
        opts = opts or dist.AllToAllOptions()
        is_even = self._is_even([t.numel() for t in (*outputs, *inputs)], inputs[0])
        return self._collective(
            self._find(Collective.ALLTOALL, inputs[0], self._size, is_even=is_even),
            lambda: calls.alltoall(outputs, inputs),
            lambda written, read: self._inner.alltoall(written, read, opts),
            [list(outputs), list(inputs)],
            opts,
        )

    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """Make an all_to_all of one tensor, in equal parts or as split sizes say."""
        opts = opts or dist.AllToAllOptions()
        if output_splits or input_splits:
            row = tensor.numel() // max(1, tensor.shape[0] if tensor.dim() else 1)
            sizes = [row * part for part in (*output_splits, *input_splits)]
            sizes += [] if output_splits else [output.numel() // self._size]
            sizes += [] if input_splits else [tensor.numel() // self._size]
            is_even = self._is_even(sizes, tensor)
        else:
            is_even = tensor.numel() == output.numel() and tensor.numel() % self._size == 0
        return self._collective(
            self._find(Collective.ALLTOALL, tensor, is_even=is_even),
            lambda: calls.alltoall([output], [tensor]),
            lambda written, read: self._inner.alltoall_base(
                written[0], read[0], list(output_splits), list(input_splits), opts
            ),
            [[output], [tensor]],
            opts,
        )

    alltoall_base = all_to_all_single

    def _is_even(self, sizes: Sequence[int], tensor: Tensor) -> bool:
        """Whether all parts of an all_to_all have one size on all ranks.

        A rank sees its own parts only, so the ranks compare, unless none could use a schedule.
        """
        if tensor.device.type != "cpu" or not self._choice.knows(Collective.ALLTOALL):
            return False
        size = sizes[0] if len(set(sizes)) == 1 else -1
        seen = torch.tensor([size, -size], dtype=torch.int64)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MIN
        self._inner_work(lambda: self._inner.allreduce([seen], options), "alltoall").wait()
        return bool(seen[0] == size and -seen[1] == size and size > 0)

    # gather, scatter

    def gather(self, output_lists: Any, tensors: Any, opts: Any = None) -> Any:
        """Make a gather to one rank."""
        own, opts = calls.one(tensors), opts or dist.GatherOptions()
        outputs = calls.lists(output_lists) if output_lists else []
        is_even = not outputs or calls.are_parts(outputs, own, self._size)
        return self._collective(
            self._find(Collective.GATHER, own, self._size, root=opts.rootRank, is_even=is_even),
            lambda: calls.gather(outputs, own, root=opts.rootRank, size=self._size),
            lambda written, read: self._inner.gather([written] if written else [], read, opts),
            [outputs, [own]],
            opts,
        )

    def scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Any:
        """Make a scatter from one rank."""
        output, opts = calls.one(outputs), opts or dist.ScatterOptions()
        inputs = calls.lists(input_lists) if input_lists else []
        is_even = not inputs or calls.are_parts(inputs, output, self._size)
        return self._collective(
            self._find(Collective.SCATTER, output, self._size, root=opts.rootRank, is_even=is_even),
            lambda: calls.scatter(output, inputs, root=opts.rootRank, size=self._size),
            lambda written, read: self._inner.scatter(written, [read] if read else [], opts),
            [[output], inputs],
            opts,
        )

    # what moves no data in a pattern

    def barrier(self, opts: Any = None) -> Any:
        """Make a barrier."""
        return self._inner_work(
            lambda: self._inner.barrier(opts or dist.BarrierOptions()), "barrier"
        )

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> Any:
        """Send to one rank."""
        return self._inner_work(lambda: self._inner.send(tensors, peer, tag), "send", peer)

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> Any:
        """Receive from one rank."""
        return self._inner_work(lambda: self._inner.recv(tensors, peer, tag), "recv", peer)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Any:
        """Receive from any rank."""
        return self._inner_work(lambda: self._inner.recv_anysource(tensors, tag), "recv")

    def shutdown(self) -> None:
        """End the group after the calls under way."""
        self._runner.stop()

    def abort(self) -> None:
        """End the group at once."""
        self._runner.close_wires()


def _each(
    call: Callable[..., Any], outputs: Sequence[Any], inputs: Sequence[Any], opts: Any
) -> JoinedWork:
    """Make a call for each output and its input, as one."""
    pairs = zip(outputs, inputs, strict=True)
    return JoinedWork([call(output, each, opts) for output, each in pairs])
