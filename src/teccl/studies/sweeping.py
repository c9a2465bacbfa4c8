"""sweep: the best schedule for each of many sizes."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl.demand import Collective, parse_collective
from teccl.errors import InputError
from teccl.result import Result
from teccl.studies.hashed_tasks import Task, TaskOutcome
from teccl.studies.rivals import study_methods
from teccl.studies.running import Workplace
from teccl.studies.sizes import read_sizes
from teccl.synthesis.request import (
    read_chunks,
    read_demand,
    read_name,
    read_topology,
    share_out,
)
from teccl.topology import Topology
from teccl.units import Quantity, format_size

CSV_COLUMNS = (
    *("size_bytes", "finish_time_s", "algbw_GBps", "busbw_GBps", "physical_bound_s"),
    *("physical_gap", "status", "method", "num_chunks", "num_sends", "verified", "solve_seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One size.

    Parameters
    ----------
    size_bytes
        The size.
    outcomes
        What came of every method and number of chunks.
    """

    size_bytes: Fraction
    outcomes: tuple[TaskOutcome, ...]

    @property
    def best(self) -> Result | None:
        """The fastest result; among equals the method named first."""
        found = [o.result for o in self.outcomes if o.result is not None]
        done = [result for result in found if result.finish_ps is not None]
        if done:
            return min(done, key=lambda result: result.finish_ps or 0)
        return found[0] if found else None

    @property
    def reason(self) -> str | None:
        """Why there is no schedule, None if there is one."""
        best = self.best
        if best is not None:
            return None if best.schedule is not None else best.message
        return "; ".join(dict.fromkeys(o.reason for o in self.outcomes if o.reason)) or "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The outcome of a sweep; ``for row in sweep`` walks its rows.

    Parameters
    ----------
    topology, collective
        What was swept.
    rows
        One for each size, in the order asked for.
    store
        Where results are kept.
    """

    topology: Topology
    collective: str
    rows: tuple[SweepRow, ...]
    store: Path

    def __iter__(self) -> Iterator[SweepRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def results(self) -> list[Result]:
        """The best result for each size that has one."""
        return [row.best for row in self.rows if row.best is not None]

    @property
    def num_stored(self) -> int:
        """Tasks whose results came from the store."""
        return sum(o.is_stored for row in self.rows for o in row.outcomes)

    @property
    def num_tasks(self) -> int:
        """All tasks."""
        return sum(len(row.outcomes) for row in self.rows)

    def to_csv(self) -> str:
        """Return the table as CSV, one line for each size."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for result in self.results:
            figures = result.to_dict()
            writer.writerow([figures[name] for name in CSV_COLUMNS])
        return text.getvalue()


def sweep(
    topology: Topology | str | Path,
    collective: str | Collective,
    *,
    sizes: str | Sequence[Quantity] = "1KB:1GB",
    factor: Quantity | None = None,
    chunks: str | Sequence[int | str] | None = None,
    methods: str | Sequence[str] = ("auto",),
    ranks: str | Sequence[int] | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    overhead: Quantity | None = None,
    place: Workplace | None = None,
    **options: Any,
) -> Sweep:
    """Find the best schedule for each size.

    Parameters
    ----------
    topology, collective, ranks, root, without_links, degrade, overhead
        As for `teccl.solve`.
    sizes, factor
        ``"1KB:1GB"``, walked as the paper does or by a factor, or a list.
    chunks
        Numbers of chunks to try, each by itself; None chooses among many.
    methods
        Methods to try; each row has the best of them.
    place
        Where to run and what to remember; None is local processes and the user's store.
    options
        More keywords of `teccl.solve`, such as ``effort`` and ``seed``.

    Raises
    ------
    InputError
        If something that was given is wrong, or no method serves any size.

    Examples
    --------
    >>> from teccl.studies.running import Workplace
    >>> here = Workplace(jobs=1, store=False)
    >>> found = sweep("ring:gpus=4", "allgather", sizes="1KB,1MB", methods="ring", place=here)
    >>> [(int(result.size_bytes), result.method) for result in found.results]
    [(1000, 'ring'), (1000000, 'ring')]
    """
    network = read_topology(topology, without_links, degrade, overhead)
    walk = read_sizes(sizes, factor)
    names = read_methods(methods)
    counts = _read_counts(chunks)
    shares = share_out(names, options)
    rows: dict[Fraction, list[Task]] = {}
    for size in walk:
        demand = read_demand(network, collective, None, size=size, ranks=ranks, root=root)
        rows[size] = [
            Task(
                topology=network,
                demand=demand,
                method=name,
                options=shares[name] if count is None else {**shares[name], "chunks": count},
                label=f"{format_size(size)} {name}",
            )
            for name in names
            for count in counts
        ]
    # Large sizes take longest; beginning with them keeps all workers busy to the end.
    tasks = [task for size in sorted(rows, reverse=True) for task in rows[size]]
    with (place or Workplace()).opened() as bench:
        outcomes = {outcome.task.key: outcome for outcome in bench.run_some(tasks)}
        store = bench.store.path
    return Sweep(
        topology=network,
        collective=parse_collective(collective).value,
        rows=tuple(
            SweepRow(
                size_bytes=size,
                outcomes=tuple(outcomes[t.key] for t in tasks_of if t.key in outcomes),
            )
            for size, tasks_of in rows.items()
        ),
        store=store,
    )


def read_methods(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Read names of methods, with commas or as a sequence."""
    parts = methods.split(",") if isinstance(methods, str) else methods
    names = tuple(read_name(part, study_methods(), "method") for part in parts)
    if not names:
        raise InputError("methods are empty; name one, for example auto")
    return tuple(dict.fromkeys(names))


def _read_counts(chunks: str | Sequence[int | str] | None) -> list[int | None]:
    if chunks is None:
        return [None]
    parts = chunks.split(",") if isinstance(chunks, str) else chunks
    return list(dict.fromkeys(read_chunks(part, on_grid=False) for part in parts))
