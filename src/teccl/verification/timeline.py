"""Timeline: when sends begin, hold their links and arrive, in picoseconds or in epochs."""

from dataclasses import dataclass
from fractions import Fraction

from teccl._arrays import IntArray
from teccl.schedule.columns import Sends
from teccl.units import format_duration
from teccl.verification import durations as lengths
from teccl.verification.transfers import Passing, Transfers

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

    def seconds(self, moment: int) -> float:
        """A moment in seconds."""
        return float(int(moment) * self.unit)

    def show(self, moment: int) -> str:
        """A moment as people read it, exact."""
        return f"epoch {moment}" if self.is_grid else format_duration(int(moment) * self.unit)

    def own_ready(self, sends: Sends, rows: IntArray) -> IntArray:
        """When the data that each send's GPU holds itself may leave."""
        return self.ready[sends.problem.chunks.tenant[sends.chunk[rows]], sends.src[rows]]


def physical_timeline(sends: Sends, transfers: Transfers, start: IntArray) -> Timeline:
    """Apply the alpha-beta model, with overheads, to sends that begin at given picoseconds."""
    topology = sends.problem.topology
    overhead = lengths.link_overheads(topology)[sends.link]
    bytes_take = lengths.transmissions(sends, start + overhead)
    alpha = lengths.link_alphas(topology)[sends.link]
    if transfers.passing is not Passing.STORE:
        # The slowest link of the way sets the rate of the whole circuit, which pays one overhead.
        overhead, bytes_take = transfers.longest(overhead), transfers.longest(bytes_take)
    held = overhead + bytes_take
    arrival = start + held + alpha
    handoff = arrival
    if transfers.passing is Passing.CIRCUIT:
        handoff = start + alpha
    if transfers.passing is Passing.HYPER_EDGE:
        arrival = start + held + transfers.along_way(alpha)
        handoff = start
    ready = lengths.ready_times(topology, sends.problem.demand.tenants, PICOSECOND)
    return Timeline(start=start, held=held, arrival=arrival, handoff=handoff, ready=ready)
