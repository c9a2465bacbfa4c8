"""Report: what a run measured, one row per tenant, beside the MPI library's own algorithm."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTiming:
    """Times and errors of one algorithm.

    Parameters
    ----------
    seconds
        Per repeat, from a common start to the last rank's end.
    wrong
        Elements that were not exactly right, over all ranks and repeats; None if not checked.
    """

    seconds: tuple[float, ...]
    wrong: int | None = None

    @property
    def time_s(self) -> float:
        """Median over the repeats."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tenant's line.

    Parameters
    ----------
    name, collective, root, op
        What was run; `root` and `op` are None where the collective has none.
    size_bytes
        Bytes as nccl-tests counts them, on whole elements.
    count
        The same in elements.
    bus_factor
        Bus bandwidth over algorithm bandwidth.
    schedule, library
        What teccl and the MPI library took; the library's is None where it has no such
        collective or links were emulated.
    """

    name: str
    collective: str
    root: int | None
    op: str | None
    size_bytes: int
    count: int
    bus_factor: float
    schedule: RunTiming
    library: RunTiming | None = None

    def algbw(self, timing: RunTiming) -> float:
        """Gigabytes per second as nccl-tests counts them."""
        return self.size_bytes / max(timing.time_s, 1e-12) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        document: dict[str, Any] = {
            key: getattr(self, key)
            for key in ("name", "collective", "root", "op", "size_bytes", "count")
        }
        for key, timing in (("teccl", self.schedule), ("library", self.library)):
            document[key] = None if timing is None else self._timing(timing)
        return document

    def _timing(self, timing: RunTiming) -> dict[str, Any]:
        return {
            "time_s": timing.time_s,
            "min_s": min(timing.seconds),
            "max_s": max(timing.seconds),
            "algbw_GBps": self.algbw(timing),
            "busbw_GBps": self.algbw(timing) * self.bus_factor,
            "wrong": timing.wrong,
            "seconds": list(timing.seconds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run of one schedule.

    Parameters
    ----------
    topology, method
        Of the schedule.
    ranks
        MPI ranks that ran it.
    dtype, repeat, warmup
        How it was run.
    library
        Name and version of the MPI library.
    scheduled_bytes
        The schedule's size before it was padded onto whole elements.
    time_scale
        Factor on the times of emulated links, None at full speed.
    simulated_s
        The exact replay's finish, times the time scale, where links were emulated.
    differs
        Elements in which teccl's and the library's results differ, None if not compared.
    rows
        One per tenant; with several, the first is all of them together.
    """

    topology: str
    method: str
    ranks: int
    dtype: str
    repeat: int
    warmup: int
    library: str
    scheduled_bytes: Fraction
    rows: tuple[Row, ...]
    time_scale: float | None = None
    simulated_s: float | None = None
    differs: int | None = None

    @property
    def wrong(self) -> int:
        """Elements of teccl's results that were not exactly right."""
        return sum(row.schedule.wrong or 0 for row in self.rows) + (self.differs or 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``--json`` prints it."""
        document = asdict(self)
        size = self.scheduled_bytes
        document["scheduled_bytes"] = int(size) if size.denominator == 1 else float(size)
        document["rows"] = [row.to_dict() for row in self.rows]
        document["wrong"] = self.wrong
        return document


def slowest(per_rank: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the time of each repeat: that of the last rank."""
    return tuple(max(times) for times in zip(*per_rank, strict=True))
