"""MpiCollective: a schedule as a collective call among the ranks of an MPI communicator."""

import hashlib
import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl.errors import RunError, ScheduleError, VerificationError
from teccl.runtime import buffers
from teccl.runtime.engine import REDUCTIONS, Engine, scratch_arrays
from teccl.runtime.extract import rank_program
from teccl.runtime.layout import TenantLayout
from teccl.runtime.messages import active_ranks, messages_of
from teccl.runtime.rank_program import RankProgram
from teccl.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

Array = npt.NDArray[Any]

# Sets of buffers whose requests are kept for the next call with the same ones.
_KEPT = 4


class MpiCollective:
    """A schedule, ready to be called like a collective of the MPI library.

    Construction and `run` are collective: every rank of the communicator makes them, in the same
    order. Where the communicator has as many ranks as the topology has GPUs, they are the same
    ranks; it may also have only those that the schedule uses, in order.

    Parameters
    ----------
    schedule
        What to run. Rank 0 verifies it.
    comm
        An intra-communicator of mpi4py; a duplicate of it is used.
    op
        How reductions combine: sum, min, max or prod.
    count
        Elements that replace the schedule's size, as nccl-tests counts them: a schedule made for
        one size carries another in the same proportions. None takes the size of the schedule.
    timeout
        Seconds without progress after which `run` raises, None for no limit.
    time_scale
        Emulate the topology's links, with all times multiplied by this; None runs at full speed.

    Raises
    ------
    RunError
        If the ranks have different schedules.
    ScheduleError
        If there are too many or too few ranks.
    VerificationError
        If the schedule is not correct.

    Notes
    -----
    Requests are persistent and kept for the buffers they were made for, so calls with the same
    buffers cost least. The last few sets of buffers are kept alive by that; `close` lets them go.

    Examples
    --------
    In a program that ``mpiexec -n 4 python -m mpi4py program.py`` starts::

        allreduce = Collective(Schedule.load("allreduce.json"), MPI.COMM_WORLD)
        allreduce.run(gradient, total)
    """

    def __init__(
        self,
        schedule: Schedule,
        comm: "MPI.Comm",
        *,
        op: str = "sum",
        count: int | None = None,
        timeout: float | None = None,
        time_scale: float | None = None,
    ) -> None:
        if op not in REDUCTIONS:
            raise ScheduleError(f"op {op!r} is unknown; use {', '.join(REDUCTIONS)}")
        self.schedule, self.op, self.count = schedule, op, count
        self.timeout, self.time_scale = timeout, time_scale
        self._messages = messages_of(schedule)
        ranks = gpu_ranks(schedule, comm.Get_size())
        self.rank = ranks[comm.Get_rank()]
        self._peers = {rank: i for i, rank in enumerate(ranks)}
        self._comm = comm.Dup()
        if time_scale is not None:
            self._token_comm = comm.Dup()
        self._agree()
        self._programs: dict[int, RankProgram] = {}
        self._engines: dict[tuple[Any, ...], Engine] = {}
        self._last: Engine | None = None
        # Called about once a second while a run makes progress.
        self.on_progress: Callable[[], None] | None = None

    def _agree(self) -> None:
        """Compare the schedules of all ranks, and let one rank judge them."""
        from teccl.verification import verify

        mine = (fingerprint(self.schedule), self.op, self.count, self.time_scale)
        first = self._comm.bcast(mine, root=0)
        different = [
            rank for rank, same in enumerate(self._comm.allgather(mine == first)) if not same
        ]
        if different:
            raise RunError(
                f"rank {different[0]} has another schedule or other options than rank 0; "
                "give all ranks the same"
            )
        found = verify(self.schedule) if self._comm.Get_rank() == 0 else ()
        faults = self._comm.bcast([str(fault) for fault in found], root=0)
        if faults:
            raise VerificationError(f"the schedule failed verification: {faults[0]}", tuple(faults))

    def layouts(self, dtype: npt.DTypeLike) -> tuple[TenantLayout, ...]:
        """How this rank's buffers are laid out, one entry per tenant."""
        return self._program(buffers.check_dtype(dtype)).layouts

    def empty_buffers(self, dtype: npt.DTypeLike) -> tuple[list[Array], list[Array]]:
        """Return new send and recv buffers of the right sizes, one per tenant each."""
        layouts = self.layouts(dtype)
        send = [np.zeros(layout.send_count, dtype=dtype) for layout in layouts]
        recv = [np.zeros(layout.recv_count, dtype=dtype) for layout in layouts]
        return send, recv

    def run(
        self, send: buffers.Buffers, recv: buffers.Buffers, *, start_at: float | None = None
    ) -> None:
        """Execute the collective.

        Parameters
        ----------
        send, recv
            Buffers as the MPI call of the same name has them (`teccl.runtime.layout` lists them);
            for several tenants one per tenant, in order or by name. None where a rank has none.
            Without a send buffer, AllReduce, AllGather, Broadcast and, at the root, Reduce and
            Gather work in place on the recv buffer.
        start_at
            On emulated links, the instant of `time.perf_counter` at which the clock starts.

        Raises
        ------
        ScheduleError
            If a buffer has the wrong size, type or memory. Nothing was sent then, and the other
            ranks wait: end them, as ``python -m mpi4py`` does, or give a timeout.
        RunError
            If nothing moves for longer than the timeout.
        """
        engine = self._bind(send, recv)
        engine.start_at, engine.on_progress = start_at, self.on_progress
        engine.run()

    @property
    def tenant_end(self) -> list[float]:
        """When each tenant's last message came in the last run, where there are several."""
        return [] if self._last is None else self._last.tenant_end

    def _program(self, dtype: np.dtype[Any]) -> RankProgram:
        size = dtype.itemsize
        if size not in self._programs:
            self._programs[size] = rank_program(
                self.schedule, self._messages, self.rank, itemsize=size, count=self.count
            )
        return self._programs[size]

    def _bind(self, send: buffers.Buffers, recv: buffers.Buffers) -> Engine:
        """Find or make the requests for some buffers."""
        names = [tenant.name for tenant in self.schedule.problem.demand.tenants]
        sends = buffers.per_tenant(send, names, "send")
        recvs = buffers.per_tenant(recv, names, "recv")
        key = tuple(buffers.identity(array) for array in (*sends, *recvs))
        if key not in self._engines:
            self._make_room()
            self._engines[key] = self._engine(sends, recvs)
        self._last = self._engines[key]
        return self._last

    def _engine(self, sends: list[Array | None], recvs: list[Array | None]) -> Engine:
        dtype = buffers.common_dtype([*sends, *recvs])
        program = self._program(np.dtype(np.float32) if dtype is None else dtype)
        arrays: dict[int, Array] = {}
        staged: list[tuple[Array, Array]] = []
        for t, layout in enumerate(program.layouts):
            into = buffers.checked(recvs[t], layout.recv_count, layout, "recv", writes=True)
            out = buffers.bound_send(layout, sends[t], into, staged)
            arrays |= {2 * t: out} if out is not None else {}
            arrays |= {2 * t + 1: into} if into is not None else {}
        options: dict[str, Any] = {"reduction": self.op, "timeout": self.timeout, "staged": staged}
        if len(program.layouts) > 1:
            table = self.schedule.problem.chunks
            options["tenants"] = [int(table.tenant[step.chunk]) for step in program.steps]
        arrays |= scratch_arrays(program, dtype or np.dtype(np.float32))
        if self.time_scale is None:
            return Engine(program, arrays, self._comm, self._peers, **options)
        from teccl.runtime.emulate import PacedEngine, paces

        return PacedEngine(
            program,
            arrays,
            self._comm,
            self._peers,
            token_comm=self._token_comm,
            pace=paces(self.schedule, self._messages, program, self.time_scale),
            schedule=self.schedule,
            time_scale=self.time_scale,
            **options,
        )

    def _make_room(self) -> None:
        while len(self._engines) >= _KEPT:
            self._engines.pop(next(iter(self._engines))).close()

    def close(self) -> None:
        """Free all requests and communicators; collective, as construction is."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        self._comm.Free()
        if self.time_scale is not None:
            self._token_comm.Free()


def gpu_ranks(schedule: Schedule, size: int) -> tuple[int, ...]:
    """Return the GPU rank that each of some number of MPI ranks plays.

    Raises
    ------
    ScheduleError
        If a schedule does not fit that number of ranks.
    """
    num_gpus = schedule.problem.topology.num_gpus
    if size == num_gpus:
        return tuple(range(num_gpus))
    active = active_ranks(schedule)
    if size == len(active):
        return active
    needs = f"{num_gpus}" if len(active) == num_gpus else f"{len(active)} or {num_gpus}"
    raise ScheduleError(
        f"the schedule needs {needs} ranks and there are {size}; start that many "
        f"(mpiexec -n {len(active)}) or make a schedule for {size} GPUs"
    )


def fingerprint(schedule: Schedule) -> str:
    """Return a digest of everything that decides what a run does."""
    from teccl.schedule.schedule_files import schedule_to_dict

    document = schedule_to_dict(schedule)
    document.pop("bound")
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def __getattr__(name: str) -> Any:
    if name == "Collective":
        message = "runtime.mpi.Collective is now MpiCollective; the old name goes in version 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return MpiCollective
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
