"""The rules of links, holdings, demands and times, each kept and broken by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.verification.helpers import (
    US,
    kinds,
    net,
    plan,
    ring_schedule,
    task,
    wants,
    with_profile,
)

import teccl
from teccl import _parallel
from teccl.errors import VerificationError
from teccl.replay import simulate
from teccl.schedule.sends import BoundSummary, Schedule, send_array
from teccl.verification import ViolationKind, verify
from teccl.verification.violation import MAX_PER_KIND

LINE = net("a b c", "a-b, b-c")
PS = Fraction(1, US)


def test_a_correct_schedule_has_no_violations():
    """A chunk forwarded the moment it arrives is in order."""
    problem = task(LINE, wants(([0], [2])))
    assert verify(plan(problem, (0, "a>b", 0), (0, "b>c", 1))) == ()


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("gpus", [2, 3, 5])
def test_ring_schedules_are_correct(collective, gpus):
    """The classic rings pass."""
    assert verify(ring_schedule(gpus, collective, alpha="0.7")) == ()


def test_an_empty_schedule_meets_an_empty_demand():
    """Nothing has to be sent to those who have it."""
    problem = task(LINE, wants(([0, 1], [0, 1])))
    assert verify(plan_nothing(problem)) == ()


def test_an_empty_schedule_leaves_demand_unmet():
    """Without sends, every destination but the source is missing."""
    problem = task(LINE, wants(([0], [1, 2])))
    found = verify(plan_nothing(problem))
    assert [v.kind for v in found] == [ViolationKind.UNMET_DEMAND] * 2


def plan_nothing(problem):
    return Schedule(problem=problem, sends=send_array([], [], []))


# Links


def test_sends_may_follow_each_other_without_a_gap():
    """A link is free again at the very end of a transfer, even while the latency runs."""
    topology = net("a b", "a>b 1 5")
    problem = task(topology, wants(([0], [1]), ([0], [1])))
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", 1))) == set()


def test_sends_may_not_overlap():
    """One picosecond of overlap on a link is found."""
    problem = task(LINE, wants(([0], [1]), ([0], [1])))
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", 1 - PS))) == {"overlap"}


def test_a_long_send_overlaps_others_behind_the_next():
    """A transfer that covers several others is found."""
    topology = with_profile(net("a b", "a>b"), "a>b", (0, "1/4"), (3, 100))
    problem = task(topology, *[wants(*[([0], [1])] * 3)])
    schedule = plan(problem, (0, "a>b", 0), (1, "a>b", "3.02"), (2, "a>b", 4))
    assert kinds(schedule) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", 1), (2, "a>b", 4))) == {"overlap"}


def test_parallel_links_carry_one_transfer_each():
    """Two links between the same nodes do not exclude each other."""
    topology = net("a b", "a>b, a>b")
    problem = task(topology, wants(([0], [1]), ([0], [1])))
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b#1", 0))) == set()


def test_a_shared_capacity_carries_one_transfer_at_a_time():
    """Two links with one NIC take turns."""
    topology = net("a b c", "a>b /nic, a>c /nic", {"nic": 1})
    problem = task(topology, wants(([0], [1, 2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "a>c", 1))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "a>c", 1 - PS))) == {"shared-overlap"}


def test_a_slow_shared_capacity_slows_its_links():
    """The rate is the smaller of the link's and the shared one."""
    topology = net("a b c", "a>b 4 /nic, b>c", {"nic": "1/2"})
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 2))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 2 - PS))) == {"too-early"}


def test_lengths_round_up_to_picoseconds():
    """A third of a microsecond takes 333334 ps."""
    topology = net("a b c", "a>b 3, b>c")
    problem = task(topology, wants(([0], [2])))
    due = Fraction(333_334, US)
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", due))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", due - PS))) == {"too-early"}


def test_the_last_chunk_of_a_block_may_be_shorter():
    """Lengths follow each chunk's own size."""
    from teccl.demand import Demand
    from teccl.problem import Problem

    demand = Demand.collective("alltoallv", matrix=[[0, 1000], [500, 0]])
    problem = Problem(topology=net("a b", "a-b"), demand=demand)
    assert kinds(plan(problem, (0, "a>b", 0), (1, "b>a", 0), claim=1)) == set()
    problem = Problem(topology=net("a b", "a-b"), demand=demand, num_chunks=3)
    rows = [(0, "a>b", 0), (1, "a>b", Fraction(333_334, US)), (2, "a>b", Fraction(666_668, US))]
    late = Fraction(333_334, US)
    assert kinds(plan(problem, *rows, (3, "b>a", 0), (4, "b>a", late))) == set()
    assert problem.chunks.size(4) == Fraction(500, 3)


# Profiles


def test_a_transfer_ends_when_the_integral_reaches_its_size():
    """Half the bytes at rate 1, half at rate 1/4: 0.5 + 2 microseconds."""
    topology = with_profile(net("a b c", "a>b, b>c"), "a>b", ("1/2", "1/4"))
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", "2.5"))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", Fraction("2.5") - PS))) == {"too-early"}


def test_a_transfer_may_cross_several_steps():
    """Bytes add up over all steps on the way."""
    steps = (("1/2", "1/4"), ("3/2", "1/8"), ("5/2", 1))
    topology = with_profile(net("a b c", "a>b, b>c"), "a>b", *steps)
    problem = task(topology, wants(([0], [2])))
    due = Fraction("2.5") + Fraction(1, 8)
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", due))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", due - PS))) == {"too-early"}


def test_a_profile_that_starts_at_zero_replaces_the_bandwidth():
    """The link's own bandwidth never counts then."""
    topology = with_profile(net("a b c", "a>b 9, b>c"), "a>b", (0, 1))
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 1 - PS))) == {"too-early"}


def test_after_the_last_step_its_rate_holds():
    """A send behind all steps has the last rate."""
    topology = with_profile(net("a b c", "a>b, b>c"), "a>b", (1, "1/2"))
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 7), (0, "b>c", 9))) == set()
    assert kinds(plan(problem, (0, "a>b", 7), (0, "b>c", 9 - PS))) == {"too-early"}


# Holdings


def test_a_gpu_cannot_send_before_the_arrival():
    """A picosecond early is too early."""
    problem = task(LINE, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 1 - PS))) == {"too-early"}


def test_latency_delays_the_arrival():
    """Alpha counts before the next hop."""
    topology = net("a b c", "a>b 1 2, b>c")
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 3))) == set()
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", "2.9"))) == {"too-early"}


def test_a_gpu_cannot_send_what_it_never_gets():
    """Nobody may send out of nothing."""
    problem = task(LINE, wants(([0], [2])))
    assert kinds(plan(problem, (0, "b>c", 5))) == {"not-held"}


def test_any_earlier_arrival_may_feed_a_send():
    """The first of two arrivals is enough."""
    topology = net("a b c", "a>b, a>b, b>c")
    problem = task(topology, wants(([0], [2])))
    rows = [(0, "a>b", 5), (0, "a>b#1", 0), (0, "b>c", 1)]
    assert kinds(plan(problem, *rows)) == set()


def test_every_source_of_a_copied_chunk_holds_it():
    """Several sources hold the same data."""
    problem = task(LINE, wants(([0, 1], [2])))
    assert kinds(plan(problem, (0, "b>c", 0))) == set()


def test_own_data_waits_until_it_is_ready():
    """A ready time binds its own rank and tenant."""
    problem = task(LINE, wants(([1], [2]), ready={1: 4}))
    assert kinds(plan(problem, (0, "b>c", 4))) == set()
    assert kinds(plan(problem, (0, "b>c", 4 - PS))) == {"not-ready"}


def test_a_late_source_may_forward_what_it_received():
    """Data that came from another source may leave before the own copy is ready."""
    problem = task(LINE, wants(([0, 1], [2]), ready={1: 9}))
    assert kinds(plan(problem, (0, "a>b", 0), (0, "b>c", 1))) == set()


def test_ready_times_of_one_tenant_do_not_bind_another():
    """Each tenant has its own ready times."""
    late = wants(([0], [1]), ready={0: 5}, name="late")
    problem = task(LINE, wants(([0], [1])), late)
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", 5))) == set()
    assert kinds(plan(problem, (0, "a>b", 5), (1, "a>b", 0))) == {"not-ready"}


def test_receiving_a_chunk_again_is_allowed():
    """Useless sends are no violation."""
    problem = task(LINE, wants(([0], [1])))
    rows = [(0, "a>b", 0), (0, "a>b", 1), (0, "b>a", 1)]
    assert kinds(plan(problem, *rows)) == set()


def test_a_copied_chunk_is_never_reduced():
    """Op reduce needs a reduction."""
    problem = task(LINE, wants(([0], [1])))
    assert kinds(plan(problem, (0, "a>b", 0, None, "reduce"))) == {"wrong-op"}


# Demand


def test_every_destination_must_be_reached():
    """The missing destination is named."""
    problem = task(LINE, wants(([0], [1, 2])))
    (found,) = verify(plan(problem, (0, "a>b", 0)))
    assert (found.kind, found.chunk, found.link) == (ViolationKind.UNMET_DEMAND, 0, None)
    assert "never reaches c" in str(found)


def test_every_tenant_must_be_served():
    """A second tenant's chunks count too."""
    problem = task(LINE, wants(([0], [1])), wants(([1], [2]), name="second"))
    assert kinds(plan(problem, (0, "a>b", 0), (1, "b>c", 0))) == set()
    assert kinds(plan(problem, (0, "a>b", 0))) == {"unmet-demand"}


# No copies anywhere


def test_without_copy_one_arrival_serves_one_forward():
    """The second forward needs a second arrival."""
    topology = net("a h b c", "a>h, h>b, h>c")
    problem = task(topology, wants(([0], [2, 3])), copy=False)
    twice = [(0, "a>h", 0), (0, "a>h", 1), (0, "h>b", 1), (0, "h>c", 2)]
    assert kinds(plan(problem, *twice)) == set()
    assert kinds(plan(problem, twice[0], *twice[2:])) == {"gpu-copy"}


def test_without_copy_forwards_wait_for_their_arrival():
    """Two arrivals in the end do not excuse two forwards after the first."""
    topology = net("a h b c", "a>h, h>b, h>c")
    problem = task(topology, wants(([0], [2, 3])), copy=False)
    rows = [(0, "a>h", 0), (0, "a>h", 1), (0, "h>b", 1), (0, "h>c", 2 - PS)]
    assert kinds(plan(problem, *rows)) == {"gpu-copy"}


def test_without_copy_a_gpu_keeps_what_it_wants():
    """A destination that forwards its only copy has none left."""
    problem = task(LINE, wants(([0], [1, 2])), copy=False)
    once = [(0, "a>b", 0), (0, "b>c", 1)]
    assert kinds(plan(problem, *once)) == {"gpu-copy"}
    assert kinds(plan(problem, *once, (0, "a>b", 1))) == set()


def test_without_copy_a_source_sends_as_often_as_it_likes():
    """The source is where copies come from."""
    topology = net("a b c", "a>b, a>c")
    problem = task(topology, wants(([0], [1, 2])), copy=False)
    assert kinds(plan(problem, (0, "a>b", 0), (0, "a>c", 0))) == set()


# Finish and reporting


def test_the_stated_finish_is_the_last_arrival():
    """A finish that is off by a picosecond is wrong."""
    problem = task(net("a b", "a>b 1 2"), wants(([0], [1])))
    assert kinds(plan(problem, (0, "a>b", 0), claim=3)) == set()
    assert kinds(plan(problem, (0, "a>b", 0), claim=3 + PS)) == {"wrong-finish"}


def test_a_bound_above_the_finish_is_wrong():
    """A schedule cannot be better than it says that any can be."""
    problem = task(net("a b", "a>b 1 2"), wants(([0], [1])))
    schedule = plan(problem, (0, "a>b", 0))
    good = BoundSummary(physical_ps=3 * US, certificate="the only link")
    assert kinds(replace(schedule, bound=good)) == set()
    assert kinds(replace(schedule, bound=replace(good, physical_ps=4 * US))) == {"wrong-bound"}


def test_a_violation_names_chunk_link_and_time():
    """One line says what, where and when."""
    problem = task(LINE, wants(([0], [2])))
    (found,) = verify(plan(problem, (0, "a>b", 0), (0, "b>c", "0.75")))
    assert (found.chunk, found.link, found.time_s) == (0, 2, 0.75e-6)
    assert str(found) == (
        "too-early at 750 ns: chunk 0 (a to c, piece 0) on b > c: "
        "b sends it at 0.75us but holds it from 1us on"
    )


def test_strict_raises_with_the_findings():
    """The error names the first and holds all."""
    problem = task(LINE, wants(([0], [1, 2])))
    schedule = plan(problem, (0, "b>c", 0))
    with pytest.raises(VerificationError, match="2 violations: not-held") as caught:
        verify(schedule, strict=True)
    assert caught.value.violations == verify(schedule)


def test_strict_accepts_a_correct_schedule():
    """Nothing is raised when nothing is wrong."""
    assert verify(ring_schedule(3, "allgather"), strict=True) == ()


def test_findings_are_limited_per_kind():
    """A schedule that is wrong everywhere yields a thousand violations of a kind, not more."""
    problem = task(LINE, wants(*[([0], [1])] * (MAX_PER_KIND + 10)))
    found = verify(plan_nothing(problem))
    assert len(found) == MAX_PER_KIND


def test_verify_does_not_change_the_schedule():
    """The same schedule can be judged again."""
    schedule = ring_schedule(4, "allreduce")
    before = schedule.sends.copy()
    verify(schedule)
    assert (schedule.sends == before).all()
    assert verify(replace(schedule, sends=before)) == ()


def test_two_threads_judge_alike(monkeypatch):
    """What is judged at the same time in large schedules is judged the same."""
    result = teccl.solve("torus:dims=3x3,alpha=0", "allgather", size="9KB", chunks=1, grid=True)
    sends = result.schedule.sends.copy()
    sends["epoch"][-3:] = 0
    sends["start_ps"][-3:] = 0
    broken = replace(result.schedule, sends=sends)
    alone = verify(broken)
    monkeypatch.setattr(_parallel, "LARGE_SENDS", 0)
    assert {violation.kind.value.startswith("grid") for violation in alone} == {True, False}
    assert verify(broken) == alone
    assert simulate(result.schedule).finish_ps == result.finish_ps
