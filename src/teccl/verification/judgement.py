"""Judgement: whether a schedule does what its problem asks, rule by rule."""

import numpy as np

from teccl._parallel import both
from teccl.errors import VerificationError
from teccl.schedule.columns import Sends
from teccl.schedule.sends import Schedule
from teccl.verification.case import Case
from teccl.verification.epochs import epochs_of
from teccl.verification.rules import GRID, PHYSICAL, same_order
from teccl.verification.sum_origins import PartialSums
from teccl.verification.timeline import physical_timeline
from teccl.verification.transfers import Transfers
from teccl.verification.violation import Violation, ViolationList

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


def _judge_time(schedule: Schedule, sends: Sends, transfers: Transfers) -> ViolationList:
    """Judge a schedule in picoseconds."""
    case = physical_case(schedule, sends, transfers)
    for rule in PHYSICAL:
        rule(case)
    return case.findings


def physical_case(schedule: Schedule, sends: Sends, transfers: Transfers) -> Case:
    """Lay out a schedule in picoseconds for the rules."""
    timeline = physical_timeline(sends, transfers, schedule.sends["start_ps"].copy())
    return Case(
        schedule=schedule,
        sends=sends,
        transfers=transfers,
        timeline=timeline,
        findings=ViolationList(schedule.problem),
        sums=None if schedule.sums is None else PartialSums.of(schedule.sums, sends, timeline),
    )


def has_same_order(schedule: Schedule) -> bool:
    """Whether all destinations of each sum evaluate one tree of additions, up to commutation.

    Then floating-point results have the same bits everywhere. The schedule is taken to be correct;
    it need not claim the order itself.
    """
    sends = Sends.of(schedule)
    case = physical_case(schedule, sends, Transfers.of(sends))
    return not same_order.differing_chunks(case)


def _judge_epochs(schedule: Schedule, sends: Sends, transfers: Transfers) -> ViolationList:
    """Judge a schedule on its grid, if it has one."""
    findings = ViolationList(schedule.problem)
    if schedule.grid is None:
        return findings
    epoch = schedule.sends["epoch"].astype(np.int64)
    epochs = epochs_of(sends, transfers, epoch, schedule.grid.epoch)
    case = Case(
        schedule=schedule,
        sends=sends,
        transfers=transfers,
        timeline=epochs.timeline,
        findings=findings,
        epochs=epochs,
    )
    for rule in GRID:
        rule(case)
    return findings


def _message(violations: tuple[Violation, ...]) -> str:
    """Return one line that names the first violations."""
    named = "; ".join(str(violation) for violation in violations[:_SHOWN])
    more = len(violations) - _SHOWN
    count = "1 violation" if len(violations) == 1 else f"{len(violations)} violations"
    return f"{count}: {named}" + (f"; and {more} more" if more > 0 else "")
