"""Measure: run a schedule repeatedly over gloo, check it and time it beside gloo's collective."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from teccl.demand import Collective
from teccl.errors import RunError, ScheduleError, VerificationError
from teccl.result import bus_factor
from teccl.rounds.executable import Executable
from teccl.runtime.buffers import count_wrong, expected_recv, fill_send, poison
from teccl.runtime.layout import TenantLayout, padded_bytes
from teccl.runtime.measure import RunOptions
from teccl.runtime.messages import active_ranks
from teccl.runtime.run_report import Row, RunReport, RunTiming, slowest
from teccl.schedule import Schedule
from teccl.torch.calls import combiner
from teccl.torch.engines import PeerFailed, engine_of
from teccl.torch.failures import Faults
from teccl.torch.plans import COLLECTIVES

_OPS = {"sum": "SUM", "min": "MIN", "max": "MAX", "prod": "PRODUCT"}


def measure(schedule: Schedule, options: RunOptions) -> RunReport:
    """Run a schedule on all ranks of the world; every rank returns the same report.

    Raises
    ------
    TecclError
        If the schedule does not fit the ranks, is wrong, or a rank fails.
    """
    ranks = check_schedule(schedule, dist.get_world_size())
    _judge(schedule)
    bench = _Bench(schedule, ranks, options)
    for repeat in range(options.warmup + options.repeat):
        bench.step(keep=repeat >= options.warmup)
    return bench.report()


def check_schedule(schedule: Schedule, size: int) -> tuple[int, ...]:
    """Return the GPU rank that each of some number of processes plays.

    Raises
    ------
    ScheduleError
        If the schedule is none that torch has a call for, or needs another number of processes.
    """
    tenants = schedule.problem.demand.tenants
    if len(tenants) > 1 or tenants[0].collective not in COLLECTIVES:
        raise ScheduleError(
            f"the back end torch runs one of {', '.join(COLLECTIVES)}, not "
            f"{schedule.problem.demand.title}; use --backend mpi"
        )
    num_gpus, active = schedule.problem.topology.num_gpus, active_ranks(schedule)
    if size == num_gpus:
        return tuple(range(num_gpus))
    if size == len(active):
        return active
    needs = f"{num_gpus}" if len(active) == num_gpus else f"{len(active)} or {num_gpus}"
    raise ScheduleError(f"the schedule needs {needs} ranks and there are {size}; start that many")


def _judge(schedule: Schedule) -> None:
    """Let one rank verify the schedule for all."""
    from teccl.verification import verify

    found = [[str(fault) for fault in verify(schedule)] if dist.get_rank() == 0 else []]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
        raise VerificationError(f"the schedule failed verification: {found[0][0]}")


class _Bench:
    """Buffers, calls and collected times of one run on one rank."""

    def __init__(self, schedule: Schedule, ranks: tuple[int, ...], options: RunOptions) -> None:
        self.schedule, self.options = schedule, options
        self.problem = schedule.problem
        self.tenant = self.problem.demand.tenants[0]
        self.dtype = np.dtype(options.dtype)
        itemsize = self.dtype.itemsize
        self.count = padded_bytes(self.problem, self.tenant, itemsize) // itemsize
        rank = ranks[dist.get_rank()]
        executable = Executable.of(schedule)
        self.layout: TenantLayout = executable.program(rank, self.count).layouts[0]
        peers = {gpu: i for i, gpu in enumerate(ranks)}
        self.engine = engine_of(executable, rank, self.count, peers, in_rounds=False)
        members = self.tenant.members(self.problem.topology.num_gpus)
        self.group = dist.new_group([ranks.index(member) for member in members], backend="gloo")
        # A barrier wakes the threads of its group; on neither of the two, it favours none.
        self.meeting = dist.new_group(backend="gloo")
        self.is_member = rank in members
        self.place = members.index(rank) if self.is_member else -1
        self.root = members.index(members[0] if self.tenant.root is None else self.tenant.root)
        self.send, self.recv, self.other = (
            np.zeros(n, dtype=self.dtype)
            for n in (self.layout.send_count, self.layout.recv_count, self.layout.recv_count)
        )
        fill_send(self.layout, 0, self.send, options.op)
        self.expected = expected_recv(self.layout, 0, self.dtype, options.op)
        self.op = getattr(dist.ReduceOp, _OPS[options.op])
        self.combine = self._combiner()
        world = dist.distributed_c10d._get_default_group()  # noqa: SLF001, as torch itself does
        self.wire = world._get_backend(torch.device("cpu"))  # noqa: SLF001
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
        inside = dist.PrefixStore("run/", store)
        self.faults = Faults(inside, dist.get_rank(), ranks, options.timeout or 0.0)
        self.library = self._library()
        self.scratch = torch.empty(self.engine.scratch, dtype=torch.from_numpy(self.send).dtype)
        self.seconds: list[float] = []
        self.library_seconds: list[float] = []
        self.wrong = [0, 0, 0]

    def _combiner(self) -> Callable[..., Any] | None:
        if not self.tenant.collective.reduces:
            return None
        found = combiner(self.op, torch.from_numpy(self.send[:0]).dtype)
        if found is None:
            raise ScheduleError(
                f"torch does not reduce {self.options.dtype} by {self.options.op}; "
                "use another --dtype, or --backend mpi"
            )
        return found

    def _library(self) -> Callable[[], None] | None:
        """Return gloo's own collective on the same send buffer."""
        send, recv = torch.from_numpy(self.send), torch.from_numpy(self.other)
        if not self.is_member:
            return _nothing
        n = len(self.tenant.members(self.problem.topology.num_gpus))
        at_root, group, op = self.place == self.root, self.group, self.op
        root = {"group_src": self.root}, {"group_dst": self.root}

        def blocks(tensor: torch.Tensor) -> list[torch.Tensor]:
            return list(tensor.chunk(n)) if len(tensor) else []

        def allreduce() -> None:
            recv.copy_(send)
            dist.all_reduce(recv, op, group=group)

        def broadcast() -> None:
            if at_root:
                recv.copy_(send)
            dist.broadcast(recv, group=group, **root[0])

        def reduce() -> None:
            into = recv if at_root else send.clone()
            into.copy_(send)
            dist.reduce(into, op=op, group=group, **root[1])

        return {
            Collective.ALLREDUCE: allreduce,
            Collective.BROADCAST: broadcast,
            Collective.REDUCE: reduce,
            Collective.ALLGATHER: lambda: dist.all_gather_into_tensor(recv, send, group=group),
            Collective.REDUCESCATTER: lambda: dist.reduce_scatter_tensor(
                recv, send, op=op, group=group
            ),
            Collective.ALLTOALL: lambda: dist.all_to_all_single(recv, send, group=group),
            Collective.GATHER: lambda: dist.gather(
                send, blocks(recv) if at_root else None, group=group, **root[1]
            ),
            Collective.SCATTER: lambda: dist.scatter(
                recv, blocks(send) if at_root else None, group=group, **root[0]
            ),
        }[self.tenant.collective]

    def step(self, *, keep: bool) -> None:
        """Run the schedule and gloo's collective once."""
        for array in (self.recv, self.other):
            if self.options.check:
                poison(array)
        for seconds, call in ((self.seconds, self._run), (self.library_seconds, self._other)):
            self._guarded(lambda: dist.barrier(group=self.meeting))
            start = time.perf_counter()
            self._guarded(call)
            if keep:
                seconds.append(time.perf_counter() - start)
        if self.options.check:
            self.wrong[0] += count_wrong(self.recv, self.expected)
            self.wrong[1] += count_wrong(self.other, self.expected)
            self.wrong[2] += count_wrong(self.recv, self.other)

    def _run(self) -> None:
        send, recv = torch.from_numpy(self.send), torch.from_numpy(self.recv)
        self.engine.run(self.wire, (send, recv, self.scratch), self.combine)

    def _other(self) -> None:
        if self.library is not None:
            self.library()

    def _guarded(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except PeerFailed as failure:
            raise self.faults.of(failure.reason, failure.peer, "the run") from failure
        except RuntimeError as reason:
            if isinstance(reason, RunError):
                raise
            raise self.faults.of(reason, None, "the run") from reason

    def report(self) -> RunReport:
        """Bring the times of all ranks together."""
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, (self.seconds, self.library_seconds, self.wrong))
        ours, others, wrong = zip(*every, strict=True)
        total = [sum(column) for column in zip(*wrong, strict=True)]
        check, collective = self.options.check, self.tenant.collective
        size = self.count * self.dtype.itemsize
        row = Row(
            name=self.tenant.name,
            collective=collective.value,
            root=self.layout.tenant.root if collective.has_root else None,
            op=self.options.op if collective.reduces else None,
            size_bytes=size,
            count=self.count,
            bus_factor=float(bus_factor(self.tenant, self.problem.topology.num_gpus)),
            schedule=RunTiming(seconds=slowest(ours), wrong=total[0] if check else None),
            library=RunTiming(seconds=slowest(others), wrong=total[1] if check else None),
        )
        return RunReport(
            topology=self.problem.topology.name,
            method=self.schedule.method,
            ranks=dist.get_world_size(),
            dtype=self.dtype.name,
            repeat=self.options.repeat,
            warmup=self.options.warmup,
            library=f"gloo of torch {torch.__version__}",
            scheduled_bytes=self.problem.size_bytes,
            rows=(row,),
            differs=total[2] if check else None,
        )


def _nothing() -> None:
    """Take no part."""
