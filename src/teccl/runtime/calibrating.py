"""Calibrating: measure links on ranks of this machine, or on those one was started with."""

from collections.abc import Callable, Sequence
from typing import Any

from teccl.errors import InputError
from teccl.runtime.calibrate import Calibration, calibration, plan_emulated, plan_pairs
from teccl.runtime.launch import check_mpi, launch, launched_rank
from teccl.runtime.pingpong import Plan, measure_links
from teccl.runtime.worker import in_world
from teccl.topology import Topology

DEFAULT_RANKS = 2
# Emulated links are slow, and steady.
_EMULATED_REPEAT = 5


def calibrate_ranks(
    *,
    sizes: Sequence[int],
    ranks: int | None = None,
    repeat: int = 10,
    group: int | None = None,
    emulate: str | Topology | None = None,
    time_scale: float | None = None,
    timeout: float | None = None,
    tell: Callable[[BaseException], None] | None = None,
) -> Calibration | None:
    """Measure links between ranks by ping-pong and fit them.

    Parameters
    ----------
    sizes
        Bytes of the messages; emulated links choose their own.
    ranks
        Local ranks to start, None for two or as many as `emulate` has GPUs.
    repeat
        Exchanges that are timed at each size.
    group
        Measure a few pairs for every two groups of so many ranks; None for all pairs.
    emulate
        A topology whose links are emulated and measured.
    time_scale
        Factor on the times of emulated links, None to choose it.
    timeout
        Seconds without a sign of life after which all ranks are ended.
    tell
        Under ``mpirun``, called on one rank with what went wrong before all ranks end.

    Returns
    -------
    Calibration or None
        The fits; None on all ranks but the first under ``mpirun``.
    """
    check_mpi()

    def make_plan(number: int) -> tuple[Plan, list[list[tuple[int, int]]] | None, float]:
        if emulate is not None:
            return _emulated_plan(number, repeat, Topology.parse(emulate), time_scale)
        return *plan_pairs(number, sizes, group=group, repeat=repeat), 1.0

    rank = launched_rank()
    if rank is not None:

        def work(comm: Any, watchdog: Any) -> tuple[Plan, Any, float, dict[str, Any]]:
            plan, stands_for, scale = make_plan(comm.Get_size())
            return plan, stands_for, scale, measure_links(plan, comm, beat=watchdog.beat)

        plan, stands_for, scale, found = in_world(
            work, tell or (lambda _: None), rank=rank, timeout=timeout
        )
        if rank:
            return None
    else:
        number = ranks or _default_ranks(emulate)
        plan, stands_for, scale = make_plan(number)
        found = launch({"task": "calibrate", "plan": plan.to_dict()}, number, timeout=timeout)
    return calibration(plan, found, stands_for=stands_for, time_scale=scale)


def _default_ranks(emulate: str | Topology | None) -> int:
    return DEFAULT_RANKS if emulate is None else Topology.parse(emulate).num_gpus


def _emulated_plan(
    ranks: int, repeat: int, topology: Topology, time_scale: float | None
) -> tuple[Plan, None, float]:
    if topology.num_gpus != ranks:
        raise InputError(
            f"{topology!r} has {topology.num_gpus} GPUs and there are {ranks} ranks; "
            "start as many, or drop --ranks"
        )
    plan, scale = plan_emulated(
        topology, time_scale=time_scale, repeat=min(repeat, _EMULATED_REPEAT), warmup=1
    )
    return plan, None, scale
