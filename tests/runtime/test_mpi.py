"""Schedules on real MPI ranks: exact results, the same as the MPI library's."""

from dataclasses import replace
from itertools import islice

import pytest
from tests.runtime.ranks import run_schedules, run_script
from tests.verification.generate import random_schedule
from tests.verification.partial import exchange, one_shot

import teccl
from teccl.demand import Collective, Demand
from teccl.schedule import Schedule
from teccl.synthesis.request import OBEYED_BY

pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")

COLLECTIVES = [c.value for c in Collective if c not in (Collective.ALLTOALLV, Collective.EXPLICIT)]


def solved(topology: str, collective: str | None = None, **options) -> Schedule:
    if "chunks" in options and collective != "allreduce":
        options.setdefault("method", "construct")
    if options.get("method", "auto") in OBEYED_BY["effort"]:
        options.setdefault("effort", "quick")
    if "demand" not in options:
        options.setdefault("size", "1KB")
    schedule = teccl.solve(topology, collective, **options).schedule
    assert schedule is not None
    return schedule


def assert_exact(reports: list[dict], *, library: bool = True) -> None:
    """No element is wrong, nor different from the library's."""
    assert reports
    assert [report["wrong"] for report in reports] == [0] * len(reports)
    if library:
        assert [report["differs"] for report in reports] == [0] * len(reports)
        assert all(row["library"]["wrong"] == 0 for r in reports for row in r["rows"][-1:])


Case = tuple[Schedule, dict]


def every_collective(topology: str) -> list[Case]:
    cases = []
    for collective in COLLECTIVES:
        rings = collective in ("allgather", "reducescatter", "allreduce")
        for method in ["auto", "ring"] if rings else ["auto"]:
            schedule = solved(topology, collective, size="100007B", method=method)
            cases.append((schedule, {"repeat": 3}))
    return cases


def types_and_operations() -> list[Case]:
    schedule = solved("ring:gpus=3", "allreduce", size="1001B")
    types = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "uint64"]
    options = [
        {"dtype": dtype, "op": op} for dtype in types for op in ("sum", "min", "max", "prod")
    ]
    return [(schedule, option) for option in options]


def partial_sums() -> list[Case]:
    cases = []
    for schedule in (
        one_shot(teccl.Topology.parse("ring:gpus=4"), 1000, 2),
        one_shot(teccl.Topology.parse("star:gpus=4"), 4097),
        exchange(2, 1000),
    ):
        assert schedule.same_order
        cases += [(schedule, {"dtype": dtype, "repeat": 5}) for dtype in ("int64", "float32")]
    return cases


def own_orders() -> list[Case]:
    schedule = one_shot(teccl.Topology.parse("ring:gpus=4"), 4000, same_order=False)
    return [(schedule, {"dtype": "float32"})]


def tenants_matrix_and_explicit_chunks() -> list[Case]:
    matrix = [["0B", "10B", "3B"], ["7B", "5B", "0B"], ["1B", "1000B", "0B"]]
    uneven = Demand.collective("alltoallv", ranks=[0, 2, 3], matrix=matrix)
    tenants = Demand(
        tenants=(
            *Demand.collective("allgather", size="1KB", ranks=[0, 1, 3]).tenants,
            teccl.Tenant(
                name="sums",
                collective=Collective.ALLREDUCE,
                size=Demand.collective("allreduce", size="3KB").tenants[0].size,
                ranks=(1, 2, 3),
            ),
        )
    )
    return [(solved("ring:gpus=4", demand=demand, chunks=2), {}) for demand in (uneven, tenants)]


def random_cases(ranks: int) -> list[Case]:
    made = [random_schedule(seed) for seed in range(200, 225)]
    return [(schedule, {}) for schedule in made if schedule.problem.topology.num_gpus == ranks]


def emulated() -> list[Case]:
    options = {"time_scale": 2000.0, "emulate": True, "repeat": 2}
    return [
        (solved("ring:gpus=3", "allreduce", size="30KB", chunks=2), options),
        (solved("star:gpus=3", "allgather", size="30KB", chunks=1), options),
    ]


# Cases of one number of ranks are run together: each start of ranks takes seconds.
TOGETHER = {
    3: {
        "star": lambda: every_collective("star:gpus=3"),
        "types": types_and_operations,
        "random 3": lambda: random_cases(3),
        "emulated": emulated,
    },
    4: {
        "ring": lambda: every_collective("ring:gpus=4"),
        "sums": partial_sums,
        "own orders": own_orders,
        "tenants": tenants_matrix_and_explicit_chunks,
        "random 4": lambda: random_cases(4),
    },
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, list[dict]]:
    """What ranks report of all cases, by what they are of."""
    found = {}
    for ranks, parts in TOGETHER.items():
        made = {name: make() for name, make in parts.items()}
        every = [case for cases in made.values() for case in cases]
        left = iter(run_schedules(tmp_path_factory.mktemp(str(ranks)), every))
        found |= {name: list(islice(left, len(cases))) for name, cases in made.items()}
        assert list(left) == []
    return found


@pytest.mark.parametrize("topology", ["ring", "star"])
def test_every_collective_is_exact(reports, topology):
    """Constructed schedules and rings give what the MPI library gives."""
    assert_exact(reports[topology])


def test_types_and_operations_are_exact(reports):
    """All types and operations, float16 among them, agree with the library bit by bit."""
    assert_exact(reports["types"])


def test_partial_sums_are_exact_and_the_same_everywhere(reports):
    """One-shot and exchanges: exact for integers, the same bits on all ranks for floats."""
    assert_exact(reports["sums"])


def test_a_false_claim_of_one_order_is_not_run(reports, tmp_path):
    """Ranks that add in their own order are exact for whole numbers, but may not claim more."""
    assert_exact(reports["own orders"])
    ((schedule, _),) = own_orders()
    with pytest.raises(teccl.TecclError, match="unequal-order"):
        run_schedules(tmp_path, [(replace(schedule, same_order=True), {"dtype": "float32"})])


def test_large_messages_are_exact(tmp_path):
    """Messages that MPI does not copy on the way, in several pieces."""
    cases = [
        (solved("ring:gpus=2", "allreduce", size="4MB", chunks=3), {"dtype": "float64"}),
        (solved("ring:gpus=2", "alltoall", size="4MB", chunks=1), {"dtype": "uint8"}),
    ]
    assert_exact(run_schedules(tmp_path, cases))


def test_tenants_matrix_and_explicit_chunks_are_exact(reports):
    """Several tenants, uneven blocks, ranks that only forward, and chunks by hand."""
    assert_exact(reports["tenants"])
    assert [row["name"] for row in reports["tenants"][1]["rows"]] == ["all", "tenant0", "sums"]


def test_random_schedules_run(reports):
    """Random correct schedules of every mode, switches and reductions included, are exact."""
    for ranks in TOGETHER:
        assert_exact(reports[f"random {ranks}"], library=False)


def test_emulated_links_are_never_faster_than_simulated(reports):
    """Pacing holds every link to its rate, whatever the load of the machine."""
    assert_exact(reports["emulated"], library=False)
    for report in reports["emulated"]:
        assert min(report["rows"][0]["teccl"]["seconds"]) >= 0.999 * report["simulated_s"]


PROGRAM = """
import numpy as np
from mpi4py import MPI
import teccl
from teccl.runtime.mpi import MpiCollective

comm = MPI.COMM_WORLD
rank, n = comm.rank, comm.size
reduce = MpiCollective(teccl.Schedule.load("ar.json"), comm, count=1003, timeout=20)
gather = MpiCollective(teccl.Schedule.load("ag.json"), comm, timeout=20)
for turn in range(7):  # more buffers than requests are kept for
    send, recv = np.full(1003, rank + turn, "int32"), np.zeros(1003, "int32")
    for _ in range(3):
        reduce.run(send, recv)
        assert (recv == sum(range(n)) + n * turn).all()
    reduce.run(None, send)
    assert (send == sum(range(n)) + n * turn).all()
    reduce.run(recv, recv)
    assert (recv == n * (sum(range(n)) + n * turn)).all()
(layout,) = gather.layouts("float64")
place = np.zeros(layout.recv_count)
place[rank * layout.send_count : (rank + 1) * layout.send_count] = rank + 1
gather.run(None, place)
assert (place == np.repeat(np.arange(n) + 1, layout.send_count)).all()
reduce.close()
gather.close()
print("fine")
"""


def test_collective_in_a_users_program(tmp_path):
    """Reused, in place, for another count, with many buffers: the calls stay right."""
    solved("ring:gpus=3", "allreduce", size="10KB").save(tmp_path / "ar.json")
    solved("ring:gpus=3", "allgather", size="10KB").save(tmp_path / "ag.json")
    done = run_script(tmp_path, 3, PROGRAM)
    assert (done.returncode, done.stdout.count("fine")) == (0, 3), done.stderr
