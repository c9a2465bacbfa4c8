"""AllReduces of machines by a scheme that is asked for: one-shot, an exchange, shares of both."""

from collections.abc import Iterator

from teccl import Demand, Problem, Topology
from teccl.construct.goal import Goal
from teccl.construct.schemes import _numbered, one_shot, owned, schemes
from teccl.construct.staged import Level, Scheme, everybody, staged_schedule
from teccl.schedule import Schedule

MACHINES = ("dgx1", "ndv2:chassis=2", "torus:dims=4x4", "dgx-h100", "dgx-h100:chassis=2")
SIZES = ("1KB", "16KB", "64KB", "1MB")
KINDS = ("one-shot", "exchange", "mixed")


def whole_allreduce(spec: str, size: object, pieces: int = 1) -> Problem:
    """Return an AllReduce whose buffer is cut as a whole."""
    return Problem(
        topology=Topology.parse(spec),
        demand=Demand.collective("allreduce", size=size),
        num_chunks=pieces,
        whole_buffer=True,
    )


def scheme_of(problem: Problem, kind: str) -> Scheme:
    """Return a scheme of some kind; exchanges are by groups or digits where no factors are."""
    count = problem.num_gpus
    if kind == "one-shot":
        return one_shot(count)
    several = (each for each in _exchanges(problem) if each.num_stages > 1)
    exchange = next(several)
    return exchange if kind == "exchange" else mixed(one_shot(count), owned(count, 2), exchange)


def _exchanges(problem: Problem) -> Iterator[Scheme]:
    yield from (each for each in schemes(problem) if each.name in ("exchange", "hierarchy"))
    yield from _numbered(problem.num_gpus)


def mixed(*parts: Scheme) -> Scheme:
    """Return a scheme with the shares of all, whose last levels stand until the longest is done."""
    stages = max(part.num_stages for part in parts)
    count = len(parts[0].shares[0][0].classes)

    def padded(levels: tuple[Level, ...]) -> tuple[Level, ...]:
        return (*levels, *[everybody(count)] * (stages - len(levels)))

    shares = tuple(padded(levels) for part in parts for levels in part.shares)
    return Scheme(name="mixed", shares=shares)


def staged_allreduce(spec: str, size: object, kind: str) -> Schedule:
    """Return an AllReduce of a machine by a kind of scheme, a piece for each share."""
    scheme = scheme_of(whole_allreduce(spec, size), kind)
    problem = whole_allreduce(spec, size, len(scheme.shares))
    schedule = staged_schedule(problem, scheme, Goal())
    assert schedule is not None
    return schedule
