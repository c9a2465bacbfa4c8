"""AllToAllv at speed: random skewed matrices, planned twice, against the bound and direct sends.

    python benchmarks/exchange.py [--cases 200] [--work 1000000] [--first 0]

Prints a line for each case and the figures that matter: gaps of the first schedule and of the one
after some work, processor time of the first call, of a re-plan and of the improvement, and how
many cases were later than direct sends in rank order.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

import teccl
from teccl.bounds import summarise
from teccl.demand import Demand
from teccl.exchange.attempts import Attempts
from teccl.exchange.cutting import FIRST

ONE_TIER = ("star:gpus={}", "dgx-h100", "fully-connected:gpus={}")
TWO_TIERS = ("dgx-h100:chassis={}", "dgx-a100:chassis={}", "mi300x:chassis={}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network and the bytes that each rank sends to each other."""

    topology: str
    skew: str
    matrix: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Gaps to the bound and processor time in seconds."""

    first_gap: float
    gap: float
    direct_gap: float
    first_s: float
    again_s: float
    improved_s: float


def draw(seed: int) -> Case:
    """Draw a case: half of them on one tier; sizes vary by pair, by receiver, or one in ten."""
    random = np.random.default_rng(seed)
    if seed % 2:
        name = ONE_TIER[random.integers(len(ONE_TIER))].format(random.integers(8, 65))
    else:
        name = TWO_TIERS[random.integers(len(TWO_TIERS))].format(random.integers(2, 9))
    gpus = teccl.Topology.parse(name).num_gpus
    mean = 2.0 ** random.uniform(17, 23)
    kind = random.choice(["pairs", "receivers", "hot"])
    if kind == "pairs":
        weight = random.lognormal(0, random.uniform(0.3, 1.5), (gpus, gpus))
    elif kind == "receivers":
        share = (1 + np.arange(gpus)) ** -random.uniform(0.3, 1.2)
        weight = random.permutation(share) * random.lognormal(0, 0.3, (gpus, gpus))
    else:
        weight = np.where(random.random((gpus, gpus)) < 0.1, random.uniform(2, 20), 1.0)
        weight = weight * random.lognormal(0, 0.1, (gpus, gpus))
    matrix = np.rint(mean * weight / weight.mean()).astype(np.int64)
    np.fill_diagonal(matrix, 0)
    return Case(topology=name, skew=str(kind), matrix=matrix)


def run(case: Case, work: int) -> Outcome:
    """Plan a case on a new planner, then its mirror image, then with work."""
    topology = teccl.Topology.parse(case.topology)
    planner = teccl.Planner(topology)
    start = time.process_time()
    first = planner.plan(case.matrix)
    first_s = time.process_time() - start
    start = time.process_time()
    planner.plan(np.ascontiguousarray(case.matrix.T))
    again_s = time.process_time() - start
    start = time.process_time()
    best = planner.plan(case.matrix, work=work)
    improved_s = time.process_time() - start
    demand = Demand.collective("alltoallv", matrix=case.matrix.tolist())
    whole = Attempts(planner.jobs(demand, 1), np.random.default_rng(0), FIRST)
    bound = summarise(whole.jobs.problem, grid=None, given_chunks=False, narrow=True).physical_ps
    return Outcome(
        first_gap=first.finish_ps / bound - 1,
        gap=best.finish_ps / bound - 1,
        direct_gap=whole.straight().finish / bound - 1,
        first_s=first_s,
        again_s=again_s,
        improved_s=improved_s,
    )


def percentiles(values: list[float]) -> str:
    """Median, ninth decile and largest."""
    return " ".join(f"{np.quantile(values, q):8.4f}" for q in (0.5, 0.9, 1.0))


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--work", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    teccl.Planner("star:gpus=3").plan(np.ones((3, 3)), work=10_000)
    outcomes = []
    for seed in range(options.first, options.first + options.cases):
        case = draw(seed)
        found = run(case, options.work)
        outcomes.append(found)
        print(
            f"{seed:4} {case.topology:24} {case.skew:9} first {found.first_gap:7.4f} "
            f"work {found.gap:7.4f} direct {found.direct_gap:7.4f}  "
            f"{found.first_s:6.3f} {found.again_s:6.3f} {found.improved_s:6.3f} s",
            flush=True,
        )
    late = sum(max(o.first_gap, o.gap) > o.direct_gap for o in outcomes)
    print(f"{len(outcomes)} cases         median   9 of 10  largest")
    print("gap of the first    ", percentiles([o.first_gap for o in outcomes]))
    print("gap after work      ", percentiles([o.gap for o in outcomes]))
    print("first call, s       ", percentiles([o.first_s for o in outcomes]))
    print("planned again, s    ", percentiles([o.again_s for o in outcomes]))
    print("with work, s        ", percentiles([o.improved_s for o in outcomes]))
    print("again / first       ", percentiles([o.again_s / o.first_s for o in outcomes]))
    print(f"later than direct sends in rank order: {late}")


if __name__ == "__main__":
    main()
