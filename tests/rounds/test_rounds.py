"""Rounds of schedules: proven right, as few as can be, and their cost."""

import random
from fractions import Fraction

import pytest
from tests.torch.schedules import COLLECTIVES, has_root, one_shot, random_schedule, solved

import teccl
from teccl.demand import Collective, Demand, Tenant
from teccl.errors import ScheduleError
from teccl.replay import simulate
from teccl.rounds.cost import round_cost
from teccl.rounds.executable import Executable, full_count
from teccl.rounds.rounds_proof import prove
from teccl.schedule import Schedule

NAMED = ("dgx1", "ndv2:chassis=2", "dgx-h100:chassis=2", "torus:dims=4x4")


def proven(schedule: Schedule, count: int | None = None) -> Executable:
    """Lower a schedule and prove the rounds of all its ranks."""
    executable = Executable.of(schedule)
    number = count or full_count(schedule)
    ranks = range(schedule.problem.topology.num_gpus)
    rounds = [executable.rank_rounds(rank, number) for rank in ranks]
    prove(rounds, schedule.problem.demand.tenants[0], number)
    return executable


def longest_chain(schedule: Schedule) -> int:
    """Messages one after the other, each of which carries what the one before brought."""
    executable = Executable.of(schedule)
    messages, table = executable.messages, schedule.problem.chunks
    gpus = schedule.problem.topology.gpus
    levels: list[int] = []
    for m in range(len(messages)):
        src, chunk = int(messages.src[m]), int(messages.chunk[m])
        held = gpus[src] in table.sources(chunk)
        before = [
            levels[k]
            for k in range(m)
            if messages.dst[k] == src
            and messages.chunk[k] == chunk
            and messages.arrival_ps[k] <= messages.start_ps[m]
        ]
        if not table.reduce[chunk]:
            # A copy is fed by the first arrival, or by the own data.
            before = [] if held else before[:1]
        is_local = messages.src[m] == messages.dst[m]
        levels.append(max(before, default=0) + (not is_local))
    return max(levels, default=0)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_rounds_of_every_collective_are_proven(collective):
    """Constructed schedules with and without a switch, and one-shot ones."""
    root = 2 if has_root(collective) else None
    for schedule in (
        solved("star:gpus=4", collective, root=root),
        solved("mesh:dims=2x3", collective, root=root),
        one_shot(4, collective, root=root),
    ):
        assert proven(schedule).num_rounds == longest_chain(schedule)


@pytest.mark.parametrize("count", [6, 12, 30, 66])
def test_rounds_of_few_elements_are_proven(count):
    """With fewer elements than chunks some chunks are empty and their messages go."""
    proven(solved("mesh:dims=2x3", "allreduce", chunks=5), count)
    proven(solved("mesh:dims=2x3", "alltoall", chunks=3), count)


def test_a_ring_takes_as_many_rounds_as_hops():
    """An AllGather around one ring of four passes everything on three times."""
    schedule = solved("ring:gpus=4", "allgather", method="ring", chunks=1)
    assert proven(schedule).num_rounds == longest_chain(schedule)


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules_are_proven(seed):
    """Random networks, methods and collectives."""
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_many_random_schedules_are_proven(seed):
    """The same, two hundred times in all."""
    check_random(seed)


def check_random(seed: int) -> None:
    rng = random.Random(seed)
    gpus, collective = rng.randrange(2, 9), rng.choice(COLLECTIVES)
    root = rng.randrange(gpus) if has_root(collective) else None
    schedule = random_schedule(rng, gpus, collective, root)
    executable = proven(schedule)
    proven(schedule, gpus * rng.randrange(1, 9))
    assert executable.num_rounds <= 1.5 * longest_chain(schedule)
    assert executable.is_same


@pytest.mark.parametrize("topology", ["dgx1", "torus:dims=4x4"])
def test_named_topologies_are_proven(topology):
    """An AllReduce on a machine and on a torus."""
    schedule = solved(topology, "allreduce", size="64KB", chunks=2)
    assert proven(schedule).num_rounds <= 1.5 * longest_chain(schedule)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1KB", "1MB", "64MB"])
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "reducescatter", "alltoall"])
@pytest.mark.parametrize("topology", NAMED)
def test_named_plans_are_proven(topology, collective, size):
    """Four topologies, four collectives, three sizes, as the best schedule is found."""
    proven(solved(topology, collective, size=size))


def test_one_shot_sums_are_formed_alike_on_all_ranks():
    """Ranks that add what comes from all others add it in the same order."""
    executable = proven(one_shot(5, "allreduce"))
    assert executable.lowest is not None
    assert executable.is_same


def test_an_exchange_is_an_alltoall_in_which_nothing_is_passed_on():
    """Whole blocks or pieces of them, as long as each goes straight to who wants it."""
    assert Executable.of(one_shot(4, "alltoall")).is_exchange
    pieces = solved("fully-connected:gpus=4", "alltoall", method="shortest-path", chunks=3)
    assert Executable.of(pieces).is_exchange
    assert not Executable.of(solved("ring:gpus=4", "alltoall")).is_exchange
    assert not Executable.of(one_shot(4, "allgather")).is_exchange


def test_rounds_cost_what_they_lose():
    """A pipelined broadcast along a line loses its overlap; a direct exchange loses nothing."""
    schedule = solved("line:gpus=4", "broadcast", size="1MB", chunks=8)
    cost = round_cost(Executable.of(schedule))
    assert cost.num_rounds == 3
    assert cost.finish_ps > 1.5 * simulate(schedule).finish_ps
    direct = one_shot(4, "alltoall")
    assert round_cost(Executable.of(direct)).finish_ps == simulate(direct).finish_ps


def test_beginning_a_round_costs_its_overhead():
    """Three rounds with an overhead end at least three overheads later."""
    executable = Executable.of(solved("line:gpus=4", "broadcast", size="1MB", chunks=8))
    plain = round_cost(executable).finish_ps
    assert round_cost(executable, overhead_ps=10**7).finish_ps == plain + 3 * 10**7


def test_what_a_switch_copies_is_sent_to_each():
    """Rounds send point to point, so a switch that copies helps no more."""
    schedule = solved("star:gpus=4", "broadcast", size="1MB", chunks=1)
    cost = round_cost(Executable.of(schedule))
    assert cost.finish_ps > simulate(schedule).finish_ps


def test_several_collectives_at_once_are_refused():
    """A process group makes one call at a time."""
    tenants = tuple(
        Tenant(collective=Collective.ALLGATHER, size=Fraction(1000), name=name)
        for name in ("one", "two")
    )
    schedule = teccl.solve("ring:gpus=4", demand=Demand(tenants=tenants), effort="quick").schedule
    with pytest.raises(ScheduleError, match="serves 2 collectives at once"):
        Executable.of(schedule)
