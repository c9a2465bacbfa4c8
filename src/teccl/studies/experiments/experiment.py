"""What an experiment is: cases of a few requests each, and how their results become rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from teccl.demand import Demand
from teccl.result import Result
from teccl.studies.hashed_tasks import Task
from teccl.topology import Topology

Figures = Callable[[Sequence[Result | None]], Mapping[str, object]]
# Columns whose values are times of this machine; everything else is the same in every run.
TIMED = "solve_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentCase:
    """One row of a table.

    Parameters
    ----------
    labels
        Its first columns.
    tasks
        The requests behind it.
    figures
        Makes the other columns of their results, in the order of the tasks.
    """

    labels: Mapping[str, object]
    tasks: tuple[Task, ...]
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A table or figure.

    Parameters
    ----------
    name, title
        What it is called on the command line and in headings.
    about
        What it shows and how it is set up.
    cases
        Makes the rows; takes whether only a few are wanted, and the seed.
    notes
        What to know when reading it: deviations and exceptions with reasons.
    figure
        Columns to draw: that of the horizontal axis, then those of lines; empty for none.
    """

    name: str
    title: str
    about: str
    cases: Callable[[bool, int], list[ExperimentCase]]
    notes: tuple[str, ...] = ()
    figure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The outcome of an experiment."""

    experiment: Experiment
    rows: tuple[Mapping[str, object], ...]


def request(topology: str, collective: str, size: str, **options: Any) -> Task:
    """Return a task from the text that a user would write."""
    method = options.pop("method", "auto")
    return Task(
        topology=Topology.parse(topology),
        demand=Demand.collective(collective, size=size),
        method=method,
        options=options,
        label=f"{topology} {collective} {size}",
    )


def micros(seconds: float | None) -> float | None:
    """Return microseconds to seven digits, which all that is printed has."""
    return None if seconds is None else float(f"{seconds * 1e6:.7g}")


def percent(fraction: float | None) -> float | None:
    """Return a fraction as a percentage with two decimals."""
    return None if fraction is None else round(100 * fraction, 2)


def seconds(results: Sequence[Result | None]) -> float:
    """Return the solve time of some results together."""
    return round(sum(r.solve_seconds for r in results if r is not None), 3)
