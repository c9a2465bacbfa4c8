"""OrbitResult: what planning a fabric led to, with the figures and keys of any other result."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from teccl.demand import Collective
from teccl.orbit.patched import PatchedSchedule
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule
from teccl.result import Attempt, Status, table_of
from teccl.schedule import BoundSummary
from teccl.units import PICOSECONDS, display_time, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class OrbitResult:
    """A verified orbit schedule and how good it is.

    Parameters
    ----------
    schedule
        The verified schedule.
    given_chunks
        Whether the request fixed the number of chunks.
    solve_seconds
        From the fabric to the verified schedule.
    tried
        Numbers of chunks that were tried, in order.
    """

    schedule: OrbitSchedule | PatchedSchedule
    bound: BoundSummary
    given_chunks: bool
    solve_seconds: float
    tried: tuple[Attempt, ...]

    def __repr__(self) -> str:
        return f"OrbitResult({self.status.value}, {self.schedule!r})"

    @property
    def problem(self) -> FabricProblem:
        """What the schedule solves."""
        return self.schedule.problem

    @property
    def finish_time_s(self) -> float:
        """Seconds until the last arrival."""
        return self.schedule.finish_time_s

    @property
    def physical_gap(self) -> float:
        """How much longer than the bound for any chunking the schedule takes, as a fraction."""
        return float(Fraction(self.schedule.finish_ps, max(1, self.bound.physical_ps)) - 1)

    @property
    def chunk_gap(self) -> float:
        """How much longer than the bound for these chunks the schedule takes, as a fraction."""
        return float(Fraction(self.schedule.finish_ps, self._chunk_ps) - 1)

    @property
    def _chunk_ps(self) -> int:
        return max(1, self.bound.physical_ps, self.bound.chunk_ps or 0)

    @property
    def status(self) -> Status:
        """Optimal where the bound that counts is met, up to a picosecond per send on the way."""
        limit = self._chunk_ps if self.given_chunks else self.bound.physical_ps
        return Status.OPTIMAL if meets(self.schedule, limit) else Status.FEASIBLE

    @property
    def algbw_GBps(self) -> float:  # noqa: N802, the key's name
        """Size over time in gigabytes per second."""
        return float(self.problem.size * PICOSECONDS / self.schedule.finish_ps / 10**9)

    @property
    def busbw_GBps(self) -> float:  # noqa: N802, the key's name
        """Algorithm bandwidth times the factor of nccl-tests."""
        gpus = self.problem.group_size
        twice = 2 if self.problem.collective is Collective.ALLREDUCE else 1
        return self.algbw_GBps * twice * (gpus - 1) / gpus

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        problem, schedule = self.problem, self.schedule
        entry: dict[str, Any] = {
            "status": self.status.value,
            "method": schedule.method,
            "requested_method": "auto",
            "topology": problem.fabric.name,
            "collective": problem.collective.value,
            "num_gpus": problem.fabric.num_gpus,
            "size_bytes": _plain(problem.size),
            "num_chunks": problem.num_chunks,
            "chunk_bytes": _plain(problem.chunk_bytes),
            "finish_time_s": self.finish_time_s,
            "physical_bound_s": self.bound.physical_ps / PICOSECONDS,
            "physical_gap": self.physical_gap,
            "certificate": self.bound.certificate,
            "algbw_GBps": self.algbw_GBps,
            "busbw_GBps": self.busbw_GBps,
            "num_sends": schedule.num_sends,
            "verified": True,
            "solve_seconds": self.solve_seconds,
            "message": _message(schedule),
            "tenants": [{"name": "tenant0", "finish_time_s": self.finish_time_s}],
            "tried": [attempt._asdict() for attempt in self.tried],
        }
        if self.given_chunks:
            entry |= {
                "chunk_bound_s": self._chunk_ps / PICOSECONDS,
                "chunk_gap": self.chunk_gap,
            }
        return entry

    def summary(self) -> str:
        """Return the result as a table for people."""
        return table_of(self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and values of that table."""
        problem, schedule = self.problem, self.schedule
        fabric = problem.fabric
        group = " x ".join(map(str, fabric.moduli)) + _harm(schedule)
        physical, whole = self.bound.physical_ps / PICOSECONDS, self._chunk_ps / PICOSECONDS
        return list(
            {
                "status": self.status.value,
                "topology": f"{fabric.name}, {fabric.num_gpus} GPUs, group {group}",
                "collective": f"{problem.collective.value}, {format_size(problem.size)}",
                "method": schedule.method,
                "chunks": f"{problem.num_chunks} of {format_size(problem.chunk_bytes)}",
                "finish time": display_time(self.finish_time_s),
                "physical bound": f"{display_time(physical)} (gap {100 * self.physical_gap:.3g} %)",
                "chunk bound": f"{display_time(whole)} (gap {100 * self.chunk_gap:.3g} %)",
                "certificate": self.bound.certificate,
                "algbw": f"{self.algbw_GBps:.4g} GB/s",
                "busbw": f"{self.busbw_GBps:.4g} GB/s",
                "sends": f"{schedule.num_sends}, of which {len(schedule)} are kept",
                "verified": "yes, in the quotient",
                "solve time": display_time(self.solve_seconds),
            }.items()
        )


def _harm(schedule: OrbitSchedule | PatchedSchedule) -> str:
    if not isinstance(schedule, PatchedSchedule):
        return ""
    count = len(schedule.damage.rates)
    return f", {count} link{'' if count == 1 else 's'} damaged"


def _message(schedule: OrbitSchedule | PatchedSchedule) -> str:
    if not isinstance(schedule, PatchedSchedule):
        return f"{len(schedule)} sends of one chunk of each orbit stand for all"
    return (
        f"{len(schedule.base)} sends of one chunk of each orbit stand for all but "
        f"{len(schedule.removed)} images, in place of which {len(schedule.added)} sends are listed"
    )


def meets(schedule: OrbitSchedule | PatchedSchedule, limit_ps: int) -> bool:
    """Whether a schedule meets a bound, up to a picosecond per send on its critical path.

    Every send's length is rounded up, and the bound is rounded down.
    """
    late = schedule.finish_ps - limit_ps
    if isinstance(schedule, PatchedSchedule):
        return late <= 0
    return late <= 0 or (late <= len(schedule) and late <= len(schedule.critical_path()))


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
