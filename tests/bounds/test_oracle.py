"""The oracle itself: optima worked out by hand, and schedules that the checker accepts."""

from fractions import Fraction

import pytest
from tests.bounds.clock import Clock
from tests.bounds.fluid import allreduce_seconds, can_finish, transposed
from tests.bounds.instances import UNIT, random_problem
from tests.bounds.mixture import most_by
from tests.bounds.oracle import Oracle, to_schedule
from tests.construct.small import plans
from tests.verification.helpers import net, task, wants, with_profile

from teccl.construct.instance import Instance
from teccl.construct.realise import realise
from teccl.demand import Demand
from teccl.problem import Problem, SwitchMode, Transit
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.verification import verify

RING = "a>b {0}, b>c {0}, c>d {0}, d>a {0}, b>a {0}, c>b {0}, d>c {0}, a>d {0}"
STAR = "a-s 1 1, b-s 1 1, c-s 1 1"


def collective(topology: Topology, name: str, *, chunks: int = 1, **options) -> Problem:
    """A collective of all GPUs with chunks of 1000 bytes."""
    shares = 1 if name in {"broadcast", "reduce"} else topology.num_gpus
    demand = Demand.collective(name, size=1000 * shares * chunks)
    return Problem(topology=topology, demand=demand, num_chunks=chunks, **options)


def exact(problem: Problem, unit: Fraction = UNIT) -> int | None:
    """Least finish in units of physical time."""
    return Oracle(Clock(problem, unit, exact=True)).optimum()


def epochs(problem: Problem, epoch: Fraction) -> int | None:
    """Least number of epochs."""
    return Oracle(Clock(problem, epoch)).optimum()


@pytest.mark.parametrize(("alpha", "optimum"), [("1/20", 2), ("1", 4), ("11/10", 6)])
def test_ring_of_the_concepts_page(alpha, optimum):
    """An AllGather on a ring of four takes two hops, each one epoch and the rounded latency."""
    problem = collective(net("a b c d", RING.format(f"1 {alpha}")), "allgather")
    assert epochs(problem, UNIT) == optimum


@pytest.mark.parametrize(
    ("options", "optimum"),
    [
        ({}, 5),
        ({"switch": SwitchMode.NO_COPY}, 5),
        ({"transit": Transit.CUT_THROUGH}, 4),
        ({"switch": SwitchMode.HYPER_EDGE}, 4),
    ],
)
def test_star_of_the_concepts_page(options, optimum):
    """Two rounds through a switch, the second begun a transmission after the first."""
    problem = collective(net("a b c | s", STAR), "allgather", **options)
    assert exact(problem) == optimum


def test_ring_with_one_fast_link_needs_six_epochs():
    """On the ring 0>1>3>2>0 at 25, 25, 25, 50 GB/s every slow link carries three chunks in turn."""
    topology = net("a b c d", "a>b 25, b>d 25, d>c 25, c>a 50")
    problem = collective(topology, "allgather")
    assert epochs(problem, Fraction(1000, 50 * 10**9)) == 6


def test_window_of_kappa_epochs():
    """At 0.4 chunks an epoch a link takes a chunk every third one."""
    problem = task(net("a b", "a>b 2/5"), wants(((0,), (1,)), ((0,), (1,)), ((0,), (1,))))
    assert epochs(problem, UNIT) == 9


def test_several_chunks_in_an_epoch():
    """At 2.5 chunks an epoch a link takes two in each."""
    problem = task(net("a b", "a>b 5/2"), wants(*[((0,), (1,))] * 5))
    assert epochs(problem, UNIT) == 3


def test_shared_capacity_carries_one_chunk_at_a_time():
    """Two links of one network card take turns."""
    topology = net("a b c", "a>b 1 /nic, a>c 1 /nic", {"nic": "1"})
    assert exact(task(topology, wants(((0,), (1,)), ((0,), (2,))))) == 2


def test_data_that_is_ready_late():
    """A chunk leaves no earlier than its owner has it, unless another holder is nearer in time."""
    topology = net("a b c", "a>c, b>c 1 2")
    assert exact(task(topology, wants(((0, 1), (2,)), ready={0: 4}))) == 3


@pytest.mark.parametrize(("mode", "optimum"), [(SwitchMode.COPY, 2), (SwitchMode.NO_COPY, 3)])
def test_only_copying_switches_serve_two_at_once(mode, optimum):
    """A broadcast through a switch needs the input once with copy and twice without."""
    topology = net("a b c | s", "a>s, s>b, s>c")
    assert exact(task(topology, wants(((0,), (1, 2))), switch=mode)) == optimum


@pytest.mark.parametrize(("copy", "optimum"), [(True, 2), (False, 3)])
def test_only_copying_relays_serve_two(copy, optimum):
    """Where nothing is copied a relay must receive a chunk once for each that it sends on."""
    topology = net("a b c d", "a>b, b>c, b>d")
    assert exact(task(topology, wants(((0,), (2, 3))), copy=copy)) == optimum


def test_no_copy_switch_takes_a_chunk_twice_in_an_epoch():
    """A link of two chunks an epoch brings a no-copy switch both copies at once."""
    topology = net("a b c | s", "a>s 2, s>b 2, s>c 2")
    problem = task(topology, wants(((0,), (1, 2))), switch=SwitchMode.NO_COPY)
    assert epochs(problem, UNIT) == 2


@pytest.mark.parametrize(("switch", "optimum"), [("s", 3), ("s+", 2)])
def test_only_reducing_switches_merge(switch, optimum):
    """Two contributions leave a plain switch one after the other and a reducing one as one."""
    topology = net(f"a b c | {switch}", "a>s, b>s, s>c")
    assert exact(task(topology, wants(((0, 1, 2), (2,), True)))) == optimum


def test_sum_waits_for_all_contributions():
    """On a line the middle adds the far contribution to its own before it sends."""
    problem = task(net("a b c", "a>b 1 3, b>c"), wants(((0, 1, 2), (2,), True)))
    assert exact(problem) == 5


def test_sum_that_both_want_is_exchanged():
    """Two GPUs finish an AllReduce of one chunk each way in one step."""
    assert exact(collective(net("a b", "a-b"), "allreduce")) == 2
    assert exact(task(net("a b", "a-b"), wants(((0, 1), (0, 1), True)))) == 1


def test_circuits_share_a_link_in_parts():
    """Two circuits of half the rate fill a link together."""
    topology = net("a b c | s", "a>s 1/2, b>s 1/2, s>c")
    problem = task(topology, wants(((0,), (2,)), ((1,), (2,))), transit=Transit.CUT_THROUGH)
    assert exact(problem) == 2


def _is_union(problem: Problem) -> bool:
    table = problem.chunks
    return any(table.reduce[m] and len(table.destinations(m)) > 1 for m in range(len(table)))


@pytest.mark.parametrize("seed", [s for s in range(60) if not _is_union(random_problem(s))][:15])
def test_solutions_pass_the_checker(seed):
    """What the oracle finds is a correct schedule that ends when it says."""
    oracle = Oracle(Clock(random_problem(seed), UNIT, exact=True))
    optimum = oracle.optimum()
    assert optimum is not None
    schedule = to_schedule(oracle, oracle.starts(optimum) or [])
    assert verify(schedule) == ()
    assert schedule.finish_ps <= optimum * UNIT * 10**12


@pytest.mark.parametrize("seed", range(100, 110))
def test_nothing_beats_the_oracle(seed):
    """No verified grid schedule of the constructions needs fewer epochs."""
    problem = random_problem(seed)
    grid = TimeGrid(problem=problem, epoch=UNIT)
    instance = Instance.build(problem, grid)
    optimum = Oracle(Clock(problem, UNIT)).optimum()
    found = list(plans(instance, target=0, level="quick"))
    good = [plan for plan in found if not verify(realise(instance, plan, method="construct"))]
    assert optimum is not None
    assert all(plan.finish >= optimum for plan in good)


def test_fluid_pays_latency_per_hop_and_transmission_once():
    """Fluid data needs 2 + 2 + 4 units over two links with a latency of 2 and a rate of 1/4."""
    problem = task(net("a b c", "a>b 1/4 2, b>c 1/4 2"), wants(((0,), (2,))))
    assert can_finish(problem, UNIT, 8)
    assert not can_finish(problem, UNIT, 7)


def test_fluid_splits_over_parallel_links():
    """Two parallel links carry half each."""
    problem = task(net("a b", "a>b 1/4 1, a>b 1/4 1"), wants(((0,), (1,))))
    assert can_finish(problem, UNIT, 3)
    assert not can_finish(problem, UNIT, 2)


def test_fluid_does_not_count_what_returns():
    """Data that leaves its destination and comes back is not delivered twice."""
    problem = task(net("a b", "a>b 1/4, a-b 1/4"), wants(((0,), (1,))))
    assert not can_finish(problem, UNIT, 1)


def test_fluid_without_copy_at_switches_takes_the_input_twice():
    """One input for two destinations doubles the time unless the switch copies."""
    topology = net("a b c | s", "a>s 1/4, s>b, s>c")
    problem = task(topology, wants(((0,), (1, 2))), switch=SwitchMode.NO_COPY)
    assert not can_finish(problem, UNIT, 7)
    assert can_finish(task(topology, wants(((0,), (1, 2)))), UNIT, 4)


def test_transposed_sum_is_a_copy_on_the_reversed_network():
    """Two slow inputs of a root become two slow outputs of a holder."""
    problem = task(net("a b c", "a>c 1/4, b>c 1/2"), wants(((0, 1, 2), (2,), True)))
    assert can_finish(transposed(problem), UNIT, 4)
    assert not can_finish(transposed(problem), UNIT, 3)


def test_trees_of_an_allreduce_on_a_line():
    """Sums flow to one end and back to the other at the same time, so a line takes S/B."""
    problem = collective(net("a b c", "a-b, b-c"), "allreduce")
    assert allreduce_seconds(problem) == pytest.approx(3e-6)


@pytest.mark.parametrize(("horizon", "share"), [(1, 0), (2, "1/2"), (3, 1), (4, "3/2")])
def test_mixture_on_two_links(horizon, share):
    """One link each way with a latency of one: half a piece for every unit behind it."""
    problem = collective(net("a b", "a-b 1 1"), "allreduce")
    assert most_by(problem, UNIT, horizon) == pytest.approx(float(Fraction(share)))


def test_mixture_sends_contributions_apart_until_sums_can_come():
    """Around a switch two contributions come apart in units 2 and 3, from 4 on as one.

    By 5 that were two more and two thirds in all, if what feeds the sums did not delay the others.
    """
    problem = collective(net("a b c | s", "a-s 1 1, b-s 1 1, c-s 1 1"), "allreduce")
    assert most_by(problem, UNIT, 4) == pytest.approx(1 / 3)
    assert 1 / 2 < most_by(problem, UNIT, 5) < 2 / 3


def test_mixture_copies_as_often_as_the_rules_allow():
    """A broadcast through a switch needs the input once with copy and twice without."""
    topology = net("a b c | s", "a>s 1 1, s>b, s>c")
    for mode, share in [(SwitchMode.COPY, 2), (SwitchMode.NO_COPY, 1)]:
        problem = task(topology, wants(((0,), (1, 2))), switch=mode)
        assert most_by(problem, UNIT, 3) == pytest.approx(share)


def test_mixture_follows_profiles():
    """A quarter of a piece in each of two units, one in the third."""
    topology = with_profile(net("a b", "a>b 1/4 1"), "a>b", (2, 1))
    assert most_by(task(topology, wants(((0,), (1,)))), UNIT, 4) == pytest.approx(1.5)
