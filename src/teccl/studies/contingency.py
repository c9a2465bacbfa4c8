"""whatif: what faults cost, with a new plan for each and with the old one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from teccl.demand import Collective, Demand
from teccl.errors import InputError, ScheduleError
from teccl.result import Result
from teccl.schedule import Schedule
from teccl.studies.faults import Fault, read_fault, single_faults
from teccl.studies.hashed_tasks import Task, TaskOutcome
from teccl.studies.running import Workplace
from teccl.synthesis.request import read_demand, read_topology
from teccl.topology import Topology
from teccl.units import PICOSECONDS, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Contingency:
    """What one fault does.

    Parameters
    ----------
    fault
        What goes wrong.
    result
        The new plan; without a schedule the fault is fatal. None if the study was stopped.
    loss
        How much longer than on the healthy fabric the new plan takes, as a fraction.
    stale_ps
        Picoseconds that the healthy plan takes under the fault, None where it cannot run.
    reason
        Why the fault is fatal.
    """

    fault: Fault
    result: Result | None
    loss: float | None = None
    stale_ps: int | None = None
    reason: str | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether no schedule exists under the fault."""
        return self.reason is not None

    @property
    def stale_time_s(self) -> float | None:
        """Seconds that the healthy plan takes under the fault."""
        return None if self.stale_ps is None else self.stale_ps / PICOSECONDS

    @property
    def stale_loss(self) -> float | None:
        """How much longer than the new plan the stale one takes, as a fraction."""
        if self.stale_ps is None or self.result is None or not self.result.finish_ps:
            return None
        return self.stale_ps / self.result.finish_ps - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The outcome of a study of faults: the healthy plan and one entry for each fault."""

    healthy: Result
    contingencies: tuple[Contingency, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, as ``--json`` prints it."""
        return {
            "healthy": self.healthy.to_dict(),
            "faults": [
                {
                    "fault": c.fault.name,
                    "alike": list(c.fault.alike),
                    "fatal": c.is_fatal,
                    "reason": c.reason,
                    "loss": c.loss,
                    "stale_time_s": c.stale_time_s,
                    "stale_loss": c.stale_loss,
                    "result": None if c.result is None else c.result.to_dict(),
                }
                for c in self.contingencies
            ],
        }


def whatif(
    topology: Topology | str | Path,
    collective: str | Collective | None = None,
    *,
    size: Quantity | None = None,
    demand: Demand | str | Path | None = None,
    faults: Sequence[str | Fault] = (),
    n_minus_1: str | Sequence[str] = (),
    ranks: str | Sequence[int] | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    overhead: Quantity | None = None,
    place: Workplace | None = None,
    **options: Any,
) -> WhatIf:
    """Plan for faults, and tell what each costs with and without a new plan.

    Parameters
    ----------
    topology, collective, size, demand, ranks, root, without_links, degrade, overhead
        As for `teccl.solve`.
    faults
        Faults, or their text as `read_fault` takes it.
    n_minus_1
        ``"links"``, ``"gpus"`` or ``"switches"``: every single one of them, those that are
        equivalent by symmetry once.
    place
        Where to run and what to remember.
    options
        More keywords of `teccl.solve`.

    Raises
    ------
    InputError
        If there is no fault, a fault names nothing, or the healthy fabric has no schedule.

    Examples
    --------
    >>> from teccl.studies.running import Workplace
    >>> here = Workplace(jobs=1, store=False)
    >>> found = whatif("ring:gpus=4", "allgather", size="1MB", n_minus_1="links", place=here)
    >>> [(c.fault.name, c.fault.count, round(c.loss, 1)) for c in found.contingencies]
    [('link gpu0:gpu1', 4, 0.9)]
    """
    network = read_topology(topology, without_links, degrade, overhead)
    wanted = read_demand(network, collective, demand, size=size, ranks=ranks, root=root)
    listed = [f if isinstance(f, Fault) else read_fault(f) for f in faults]
    for what in [n_minus_1] if isinstance(n_minus_1, str) else n_minus_1:
        listed += single_faults(network, wanted, what)
    if not listed:
        raise InputError("no fault is given; give --fault 'link 0:1' or --n-minus-1 links")
    healthy = Task(topology=network, demand=wanted, options=options, label="healthy")
    tasks = []
    for fault in listed:
        changed, asked = fault.apply(network, wanted)
        tasks.append(replace(healthy, topology=changed, demand=asked, label=fault.name))
    with (place or Workplace()).opened() as bench:
        found = {outcome.task.key: outcome for outcome in bench.run([healthy, *tasks])}
    base = found.get(healthy.key)
    if base is None or base.result is None or base.result.schedule is None:
        reason = "stopped" if base is None else base.reason or getattr(base.result, "message", "")
        raise InputError(f"the healthy fabric has no schedule to compare with: {reason}")
    return WhatIf(
        healthy=base.result,
        contingencies=tuple(
            _judge(fault, found.get(task.key), base.result)
            for fault, task in zip(listed, tasks, strict=True)
        ),
    )


def _judge(fault: Fault, outcome: TaskOutcome | None, healthy: Result) -> Contingency:
    if outcome is None:
        return Contingency(fault=fault, result=None)
    result = outcome.result
    if result is None or result.schedule is None:
        reason = outcome.reason if result is None else result.message
        return Contingency(fault=fault, result=result, reason=reason or "no schedule")
    assert healthy.schedule is not None
    return Contingency(
        fault=fault,
        result=result,
        loss=(result.finish_ps or 0) / max(1, healthy.finish_ps or 0) - 1,
        stale_ps=stale_finish(healthy.schedule, outcome.task.topology, outcome.task.demand),
    )


def stale_finish(schedule: Schedule, topology: Topology, demand: Demand) -> int | None:
    """Return how long a schedule takes on another fabric in its old order, None if it cannot run.

    It cannot where a link that it uses, or a rank, is gone.
    """
    from teccl.replay import simulate

    moved = _on_remaining_links(schedule, topology)
    if moved is None:
        return None
    try:
        if moved.problem.topology != topology:
            moved = simulate(moved, topology=topology).schedule
        if demand != moved.problem.demand:
            moved = simulate(_delayed(moved, demand)).schedule
    except ScheduleError:
        return None
    return moved.finish_ps


def _on_remaining_links(schedule: Schedule, topology: Topology) -> Schedule | None:
    """Return the schedule with links numbered as in a topology that may lack unused ones."""
    old = schedule.problem.topology
    if topology.nodes != old.nodes:
        return None
    links, used = list(topology.links), set(schedule.sends["link"].tolist())
    number = np.full(old.num_links, -1)
    position = 0
    for i, link in enumerate(old.links):
        same = position < len(links) and (links[position].src, links[position].dst) == (
            link.src,
            link.dst,
        )
        # Where parallel links are told apart by rates only, the one that is left keeps its rate.
        if same and len(links) - position + i < old.num_links and links[position] != link:
            same = False
        if same:
            number[i], position = position, position + 1
    if position < len(links) or any(number[e] < 0 for e in used):
        return None
    if len(links) == old.num_links:
        return schedule
    kept = tuple(link for i, link in enumerate(old.links) if number[i] >= 0)
    sends = schedule.sends.copy()
    sends["link"] = number[sends["link"]]
    problem = replace(schedule.problem, topology=replace(old, links=kept))
    return replace(schedule, problem=problem, sends=sends, grid=None, bound=None)


def _delayed(schedule: Schedule, demand: Demand) -> Schedule:
    """Return the schedule of a demand whose ranks are ready later, all of it so much later."""
    problem = replace(schedule.problem, demand=demand)
    sends = schedule.sends.copy()
    sends["start_ps"] += int(problem.ready_ps().max(initial=0))
    return replace(schedule, problem=problem, sends=sends, claimed_finish_ps=None)
