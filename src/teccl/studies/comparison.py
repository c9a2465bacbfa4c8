"""compare: methods, models of other tools and imported schedules, judged alike."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from teccl.demand import Collective, Demand
from teccl.errors import InputError
from teccl.problem import Problem
from teccl.result import Result, Status
from teccl.schedule import Schedule
from teccl.studies.hashed_tasks import Task, TaskOutcome
from teccl.studies.rivals import RIVALS
from teccl.studies.running import Workplace
from teccl.studies.sweeping import read_methods
from teccl.synthesis.request import read_demand, read_topology, share_out
from teccl.topology import Topology
from teccl.units import Quantity, parse_duration

METHODS = (
    *("auto", "milp", "lp", "astar", "ring", "recursive-doubling", "binomial-tree"),
    *("double-binary-tree", "shortest-path", *RIVALS),
)
# The paper's models may take very long; within this they show what they can.
MODEL_LIMIT = "20s"
# Times this close are equal, as for numbers of chunks; then fewer chunks are better.
TOLERANCE = Fraction(1, 1000)
MODELS = ("milp", "lp", "astar")
_OWN = re.compile(r"^([\d.]+) (ps|ns|us|ms|s) with a barrier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Competitor:
    """One line of a comparison.

    Parameters
    ----------
    name
        Method, model or file.
    result
        Its verified, replayed schedule; None if it has none.
    note
        What there is to say about it: why it has none, or how its tool itself would count.
    """

    name: str
    result: Result | None
    note: str = ""

    @property
    def own_time_s(self) -> float | None:
        """Seconds that the tool's own rules need, where they are stricter than the replay."""
        match = _OWN.match(self.note)
        return None if match is None else float(parse_duration(match[1] + match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Competitors, fastest first; those without a schedule come last.

    Of those within a per mille of each other the one with the fewest chunks comes first.
    """

    competitors: tuple[Competitor, ...]

    @property
    def results(self) -> list[Result]:
        """Results of those that have a schedule, fastest first."""
        return [c.result for c in self.competitors if c.result is not None]

    def ratio(self, name: str) -> float | None:
        """Return how many times as long as the first a competitor takes."""
        named = next((c for c in self.competitors if c.name == name), None)
        if named is None or named.result is None or not self.results:
            return None
        return (named.result.finish_ps or 0) / max(1, self.results[0].finish_ps or 0)


def compare(
    topology: Topology | str | Path,
    collective: str | Collective | None = None,
    *,
    size: Quantity | None = None,
    demand: Demand | str | Path | None = None,
    methods: str | Sequence[str] = METHODS,
    schedules: Sequence[str | Path] = (),
    ranks: str | Sequence[int] | None = None,
    root: int | str | None = None,
    without_links: str | Sequence[str] = (),
    degrade: str | Sequence[str] | Mapping[str, object] = (),
    overhead: Quantity | None = None,
    model_limit: Quantity = MODEL_LIMIT,
    place: Workplace | None = None,
    **options: Any,
) -> Comparison:
    """Schedule one demand by many methods and rank them by the same replay.

    Parameters
    ----------
    topology, collective, size, demand, ranks, root, without_links, degrade, overhead
        As for `teccl.solve`.
    methods
        Names of methods and of models of other tools.
    schedules
        Schedule files of the same collective and size, for example imported ones.
    model_limit
        Time for each of the paper's exact models.
    place
        Where to run and what to remember.
    options
        More keywords of `teccl.solve`; those about efforts and chunks are for `auto`.

    Raises
    ------
    InputError
        If something that was given is wrong, or no method serves the demand.

    Examples
    --------
    >>> from teccl.studies.running import Workplace
    >>> here = Workplace(jobs=1, store=False)
    >>> found = compare("ring:gpus=4", "allgather", size="1KB", methods="ring,auto", place=here)
    >>> [competitor.name for competitor in found.competitors]
    ['auto', 'ring']
    """
    network = read_topology(topology, without_links, degrade, overhead)
    wanted = read_demand(network, collective, demand, size=size, ranks=ranks, root=root)
    names = read_methods(methods)
    tasks = [
        Task(
            topology=network,
            demand=wanted,
            method=name,
            options=_model_options(share, model_limit) if name in MODELS else share,
            label=name,
        )
        for name, share in share_out(names, options).items()
    ]
    with (place or Workplace()).opened() as bench:
        found = bench.run(tasks) if schedules else bench.run_some(tasks)
    lines = [_competitor(outcome) for outcome in found]
    lines += [_imported(Path(path), network, wanted) for path in schedules]
    return Comparison(competitors=tuple(_ranked(lines)))


def _model_options(options: Mapping[str, Any], limit: Quantity) -> dict[str, Any]:
    """Options of a model: its time, and nothing about the choice of chunks, which it has not."""
    kept = {name: value for name, value in options.items() if name != "chunk_tolerance"}
    return {**kept, "time_limit": limit}


def _ranked(lines: Sequence[Competitor]) -> list[Competitor]:
    """Return the fastest first; of those as fast, the one with the fewest chunks."""
    left = sorted((line for line in lines if line.result is not None), key=_finish)
    ranked = []
    while left:
        equal = [line for line in left if _finish(line) <= _finish(left[0]) * (1 + TOLERANCE)]
        first = min(equal, key=lambda line: (line.result.num_chunks or 1, line.name != "auto"))  # type: ignore[union-attr]
        ranked.append(first)
        left.remove(first)
    return [*ranked, *(line for line in lines if line.result is None)]


def _finish(line: Competitor) -> int:
    return 0 if line.result is None else line.result.finish_ps or 0


def _competitor(outcome: TaskOutcome) -> Competitor:
    result, name = outcome.result, outcome.task.method
    if result is None:
        return Competitor(name=name, result=None, note=outcome.reason or "stopped")
    if result.schedule is None:
        return Competitor(name=name, result=None, note=result.message or result.status.value)
    return Competitor(name=name, result=result, note=_note(result))


def _note(result: Result) -> str:
    if result.requested_method in RIVALS:
        return result.message or ""
    if result.epochs is not None:
        return f"{result.epochs} epochs, {result.status.value}"
    return result.status.value


def _asked(problem: Problem) -> tuple[object, ...]:
    """Return how many bytes go from whom to whom, and when they are there: chunks do not matter."""
    chunks, rank = problem.chunks, {n: i for i, n in enumerate(problem.topology.gpus.tolist())}
    columns = (chunks.source_set, chunks.destination_set, chunks.reduce, chunks.size_index)
    kinds, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    members = [frozenset(rank[node] for node in nodes.tolist()) for nodes in chunks.sets]
    moved: dict[object, Fraction] = {}
    for (source, wanted, is_sum, size), count in zip(kinds.T.tolist(), counts, strict=True):
        served = members[wanted] if is_sum else members[wanted] - members[source]
        if served:
            key = members[source], served, is_sum
            moved[key] = moved.get(key, Fraction(0)) + chunks.sizes[size] * int(count)
    ready = [
        {rank: time for rank, time in tenant.ready.items() if time}
        for tenant in problem.demand.tenants
    ]
    return moved, ready


def _imported(path: Path, topology: Topology, demand: Demand) -> Competitor:
    """Judge a schedule file like the others: verify it, replay it, and compare its bytes."""
    from teccl.bounds import summarise
    from teccl.replay import simulate
    from teccl.verification import verify

    schedule = Schedule.load(path)
    problem = schedule.problem
    if problem.topology.num_gpus != topology.num_gpus or problem.demand.title != demand.title:
        raise InputError(
            f"{path}: it solves {problem.demand.title} on {problem.topology.describe()}, not "
            f"{demand.title} on {topology.describe()}; leave it out"
        )
    if problem.size_bytes != sum((t.total_size for t in demand.tenants), Fraction(0)):
        raise InputError(f"{path}: it moves another size; make it with the same --size")
    if _asked(problem) != _asked(Problem(topology=topology, demand=demand)):
        raise InputError(
            f"{path}: other ranks have or want its data, or at other times; make it with the same "
            "demand, --ranks and --root"
        )
    found = verify(schedule)
    if found:
        return Competitor(name=path.name, result=None, note=f"fails verification: {found[0]}")
    replay = simulate(schedule)
    result = Result(
        status=Status.FEASIBLE,
        requested_method=schedule.method,
        problem=problem,
        schedule=replay.schedule,
        finish_ps=replay.finish_ps,
        tenant_finish_ps=replay.tenant_finish_ps,
        bound=summarise(problem),
        verified=True,
    )
    return Competitor(name=path.name, result=result, note=f"imported, {schedule.method}")
