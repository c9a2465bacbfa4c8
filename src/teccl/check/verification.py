"""Verification: whether a schedule does what its problem asks, by the rules."""

import numpy as np

from teccl.check import grid
from teccl.check._parallel import both
from teccl.check.buffers import check_buffers
from teccl.check.holdings import check_delivery, check_gpu_copies, check_holdings, check_ops
from teccl.check.links import check_links
from teccl.check.reductions import check_reductions
from teccl.check.sends import Sends
from teccl.check.shapes import check_shapes
from teccl.check.timeline import Timeline, check_handoffs, physical_timeline
from teccl.check.transfers import Transfers
from teccl.check.violation import Findings, Violation, ViolationKind
from teccl.errors import VerificationError
from teccl.schedule.model import Schedule

# Violations that an error message names.
_SHOWN = 3


def verify(schedule: Schedule, *, strict: bool = False) -> tuple[Violation, ...]:
    """Judge a schedule in physical time and, where it has epochs, on its grid.

    Parameters
    ----------
    schedule
        Nothing but the schedule is used: lengths are recomputed from the problem it carries.
    strict
        Raise instead of returning violations.

    Returns
    -------
    tuple of Violation
        Empty for a correct schedule; at most a thousand of each kind otherwise.

    Raises
    ------
    VerificationError
        If `strict` and there are violations; it names the first few and holds all.

    Examples
    --------
    A broadcast along a line, forwarded half a microsecond too early:

    >>> from teccl import Demand, Problem, Topology
    >>> from teccl.schedule import Schedule, send_array
    >>> demand = Demand.collective("broadcast", size="1MB")
    >>> problem = Problem(topology=Topology.parse("line:gpus=3"), demand=demand)
    >>> sends = send_array(chunk=[0, 0], link=[0, 2], start_ps=[0, 20_000_000])
    >>> print(*verify(Schedule(problem=problem, sends=sends)))
    too-early at 20 us: chunk 0 (gpu0, piece 0) on gpu1 > gpu2:
    gpu1 sends it at 20us but holds it from 20.5us on
    """
    sends = Sends.of(schedule)
    transfers = Transfers.of(sends)
    findings, on_grid = both(
        lambda: _judge_time(schedule, sends, transfers),
        lambda: _judge_epochs(schedule, sends, transfers),
        num_sends=len(sends),
    )
    findings.take(on_grid)
    violations = findings.all()
    if strict and violations:
        raise VerificationError(_message(violations), violations)
    return violations


def _judge_time(schedule: Schedule, sends: Sends, transfers: Transfers) -> Findings:
    """Judge a schedule in physical time."""
    findings = Findings(schedule.problem)
    timeline = physical_timeline(sends, transfers, schedule.sends["start_ps"].copy())
    check_shapes(sends, transfers, timeline, findings)
    check_links(sends, transfers, timeline, findings)
    check_ops(sends, timeline, findings)
    check_delivery(sends, timeline, findings)
    _check_order(sends, transfers, timeline, findings)
    _check_finish(schedule, timeline, findings)
    _check_bound(schedule, timeline, findings)
    return findings


def _judge_epochs(schedule: Schedule, sends: Sends, transfers: Transfers) -> Findings:
    """Judge a schedule on its grid, if it has one."""
    findings = Findings(schedule.problem)
    if schedule.grid is not None:
        epoch = schedule.sends["epoch"].astype(np.int64)
        epochs = grid.epochs_of(sends, transfers, epoch, schedule.grid.epoch)
        grid.check_capacity(sends, transfers, epochs, findings)
        _check_order(sends, transfers, epochs.timeline, findings)
    return findings


def _check_order(
    sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings
) -> None:
    """Check the rules that picoseconds and epochs have in common."""
    check_handoffs(sends, transfers, timeline, findings)
    check_holdings(sends, timeline, findings)
    check_gpu_copies(sends, timeline, findings)
    check_reductions(sends, transfers, timeline, findings)
    check_buffers(sends, timeline, findings)


def _check_finish(schedule: Schedule, timeline: Timeline, findings: Findings) -> None:
    """Check that the finish a schedule states is its last arrival."""
    claimed = schedule.claimed_finish_ps
    finish = int(timeline.arrival.max(initial=0))
    if claimed is not None and claimed != finish:
        detail = f"states a finish of {timeline.show(claimed)}; it is {timeline.show(finish)}"
        time_s = timeline.seconds(finish)
        findings.add(ViolationKind.WRONG_FINISH, f"the schedule {detail}", time_s=time_s)


def _check_bound(schedule: Schedule, timeline: Timeline, findings: Findings) -> None:
    """Check that a schedule does not finish earlier than it says that any schedule can."""
    if schedule.bound is None:
        return
    bound, finish = schedule.bound.physical_ps, int(timeline.arrival.max(initial=0))
    # Every send may be rounded by a picosecond.
    if bound > finish + len(schedule):
        detail = f"nothing ends before {timeline.show(bound)}; it ends at {timeline.show(finish)}"
        time_s = timeline.seconds(finish)
        findings.add(ViolationKind.WRONG_BOUND, f"the schedule states that {detail}", time_s=time_s)


def _message(violations: tuple[Violation, ...]) -> str:
    """Return one line that names the first violations."""
    named = "; ".join(str(violation) for violation in violations[:_SHOWN])
    more = len(violations) - _SHOWN
    count = "1 violation" if len(violations) == 1 else f"{len(violations)} violations"
    return f"{count}: {named}" + (f"; and {more} more" if more > 0 else "")
