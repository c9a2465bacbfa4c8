"""The figures that a report leads with, and the sentences that explain them."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl.result import bus_factor
from teccl.schedule import BoundSummary, Schedule
from teccl.schedule.timing import send_times
from teccl.units import PICOSECONDS, display_time, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a reader wants to know of a schedule first.

    Parameters
    ----------
    label
        How the page calls the schedule.
    finish_ps, bound_ps
        When it ends, and when any schedule could end at the earliest; None where nobody said.
    bound_of
        Which schedules the bound speaks of.
    bottleneck, bottleneck_busy
        The link that is busy longest, None without sends, and its busy part of the finish time.
    critical
        Rows of the sends that set the finish.
    wire_ps, latency_ps
        Time of the critical path spent on transmission, and the rest of it.
    solve_seconds
        How long it took to find, which files do not hold.
    """

    label: str
    finish_ps: int
    bound_ps: int | None
    bound_of: str
    certificate: str | None
    size_bytes: Fraction
    bus_factor: Fraction
    method: str
    num_chunks: int
    chunk_bytes: Fraction
    num_sends: int
    bottleneck: int | None
    bottleneck_busy: float
    critical: tuple[int, ...]
    wire_ps: int
    latency_ps: int
    solve_seconds: float | None = None

    @property
    def gap(self) -> float | None:
        """How much longer than the bound it takes, as a fraction."""
        if not self.bound_ps:
            return None
        return float(Fraction(self.finish_ps, self.bound_ps) - 1)

    @property
    def algbw_gbps(self) -> float | None:
        """Size over time in gigabytes per second."""
        if not self.finish_ps:
            return None
        return float(self.size_bytes * PICOSECONDS / self.finish_ps / 10**9)

    @property
    def busbw_gbps(self) -> float | None:
        """Algorithm bandwidth times the factor of nccl-tests."""
        return None if self.algbw_gbps is None else self.algbw_gbps * float(self.bus_factor)


def figures_of(schedule: Schedule, label: str, solve_seconds: float | None = None) -> Figures:
    """Work out the figures of a schedule."""
    problem, bound = schedule.problem, schedule.bound
    busy = schedule.utilisation()
    used = bool(len(schedule))
    critical = schedule.critical_path()
    times = send_times(schedule)
    wire = int(times.occupancy_ps[critical].sum()) if critical else 0
    first = int(schedule.sends["start_ps"][critical[0]]) if critical else 0
    finish = int(times.arrival_ps.max(initial=0))
    factors = {bus_factor(t, problem.topology.num_gpus) for t in problem.demand.tenants}
    return Figures(
        label=label,
        finish_ps=finish,
        bound_ps=None if bound is None else max(bound.physical_ps, bound.chunk_ps or 0),
        bound_of=_bound_of(bound),
        certificate=None if bound is None else bound.certificate,
        size_bytes=problem.size_bytes,
        bus_factor=factors.pop() if len(factors) == 1 else Fraction(1),
        method=schedule.method,
        num_chunks=problem.num_chunks,
        chunk_bytes=problem.chunk_bytes,
        num_sends=len(schedule),
        bottleneck=int(np.argmax(busy)) if used else None,
        bottleneck_busy=float(busy.max()) if used else 0.0,
        critical=tuple(critical),
        wire_ps=wire,
        latency_ps=max(0, finish - first - wire),
        solve_seconds=solve_seconds,
    )


def cards(figures: Figures) -> list[tuple[str, str, str]]:
    """Return name, value and remark of the headline figures."""
    gap = figures.gap
    rows = [
        ("Finish time", display_time(figures.finish_ps / PICOSECONDS), _how_good(gap)),
        (
            "Lower bound",
            "not known"
            if figures.bound_ps is None
            else display_time(figures.bound_ps / PICOSECONDS),
            figures.bound_of,
        ),
        ("Gap", "not known" if gap is None else f"{100 * gap:.3g} %", "finish time over bound"),
        ("algbw", _bandwidth(figures.algbw_gbps), f"{format_size(figures.size_bytes)} over time"),
        ("busbw", _bandwidth(figures.busbw_gbps), f"algbw × {float(figures.bus_factor):.4g}"),
        ("Method", figures.method, f"{figures.num_sends:,} sends"),
        ("Chunks", f"{figures.num_chunks:,} per block", f"{short_size(figures.chunk_bytes)} each"),
    ]
    if figures.solve_seconds is not None:
        rows.append(("Solve time", display_time(figures.solve_seconds), "verified schedule"))
    return rows


def story(schedule: Schedule, figures: Figures) -> list[tuple[str, str]]:
    """Return the sentences that explain the schedule, each with a heading."""
    topology = schedule.problem.topology
    parts = []
    if figures.certificate:
        parts.append(("What binds", figures.certificate))
    if figures.bottleneck is not None:
        parts.append(
            (
                "Busiest link",
                (
                    f"{topology.link_name(figures.bottleneck)} is busy "
                    f"{100 * figures.bottleneck_busy:.3g} % of the time"
                ),
            )
        )
    if figures.critical:
        last = schedule.sends[figures.critical[-1]]
        end = topology.nodes[topology.link_dst[last["link"]]].name
        total = max(1, figures.wire_ps + figures.latency_ps)
        parts.append(
            (
                "Critical path",
                (
                    f"{len(figures.critical)} sends in a row, "
                    f"{100 * figures.wire_ps / total:.3g} % of it on the wire, the rest latency; "
                    f"they end with {schedule.problem.chunk_name(int(last['chunk']))} at {end}"
                ),
            )
        )
    return parts


def _bound_of(bound: BoundSummary | None) -> str:
    if bound is None:
        return "the schedule has none"
    if bound.chunk_ps is None or bound.chunk_ps <= bound.physical_ps:
        return "no schedule can be faster"
    return f"for these chunks; {display_time(bound.physical_ps / PICOSECONDS)} for any"


def _how_good(gap: float | None) -> str:
    if gap is None:
        return "until the last arrival"
    if gap == 0:
        return "optimal: it meets the bound"
    return f"at most {100 * gap:.3g} % above the best" if gap < 1 else f"{1 + gap:.3g} × the bound"


def _bandwidth(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g} GB/s"


def short_size(size: Fraction) -> str:
    """Print a size with few digits: exactly where that is short."""
    exact = format_size(size)
    if len(exact) <= 9 and "/" not in exact:
        return exact
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= scale:
            return f"{float(size / scale):.4g}{unit}"
    return f"{float(size):.4g}B"
