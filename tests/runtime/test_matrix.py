"""Full counts on real ranks: all collectives, methods and sizes on four networks, and at random."""

from dataclasses import replace
from itertools import product

import pytest
from tests.construct.staging import KINDS, MACHINES, staged_allreduce
from tests.construct.staging import SIZES as SUM_SIZES
from tests.runtime.random_cases import random_case
from tests.runtime.ranks import run_schedules

import teccl
from teccl.demand import Collective, Demand
from teccl.errors import MethodError
from teccl.schedule import Schedule
from teccl.synthesis.request import OBEYED_BY

pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")

TOPOLOGIES = ["ring:gpus=4", "dgx1", "ndv2:chassis=2", "torus:dims=4x4"]
COLLECTIVES = [c.value for c in Collective if c is not Collective.EXPLICIT]
WITHOUT_COPY = ("alltoall", "alltoallv", "scatter", "gather", "scattergather")
# Bytes, and how often each is run.
SIZES = {"1KB": 100, "1MB": 100, "1237B": 100, "99991B": 100, "64MB": 3}
# Chunks that auto may cut blocks into where a schedule is run a hundred times.
MAX_CHUNKS = 8
# Time for each of the paper's models; an exact one keeps the best schedule it has by then.
LIMITS = {"lp": "10min", "milp": "20s"}


def demand_of(collective: str, size: str, gpus: int) -> Demand:
    if collective != "alltoallv":
        return Demand.collective(collective, size=size)
    total = Demand.collective("allreduce", size=size).tenants[0].size
    matrix = [[(a + 2 * b) % 3 * total / gpus / 2 for b in range(gpus)] for a in range(gpus)]
    return Demand.collective(collective, matrix=matrix)


def methods_for(topology: str, collective: str) -> list[str]:
    methods = ["auto", "ring"]
    if collective in WITHOUT_COPY:
        methods.append("lp")
    if topology in TOPOLOGIES[:2]:
        methods.append("milp")
    return methods


def resized(schedule: Schedule, demand: Demand) -> Schedule:
    """The same sends with less data: they end earlier, so nothing that fitted before clashes."""
    problem = replace(schedule.problem, demand=demand)
    smaller = Schedule(problem=problem, sends=schedule.sends, method=schedule.method)
    assert not teccl.verify(smaller)
    return smaller


def solved(topology: str, collective: str, method: str) -> dict[str, Schedule]:
    """Schedules of all sizes; the paper's models are solved for the largest only.

    A kilobyte takes hundreds of epochs to cross sixteen GPUs, and a model of them minutes or hours.
    """
    network = teccl.Topology.parse(topology)
    demands = {size: demand_of(collective, size, network.num_gpus) for size in SIZES}
    options = {"method": method, "time_limit": LIMITS.get(method)}
    options |= {"effort": "quick"} if method in OBEYED_BY["effort"] else {}
    if method in LIMITS:
        largest = teccl.solve(network, demand=demands["64MB"], **options).schedule
        return {size: resized(largest, demand) for size, demand in demands.items()}
    found = {}
    for size, demand in demands.items():
        often = method == "auto" and SIZES[size] >= 100
        most = {"max_chunks": MAX_CHUNKS} if often else {}
        found[size] = teccl.solve(network, demand=demand, **most, **options).schedule
    return found


def schedules_of(topology: str, collective: str) -> list[tuple[Schedule, dict]]:
    """Schedules by all methods that serve, in all sizes."""
    found = []
    for method in methods_for(topology, collective):
        try:
            schedules = solved(topology, collective, method)
        except MethodError:
            continue
        for size, repeat in SIZES.items():
            found.append((schedules[size], {"repeat": repeat, "warmup": 1}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_collective_method_and_size(tmp_path, topology, collective):
    """Results are those of the MPI library to the last bit, every time."""
    cases = schedules_of(topology, collective)
    reports = run_schedules(tmp_path, cases)
    assert len(reports) == len(cases) >= len(SIZES)
    for (schedule, options), report in zip(cases, reports, strict=True):
        found = (report["wrong"], report["differs"], report["repeat"])
        assert found == (0, 0, options["repeat"]), schedule


def run_staged(folder, topology: str, sizes: tuple[str, ...], repeat: int) -> None:
    """Run AllReduces of all kinds: exact for integers, the same bytes on all ranks for floats."""
    cases = []
    for size, kind in product(sizes, KINDS):
        schedule = staged_allreduce(topology, size, kind)
        assert schedule.same_order
        cases += [(schedule, {"dtype": t, "repeat": repeat}) for t in ("int64", "float32")]
    reports = run_schedules(folder, cases)
    for (schedule, options), report in zip(cases, reports, strict=True):
        found = (report["wrong"], report["differs"], report["repeat"])
        assert found == (0, 0, repeat), (schedule.method, options)


@pytest.mark.slow
@pytest.mark.parametrize("topology", MACHINES)
def test_staged_allreduces_of_machines(tmp_path, topology):
    """Twenty repeats of one-shot, exchanges and shares of both, of all sizes, in one launch."""
    run_staged(tmp_path, topology, SUM_SIZES, 20)


def test_staged_allreduces(tmp_path):
    """A few repeats of each kind on four ranks."""
    run_staged(tmp_path, "torus:dims=2x2", ("1KB",), 3)


def run_random(folder, seeds) -> int:
    """Run schedules of random problems, those of one number of ranks together."""
    by_ranks: dict[int, list[Schedule]] = {}
    for seed in seeds:
        schedule = random_case(seed)
        by_ranks.setdefault(schedule.problem.topology.num_gpus, []).append(schedule)
    for ranks, schedules in by_ranks.items():
        inside = folder / str(ranks)
        inside.mkdir()
        for report in run_schedules(inside, [(schedule, {}) for schedule in schedules]):
            assert (report["wrong"], report["differs"] or 0) == (0, 0), report["method"]
    return sum(len(schedules) for schedules in by_ranks.values())


def test_random_problems_by_random_methods(tmp_path):
    """A few random networks, demands and methods, most of three ranks, which start together."""
    assert run_random(tmp_path, (1009, 1022, 1025, 1042)) == 4


@pytest.mark.slow
def test_two_hundred_random_problems_by_random_methods(tmp_path):
    """Two hundred of them."""
    assert run_random(tmp_path, range(200)) == 200
