"""Timeline: when sends begin, hold their links and arrive, in picoseconds or in epochs."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl.check import lengths
from teccl.check._arrays import IntArray
from teccl.check.sends import Sends
from teccl.check.transfers import Passing, Transfers
from teccl.check.violation import Findings, ViolationKind
from teccl.topology import Topology
from teccl.units import format_duration

PICOSECOND = Fraction(1, 10**12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Moments of all sends, as whole numbers of a unit.

    Parameters
    ----------
    start
        When each send begins.
    held
        How long it holds its link.
    arrival
        When what it carries is usable at the far end, if that is a GPU.
    handoff
        When a send that enters a switch must leave it.
    ready
        By tenant and node, from when the node's own data may leave.
    unit
        Seconds.
    is_grid
        Whether the unit is an epoch.
    """

    start: IntArray
    held: IntArray
    arrival: IntArray
    handoff: IntArray
    ready: IntArray
    unit: Fraction = PICOSECOND
    is_grid: bool = False

    def kind(self, kind: ViolationKind) -> ViolationKind:
        """Return the kind as this timeline reports it."""
        return kind.on_grid if self.is_grid else kind

    def seconds(self, moment: int) -> float:
        """A moment in seconds."""
        return float(int(moment) * self.unit)

    def show(self, moment: int) -> str:
        """A moment as people read it, exact."""
        return f"epoch {moment}" if self.is_grid else format_duration(int(moment) * self.unit)

    def own_ready(self, sends: Sends, rows: IntArray) -> IntArray:
        """When the data that each send's GPU holds itself may leave."""
        return self.ready[sends.problem.chunks.tenant[sends.chunk[rows]], sends.src[rows]]

    def note(
        self, findings: Findings, sends: Sends, kind: ViolationKind, row: int, detail: str
    ) -> None:
        """Add a violation of one send at its start."""
        findings.add(
            self.kind(kind),
            detail,
            chunk=int(sends.chunk[row]),
            link=int(sends.link[row]),
            time_s=self.seconds(self.start[row]),
        )


def physical_timeline(
    sends: Sends, transfers: Transfers, start: IntArray, topology: Topology | None = None
) -> Timeline:
    """Apply the alpha-beta model to sends that begin at given picoseconds.

    Parameters
    ----------
    topology
        Links of other rates than the problem's, None for the problem's own.
    """
    topology = sends.problem.topology if topology is None else topology
    held = lengths.occupancy(sends, topology, start)
    alpha = lengths.link_alphas(topology)[sends.link]
    if transfers.passing is not Passing.STORE:
        # The slowest link of the way sets the rate of the whole circuit.
        held = transfers.longest(held)
    arrival = start + held + alpha
    handoff = arrival
    if transfers.passing is Passing.CIRCUIT:
        handoff = start + alpha
    if transfers.passing is Passing.HYPER_EDGE:
        arrival = start + held + transfers.along_way(alpha)
        handoff = start
    ready = lengths.ready_times(topology, sends.problem.demand.tenants, PICOSECOND)
    return Timeline(start=start, held=held, arrival=arrival, handoff=handoff, ready=ready)


def check_handoffs(
    sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings
) -> None:
    """Check that what enters a switch leaves it at the very moment the transit mode says."""
    count = len(transfers.num_in)
    if not count:
        return
    into = np.flatnonzero(transfers.enters >= 0)
    earliest = np.full(count, np.iinfo(np.int64).max)
    latest = np.full(count, -1)
    np.minimum.at(earliest, transfers.enters[into], timeline.handoff[into])
    np.maximum.at(latest, transfers.enters[into], timeline.handoff[into])
    out = np.flatnonzero(transfers.leaves >= 0)
    passage, start = transfers.leaves[out], timeline.start[out]
    wrong = out[(start != earliest[passage]) | (start != latest[passage])]

    def add(row: int) -> None:
        early, late = earliest[transfers.leaves[row]], latest[transfers.leaves[row]]
        due = timeline.show(early)
        if late != early:
            due += f" to {timeline.show(late)}, where all must come at one instant"
        switch = sends.problem.topology.nodes[sends.src[row]].name
        detail = f"leaves switch {switch} at {timeline.show(timeline.start[row])}; due at {due}"
        timeline.note(findings, sends, ViolationKind.SWITCH_TIMING, row, detail)

    findings.add_each(timeline.kind(ViolationKind.SWITCH_TIMING), wrong, add)
