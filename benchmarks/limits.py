"""Options on small machines: rates that change, pairs of tenants, buffers from none to many.

``python benchmarks/limits.py profiles`` solves problems with one to three changes of rates,
``pairs`` two collectives at once beside one after the other, ``buffers`` collectives with 0, 1, 4
and 16 buffers, each from the schedule before, beside unlimited ones with as many chunks. Each table
ends with quantiles. ``--count N`` and ``--seed N`` say which problems, ``--effort NAME`` how much
work each may take.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from _quality.chance import Chance
from _quality.report import quantile
from _table import print_machine

import teccl
from teccl.topology import Link, Topology
from teccl.units import format_size

MACHINES = (
    *("ring:gpus=4", "ring:gpus=6", "line:gpus=5", "star:gpus=6", "fully-connected:gpus=5"),
    *("dgx1", "torus:dims=3x3", "torus:dims=4x4", "hypercube:dimension=3", "mesh:dims=2x4"),
    *("internal1:chassis=2", "random:gpus=8,degree=3,seed=2", "random:gpus=10,degree=3,seed=5"),
    *("fat-tree:k=2", "mi300x", "dgx-h100"),
)
COLLECTIVES = ("allgather", "alltoall", "reducescatter", "broadcast", "reduce", "allreduce")
SUMS_AND_COPIES = ("allgather", "reducescatter", "allreduce")
SIZES = (16_000, 16_000_000)
LIMITS = (0, 1, 4, 16)
FACTORS = ("1/10", "1/5", "1/2", "2", "4")
QUANTILES = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "max": 1.0}


class Asked(NamedTuple):
    """Which problems, and how much work each may take."""

    seed: int
    count: int
    effort: str

    def chances(self, name: str) -> Iterator[Chance]:
        """Yield the choices of each problem."""
        return (Chance("limits", name, self.seed, index) for index in range(self.count))

    def solve(self, topology: Topology, collective: str | None, **keywords: Any) -> teccl.Result:
        """Solve with the effort asked for."""
        return teccl.solve(topology, collective, effort=self.effort, threads=1, **keywords)


def main() -> None:
    """Print the tables that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", default="normal")
    given = parser.parse_args()
    print_machine()
    for name in given.tables or TABLES:
        print(f"## {name}", flush=True)
        TABLES[name](Asked(given.seed, given.count, given.effort))


def profiles(asked: Asked) -> None:
    """Print gaps of problems some of whose links change their rates."""
    gaps = []
    for chance in asked.chances("profiles"):
        name, collective, size = _drawn(chance, COLLECTIVES)
        plain = Topology.parse(name)
        end = teccl.bound(plain, collective, size=size).physical_bound_s
        result = asked.solve(_changing(chance, plain, end), collective, size=size)
        gaps.append(_gap(result))
        print(f"{_row(name, collective, size)} {100 * gaps[-1]:8.2f} %", flush=True)
    _print_quantiles("gap", gaps)


def pairs(asked: Asked) -> None:
    """Print gaps of two collectives at once, and the time as a part of one after the other."""
    gaps, ratios = [], []
    for chance in asked.chances("pairs"):
        topology = Topology.parse(chance.choice(MACHINES))
        tenants = [_tenant(chance, topology, name) for name in ("first", "second")]
        result = asked.solve(topology, None, demand=teccl.Demand(tenants=tuple(tenants)))
        alone = [
            asked.solve(topology, None, demand=teccl.Demand(tenants=(tenant,)))
            for tenant in tenants
        ]
        gaps.append(_gap(result))
        ratios.append(_finish(result) / sum(map(_finish, alone)))
        titles = " + ".join(f"{t.collective.value} {format_size(t.size)}" for t in tenants)
        figures = f"{100 * gaps[-1]:8.2f} % {ratios[-1]:6.3f}"
        print(f"{topology.name:32} {titles:44} {figures}", flush=True)
    _print_quantiles("gap", gaps)
    late = sum(ratio > 1 for ratio in ratios)
    print(f"later than one after the other: {late} of {len(ratios)}\n")


def buffers(asked: Asked) -> None:
    """Print finishes over the number of buffers, and the last over one without a limit."""
    ratios, later = [], 0
    for chance in asked.chances("buffers"):
        name, collective, size = _drawn(chance, SUMS_AND_COPIES)
        finishes, chunks = _curve(asked, name, collective, size)
        free = asked.solve(Topology.parse(name), collective, size=size, chunks=chunks)
        later += any(b > a for a, b in pairwise(finishes))
        ratios.append(finishes[-1] / _finish(free) - 1)
        times = " ".join(f"{1e6 * finish:9.3f}" for finish in finishes)
        print(f"{_row(name, collective, size)} {times} {100 * ratios[-1]:8.2f} %", flush=True)
    _print_quantiles("16 over unlimited", ratios)
    print(f"later with more buffers: {later} of {len(ratios)}\n")


def _curve(asked: Asked, name: str, collective: str, size: int) -> tuple[list[float], int]:
    """Return finishes over the number of buffers, each from the one before, and the chunks."""
    finishes: list[float] = []
    topology, given = Topology.parse(name), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before.json"
        for limit in LIMITS:
            result = asked.solve(topology, collective, size=size, buffer=limit, **given)
            finishes.append(_finish(result))
            assert result.schedule is not None
            result.schedule.save(path)
            given = {"from_schedule": str(path)}
    return finishes, int(result.num_chunks or 1)


def _drawn(chance: Chance, collectives: Sequence[str]) -> tuple[str, str, int]:
    """Return a machine, a collective and a size."""
    return chance.choice(MACHINES), chance.choice(collectives), int(chance.digits(*SIZES, 2))


def _changing(chance: Chance, topology: Topology, end: float) -> Topology:
    """Return a topology in which one to three links change once, some time before an end."""
    changing = set(chance.sample(range(topology.num_links), chance.whole(1, 3)))
    links = tuple(
        replace(link, profile=(_change(chance, topology, link, end),)) if i in changing else link
        for i, link in enumerate(topology.links)
    )
    return replace(topology, links=links)


def _change(
    chance: Chance, topology: Topology, link: Link, end: float
) -> tuple[Fraction, Fraction]:
    """Return a moment in whole nanoseconds and a rate from then on."""
    moment = Fraction(max(1, int(1e9 * chance.spread(end / 20, end))), 10**9)
    return moment, topology.rate(link) * Fraction(chance.choice(FACTORS))


def _tenant(chance: Chance, topology: Topology, name: str) -> teccl.Tenant:
    """Return one of two collectives: of all GPUs, a half of them, or any."""
    count = topology.num_gpus
    half = chance.whole(0, 1) * (count // 2)
    some = sorted(chance.sample(range(count), chance.whole(2, count)))
    ranks = chance.choice((None, tuple(range(half, half + count // 2)), tuple(some)))
    if ranks is not None and len(ranks) < 2:
        ranks = None
    collective, size = chance.choice(COLLECTIVES), int(chance.digits(*SIZES, 2))
    (tenant,) = teccl.Demand.collective(collective, size=size, ranks=ranks).tenants
    return replace(tenant, name=name)


def _gap(result: teccl.Result) -> float:
    """Return how far a schedule that was found and verified is above the bound."""
    assert result.verified
    assert result.physical_gap is not None
    return result.physical_gap


def _finish(result: teccl.Result) -> float:
    """Return when a schedule that was found and verified ends, in seconds."""
    assert result.verified
    assert result.finish_time_s is not None
    return result.finish_time_s


def _row(name: str, collective: str, size: int) -> str:
    """Return what is solved in columns."""
    return f"{name:32} {collective:14} {format_size(size):>8}"


def _print_quantiles(title: str, values: Sequence[float]) -> None:
    """Print the least values with some shares at or below them, in per cent."""
    found = [(name, 100 * quantile(values, share)) for name, share in QUANTILES.items()]
    text = ", ".join(f"{name} {value:.2f}" for name, value in found)
    print(f"\n{title} in per cent of {len(values)}: {text}")


TABLES: dict[str, Callable[[Asked], None]] = {
    "profiles": profiles,
    "pairs": pairs,
    "buffers": buffers,
}

if __name__ == "__main__":
    main()
