"""The replay: earliest times by hand, and what holds for every schedule."""

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.verification.generate import (
    Planner,
    arrival_times,
    flood,
    random_demand,
    random_network,
    random_schedule,
)
from tests.verification.helpers import (
    US,
    find_link,
    kinds,
    net,
    plan,
    ring_schedule,
    seconds,
    task,
    wants,
    with_profile,
)

from teccl.errors import ScheduleError
from teccl.problem import Problem, Transit
from teccl.replay import simulate
from teccl.schedule.sends import BoundSummary, Schedule, send_array
from teccl.verification import verify

seeds = st.integers(0, 10**9)
steady = settings(max_examples=150, deadline=None, derandomize=True)


def starts(schedule: Schedule) -> dict:
    """Start of each send by what stays the same when it is re-timed."""
    return {(row.transfer, row.link): row.start_ps for row in schedule}


def replayed(problem, *rows, **options) -> dict:
    """Start in microseconds of each send after the replay, by chunk and link name."""
    topology = problem.topology
    found = {}
    for row in simulate(plan(problem, *rows), **options).schedule:
        ends = topology.links[row.link]
        link = f"{topology.nodes[ends.src].name}>{topology.nodes[ends.dst].name}"
        assert (row.chunk, link) not in found
        found[row.chunk, link] = Fraction(row.start_ps, US)
    return found


# Rings


@pytest.mark.parametrize("alpha", ["0", "0.7"])
@pytest.mark.parametrize("gpus", range(2, 17))
@pytest.mark.parametrize(
    ("collective", "rounds"), [("allgather", 1), ("reducescatter", 1), ("allreduce", 2)]
)
def test_rings_take_a_step_per_hop(gpus, alpha, collective, rounds):
    """A ring needs n - 1 steps of beta + alpha, an AllReduce twice as many."""
    schedule = ring_schedule(gpus, collective, alpha=alpha, slack=12_345)
    replay = simulate(schedule)
    step = 1 + Fraction(alpha)
    assert replay.finish_ps == rounds * (gpus - 1) * step * US
    assert replay.tenant_finish_ps == (replay.finish_ps,)
    times = sorted(set(replay.schedule.sends["start_ps"].tolist()))
    assert times == [k * step * US for k in range(rounds * (gpus - 1))]


# By hand


def test_every_send_begins_as_early_as_its_link_and_its_feed_allow():
    """Slack at the start, between hops and between sends goes away."""
    topology = net("a b c", "a>b 1 0.5, b>c")
    problem = task(topology, wants(([0], [2]), ([0], [2])))
    rows = [(0, "a>b", 1), (1, "a>b", 4), (0, "b>c", 6), (1, "b>c", 9)]
    assert replayed(problem, *rows) == {
        (0, "a>b"): 0,
        (1, "a>b"): 1,
        (0, "b>c"): Fraction(3, 2),
        (1, "b>c"): Fraction(5, 2),
    }


def test_the_order_on_a_link_is_kept():
    """A chunk that could go first waits for the one it followed."""
    topology = net("a b c", "a>b, b>c")
    problem = task(topology, wants(([0], [2]), ([1], [2])))
    rows = [(0, "a>b", 0), (0, "b>c", 5), (1, "b>c", 6)]
    assert replayed(problem, *rows)[1, "b>c"] == 2


def test_the_order_on_a_shared_capacity_is_kept():
    """Links that share follow one another as they did."""
    topology = net("a b c", "a>b /nic, a>c /nic", {"nic": "1/2"})
    problem = task(topology, wants(([0], [1]), ([0], [2])))
    assert replayed(problem, (1, "a>c", 3), (0, "a>b", 9)) == {(1, "a>c"): 0, (0, "a>b"): 2}


def test_ready_times_are_kept():
    """Own data leaves when it is ready."""
    problem = task(net("a b", "a>b"), wants(([0], [1]), ready={0: 3}))
    assert replayed(problem, (0, "a>b", 7)) == {(0, "a>b"): 3}


def test_a_send_is_fed_by_whatever_comes_first():
    """If a second arrival becomes the first, it feeds; replays then repeat."""
    topology = net("a b c", "a>c, a>b, c>b 1 1, b>c")
    problem = task(topology, wants(([0], [1, 2]), ([0], [2])))
    rows = [
        (0, "a>c", 0, 1),
        (1, "a>c", 1, 2),
        (0, "c>b", 1, 3),
        (0, "a>b", 5, 4),
        (0, "b>c", 3, 5),
    ]
    replay = simulate(plan(problem, *rows))
    by_transfer = {row.transfer: row.start_ps for row in replay.schedule}
    assert by_transfer[4] == 0
    assert by_transfer[5] == US
    assert starts(simulate(replay.schedule).schedule) == starts(replay.schedule)


def test_a_source_that_receives_its_chunk_sends_its_own():
    """Own data does not wait for a copy that comes back."""
    problem = task(net("a b c", "a-b, a>c"), wants(([0], [1, 2])))
    rows = [(0, "a>b", 1), (0, "b>a", 2), (0, "a>c", 3)]
    assert replayed(problem, *rows)[0, "a>c"] == 0


def test_a_late_source_sends_what_it_received():
    """Data of another source may leave before the own copy is ready."""
    problem = task(net("a b c", "a>b, b>c"), wants(([0, 1], [2]), ready={1: 9}))
    assert replayed(problem, (0, "a>b", 2), (0, "b>c", 5)) == {(0, "a>b"): 0, (0, "b>c"): 1}


def test_a_passage_may_use_a_capacity_twice_in_a_row():
    """A hop that ends when the next begins shares with it."""
    topology = net("a b | s", "a>s /nic, s>b /nic", {"nic": 1})
    problem = task(topology, wants(([0], [1])))
    rows = [(0, "a>s", 3, 7), (0, "s>b", 4, 7)]
    assert replayed(problem, *rows) == {(0, "a>s"): 0, (0, "s>b"): 1}


def test_a_passage_moves_as_one():
    """A switch holds nothing, so a busy output delays the hop into it."""
    topology = net("a b c | s", "a>s, b>s, s>c 1/2")
    problem = task(topology, wants(([0], [2]), ([1], [2])))
    rows = [(0, "a>s", 2, 1), (0, "s>c", 3, 1), (1, "b>s", 8, 2), (1, "s>c", 9, 2)]
    assert replayed(problem, *rows) == {
        (0, "a>s"): 0,
        (0, "s>c"): 1,
        (1, "b>s"): 2,
        (1, "s>c"): 3,
    }


def test_a_later_hop_may_hold_back_an_earlier_transfer():
    """The order on the second hop counts even against the order of the starts."""
    topology = net("a b c | s t", "a>s, s>t, b>t, t>c")
    problem = task(topology, wants(([0], [2]), ([1], [2])))
    rows = [
        (0, "a>s", 5, 1),
        (0, "s>t", 6, 1),
        (0, "t>c", 7, 1),
        (1, "b>t", 5, 2),
        (1, "t>c", 6, 2),
    ]
    times = replayed(problem, *rows)
    assert times[1, "t>c"] == 1
    assert times[0, "t>c"] == 2
    swapped = [rows[0], rows[1], rows[2], (1, "b>t", 7, 2), (1, "t>c", 8, 2)]
    times = replayed(problem, *swapped)
    assert (times[0, "t>c"], times[1, "t>c"], times[1, "b>t"]) == (2, 3, 2)


def test_circuits_that_met_may_shift():
    """Circuits that shared a link are free relative to each other, others follow."""
    links = "a>s 2, s>b, s>c, s>d"
    problem = task(
        net("a b c d | s", links),
        wants(([0], [1]), ([0], [2]), ([0], [3])),
        transit=Transit.CUT_THROUGH,
    )
    rows = [(0, "a>s", 1, 1), (0, "s>b", 1, 1), (1, "a>s", "1.5", 2), (1, "s>c", "1.5", 2)]
    rows += [(2, "a>s", 2, 3), (2, "s>d", 2, 3)]
    times = replayed(problem, *rows)
    assert times == {
        (0, "a>s"): 0,
        (0, "s>b"): 0,
        (1, "a>s"): 0,
        (1, "s>c"): 0,
        (2, "a>s"): 1,
        (2, "s>d"): 1,
    }


@pytest.mark.parametrize("has_profile", [False, True])
def test_a_partial_sum_is_read_before_what_came_later(has_profile):
    """An arrival that a send did not carry stays behind the send's start."""
    topology = net("a b", "a>b, b>a")
    if has_profile:
        topology = with_profile(topology, "a>b", (99, 2))
    problem = task(topology, wants(([0, 1], [0, 1], True), ([1], [0])))
    rows = [(1, "b>a", 0), (0, "b>a", 5, None, "reduce"), (0, "a>b", 5, None, "reduce")]
    times = replayed(problem, *rows)
    assert times[0, "b>a"] == 1
    # The contribution of a must reach b a picosecond after b began to send its own.
    assert times[0, "a>b"] == Fraction(1, US)


def test_a_sum_waits_for_all_its_parts():
    """Every arrival that was merged before a send comes before it again."""
    topology = net("a b c d", "a>c, b>c 1 3, c>d")
    problem = task(topology, wants(([0, 1, 2], [3], True)))
    rows = [(0, link, time, None, "reduce") for link, time in (("a>c", 1), ("b>c", 1), ("c>d", 9))]
    assert replayed(problem, *rows)[0, "c>d"] == 4


def test_copies_of_sums_keep_their_order():
    """A merge that followed a copy stays behind it."""
    topology = net("a b c", "a>b 1 9, c>b")
    problem = task(topology, wants(([0, 2], [1], True)))
    rows = [(0, "a>b", 0, None, "copy"), (0, "c>b", 20, None, "reduce")]
    times = replayed(problem, *rows)
    assert times == {(0, "a>b"): 0, (0, "c>b"): 9 + Fraction(1, US)}


def test_a_copy_that_followed_a_merge_stays_behind_it():
    """What was merged and then replaced must not be merged after."""
    topology = net("a b d", "a>d 1 9, a>b, b>d")
    problem = task(topology, wants(([0, 1], [2], True)))
    rows = [(0, "a>d", 1, None, "reduce"), (0, "a>b", 1, None, "reduce"), (0, "b>d", 20)]
    assert replayed(problem, *rows) == {(0, "a>d"): 0, (0, "a>b"): 0, (0, "b>d"): 9}


def test_copies_that_came_together_stay_together():
    """Which of two copies of one instant is the larger does not matter then."""
    topology = net("a b d", "a>b, a>d, b>d 1 5")
    tenant = wants(([0], [2]), ready={0: 6}, name="late")
    problem = task(topology, wants(([0, 1], [2], True)), tenant)
    rows = [(0, "a>b", 0, None, "reduce"), (0, "b>d", 4), (1, "a>d", 6), (0, "a>d", 9)]
    # The late chunk keeps the smaller copy back until 8, and the larger would be there at 7.
    times = replayed(problem, *rows)
    assert (times[0, "a>d"], times[0, "b>d"]) == (7, 2)


def test_reductions_leave_the_order_of_copied_chunks_alone():
    """Two arrivals of a copied chunk may change places although another chunk is reduced."""
    topology = net("a b c", "a>b 1 5, c>b, c>a")
    problem = task(topology, wants(([0, 2], [1]), ([0, 2], [0], True)))
    rows = [(0, "a>b", 0), (0, "c>b", 9), (1, "c>a", 3, None, "reduce")]
    assert replayed(problem, *rows) == {(0, "a>b"): 0, (0, "c>b"): 0, (1, "c>a"): 0}


def test_without_buffer_forwards_stay_with_their_arrivals():
    """A busy link further on holds the whole way back."""
    topology = net("a b c", "a>b, b>c 1/3")
    problem = task(topology, wants(([0], [2]), ([0], [2])), buffer=0)
    rows = [(0, "a>b", 1), (0, "b>c", 2), (1, "a>b", 6), (1, "b>c", 7)]
    assert replayed(problem, *rows) == {
        (0, "a>b"): 0,
        (0, "b>c"): 1,
        (1, "a>b"): 3,
        (1, "b>c"): 4,
    }


def test_without_buffer_own_data_holds_back_what_is_forwarded():
    """A chunk sets out so that it arrives when the link onwards is free."""
    problem = task(net("a b c", "a>b, b>c 1/3"), wants(([0], [2]), ([1], [2])), buffer=0)
    rows = [(1, "b>c", 1), (0, "a>b", 6), (0, "b>c", 7)]
    assert replayed(problem, *rows) == {(1, "b>c"): 0, (0, "a>b"): 2, (0, "b>c"): 3}


def test_a_buffer_limit_keeps_arrivals_behind_departures():
    """A second chunk does not arrive before the first has left."""
    topology = net("a b c d", "a>b, b>c 1/4, b>d")
    problem = task(topology, wants(([0], [2]), ([0], [2]), ([0], [3])), buffer=1)
    rows = [(0, "a>b", 0), (0, "b>c", 1), (1, "a>b", 1), (1, "b>c", 5)]
    rows += [(2, "a>b", 6), (2, "b>d", 8)]
    times = replayed(problem, *rows)
    assert times[2, "a>b"] == 4
    assert times[2, "b>d"] == 5
    free = replace(problem, buffer=None)
    assert replayed(free, *rows)[2, "a>b"] == 2


def test_without_copy_each_forward_keeps_its_arrival():
    """The second forward waits for the second arrival."""
    topology = net("a h b c", "a>h, h>b, h>c")
    problem = task(topology, wants(([0], [2, 3])), copy=False)
    rows = [(0, "a>h", 0, 1), (0, "a>h", 4, 2), (0, "h>b", 2, 3), (0, "h>c", 7, 4)]
    replay = simulate(plan(problem, *rows))
    times = {row.transfer: row.start_ps // US for row in replay.schedule}
    assert times == {1: 0, 2: 1, 3: 1, 4: 2}


def test_a_profile_changes_lengths_with_the_start():
    """Earlier sends meet other rates."""
    topology = with_profile(net("a b c", "a>b 1/4, b>c"), "a>b", (2, 1))
    problem = task(topology, wants(([0], [2])))
    # From 0: half a chunk in two microseconds, the rest in half a microsecond.
    assert replayed(problem, (0, "a>b", 7), (0, "b>c", 8)) == {
        (0, "a>b"): 0,
        (0, "b>c"): Fraction(5, 2),
    }


def test_a_passage_over_a_profile_moves_hop_by_hop():
    """The start is the latest at which the hop out of the switch does not come too early."""
    topology = with_profile(net("a b c | s", "a>s 1, b>s, s>c"), "a>s", (0, "1/4"), (2, 1))
    problem = task(topology, wants(([1], [2]), ([0], [2])))
    rows = [(0, "b>s", 1, 1), (0, "s>c", 2, 1), (1, "a>s", 6, 2), (1, "s>c", 7, 2)]
    times = replayed(problem, *rows)
    assert times[0, "s>c"] == 1
    assert (times[1, "a>s"], times[1, "s>c"]) == (0, Fraction(5, 2))
    slow = with_profile(topology, "s>c", (0, "1/4"))
    problem = task(slow, wants(([1], [2]), ([0], [2])))
    rows = [(0, "b>s", 1, 1), (0, "s>c", 2, 1), (1, "a>s", 7, 2), (1, "s>c", 8, 2)]
    times = replayed(problem, *rows)
    assert (times[1, "a>s"], times[1, "s>c"]) == (4, 5)


def test_a_merge_over_profiles_stays_where_it_is():
    """Several rates that change cannot be made to meet elsewhere."""
    topology = with_profile(net("a b c | s+", "a>s, b>s, s>c"), "a>s", (1, "1/2"))
    problem = task(topology, wants(([0, 1], [2], True)))
    rows = [(0, "a>s", 2, 7, "reduce"), (0, "b>s", 3, 7, "reduce"), (0, "s>c", 4, 7, "reduce")]
    schedule = plan(problem, *rows)
    assert kinds(schedule) == set()
    assert starts(simulate(schedule).schedule) == starts(schedule)


def test_tenants_finish_apart():
    """Each tenant's finish is its own last arrival."""
    topology = net("a b c", "a>b, a>c")
    problem = task(topology, wants(([0], [1])), wants(([0], [2]), ready={0: 4}, name="second"))
    replay = simulate(plan(problem, (0, "a>b", 3), (1, "a>c", 8)))
    assert replay.tenant_finish_ps == (US, 5 * US)
    assert replay.finish_ps == 5 * US


def test_nothing_sent_finishes_at_once():
    """An empty schedule replays to an empty one."""
    problem = task(net("a b", "a>b"), wants(([0], [0])))
    empty = Schedule(problem=problem, sends=send_array([], [], []))
    assert simulate(empty).finish_ps == 0


def test_the_replay_keeps_everything_but_the_times():
    """Epochs, grid, method and bound stay; the stated finish goes."""
    problem = task(net("a b", "a>b"), wants(([0], [1])))
    bound = BoundSummary(physical_ps=US, certificate="a link")
    schedule = plan(problem, (0, "a>b", 3, None, "copy", 3), epoch=1, claim=4)
    schedule = replace(schedule, bound=bound, method="hand")
    again = simulate(schedule).schedule
    assert (again.grid, again.bound, again.method) == (schedule.grid, bound, "hand")
    assert again.claimed_finish_ps is None
    assert again.sends["epoch"].tolist() == [3]


# Other rates


def test_the_order_can_be_replayed_on_other_rates():
    """Doubling every bandwidth and halving every alpha halves all times."""
    schedule = ring_schedule(5, "allreduce", alpha="0.5")
    topology = schedule.problem.topology
    links = tuple(
        replace(link, bandwidth=link.bandwidth * 2, alpha=link.alpha / 2) for link in topology.links
    )
    replay = simulate(schedule, topology=replace(topology, links=links))
    assert 2 * replay.finish_ps == simulate(schedule).finish_ps
    assert verify(replay.schedule) == ()


def test_epochs_and_bounds_do_not_carry_over_to_other_rates():
    """What was said of the old links is not said of the new."""
    problem = task(net("a b", "a>b"), wants(([0], [1])))
    bound = BoundSummary(physical_ps=US, certificate="a link")
    schedule = replace(plan(problem, (0, "a>b", 3), epoch=1), bound=bound)
    moved = simulate(schedule, topology=net("a b", "a>b 2")).schedule
    assert (moved.grid, moved.bound) == (None, None)
    assert moved.problem.topology == net("a b", "a>b 2")


def test_other_links_are_refused():
    """A replay needs the same links."""
    problem = task(net("a b", "a>b"), wants(([0], [1])))
    with pytest.raises(ScheduleError, match="other nodes or links"):
        simulate(plan(problem, (0, "a>b", 0)), topology=net("a b", "a-b"))


def test_an_order_that_other_rates_forbid_is_refused():
    """A send that must start before an arrival it causes has no time left."""
    links = "a>b 1 {} /nic, a>b 1 0 /nic, b>c"
    topology = net("a b c", links.format(10), {"nic": 1})
    problem = task(topology, wants(([0, 1], [1], True), ([0], [2])))
    rows = [
        (0, "a>b", 0, None, "reduce"),
        (1, "a>b#1", 1),
        (1, "b>c", 2),
        (0, "b>c", 3, None, "reduce"),
    ]
    schedule = plan(problem, *rows)
    assert kinds(schedule) == set()
    assert simulate(schedule).finish_ps == 11 * US
    with pytest.raises(ScheduleError, match="order cannot be kept"):
        simulate(schedule, topology=net("a b c", links.format(0), {"nic": 1}))


def test_a_rank_that_would_become_ready_in_time_is_refused():
    """A sum sent without the own contribution must not be delayed until it has it."""
    tenant = wants(([0, 1], [1], True), ready={1: 3})
    topology = net("a b c", "a>b, b>c")
    schedule = plan(
        task(topology, tenant), (0, "a>b", 0, None, "reduce"), (0, "b>c", 1, None, "reduce")
    )
    assert kinds(schedule) == set()
    with pytest.raises(ScheduleError, match="order cannot be kept"):
        simulate(schedule, topology=net("a b c", "a>b 1/3, b>c"))


def test_circuits_that_no_longer_fit_follow_one_another():
    """Two circuits that shared a link take turns when it has room for one."""
    links = "a>s {} 1/2, s>b, s>c"
    problem = task(
        net("a b c | s", links.format(2)),
        wants(([0], [1]), ([0], [2])),
        transit=Transit.CUT_THROUGH,
    )
    rows = [(0, "a>s", 0, 1), (0, "s>b", "1/2", 1), (1, "a>s", "1/2", 2), (1, "s>c", 1, 2)]
    slower = net("a b c | s", links.format(1))
    assert replayed(problem, *rows, topology=slower) == {
        (0, "a>s"): 0,
        (0, "s>b"): Fraction(1, 2),
        (1, "a>s"): 1,
        (1, "s>c"): Fraction(3, 2),
    }


def other_rates(topology, rng: random.Random):
    """The topology with bandwidths and alphas raised here and lowered there."""
    links = tuple(
        replace(
            link,
            bandwidth=link.bandwidth * rng.choice([1, 1, Fraction(1, 2), Fraction(5, 4), 3]),
            alpha=link.alpha * rng.choice([1, 1, Fraction(1, 3), 0, 2]),
        )
        for link in topology.links
    )
    return replace(topology, links=links)


@steady
@given(seeds)
def test_replays_on_other_rates_are_correct(seed):
    """With room to wait at GPUs, the order of any schedule fits other rates."""
    schedule = random_schedule(seed)
    assume(schedule.problem.buffer is None)
    topology = other_rates(schedule.problem.topology, random.Random(seed))
    assert verify(simulate(schedule, topology=topology).schedule) == ()


# Broken schedules


@pytest.mark.parametrize(
    "rows",
    [
        [(0, "a>b", 0), (1, "a>b", 0)],
        [(0, "b>c", 5)],
        [(0, "a>b", 0), (0, "b>c", "0.5")],
        [(0, "a>s", 0, 7)],
        [(0, "s>c", 0, 7)],
        [(0, "a>s", 0, 7), (0, "s>c", 3, 7)],
    ],
    ids=["overlap", "not held", "too early", "lost in switch", "unpaired", "switch timing"],
)
def test_a_broken_order_is_refused(rows):
    """What verify would find is not replayed."""
    topology = net("a b c | s", "a>b, b>c, a>s, s>c")
    problem = task(topology, wants(([0], [2]), ([0], [2])))
    with pytest.raises(ScheduleError, match="verify the schedule first"):
        simulate(plan(problem, *rows))


def test_without_copy_a_forward_without_arrival_is_refused():
    """Two forwards of one arrival have no feeds."""
    topology = net("a h b c", "a>h, h>b, h>c")
    problem = task(topology, wants(([0], [2, 3])), copy=False)
    rows = [(0, "a>h", 0), (0, "h>b", 1), (0, "h>c", 1)]
    with pytest.raises(ScheduleError, match="verify the schedule first"):
        simulate(plan(problem, *rows))


# What holds for every schedule


@steady
@given(seeds)
def test_replays_are_correct_and_never_later(seed):
    """Every send of a correct schedule stays or moves forward, and the result verifies."""
    schedule = random_schedule(seed)
    replay = simulate(schedule)
    assert verify(replay.schedule) == ()
    before, after = starts(schedule), starts(replay.schedule)
    assert before.keys() == after.keys()
    assert all(after[send] <= before[send] for send in before)
    assert replay.finish_ps == max(arrival_times(replay.schedule))


@steady
@given(seeds)
def test_replaying_a_replay_changes_nothing(seed):
    """The earliest times are their own earliest times."""
    once = simulate(random_schedule(seed)).schedule
    assert starts(simulate(once).schedule) == starts(once)


def direct_schedule(seed: int, *, profiles: bool = False) -> Schedule:
    """A random schedule of copies on links between GPUs."""
    rng = random.Random(seed)
    topology = random_network(rng, most_switches=0)
    if profiles:
        link = topology.links[0]
        profile = ((seconds(2), link.bandwidth / 3), (seconds(4), link.bandwidth * 2))
        links = (replace(link, profile=profile), *topology.links[1:])
        topology = replace(topology, links=links)
    demand = random_demand(rng, topology.num_gpus, reduce=False, several=True)
    problem = Problem(topology=topology, demand=demand)
    return flood(problem, rng, slack=rng.choice([0, 12_345]))


def plain_replay(schedule: Schedule) -> dict:
    """Earliest starts by repeating the two rules, what follows and what feeds, until they hold."""
    problem, topology = schedule.problem, schedule.problem.topology
    planner = Planner(problem, random.Random(0))
    rows = list(schedule)
    places = defaultdict(list)
    for i, row in enumerate(rows):
        for place in (row.link, *topology.links[row.link].shares):
            places[place].append(i)
    after = defaultdict(list)
    for members in places.values():
        for a, b in pairwise(members):
            after[b].append(a)
    start, before = [0] * len(rows), None
    while start != before:
        before = list(start)
        end = [start[i] + planner.length(row.link, start[i]) for i, row in enumerate(rows)]
        held = {}
        for i, row in enumerate(rows):
            key = (topology.links[row.link].dst, row.chunk)
            arrival = end[i] + planner.alpha(row.link)
            held[key] = min(arrival, held.get(key, arrival))
        for i, row in enumerate(rows):
            node = topology.links[row.link].src
            fed = [held[node, row.chunk]] if (node, row.chunk) in held else []
            if node in problem.chunks.sources(row.chunk):
                fed.append(planner.ready(row.chunk, node))
            start[i] = max([min(fed), *(end[a] for a in after[i])])
    return {(row.transfer, row.link): start[i] for i, row in enumerate(rows)}


@steady
@given(seeds, st.booleans())
def test_replays_are_the_earliest(seed, profiles):
    """Between GPUs the replay agrees with applying its two rules over and over."""
    schedule = direct_schedule(seed, profiles=profiles)
    assert starts(simulate(schedule).schedule) == plain_replay(schedule)


def faster(topology, rng: random.Random):
    """The topology with some bandwidths raised and some alphas lowered."""
    links = tuple(
        replace(
            link,
            bandwidth=link.bandwidth * rng.choice([1, 1, Fraction(5, 4), 3]),
            alpha=link.alpha * rng.choice([1, 1, Fraction(1, 3), 0]),
        )
        for link in topology.links
    )
    shared = {name: value * rng.choice([1, 2]) for name, value in topology.shared.items()}
    return replace(topology, links=links, shared=shared)


@steady
@given(seeds)
def test_faster_links_never_make_copies_later(seed):
    """Raising bandwidth or lowering alpha keeps or shortens every time, the order being fixed."""
    schedule = direct_schedule(seed)
    moved = simulate(schedule, topology=faster(schedule.problem.topology, random.Random(seed)))
    assert verify(moved.schedule) == ()
    before, after = starts(simulate(schedule).schedule), starts(moved.schedule)
    assert moved.finish_ps <= simulate(schedule).finish_ps
    assert all(after[send] <= before[send] for send in before)


@steady
@given(st.integers(2, 8), st.sampled_from(["allgather", "reducescatter", "allreduce"]), seeds)
def test_faster_links_never_make_rings_later(gpus, collective, seed):
    """The same for rings that reduce."""
    schedule = ring_schedule(gpus, collective, alpha="0.7")
    topology = faster(schedule.problem.topology, random.Random(seed))
    moved = simulate(schedule, topology=topology)
    assert verify(moved.schedule) == ()
    assert moved.finish_ps <= simulate(schedule).finish_ps


def test_a_slower_link_delays_what_depends_on_it():
    """Monotone does not mean constant: half the rate on the only way doubles the time."""
    schedule = ring_schedule(3, "allgather")
    topology = schedule.problem.topology
    links = list(topology.links)
    number = find_link(topology, "g0>g1")
    links[number] = replace(links[number], bandwidth=links[number].bandwidth / 2)
    slower = simulate(schedule, topology=replace(topology, links=tuple(links)))
    assert slower.finish_ps == 4 * US
