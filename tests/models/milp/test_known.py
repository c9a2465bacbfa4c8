"""The general model on networks small enough to work out by hand."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.models.exactly import MICROSECOND, is_least, schedule_within
from tests.verification.helpers import net, task, wants, with_profile

from teccl import solvers
from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.models.milp.arcs import arcs_of
from teccl.models.milp.general import MilpGoal, build_milp, estimate_milp, most_copies
from teccl.problem import Problem, SwitchMode, Transit
from teccl.solvers import SolverStatus
from teccl.timegrid import TimeGrid

STAR = "a>s, s>b, s>c, s>d"


def broadcast(topology, **options) -> Problem:
    """One chunk from the first GPU to all others."""
    everyone = tuple(range(1, topology.num_gpus))
    return task(topology, wants(((0,), everyone)), **options)


def allgather(topology, chunks: int = 1, **options) -> Problem:
    """An AllGather with chunks of 1000 bytes."""
    demand = Demand.collective("allgather", size=1000 * topology.num_gpus * chunks)
    return Problem(topology=topology, demand=demand, num_chunks=chunks, **options)


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_delay_is_not_that_of_the_longest_path(solver):
    """The paper's first figure: latencies run side by side, so it ends after alpha_2 + 3 beta."""
    topology = net("s1 h1 h2 h3 d s2", "s1>h1 1 1, h1>h2 1 1, h2>h3 1 1, h3>d 1 0, s2>h3 1 5")
    problem = task(topology, wants(((0,), (4,)), ((5,), (4,))))
    assert is_least(problem, 8, solver=solver)


@pytest.mark.parametrize("buffer", [None, 0])
def test_store_and_forward_does_not_change_the_paper_s_second_figure(buffer):
    """Three sources and one link of twice the rate need three seconds with and without buffers."""
    topology = net("s1 s2 s3 h d", "s1>h 1, s2>h 1, s3>h 1, h>d 2")
    problem = task(topology, wants(((0,), (4,)), ((1,), (4,)), ((2,), (4,))), buffer=buffer)
    assert is_least(problem, 3)


@pytest.mark.parametrize(("copy", "epochs"), [(True, 2), (False, 4)])
def test_copy_halves_the_paper_s_third_figure(copy, epochs):
    """Over one link and three more, copies at the hub need two seconds, separate sends four."""
    topology = net("s h d1 d2 d3", "s>h, h>d1, h>d2, h>d3")
    assert is_least(task(topology, wants(((0,), (2, 3, 4))), copy=copy), epochs)


def test_fractions_that_are_copied_would_cheat():
    """Two GPUs that get the same half and pass it on seem to make a whole; whole chunks do not."""
    topology = net("s m d1 d2 d3", "s>m 1, m>d1 1, m>d2 1, d1>d3 1, d2>d3 1")
    problem = task(topology, wants(((0,), (2, 3, 4)), ((0,), (2, 3, 4)), ((0,), (2, 3, 4))))
    model = build_milp(problem, TimeGrid(problem=problem, epoch=MICROSECOND), 4).model
    relaxed = replace(model, integer=np.zeros(model.num_columns, dtype=bool))
    assert solvers.solve(relaxed).status is SolverStatus.OPTIMAL
    assert is_least(problem, 5)


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({}, 2),
        ({"switch": SwitchMode.NO_COPY}, 4),
        ({"switch": SwitchMode.HYPER_EDGE}, 3),
        ({"transit": Transit.CUT_THROUGH}, 1),
        ({"transit": Transit.CUT_THROUGH, "switch": SwitchMode.NO_COPY}, 3),
    ],
)
@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_switches(options, epochs, solver):
    """One chunk to three: copied on the way, sent three times, or as circuits."""
    problem = broadcast(net("a b c d | s", STAR), **options)
    assert is_least(problem, epochs, solver=solver)


def test_linked_switches_do_not_justify_each_other():
    """In circuits no time passes in switches, yet a chunk must come from somewhere."""
    topology = net("a b | s t", "a>s 1/4, s-t 1, t>b 1")
    problem = broadcast(topology, transit=Transit.CUT_THROUGH)
    assert is_least(problem, 4)


def test_circuits_share_a_link():
    """Two circuits of half the rate of their common link run at the same time."""
    topology = net("a b c d | s t", "a>s 1, b>s 1, s>t 2, t>c 1, t>d 1")
    problem = task(topology, wants(((0,), (2,)), ((1,), (3,))), transit=Transit.CUT_THROUGH)
    assert is_least(problem, 1)
    slow = net("a b c d | s t", "a>s 1, b>s 1, s>t 1, t>c 1, t>d 1")
    assert is_least(replace(problem, topology=slow), 2)


def test_chunk_may_not_circle_in_switches():
    """A ring of switches is no buffer: what a solution sends round in it is modelled away."""
    topology = net("a b | s t", "a>s 1, s-t 1, t>b 1")
    problem = task(topology, wants(((0,), (1,)), ((0,), (1,))))
    assert is_least(problem, 4)


@pytest.mark.parametrize(("buffer", "epochs"), [(None, 6), (1, 6), (0, 9)])
@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_ring_that_needs_buffers(buffer, epochs, solver):
    """With one link twice as fast as the others, relays that may not wait lose three epochs."""
    topology = net("a b c d", "a>b 25, b>d 25, d>c 25, c>a 50")
    problem = allgather(topology, buffer=buffer)
    assert is_least(problem, epochs, epoch=Fraction(1000, 50 * 10**9), solver=solver)


@pytest.mark.parametrize(("buffer", "is_enough"), [(None, True), (2, True), (1, False), (0, False)])
def test_limited_buffer_counts_what_waits(buffer, is_enough):
    """Two chunks must reach a relay before one link slows down and leave it after another is up."""
    topology = net("a h c", "a>h 1, h>c 1/100")
    topology = with_profile(topology, "a>h", (2, "1/100"))
    topology = with_profile(topology, "h>c", (6, 1))
    problem = task(topology, wants(((0,), (2,)), ((0,), (2,))), buffer=buffer)
    assert (schedule_within(problem, 8) is not None) == is_enough


@pytest.mark.parametrize(("steps", "epochs"), [((), 3), (((1, "1/3"),), 7), (((2, 2),), 3)])
def test_profile(steps, epochs):
    """Three chunks on a link whose rate falls after the first epoch, or rises after the second."""
    topology = net("a b", "a>b 1")
    if steps:
        topology = with_profile(topology, "a>b", *steps)
    assert is_least(task(topology, wants(*[((0,), (1,))] * 3)), epochs)


def test_profile_with_a_switch():
    """What leaves a switch leaves in the epoch in which it arrives, however long that took."""
    topology = with_profile(net("a b | s", "a>s 1, s>b 1"), "a>s", (1, "1/2"))
    assert is_least(task(topology, wants(((0,), (1,)), ((0,), (1,)))), 4)


def test_shared_capacity():
    """Two links that share one rate carry one chunk after the other."""
    topology = net("a b c", "a>b 1 /nic, a>c 1 /nic", {"nic": 1})
    problem = broadcast(topology)
    assert is_least(problem, 2)
    assert is_least(broadcast(net("a b c", "a>b 1, a>c 1")), 1)


def test_ready_times():
    """Own data that is late is sent when it is there, unless another copy is sooner."""
    topology = net("a b c", "a>c 1, b>c 1, a>b 1")
    late = task(topology, wants(((1,), (2,)), ready={1: 2}))
    assert is_least(late, 3)
    assert is_least(task(topology, wants(((0, 1), (1, 2)), ready={1: 2})), 1)


@pytest.mark.parametrize("first", ["blue", "red"])
def test_priorities_decide_who_ends_first(first):
    """Two tenants on one link end together in four epochs; the important one ends after two."""
    topology = net("a b", "a>b 1")
    tenants = [
        replace(wants(*[((0,), (1,))] * 2, name=name), priority=Fraction(5 if name == first else 1))
        for name in ("blue", "red")
    ]
    problem = task(topology, *tenants)
    schedule, epochs = schedule_within(problem, 4, goal=MilpGoal.TENANTS)
    tenant = problem.chunks.tenant[schedule.sends["chunk"]]
    ends = [int(schedule.sends["epoch"][tenant == i].max()) + 1 for i in range(2)]
    assert epochs == 4
    assert ends == ([2, 4] if first == "blue" else [4, 2])


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_paper_s_sum_serves_early(solver):
    """Within a long horizon the sum prefers schedules that deliver early."""
    problem = allgather(net("a b c", "a-b 1, b-c 1, c-a 1"))
    _, epochs = schedule_within(problem, 4, goal=MilpGoal.PAPER, solver=solver)
    assert epochs == 1


@pytest.mark.parametrize(("collective", "epochs"), [("reducescatter", 1), ("reduce", 1)])
def test_sums_are_turned_round(collective, epochs):
    """On a clique every sum takes one step."""
    topology = net("a b c", "a-b 1, b-c 1, c-a 1")
    size = 1000 * (3 if collective == "reducescatter" else 1)
    problem = Problem(topology=topology, demand=Demand.collective(collective, size=size))
    assert is_least(problem, epochs)


@pytest.mark.parametrize(("names", "epochs"), [("a b c d | s", 4), ("a b c d | s+", 2)])
def test_switch_that_reduces(names, epochs):
    """Three contributions through a switch go one by one, or as one sum where it combines them."""
    topology = net(names, "a>s, b>s, c>s, s>d")
    problem = task(topology, wants(((0, 1, 2, 3), (3,), True)))
    assert is_least(problem, epochs)


def test_what_the_model_does_not_serve():
    """Sums that several want, and sums that cannot run backwards, name another method."""
    topology = net("a b", "a-b 1")
    allreduce = Problem(topology=topology, demand=Demand.collective("allreduce", size=2000))
    with pytest.raises(MethodError, match="use --method auto"):
        schedule_within(allreduce, 2)
    scatter = Problem(
        topology=topology, demand=Demand.collective("reducescatter", size=2000), buffer=0
    )
    with pytest.raises(MethodError, match="backwards"):
        schedule_within(scatter, 2)


def test_rates_of_links_bound_the_copies_on_whole_ways():
    """A way through a switch bears what the slowest of its links bears at its best."""
    star = net("a b c d | s", "a-s 1, b-s 1, c-s 1, d-s 1")
    for link in ("a>s", "s>b"):
        star = with_profile(star, link, (2, 2))
    demand = Demand.collective("allgather", size=4000)
    problem = Problem(topology=star, demand=demand, copy=False)
    grid = TimeGrid(problem=problem, epoch=MICROSECOND)
    arcs = arcs_of(problem, grid, 6, whole_ways=True)
    ends = zip(arcs.src.tolist(), arcs.end.tolist(), strict=True)
    most = dict(zip(ends, most_copies(problem, grid, arcs).tolist(), strict=True))
    assert len(most) == 12 > star.num_links
    assert [pair for pair, count in most.items() if count > 1] == [(0, 1)]


def test_size_is_known_before_building():
    """The estimate has the model's columns, or a few more, and is not below its memory."""
    problem = Problem(
        topology=net("a b c d", "a-b 1, b-c 1, c-d 1, d-a 1"),
        demand=Demand.collective("allgather", size=16_000),
        num_chunks=4,
    )
    grid = TimeGrid(problem=problem, epoch=MICROSECOND)
    size, model = estimate_milp(problem, grid, 12), build_milp(problem, grid, 12).model
    assert model.num_columns <= size.columns <= 1.3 * model.num_columns
    assert size.num_bytes >= model.num_bytes
