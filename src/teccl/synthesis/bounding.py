"""bound: how fast a collective can be at best, proven, without making a schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from teccl._fractions import read_fraction
from teccl.demand import Collective, Demand
from teccl.errors import ProblemError, TecclError
from teccl.keywords import SwitchMode, Transit
from teccl.reachability import find_unreachable
from teccl.schedule import Schedule
from teccl.synthesis import request as asked
from teccl.topology import Topology
from teccl.units import Quantity

if TYPE_CHECKING:
    from teccl.bounds.bound_report import BoundReport


def bound(
    topology: Topology | str | Path,
    collective: str | Collective | None = None,
    *,
    size: Quantity | None = None,
    chunks: int | str | None = None,
    grid: bool = False,
    epoch: Quantity | None = None,
    epoch_multiplier: float | str | None = None,
    switch: str = "copy",
    transit: str = "store-and-forward",
    buffer: int | str | None = None,
    copy: bool = True,
    ranks: str | Sequence[int] | None = None,
    demand: Demand | str | Path | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    overhead: Quantity | None = None,
) -> "BoundReport":
    """Prove how fast a collective can be at best, and name what binds.

    Parameters
    ----------
    topology, collective, size, ranks, root, demand, without_links, degrade, overhead
        As for `teccl.solve`.
    chunks
        Also bound schedules with so many whole pieces per block.
    grid, epoch, epoch_multiplier
        Also bound schedules in epochs.
    switch, transit, buffer, copy
        How switches and GPUs behave.

    Raises
    ------
    InputError
        If something that was given is wrong.
    TecclError
        If the network cannot deliver what is wanted.

    Examples
    --------
    >>> import teccl
    >>> report = teccl.bound("ring:gpus=4", "allgather", size="1MB", chunks=1)
    >>> report.physical_bound_s, report.chunk_bound_s
    (8e-06, 1.1e-05)
    """
    from teccl.bounds.bound_report import report

    on_grid = grid or epoch is not None or epoch_multiplier is not None
    network = asked.read_topology(topology, without_links, degrade, overhead)
    request = asked.Request(
        topology=network,
        demand=asked.read_demand(network, collective, demand, size=size, ranks=ranks, root=root),
        chunks=asked.read_chunks(chunks, on_grid=on_grid),
        grid=on_grid,
        epoch=asked.read_epoch(epoch),
        epoch_multiplier=read_fraction(
            1 if epoch_multiplier is None else epoch_multiplier, "epoch multiplier"
        ),
        switch=asked.read_choice(switch, SwitchMode, "switch"),
        transit=asked.read_choice(transit, Transit, "transit"),
        buffer=asked.read_buffer(buffer),
        copy=copy,
    )
    asked.check_switches(network, request.switch, request.transit)
    if on_grid and request.chunks is None:
        raise ProblemError("chunks auto: epochs follow from the chunks; give a number on the grid")
    problem = request.problem(request.chunks or 1)
    obstacle = find_unreachable(problem)
    if obstacle is not None:
        raise TecclError(f"no bound: {obstacle.describe(problem)}")
    return report(problem, request.time_grid(problem), request.chunks is not None)


def bound_beside(path: str | Path) -> "BoundReport":
    """Prove how fast the collective of a schedule file can be, beside what the schedule takes.

    Each bound then has a gap, the part by which the schedule is above it: the best bound's is what
    is not known to be needed, and what others leave shows which theorem closed how much.

    Raises
    ------
    ScheduleError
        If the file holds no schedule, or one whose order cannot be replayed.
    """
    from teccl.bounds.bound_report import report
    from teccl.replay import simulate

    schedule = Schedule.load(path)
    found = report(schedule.problem, schedule.grid, given_chunks=True)
    return replace(found, finish_ps=int(simulate(schedule).finish_ps))
