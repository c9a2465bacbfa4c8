"""AllReduces over size: gaps on machines that have a bar, rivals, cost, and a curve per scheme.

``python benchmarks/allreduce.py bars`` solves machines of every shape and prints the gap to the
proven bound beside what it may be at most; ``rivals`` compares random AllReduces with one-shot, the
two halves and every baseline; ``cost`` the search with that of an AllGather; ``curves`` prints what
each scheme takes on four machines, as the documentation has it, and draws it (``--plot FOLDER``).
``--only REGEX`` takes some rows, ``--count N`` so many rivals.
"""

import argparse
import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from _quality.draw import draw_problem
from _quality.problem import Problem
from _table import print_machine, print_markdown, print_table, used_cpu_s

import teccl
from teccl.construct.baselines import BASELINES
from teccl.construct.goal import Goal
from teccl.construct.params import BUDGET
from teccl.construct.schemes import outlook, schemes
from teccl.construct.staged import staged_schedule
from teccl.demand.demand_files import parse_ranks
from teccl.topology.presets import PRESETS
from teccl.units import format_size

SMALL = (("256B", 3.0), ("1KB", 3.0), ("4KB", 8.0))
TWO_CHASSIS = (("256B", 12.0), ("1KB", 20.0))
FOUR_CHASSIS = (("256B", 20.0),)
# Where a step takes longer than the bytes of a share: S / (degree x bandwidth) <= alpha.
EVEN = ("torus:dims=4x4", "torus:dims=8x8", "hypercube:dimension=5", "hypercube:dimension=6")

RINGS = tuple(f"ring:gpus={n}" for n in (3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 31, 32, 63, 64))
GRIDS = (
    *(f"torus:dims={d}" for d in ("2x3", "3x3", "3x4", "4x4", "4x5", "5x5", "6x6", "4x8")),
    *(f"torus:dims={d}" for d in ("7x7", "8x8", "3x3x3", "4x4x4", "2x3x4")),
    *(f"mesh:dims={d}" for d in ("2x2", "2x4", "3x3", "4x4", "3x5", "6x6", "8x8", "3x3x3")),
    *(f"hypercube:dimension={d}" for d in range(2, 7)),
)
RANDOM = tuple(
    f"random:gpus={n},degree={d},seed={s}"
    for n, d, s in ((6, 3, 1), (8, 3, 2), (12, 3, 3), (16, 4, 4), (24, 3, 5), (32, 4, 6))
)
PAIRS = (
    *("ndv2", "dgx2", "internal1", "internal2", "dgx-a100", "dgx-h100", "dgx-b200", "mi250"),
    *("mi300x", "dgx-b300", "h800"),
)
FOURS = ("ndv2", "dgx2", "dgx-a100", "dgx-h100", "mi300x")
# Presets that are neither one chassis, box or rack nor a network of up to 64 GPUs.
SEVERAL_STAGES = ("fat-tree", "dragonfly", "two-tier", "twisted-torus")
CURVES = ("dgx-h100", "dgx-h100:chassis=2", "torus:dims=4x4", "gb200-nvl72")
CURVE_SIZES = ("1KB", "16KB", "64KB", "256KB", "1MB")
SCHEMES = ("one-shot", "exchange", "hierarchy", "owners")
# Rivals within that of each other count as equal, as numbers of chunks do.
TOLERANCE = 1e-3
REPEATS = 5
# Pieces of a scheme are made smaller up to so many deliveries.
MOST_DELIVERIES = 20_000


class Bar(NamedTuple):
    """A machine and a size with the largest gap that it may have, in per cent."""

    machine: str
    size: str
    gap: float


def bars() -> Iterator[Bar]:
    """Yield all machines and sizes that have a bar."""
    alone = [name for name in PRESETS if name not in SEVERAL_STAGES]
    for machine in (*alone, *RINGS, *GRIDS, *RANDOM):
        yield from (Bar(machine, size, gap) for size, gap in SMALL)
    for machine in (*(f"{name}:chassis=2" for name in PAIRS), "fat-tree:k=4"):
        yield from (Bar(machine, size, gap) for size, gap in TWO_CHASSIS)
    for machine in (*(f"{name}:chassis=4" for name in FOURS), "fat-tree:k=8"):
        yield from (Bar(machine, size, gap) for size, gap in FOUR_CHASSIS)
    yield from (Bar(machine, "64KB", 3.0) for machine in EVEN)


def bar_rows(wanted: re.Pattern[str]) -> Iterator[tuple[object, ...]]:
    """Solve what has a bar and say whether it keeps to it."""
    for bar in bars():
        if not wanted.search(f"{bar.machine} {bar.size}"):
            continue
        before = used_cpu_s()
        result = teccl.solve(bar.machine, "allreduce", size=bar.size, threads=1)
        gap = 100 * (result.physical_gap or 0.0)
        verdict = "ok" if gap <= bar.gap else "MISSED"
        finish = 1e6 * (result.finish_time_s or 0.0)
        used = used_cpu_s() - before
        yield (*bar, gap, finish, result.method, used, verdict)


def drawn(collective: str, seed: int) -> Iterator[Problem]:
    """Yield random problems of one collective without options."""
    found = (draw_problem("plain", seed, index) for index in count())
    return (problem for problem in found if problem.collective == collective)


def rival_rows(wanted: re.Pattern[str], number: int, seed: int) -> Iterator[tuple[object, ...]]:
    """Solve random AllReduces, and what they must not be later than."""
    for problem in islice(drawn("allreduce", seed), number):
        if not wanted.search(problem.label):
            continue
        before = used_cpu_s()
        with tempfile.TemporaryDirectory() as folder:
            problem.write_files(Path(folder))
            call = {**problem.call(Path(folder)), "threads": 1}
            result = teccl.solve(**call)
            finish, used = result.finish_time_s or 0.0, used_cpu_s() - before
            rivals = {name: solve() for name, solve in _rivals(call, finish)}
        name, best = min(rivals.items(), key=lambda each: each[1])
        verdict = "ok" if finish <= best * (1 + TOLERANCE) else "LATER"
        labels = (problem.key, problem.family, problem.keywords["size"], problem.num_gpus)
        gap = 100 * (result.physical_gap or 0.0)
        times = (1e6 * finish, result.method, gap, used)
        yield (*labels, *times, name, 1e6 * best, finish / best, verdict)


def _rivals(call: dict[str, Any], finish: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield one-shot, the two halves and the baselines, each with how to time it.

    What cannot end before the finish of an AllReduce, by its bound, is not solved.
    """
    gpus, ranks = teccl.Topology.parse(call["topology"]).num_gpus, call.get("ranks")
    members = gpus if ranks is None else len(parse_ranks(ranks))
    size = teccl.Demand.collective("allreduce", size=call["size"]).tenants[0].size
    known = ("topology", "ranks", "without_links", "degrade")

    def time_of(parts: dict[str, int]) -> float:
        fixed = {name: call[name] for name in known if name in call}
        bound = sum(
            teccl.bound(collective=name, size=times * size, **fixed).physical_bound_s
            for name, times in parts.items()
        )
        if bound >= finish:
            return bound
        asked = [{**call, "collective": name, "size": n * size} for name, n in parts.items()]
        return sum(teccl.solve(**each).finish_time_s or float("inf") for each in asked)

    def baseline(name: str) -> float:
        plain = {"method": name, "threads": None, "effort": "normal"}
        with contextlib.suppress(teccl.errors.MethodError):
            return teccl.solve(**{**call, **plain}).finish_time_s or float("inf")
        return float("inf")

    yield "one-shot", lambda: time_of({"allgather": members})
    yield "two halves", lambda: time_of({"reducescatter": 1, "allgather": 1})
    for name in BASELINES:
        yield name, lambda name=name: baseline(name)  # type: ignore[misc]


def cost_rows() -> Iterator[tuple[object, ...]]:
    """Yield processor seconds of a small AllReduce and of an AllGather, in turn."""
    kinds = {"allreduce": "8KB", "allgather": "64KB"}
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(REPEATS + 1):
        for collective, size in kinds.items():
            before = used_cpu_s()
            teccl.solve("dgx-h100", collective, size=size, threads=1)
            # The first loads compiled loops.
            if repeat:
                spent[collective].append(used_cpu_s() - before)
    least = {name: min(seconds) for name, seconds in spent.items()}
    for name, size in kinds.items():
        yield (name, size, least[name], least[name] / least["allgather"])


class Point(NamedTuple):
    """What AllReduces of one size take on a machine in us: the best, its bound, every scheme."""

    size: str
    result: teccl.Result
    bound: float
    finish: float
    schemes: dict[str, float]


def curve(machine: str) -> list[Point]:
    """Solve AllReduces of a machine over size, also by each scheme."""
    points = []
    for size in CURVE_SIZES:
        found = teccl.solve(machine, "allreduce", size=size, threads=1)
        bound, finish = 1e6 * (found.physical_bound_s or 0.0), 1e6 * (found.finish_time_s or 0.0)
        times = scheme_times(machine, size)
        if found.method in times:
            # The search may know more pieces and better ways.
            times[found.method] = min(finish, times[found.method])
        points.append(Point(size, found, bound, finish, times))
    return points


def curve_rows(points: list[Point]) -> Iterator[tuple[object, ...]]:
    """Yield the points of a curve as rows."""
    for size, result, bound, finish, times in points:
        cells = [f"{times[name]:.3f}" if name in times else "-" for name in SCHEMES]
        gap = 100 * (result.physical_gap or 0.0)
        yield (size, f"{bound:.3f}", f"{finish:.3f}", f"{gap:.1f}", result.method, *cells)


def plot(machine: str, points: list[Point], path: Path) -> None:
    """Draw the curve of each scheme, what `auto` finds, and the bound."""
    import matplotlib as mpl

    mpl.use("agg")
    # The same input gives the same bytes.
    mpl.rcParams["svg.hashsalt"] = "teccl"
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 4.2))
    sizes = [float(point.result.size_bytes) for point in points]
    for name in SCHEMES:
        known = [
            (s, p.schemes[name]) for s, p in zip(sizes, points, strict=True) if name in p.schemes
        ]
        if known:
            ax.plot(*zip(*known, strict=True), marker="o", markersize=3, linewidth=1, label=name)
    ax.plot(sizes, [p.finish for p in points], color="black", linewidth=2, label="auto")
    ax.plot(sizes, [p.bound for p in points], color="#555555", linestyle="--", label="bound")
    ax.set(xscale="log", yscale="log", xlabel="size", ylabel="time (us)", title=machine)
    ax.xaxis.set_major_formatter(lambda value, _: format_size(round(value)) if value >= 1 else "")
    ax.grid(visible=True, alpha=0.3)
    ax.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def scheme_times(machine: str, size: str) -> dict[str, float]:
    """Return the least time of each scheme in us, with as many pieces as make it faster."""
    problem = teccl.Problem(
        topology=teccl.Topology.parse(machine),
        demand=teccl.Demand.collective("allreduce", size=size),
        whole_buffer=True,
    )
    best: dict[str, float] = {}
    for scheme in schemes(problem):
        before, pieces = float("inf"), len(scheme.shares)
        while outlook(problem, scheme).deliveries * pieces <= MOST_DELIVERIES * len(scheme.shares):
            cut = replace(problem, num_chunks=pieces)
            schedule = staged_schedule(cut, scheme, Goal(allowance=BUDGET["quick"]))
            if schedule is None:
                break
            finish = teccl.simulate(schedule).finish_ps / 1e6
            best[scheme.name] = min(finish, best.get(scheme.name, finish))
            if finish * (1 + TOLERANCE) >= before:
                break
            before, pieces = finish, 2 * pieces
    return best


def main() -> None:
    """Print the tables that were asked for."""
    tables = ("bars", "rivals", "cost", "curves")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=tables, default=tables, metavar="TABLE")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX")
    parser.add_argument("--count", type=int, default=100, help="random problems with rivals")
    parser.add_argument("--seed", type=int, default=4, help="of the problems with rivals")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw the curves there")
    asked = parser.parse_args()
    print_machine()
    if "bars" in asked.tables:
        heads = ("machine", "size", "most %", "gap %", "us", "method", "cpu s", "verdict")
        print_table("Gaps of small AllReduces", heads, bar_rows(asked.only))
    if "rivals" in asked.tables:
        times = ("us", "method", "gap %", "cpu s", "best rival", "its us", "ratio", "verdict")
        heads = ("key", "family", "size", "gpus", *times)
        print_table("AllReduces and rivals", heads, rival_rows(asked.only, asked.count, asked.seed))
    if "cost" in asked.tables:
        heads = ("collective", "size", "cpu s", "times the AllGather")
        print_table("Cost on dgx-h100", heads, cost_rows())
    for machine in CURVES if "curves" in asked.tables else ():
        if asked.only.search(machine):
            heads = ("size", "bound", "auto", "gap %", "by", *SCHEMES)
            points = curve(machine)
            print_markdown(f"Schemes on {machine}, us", heads, curve_rows(points))
            if asked.plot is not None:
                name = re.sub("[^a-z0-9]+", "-", machine)
                plot(machine, points, asked.plot / f"allreduce-{name}.svg")


if __name__ == "__main__":
    main()
