"""Rank programs: executed in any order of messages, they give the right result."""

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.runtime.interpreter import run_programs
from tests.verification.generate import random_schedule
from tests.verification.partial import one_shot, random_partial

import teccl
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.runtime.extract import rank_program
from teccl.runtime.messages import messages_of
from teccl.schedule import Schedule, send_array
from teccl.synthesis.request import OBEYED_BY

COLLECTIVES = [c.value for c in Collective if c not in (Collective.ALLTOALLV, Collective.EXPLICIT)]


def solved(topology: str, collective: str, **options) -> Schedule:
    method = "auto" if collective == "allreduce" else "construct"
    options = {"size": "1001B", "method": method, **options}
    options |= {"effort": "quick"} if options["method"] in OBEYED_BY["effort"] else {}
    schedule = teccl.solve(topology, collective, **options).schedule
    assert schedule is not None
    return schedule


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", ["star:gpus=5", "mesh:dims=2x3"])
def test_every_collective_gives_the_right_result(topology, collective):
    """Constructed schedules of all collectives end with exactly what MPI's would."""
    assert run_programs(solved(topology, collective), seed=1) == 0


@pytest.mark.parametrize("method", ["ring", "recursive-doubling", "double-binary-tree"])
def test_baselines_give_the_right_result(method):
    """The baselines' AllReduce, which sends sums while it forms new ones, is right."""
    schedule = solved("fully-connected:gpus=8", "allreduce", method=method)
    assert [run_programs(schedule, seed=seed) for seed in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("op", ["sum", "min", "max", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint16", "int64"])
def test_operations_and_types(op, dtype):
    """All reductions are exact in all types."""
    schedule = solved("ring:gpus=4", "allreduce", size="77B")
    assert run_programs(schedule, dtype=dtype, op=op) == 0


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_of_every_mode(seed):
    """Switches that copy or reduce, profiles, no copying, ready times, tenants: all run."""
    assert run_programs(random_schedule(seed), seed=seed) == 0


@pytest.mark.parametrize("seed", range(12))
def test_partial_sums_give_the_right_result(seed):
    """Relays and exchanges that keep several sums apart run, in any order of messages."""
    schedule = random_partial(seed)
    assert [run_programs(schedule, seed=order) for order in range(2)] == [0, 0]


def test_partial_sums_of_a_late_rank_wait_for_it():
    """An own contribution that is ready late is added late."""
    schedule = one_shot(teccl.Topology.parse("ring:gpus=4"), 1000)
    demand = Demand.collective("allreduce", size=1000, ready={2: "3us"})
    sends = schedule.sends.copy()
    sends["start_ps"] += 3_000_000
    problem = replace(schedule.problem, demand=demand)
    late = replace(schedule, problem=problem, sends=sends)
    assert teccl.verify(late) == ()
    assert run_programs(late, seed=3) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 1500))
def test_many_random_schedules_of_every_mode(seed):
    """The same, many times."""
    assert run_programs(random_schedule(seed), seed=seed) == 0


def test_uneven_matrix_and_forwarding_ranks():
    """AllToAllv among ranks that reach each other only through others."""
    matrix = [["0B", "10B", "3B"], ["7B", "5B", "0B"], ["1B", "100B", "0B"]]
    demand = Demand.collective("alltoallv", ranks=[0, 2, 4], matrix=matrix)
    schedule = teccl.solve("ring:gpus=6", demand=demand, chunks=3, effort="quick").schedule
    assert run_programs(schedule, dtype="int32") == 0


def test_late_contribution_joins_a_sum_on_its_way():
    """A sum that has come before the rank's own data is ready waits for it."""
    chunk = ExplicitChunk(sources=(0, 1, 2), destinations=(2,), reduce=True)
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(1000),
        chunks=(chunk,),
        ready={1: Fraction(1, 10_000)},
    )
    problem = Problem(
        topology=teccl.Topology.parse("line:gpus=3"), demand=Demand(tenants=(tenant,))
    )
    links = problem.topology
    first, second = links.find_links("gpu0>gpu1")[0], links.find_links("gpu1>gpu2")[0]
    sends = send_array(chunk=[0, 0], link=[first, second], start_ps=[0, 200_000_000], reduce=True)
    schedule = Schedule(problem=problem, sends=sends)
    assert not teccl.verify(schedule)
    program = rank_program(schedule, messages_of(schedule), 1, itemsize=4)
    arrival, join = program.steps
    assert (arrival.ready_ps, join.ready_ps) == (0, 100_000_000)
    assert join.before == arrival.out
    assert run_programs(schedule) == 0


def test_empty_chunks_are_not_sent():
    """Where there are more chunks than elements, the rest stays at home."""
    schedule = solved("ring:gpus=4", "allgather", size="16B", chunks=4)
    messages = messages_of(schedule)
    program = rank_program(schedule, messages, 0, itemsize=4)
    assert len(program.receives) == 3
    assert run_programs(schedule, dtype="float32") == 0
