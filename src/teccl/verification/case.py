"""Case: a schedule on one of its clocks, as rules see it, and the violations found so far."""

from collections.abc import Callable
from dataclasses import dataclass

from teccl._arrays import IntArray
from teccl.problem import Problem
from teccl.schedule.columns import Sends
from teccl.schedule.sends import Schedule
from teccl.topology import Topology
from teccl.verification.epochs import Epochs
from teccl.verification.sum_origins import PartialSums
from teccl.verification.timeline import Timeline
from teccl.verification.transfers import Transfers
from teccl.verification.violation import ViolationKind, ViolationList


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a rule judges.

    Parameters
    ----------
    schedule, sends, transfers
        The schedule, its columns and how its hops hang together.
    timeline
        When everything happens, in picoseconds or in epochs.
    findings
        Where violations go.
    epochs
        What the grid says of links, None in physical time.
    sums
        The partial sums of a schedule that has some.
    """

    schedule: Schedule
    sends: Sends
    transfers: Transfers
    timeline: Timeline
    findings: ViolationList
    epochs: Epochs | None = None
    sums: PartialSums | None = None

    @property
    def problem(self) -> Problem:
        """What the schedule solves."""
        return self.sends.problem

    @property
    def topology(self) -> Topology:
        """The network it runs on."""
        return self.sends.problem.topology

    def kind(self, kind: ViolationKind) -> ViolationKind:
        """Return the kind as this clock reports it."""
        return kind.on_grid if self.timeline.is_grid else kind

    def node_name(self, node: int) -> str:
        """Name of a node."""
        return self.topology.nodes[node].name

    def note(self, kind: ViolationKind, row: int, detail: str) -> None:
        """Add a violation of one send at its start."""
        self.findings.add(
            self.kind(kind),
            detail,
            chunk=int(self.sends.chunk[row]),
            link=int(self.sends.link[row]),
            time_s=self.timeline.seconds(self.timeline.start[row]),
        )

    def note_each(self, kind: ViolationKind, rows: IntArray, detail: Callable[[int], str]) -> None:
        """Add a violation for each of some sends until the kind is full.

        Parameters
        ----------
        detail
            Makes the text from a position in `rows`.
        """
        for i, row in enumerate(rows):
            if self.findings.is_full(self.kind(kind)):
                return
            self.note(kind, int(row), detail(i))
