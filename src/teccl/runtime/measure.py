"""Measure: run a schedule repeatedly on the ranks of a communicator, check it and time it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl import demand
from teccl.demand import Tenant
from teccl.result import bus_factor
from teccl.runtime.buffers import check_dtype, count_wrong, expected_recv, fill_send, poison
from teccl.runtime.emulate import automatic_time_scale
from teccl.runtime.layout import padded_bytes
from teccl.runtime.library import library_call, library_name
from teccl.runtime.mpi import MpiCollective
from teccl.runtime.run_report import Row, RunReport, RunTiming, slowest
from teccl.schedule import Schedule
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]

# Ranks of one machine share a clock; a start this far ahead reaches all of them in time.
_LEAD_S = 0.01
_POLL_S = 200e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a schedule.

    Parameters
    ----------
    repeat, warmup
        Runs that count and runs before them.
    dtype, op
        Type of the elements, and how reductions combine them.
    check
        Compare every repeat with what must come out, and with the MPI library's result.
    library
        Also time the MPI library's own algorithm.
    emulate
        Pace links to the topology's bandwidth and alpha.
    time_scale
        Factor on the times of emulated links, None for one that suits a small machine.
    timeout
        Seconds without progress after which a run fails.
    """

    repeat: int = 20
    warmup: int = 5
    dtype: str = "float32"
    op: str = "sum"
    check: bool = False
    library: bool = True
    emulate: bool = False
    time_scale: float | None = None
    timeout: float | None = None

    def scale(self, schedule: Schedule) -> float | None:
        """Return the factor on the times of emulated links, None at full speed."""
        if not self.emulate:
            return None
        return automatic_time_scale(schedule) if self.time_scale is None else self.time_scale


def measure(
    schedule: Schedule,
    comm: "MPI.Comm",
    options: RunOptions,
    *,
    beat: Callable[[], None] = lambda: None,
) -> RunReport:
    """Run a schedule on all ranks; every rank returns the same report.

    The MPI library's algorithm runs in turn with the schedule, on the same send buffers.

    Parameters
    ----------
    beat
        Called after each step of the preparation, after each repeat and now and then during one: a
        sign of life.

    Raises
    ------
    TecclError
        If the schedule does not fit the communicator, is wrong, or makes no progress.
    """
    dtype = check_dtype(options.dtype)
    call = MpiCollective(
        schedule,
        comm,
        op=options.op,
        timeout=options.timeout,
        time_scale=options.scale(schedule),
    )
    # Sixteen ranks that prepare a large schedule on two cores take a while.
    beat()
    call.on_progress = beat
    bench = _Bench(call, comm, dtype, options)
    beat()
    try:
        for repeat in range(options.warmup + options.repeat):
            bench.step(keep=repeat >= options.warmup)
            beat()
        if options.check and schedule.same_order and dtype.kind == "f":
            for repeat in range(options.repeat):
                bench.compare_bits(repeat)
                beat()
        return bench.report(schedule, comm, options)
    finally:
        call.close()


class _Bench:
    """Buffers, calls and collected times of one run on one rank."""

    def __init__(
        self, call: MpiCollective, comm: "MPI.Comm", dtype: np.dtype[Any], options: RunOptions
    ) -> None:
        self.call, self.comm, self.dtype, self.options = call, comm, dtype, options
        self.layouts = call.layouts(dtype)
        self.send, self.recv = call.empty_buffers(dtype)
        self.expected: list[Array] = []
        for t, layout in enumerate(self.layouts):
            fill_send(layout, t, self.send[t], options.op)
            if options.check:
                self.expected.append(expected_recv(layout, t, dtype, options.op))
        self.shares_clock = _is_one_machine(comm)
        self.other = [np.empty_like(array) for array in self.recv]
        self.library = self._library() if options.library and call.time_scale is None else None
        self.seconds: list[float] = []
        self.tenant_seconds: list[list[float]] = [[] for _ in self.layouts]
        self.library_seconds: list[list[float]] = [[] for _ in self.layouts]
        self.wrong = np.zeros((2, len(self.layouts)), dtype=np.int64)
        self.differs = 0

    def _library(self) -> list[Callable[[], None] | None]:
        calls = []
        for t, layout in enumerate(self.layouts):
            members = layout.tenant.members(self.call.schedule.problem.topology.num_gpus)
            inside = self.call.rank in members
            place = members.index(self.call.rank) if inside else 0
            comm = self.comm.Split(0 if inside else 1, place)
            calls.append(
                library_call(
                    layout,
                    members,
                    comm,
                    send=self.send[t],
                    recv=self.other[t],
                    op=self.options.op,
                )
            )
        # Where a rank outside takes no part, the others decide whether there is a call.
        known = self.comm.allgather([found is not None for found in calls])
        return [found if all(k[t] for k in known) else None for t, found in enumerate(calls)]

    def step(self, *, keep: bool) -> None:
        """Run the schedule and the library's algorithm once."""
        if self.options.check:
            for array in (*self.recv, *self.other):
                poison(array)
        self._time_schedule(keep=keep)
        self._time_library(keep=keep)
        if self.options.check:
            self._check()

    def _time_schedule(self, *, keep: bool) -> None:
        start_at = self._common_start()
        start = time.perf_counter() if start_at is None else start_at
        self.call.run(self.send, self.recv, start_at=start_at)
        end = time.perf_counter()
        if keep:
            self.seconds.append(end - start)
            for times, last in zip(self.tenant_seconds, self.call.tenant_end, strict=True):
                times.append(max(0.0, last - start))

    def _common_start(self) -> float | None:
        """Wait for all ranks; on emulated links of one machine, agree on an instant to start."""
        if self.call.time_scale is None:
            self.comm.Barrier()
            return None
        # Ranks that are through must not take the cores of those that are not.
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(_POLL_S)
        if not self.shares_clock:
            return None
        start: float = self.comm.bcast(time.perf_counter() + _LEAD_S, root=0)
        return start

    def _time_library(self, *, keep: bool) -> None:
        for times, call in zip(self.library_seconds, self.library or (), strict=False):
            self.comm.Barrier()
            start = time.perf_counter()
            if call is not None:
                call()
            if keep:
                times.append(time.perf_counter() - start)

    def _check(self) -> None:
        for t, expected in enumerate(self.expected):
            self.wrong[0, t] += count_wrong(self.recv[t], expected)
            if self.library is not None and self.library[t] is not None:
                self.wrong[1, t] += count_wrong(self.other[t], expected)
                self.differs += count_wrong(self.recv[t], self.other[t])

    def compare_bits(self, repeat: int) -> None:
        """Run on data whose sums depend on the order, and count bits that differ between ranks."""
        for t, array in enumerate(self.send):
            generator = np.random.default_rng([repeat, t, self.call.rank])
            array[:] = generator.standard_normal(len(array))
        self.call.run(self.send, self.recv)
        for t, layout in enumerate(self.layouts):
            if layout.tenant.collective is not demand.Collective.ALLREDUCE:
                continue
            results = self.comm.allgather(self.recv[t] if len(self.recv[t]) else None)
            first = next(result for result in results if result is not None)
            if len(self.recv[t]):
                bits = (each.view(f"u{first.itemsize}") for each in (self.recv[t], first))
                self.wrong[0, t] += count_wrong(*bits)

    def report(self, schedule: Schedule, comm: "MPI.Comm", options: RunOptions) -> RunReport:
        """Bring the times of all ranks together."""
        gathered = comm.allgather(
            (self.seconds, self.tenant_seconds, self.library_seconds, self.wrong, self.differs)
        )
        together, apart, library, wrong, differs = zip(*gathered, strict=True)
        total = np.sum(wrong, axis=0)
        rows = []
        for t, layout in enumerate(self.layouts):
            has_library = self.library is not None and self.library[t] is not None
            times = [a[t] for a in apart] if len(self.layouts) > 1 else list(together)
            rows.append(
                _row(
                    schedule,
                    layout.tenant,
                    options,
                    RunTiming(
                        seconds=slowest(times),
                        wrong=int(total[0, t]) if options.check else None,
                    ),
                    RunTiming(
                        seconds=slowest([x[t] for x in library]),
                        wrong=int(total[1, t]) if options.check else None,
                    )
                    if has_library
                    else None,
                )
            )
        if len(rows) > 1:
            rows.insert(0, _all_tenants(rows, slowest(together)))
        compared = options.check and any(row.library is not None for row in rows)
        return RunReport(
            topology=schedule.problem.topology.name,
            method=schedule.method,
            ranks=comm.Get_size(),
            dtype=self.dtype.name,
            repeat=options.repeat,
            warmup=options.warmup,
            library=library_name(),
            scheduled_bytes=schedule.problem.size_bytes,
            rows=tuple(rows),
            time_scale=self.call.time_scale,
            simulated_s=_simulated(schedule, self.call.time_scale),
            differs=int(sum(differs)) if compared else None,
        )


def _row(
    schedule: Schedule,
    tenant: Tenant,
    options: RunOptions,
    ours: RunTiming,
    library: RunTiming | None,
) -> Row:
    problem = schedule.problem
    members = tenant.members(problem.topology.num_gpus)
    itemsize = np.dtype(options.dtype).itemsize
    size = padded_bytes(problem, tenant, itemsize)
    root = (
        (members[0] if tenant.root is None else tenant.root) if tenant.collective.has_root else None
    )
    return Row(
        name=tenant.name,
        collective=tenant.collective.value,
        root=root,
        op=options.op if tenant.collective.reduces else None,
        size_bytes=size,
        count=size // itemsize,
        bus_factor=float(bus_factor(tenant, problem.topology.num_gpus)),
        schedule=ours,
        library=library,
    )


def _all_tenants(rows: list[Row], seconds: tuple[float, ...]) -> Row:
    """Return the line of all tenants together; the library runs them one after the other."""
    known = [row.library for row in rows if row.library is not None]
    library = None
    if len(known) == len(rows):
        library = RunTiming(
            seconds=tuple(sum(times) for times in zip(*(k.seconds for k in known), strict=True)),
            wrong=None,
        )
    return Row(
        name="all",
        collective="+".join(row.collective for row in rows),
        root=None,
        op=None,
        size_bytes=sum(row.size_bytes for row in rows),
        count=sum(row.count for row in rows),
        bus_factor=1.0,
        schedule=RunTiming(seconds=seconds),
        library=library,
    )


def _simulated(schedule: Schedule, time_scale: float | None) -> float | None:
    if time_scale is None:
        return None
    from teccl.replay import simulate

    return simulate(schedule).finish_ps / PICOSECONDS * time_scale


def _is_one_machine(comm: "MPI.Comm") -> bool:
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    alone: bool = here.Get_size() == comm.Get_size()
    here.Free()
    return all(comm.allgather(alone))
