"""Result: what a request led to, with its figures and proof."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

from teccl.demand import Collective, Tenant
from teccl.problem import Problem
from teccl.schedule import BoundSummary, Schedule
from teccl.timegrid import TimeGrid
from teccl.units import PICOSECONDS, display_time, format_size


class Status(StrEnum):
    """How a request ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    INFEASIBLE = "infeasible"


class Attempt(NamedTuple):
    """One number of chunks that was tried and the best that came of it."""

    num_chunks: int
    method: str
    finish_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a request led to.

    Parameters
    ----------
    status
        How it ended.
    requested_method
        What was asked for.
    problem
        What the schedule solves; without a schedule, what was to be solved.
    schedule
        The verified schedule, None if there is none.
    finish_ps
        Finish of the schedule's exact replay.
    tenant_finish_ps
        The same for each tenant.
    tenant_bound_ps
        What no schedule of each of several tenants alone can beat, empty where not computed.
    bound
        What was proven about the problem, None where it is infeasible.
    given_chunks
        Whether the request fixed the number of chunks.
    grid
        The epochs that were asked for, None off the grid.
    epochs
        First epoch at whose start all demand is usable.
    verified
        Whether the checker found no violation.
    solve_seconds
        From the problem to the verified schedule.
    message
        What there is to say about it, for example why it is infeasible.
    tried
        Numbers of chunks that were tried, in order.
    """

    status: Status
    requested_method: str
    problem: Problem
    schedule: Schedule | None = None
    finish_ps: int | None = None
    tenant_finish_ps: tuple[int, ...] = ()
    tenant_bound_ps: tuple[int, ...] = ()
    bound: BoundSummary | None = None
    given_chunks: bool = False
    grid: TimeGrid | None = None
    epochs: int | None = None
    verified: bool = False
    solve_seconds: float = 0.0
    message: str | None = None
    tried: tuple[Attempt, ...] = ()

    def __repr__(self) -> str:
        end = "no schedule"
        if self.finish_time_s is not None:
            end = f"{display_time(self.finish_time_s)} by {self.method}"
        where = f"{self.collective} on {self.topology!r}"
        return f"Result({self.status.value}, {where}, {end})"

    @property
    def method(self) -> str | None:
        """What made the schedule."""
        return None if self.schedule is None else self.schedule.method

    @property
    def topology(self) -> str:
        """Name of the topology."""
        return self.problem.topology.name

    @property
    def collective(self) -> str:
        """Name of the collective, several joined by a plus sign."""
        return self.problem.demand.title

    @property
    def num_gpus(self) -> int:
        """GPUs that take part."""
        return self.problem.num_gpus

    @property
    def size_bytes(self) -> Fraction:
        """Bytes that algbw counts."""
        return self.problem.size_bytes

    @property
    def num_chunks(self) -> int | None:
        """Pieces into which the largest block is cut; None where none was chosen."""
        return self.problem.num_chunks if self._has_chunks else None

    @property
    def chunk_bytes(self) -> Fraction | None:
        """Bytes of one chunk; None where their number was not chosen."""
        return self.problem.chunk_bytes if self._has_chunks else None

    @property
    def _has_chunks(self) -> bool:
        return self.given_chunks or self.schedule is not None

    @property
    def finish_time_s(self) -> float | None:
        """Seconds until the last arrival in the exact replay of the schedule."""
        return None if self.finish_ps is None else self.finish_ps / PICOSECONDS

    @property
    def physical_bound_s(self) -> float | None:
        """Seconds that no schedule can beat, into however many equal chunks the data is cut."""
        return None if self.bound is None else self.bound.physical_ps / PICOSECONDS

    @property
    def physical_gap(self) -> float | None:
        """How much longer than the physical bound the schedule takes, as a fraction."""
        return None if self.bound is None else _gap(self.finish_ps, self.bound.physical_ps)

    @property
    def certificate(self) -> str | None:
        """A sentence that names what binds."""
        return None if self.bound is None else self.bound.certificate

    @property
    def chunk_bound_s(self) -> float | None:
        """Seconds that no schedule with these whole chunks can beat, off the grid."""
        bound_ps = self._chunk_bound_ps
        return None if bound_ps is None else bound_ps / PICOSECONDS

    @property
    def chunk_gap(self) -> float | None:
        """How much longer than the bound for these chunks the schedule takes, as a fraction."""
        return _gap(self.finish_ps, self._chunk_bound_ps)

    @property
    def _chunk_bound_ps(self) -> int | None:
        if self.bound is None or not self.given_chunks or self.grid is not None:
            return None
        # What holds for any chunking holds for these chunks too.
        return max(self.bound.physical_ps, self.bound.chunk_ps or 0)

    @property
    def algbw_GBps(self) -> float | None:  # noqa: N802, the key's name
        """Size over time in gigabytes per second."""
        if not self.finish_ps:
            return None
        return float(self.size_bytes * PICOSECONDS / self.finish_ps / 10**9)

    @property
    def busbw_GBps(self) -> float | None:  # noqa: N802, the key's name
        """Algorithm bandwidth times the factor of nccl-tests."""
        return None if self.algbw_GBps is None else self.algbw_GBps * float(self._bus_factor)

    @property
    def _bus_factor(self) -> Fraction:
        """Factor of the collective; tenants of different factors have none in common."""
        gpus = self.problem.topology.num_gpus
        factors = {bus_factor(tenant, gpus) for tenant in self.problem.demand.tenants}
        return factors.pop() if len(factors) == 1 else Fraction(1)

    @property
    def num_sends(self) -> int | None:
        """Sends of the schedule, every hop counted."""
        return None if self.schedule is None else len(self.schedule)

    @property
    def tenants(self) -> tuple[tuple[str, float | None], ...]:
        """Name and finish time in seconds of each tenant."""
        times: tuple[int | None, ...] = self.tenant_finish_ps
        names = [tenant.name for tenant in self.problem.demand.tenants]
        times = times or (None,) * len(names)
        return tuple(
            (name, None if time is None else time / PICOSECONDS)
            for name, time in zip(names, times, strict=True)
        )

    @property
    def epoch_s(self) -> float | None:
        """Seconds of one epoch, on a grid."""
        return None if self.grid is None else float(self.grid.epoch)

    @property
    def grid_time_s(self) -> float | None:
        """Seconds until the first epoch at whose start all demand is usable."""
        return self._epochs_s(self.epochs)

    @property
    def bound_epochs(self) -> int | None:
        """Epochs that no schedule with these chunks on this grid can beat."""
        return None if self.bound is None or self.grid is None else self.bound.epochs

    @property
    def grid_bound_s(self) -> float | None:
        """Seconds of that many epochs."""
        return self._epochs_s(self.bound_epochs)

    @property
    def grid_gap(self) -> float | None:
        """How many more epochs than the bound the schedule takes, as a fraction."""
        return _gap(self.epochs, self.bound_epochs)

    def _epochs_s(self, epochs: int | None) -> float | None:
        if self.grid is None or epochs is None:
            return None
        return float(self.grid.epoch * epochs)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, as ``--json`` prints them.

        Examples
        --------
        >>> import teccl
        >>> result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
        >>> result.to_dict()["finish_time_s"]
        1.65e-05
        """
        absent: tuple[str, ...] = () if self.grid is not None else _GRID_KEYS
        if self.grid is not None or not self.given_chunks:
            absent += _CHUNK_KEYS
        figures = {key: _plain(getattr(self, key)) for key in _KEYS if key not in absent}
        figures["tenants"] = [
            {"name": name, "finish_time_s": time, **self._alone(number)}
            for number, (name, time) in enumerate(self.tenants)
        ]
        figures["tried"] = [attempt._asdict() for attempt in self.tried]
        return figures

    def _alone(self, number: int) -> dict[str, float | None]:
        """Return what a tenant would take alone at least, and the share that company adds."""
        if not self.tenant_bound_ps:
            return {}
        bound, finish = self.tenant_bound_ps[number], self.tenant_finish_ps[number]
        return {"alone_bound_s": bound / PICOSECONDS, "sharing": _gap(finish, bound)}

    def _tenant_rows(self) -> Iterator[tuple[str, str | None]]:
        """Yield finishes of several tenants, and what sharing costs each of them at most."""
        for number, (name, time) in enumerate(self.tenants if len(self.tenants) > 1 else ()):
            alone, text = self._alone(number), _time(time)
            if alone and alone["sharing"] is not None:
                least = _time(alone["alone_bound_s"])
                text = f"{text} (alone at least {least}, {100 * alone['sharing']:+.3g} %)"
            yield f"  {name}", text

    def summary(self) -> str:
        """Return a table of the figures for people."""
        return table_of(self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and values of that table; a tenant's name is indented."""
        method = self.method or self.requested_method
        if method != self.requested_method:
            method += f" (requested {self.requested_method})"
        rows = [
            ("status", self.status.value),
            ("message", self.message),
            ("topology", f"{self.topology}, {self.num_gpus} GPUs"),
            ("collective", f"{self.collective}, {format_size(self.size_bytes)}"),
            ("method", method),
            ("chunks", _chunks(self.num_chunks, self.chunk_bytes)),
            ("chunks tried", self._tried_text()),
            ("finish time", _time(self.finish_time_s)),
            *self._tenant_rows(),
            ("physical bound", _bound(self.physical_bound_s, self.physical_gap)),
            ("chunk bound", _bound(self.chunk_bound_s, self.chunk_gap)),
            ("grid time", _epochs(self.grid_time_s, self.epochs)),
            ("grid bound", _bound(self.grid_bound_s, self.grid_gap)),
            ("certificate", self.certificate),
            ("algbw", _bandwidth(self.algbw_GBps)),
            ("busbw", _bandwidth(self.busbw_GBps)),
            ("sends", None if self.num_sends is None else str(self.num_sends)),
            ("verified", "yes" if self.verified else "no"),
            ("solve time", display_time(self.solve_seconds)),
        ]
        return [(name, value) for name, value in rows if value is not None]

    def _tried_text(self) -> str | None:
        """Finish times over numbers of chunks; None where there was no choice."""
        best: dict[int, float] = {}
        for attempt in self.tried:
            known = best.get(attempt.num_chunks, attempt.finish_time_s)
            best[attempt.num_chunks] = min(known, attempt.finish_time_s)
        if len(best) < 2:
            return None
        return ", ".join(f"{count}: {display_time(best[count])}" for count in sorted(best))


def table_of(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values in two columns.

    Examples
    --------
    >>> print(table_of([("a", "1"), ("long", "2")]))
    a     1
    long  2
    """
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def bus_factor(tenant: Tenant, num_gpus: int) -> Fraction:
    """Return what nccl-tests multiplies the algorithm bandwidth of a collective by.

    Examples
    --------
    >>> bus_factor(Tenant(collective=Collective.ALLREDUCE, size=Fraction(1)), 8)
    Fraction(7, 4)
    """
    n = len(tenant.members(num_gpus))
    if tenant.collective is Collective.ALLREDUCE:
        return Fraction(2 * (n - 1), n)
    if tenant.collective in _EACH_TO_ALL:
        return Fraction(n - 1, n)
    return Fraction(1)


_EACH_TO_ALL = (
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLTOALL,
    Collective.ALLTOALLV,
)
_CHUNK_KEYS = ("chunk_bound_s", "chunk_gap")
_GRID_KEYS = ("epoch_s", "epochs", "grid_time_s", "bound_epochs", "grid_bound_s", "grid_gap")
_KEYS = (
    "status",
    "method",
    "requested_method",
    "topology",
    "collective",
    "num_gpus",
    "size_bytes",
    "num_chunks",
    "chunk_bytes",
    "finish_time_s",
    "physical_bound_s",
    "physical_gap",
    "certificate",
    *_CHUNK_KEYS,
    "algbw_GBps",
    "busbw_GBps",
    "num_sends",
    "verified",
    "solve_seconds",
    *_GRID_KEYS,
    "message",
)


def _gap(value: int | None, bound: int | None) -> float | None:
    if value is None or bound is None:
        return None
    if bound == 0:
        return 0.0 if value == 0 else None
    return float(Fraction(value, bound) - 1)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: whole numbers stay whole."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value.value if isinstance(value, StrEnum) else value


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else display_time(seconds)


def _bound(seconds: float | None, gap: float | None) -> str | None:
    if seconds is None:
        return None
    return display_time(seconds) + ("" if gap is None else f" (gap {100 * gap:.3g} %)")


def _epochs(seconds: float | None, epochs: int | None) -> str | None:
    return None if seconds is None else f"{display_time(seconds)} ({epochs} epochs)"


def _chunks(number: int | None, size: Fraction | None) -> str | None:
    return None if size is None else f"{number} of {format_size(size)}"


def _bandwidth(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g} GB/s"
