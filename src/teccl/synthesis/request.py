"""Request: everything a user may ask of `solve`, read and checked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from teccl._fractions import LONGEST, read_factors, read_fraction
from teccl._suggest import did_you_mean
from teccl.demand import UNNAMED, Collective, Demand, parse_collective
from teccl.errors import DemandError, InputError, MethodError, ProblemError
from teccl.keywords import GRID_METHODS, KEYWORDS, Effort, Objective, Solver, SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.timegrid import EpochRule, TimeGrid
from teccl.topology import Topology
from teccl.units import Quantity, parse_duration

MAX_CHUNKS_PER_BLOCK = 10**6

# Options that mean something to some methods only, by field: whoever obeys them. Any other method
# refuses a value that is not the default.
OBEYED_BY: dict[str, tuple[str, ...]] = {
    "effort": ("auto", "construct", "milp"),
    "horizon": GRID_METHODS,
    "objective": ("milp", "lp"),
    "warm_start": ("auto", "milp", "astar"),
    "solver": GRID_METHODS,
    "threads": ("auto", *GRID_METHODS),
    "from_schedule": ("auto", "milp"),
    "any_order": ("auto",),
}

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked request; the fields are `solve`'s keywords.

    Parameters
    ----------
    chunks
        Number of chunks, None to choose it.
    chunk_tolerance
        Part of the best finish by which one with fewer chunks may be later; None is automatic.
    time_limit_s
        Seconds, None for no limit.
    epoch, epoch_multiplier, horizon
        The grid; None is automatic.
    buffer
        Received chunks that may wait at a GPU, None for any number.
    any_order
        Whether ranks may add up what all of them want in different orders.
    from_schedule
        A schedule to start from.
    """

    topology: Topology
    demand: Demand
    chunks: int | None = None
    max_chunks: int | None = None
    chunk_tolerance: Fraction | None = None
    method: str = "auto"
    effort: Effort = Effort.NORMAL
    time_limit_s: float | None = None
    gap: Fraction = Fraction(0)
    grid: bool = False
    epoch: EpochRule | Fraction = EpochRule.FASTEST
    epoch_multiplier: Fraction = Fraction(1)
    horizon: int | None = None
    switch: SwitchMode = SwitchMode.COPY
    transit: Transit = Transit.STORE_AND_FORWARD
    buffer: int | None = None
    copy: bool = True
    any_order: bool = False
    objective: Objective = Objective.FINISH
    from_schedule: Schedule | None = None
    warm_start: bool = True
    solver: Solver = Solver.HIGHS
    threads: int | None = None
    seed: int = 0
    _problems: dict[int, Problem] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _grids: dict[int, TimeGrid] = field(default_factory=dict, init=False, repr=False, compare=False)

    def problem(self, num_chunks: int) -> Problem:
        """Return the problem with some number of chunks; the same object every time."""
        if num_chunks not in self._problems:
            self._problems[num_chunks] = Problem(
                topology=self.topology,
                demand=self.demand,
                num_chunks=num_chunks,
                switch=self.switch,
                transit=self.transit,
                buffer=self.buffer,
                copy=self.copy,
            )
        return self._problems[num_chunks]

    def whole_problem(self, num_pieces: int) -> Problem:
        """Return the problem with so many pieces, AllReduces' buffers cut into them as a whole."""
        if all(each.collective is not Collective.ALLREDUCE for each in self.demand.tenants):
            return self.problem(num_pieces)
        return replace(self.problem(1), num_chunks=num_pieces, whole_buffer=True)

    def time_grid(self, problem: Problem) -> TimeGrid | None:
        """Return the epochs to count in, None off the grid."""
        if not self.grid:
            return None
        count = problem.num_chunks
        if problem is not self._problems.get(count):
            return TimeGrid.build(problem, self.epoch, self.epoch_multiplier)
        if count not in self._grids:
            self._grids[count] = TimeGrid.build(problem, self.epoch, self.epoch_multiplier)
        return self._grids[count]


def check_obeyed(request: Request) -> None:
    """Refuse options that the method has no use for.

    Raises
    ------
    MethodError
        If there is one; the message names methods that obey it.
    """
    defaults = {each.name: each.default for each in fields(Request)}
    for name, methods in OBEYED_BY.items():
        if getattr(request, name) != defaults[name] and request.method not in methods:
            raise MethodError(
                f"method {request.method} has no use for {KEYWORDS[name].flag}; drop it or use "
                f"--method {' or '.join(methods)}"
            )


def share_out(methods: Sequence[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each method of a study those options that it obeys.

    Raises
    ------
    MethodError
        If there is an option that none of them obeys.
    """
    for name in options:
        serving = OBEYED_BY.get(name, methods)
        if not set(methods) & set(serving):
            raise MethodError(
                f"none of the methods ({', '.join(methods)}) has a use for {KEYWORDS[name].flag}; "
                f"drop it or add {' or '.join(serving)}"
            )
    return {
        method: {k: v for k, v in options.items() if method in OBEYED_BY.get(k, methods)}
        for method in methods
    }


def check_switches(topology: Topology, switch: SwitchMode, transit: Transit) -> None:
    """Refuse to say how switches behave where there is none.

    Raises
    ------
    ProblemError
        If so.
    """
    given = {"--switch": switch is not SwitchMode.COPY}
    given["--transit"] = transit is not Transit.STORE_AND_FORWARD
    if not topology.num_switches and any(given.values()):
        flags = " and ".join(name for name, is_given in given.items() if is_given)
        raise ProblemError(f"topology {topology.name} has no switch; drop {flags}")


def read_share(value: float | str, what: str) -> Fraction:
    """Read a part of something: below 1, or a percentage that says what it is.

    Raises
    ------
    ProblemError
        If it is negative, or a percentage was meant.
    """
    share, text = read_fraction(value, what), str(value).strip()
    if share < 0:
        raise ProblemError(f"{what} {text[:40]} is negative; give 0 or more, for example 1%")
    if share >= 1 and not text.endswith("%"):
        raise ProblemError(f"{what} {text[:40]} is {float(share):.0%}; did you mean {text[:40]}%?")
    return share


def read_choice(value: object, kind: type[_Choice], what: str) -> _Choice:
    """Read one of the values of an enumeration.

    Raises
    ------
    InputError
        If it is none of them; the message has the nearest.
    """
    known = [member.value for member in kind]
    return kind(read_name(value, known, what))


def read_name(value: object, known: Iterable[str], what: str) -> str:
    """Read one of some names; case and ``_`` for ``-`` do not matter."""
    name = str(value).strip().lower().replace("_", "-")
    names = list(known)
    if name not in names:
        raise InputError(f"unknown {what} {str(value)[:40]!r}{did_you_mean(name, names)}")
    return name


def read_whole(value: object, what: str, *, low: int, high: int = 10**9) -> int:
    """Read a whole number within bounds, as number or text."""
    text = str(value).strip()
    is_number = not isinstance(value, bool) and text.isascii() and text.isdigit()
    if not is_number or len(text) > LONGEST or not low <= int(text) <= high:
        raise InputError(
            f"{what} {str(value)[:40]!r} is not a whole number from {low} to {high}; give one"
        )
    return int(text)


def read_demand(
    topology: Topology,
    collective: str | Collective | None,
    demand: Demand | str | Path | None,
    *,
    size: Quantity | None,
    ranks: str | Sequence[int] | None,
    root: int | str | None,
) -> Demand:
    """Build the demand from a collective and its options, or take the one that is given."""
    if demand is not None:
        return _given_demand(demand, collective, {"size": size, "ranks": ranks, "root": root})
    if collective is None:
        raise DemandError("no collective; name one, for example allgather, or give a demand")
    kind = parse_collective(collective)
    if kind is Collective.ALLTOALLV:
        raise DemandError("alltoallv needs a matrix of bytes; give it in a demand file (--demand)")
    if size is None:
        raise DemandError(f"{kind} needs a size; give for example --size 1MB")
    taking_part = _read_ranks(ranks)
    from_rank = None if root is None else read_whole(root, "root", low=0)
    try:
        built = Demand.collective(kind, size=size, ranks=taking_part, root=from_rank)
        # Ranks and root that do not exist are named here, before anything is built on them.
        built.tenants[0].members(topology.num_gpus)
    except DemandError as problem:
        # Whoever names a collective knows of no tenant.
        raise DemandError(str(problem).removeprefix(f"{UNNAMED}: ")) from None
    return built


def _given_demand(
    demand: Demand | str | Path, collective: object, options: Mapping[str, object]
) -> Demand:
    if collective is not None:
        raise DemandError(
            f"both collective {str(collective)[:40]!r} and a demand; give one of them"
        )
    for name, value in options.items():
        if value is not None:
            raise DemandError(f"{name} is part of the demand; drop --{name} or the demand")
    if isinstance(demand, Demand):
        return demand
    from teccl.demand.demand_files import load_demand

    return load_demand(Path(demand))


def _read_ranks(ranks: str | Sequence[int] | None) -> tuple[int, ...] | None:
    if ranks is None:
        return None
    if isinstance(ranks, str):
        from teccl.demand.demand_files import parse_ranks

        return parse_ranks(ranks)
    return tuple(read_whole(rank, "rank", low=0) for rank in ranks)


def read_topology(
    topology: Topology | str | Path,
    without_links: str | Sequence[str],
    degrade: str | Sequence[str] | Mapping[str, object],
    overhead: Quantity | None = None,
) -> Topology:
    """Build the topology with links removed and slowed down, all with one overhead if given."""
    network = Topology.parse(topology)
    if overhead is not None:
        network = network.with_overhead(parse_duration(overhead, what="overhead"))
    factors = read_factors(degrade)
    if factors:
        network = network.degraded(factors)
    gone = [without_links] if isinstance(without_links, str) else list(without_links)
    return network.without_links(gone) if gone else network


def read_buffer(value: int | str | None) -> int | None:
    """Read a buffer limit: ``unlimited``, ``none`` (zero) or a number."""
    if value is None or str(value).strip().lower() == "unlimited":
        return None
    if str(value).strip().lower() == "none":
        return 0
    try:
        return read_whole(value, "buffer", low=0)
    except InputError:
        raise InputError(
            f"buffer {str(value)[:40]!r} is no number of chunks; give one, none or unlimited"
        ) from None


def read_chunks(value: int | str | None, *, on_grid: bool) -> int | None:
    """Read the number of chunks; None is automatic, which on the grid is one."""
    if value is None:
        return 1 if on_grid else None
    if str(value).strip().lower() == "auto":
        return None
    return read_whole(value, "chunks", low=1, high=MAX_CHUNKS_PER_BLOCK)


def read_epoch(value: Quantity | None) -> EpochRule | Fraction:
    """Read how long an epoch is: a rule or a duration."""
    if value is None:
        return EpochRule.FASTEST
    name = str(value).strip().lower()
    if name in tuple(EpochRule):
        return EpochRule(name)
    duration = parse_duration(value, what="epoch")
    if duration == 0:
        raise ProblemError("epoch 0 is not positive; give for example 1us, fastest or slowest")
    return duration


def read_time_limit(value: Quantity | None) -> float | None:
    """Read a time limit in seconds; ``10m`` are minutes here, where nobody means milliseconds."""
    if value is None:
        return None
    if isinstance(value, str):
        value = re.sub(r"(?<=\d)\s*m\s*$", "min", value)
    limit = parse_duration(value, what="time limit", example="10s or 2min")
    if limit == 0:
        raise ProblemError("time limit 0 leaves no time; give for example 10s")
    return float(limit)


def read_schedule(value: Schedule | str | Path | None) -> Schedule | None:
    """Read the schedule to start from."""
    return value if value is None or isinstance(value, Schedule) else Schedule.load(value)
