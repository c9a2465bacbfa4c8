"""Reductions: every contribution counts exactly once at every destination."""

from fractions import Fraction

import pytest
from tests.verification.helpers import US, kinds, net, plan, task, wants

from teccl.problem import SwitchMode, Transit
from teccl.verification import ViolationKind, verify

PS = Fraction(1, US)
FULL = net("a b c", "a-b, b-c, a-c")
SUM_AT_C = wants(([0, 1, 2], [2], True))
SUM_EVERYWHERE = wants(([0, 1, 2], [0, 1, 2], True))
NVLS = net("a b c d | s+", "a-s, b-s, c-s, d-s")


def add(link, start, transfer=None, chunk=0):
    return (chunk, link, start, transfer, "reduce")


def store(link, start, transfer=None, chunk=0):
    return (chunk, link, start, transfer, "copy")


def test_contributions_merge_along_a_chain():
    """A partial sum is sent on when the contribution before it has arrived."""
    problem = task(FULL, SUM_AT_C)
    assert kinds(plan(problem, add("a>b", 0), add("b>c", 1))) == set()


def test_a_sum_sent_too_early_misses_contributions():
    """A send carries what is there at its start."""
    problem = task(FULL, SUM_AT_C)
    (found,) = verify(plan(problem, add("a>b", 0), add("b>c", 1 - PS)))
    assert found.kind is ViolationKind.UNMET_DEMAND
    assert "c ends with 2 of 3 contributions" in found.detail


def test_a_contribution_counts_once():
    """What was added before must not come again."""
    problem = task(FULL, wants(([1], [0])), wants(([0, 1, 2], [2], True), name="sum"))
    rows = [(0, "b>a", 0), *(add(*hop, None, 1) for hop in (("a>b", 0), ("b>c", 1), ("a>c", 5)))]
    found = verify(plan(problem, *rows))
    assert [v.kind for v in found] == [ViolationKind.DOUBLE_REDUCTION]
    assert "adds the contribution of a twice at c" in found[0].detail


def test_a_sum_may_replace_its_parts():
    """A copy of the whole sum overwrites partial sums."""
    problem = task(FULL, SUM_EVERYWHERE)
    rows = [add("a>b", 0), add("b>c", 1), store("c>b", 2), store("c>a", 2)]
    assert kinds(plan(problem, *rows)) == set()


def test_a_copy_must_not_lose_contributions():
    """Overwriting what is not contained in the copy loses data."""
    problem = task(FULL, SUM_AT_C)
    found = kinds(plan(problem, add("a>b", 0), store("b>c", 1)))
    assert found == {"lost-contribution", "unmet-demand"}


def test_copies_of_one_instant_come_in_the_order_that_loses_nothing():
    """A smaller copy that arrives together with a larger one is no loss."""
    topology = net("a b c d", "a>b, a>d, b>d")
    problem = task(topology, wants(([0, 1], [3], True)))
    rows = [add("a>b", 0), store("a>d", 1), store("b>d", 1)]
    assert kinds(plan(problem, *rows)) == set()
    rows = [add("a>b", 0), store("a>d", 2), store("b>d", 1)]
    assert kinds(plan(problem, *rows)) == {"lost-contribution", "unmet-demand"}


def test_copies_of_one_instant_must_contain_each_other():
    """Of two different copies one overwrites the other, in any order."""
    topology = net("a b d", "a>d, b>d")
    problem = task(topology, wants(([0, 1], [2], True)))
    found = kinds(plan(problem, store("a>d", 0), store("b>d", 0)))
    assert found == {"lost-contribution", "unmet-demand"}


def test_copies_of_one_instant_must_contain_what_was_there():
    """A smaller copy that would have lost the receiver's own part is no help."""
    topology = net("a b d", "d>b, a>b, b>d, a>d")
    problem = task(topology, wants(([0, 1, 2], [2], True)))
    rows = [add("d>b", 0), add("a>b", 0), store("b>d", 1)]
    assert kinds(plan(problem, *rows)) == set()
    assert "lost-contribution" in kinds(plan(problem, *rows, store("a>d", 1)))


def test_merges_of_one_instant_come_before_copies():
    """A copy that contains what is merged at the same instant replaces it."""
    topology = net("a b c d", "a>b, a>d, b>d, c>b, a>d")
    problem = task(topology, wants(([0, 1, 2], [3], True)))
    rows = [add("a>b", 0), add("c>b", 0), add("a>d", 1), store("b>d", 1)]
    assert kinds(plan(problem, *rows)) == set()


def test_an_empty_accumulator_has_nothing_to_send():
    """A relay that contributes nothing waits for data."""
    topology = net("a r b", "a>r, r>b")
    problem = task(topology, wants(([0, 2], [2], True)))
    assert kinds(plan(problem, add("a>r", 0), add("r>b", 1))) == set()
    early = kinds(plan(problem, add("a>r", 0), add("r>b", "1/2")))
    assert early == {"nothing-to-send", "unmet-demand"}


def test_the_sender_keeps_its_sum():
    """Sending does not empty the accumulator."""
    problem = task(net("a b", "a-b"), wants(([0, 1], [0, 1], True)))
    assert kinds(plan(problem, add("a>b", 0), add("b>a", 0))) == set()


def test_an_exchange_overlaps_in_time():
    """Both partners send before the other's contribution arrives."""
    problem = task(net("a b", "a-b"), wants(([0, 1], [0, 1], True)))
    assert kinds(plan(problem, add("a>b", 0), add("b>a", 1 - PS))) == set()
    assert kinds(plan(problem, add("a>b", 0), add("b>a", 1))) == {"double-reduction"}


def test_a_contribution_waits_until_it_is_ready():
    """Before its ready time a rank has nothing of its own to add."""
    tenant = wants(([0, 1], [1], True), ready={0: 3})
    problem = task(net("a b", "a-b"), tenant)
    assert kinds(plan(problem, add("a>b", 3))) == set()
    assert kinds(plan(problem, add("a>b", 3 - PS))) == {"not-ready", "unmet-demand"}


def test_a_late_rank_forwards_others_without_its_own():
    """A send before the own data is ready carries what was received."""
    tenant = wants(([0, 1], [1, 2], True), ready={1: 3})
    problem = task(net("a b c", "a>b, b>c"), tenant)
    assert kinds(plan(problem, add("a>b", 0), add("b>c", 1), add("b>c", 4))) == {"double-reduction"}
    assert kinds(plan(problem, add("a>b", 0), add("b>c", 3))) == set()


def test_a_sum_nobody_sends_is_unmet():
    """Destinations that nothing reaches have their own contribution only."""
    problem = task(FULL, SUM_EVERYWHERE)
    found = verify(plan(problem, add("a>b", 0)))
    assert [v.kind for v in found] == [ViolationKind.UNMET_DEMAND] * 3


def test_reductions_of_several_chunks_do_not_mix():
    """Accumulators belong to one chunk each."""
    problem = task(net("a b", "a-b"), wants(([0, 1], [1], True), ([0, 1], [0], True)))
    rows = [add("a>b", 0), add("b>a", 0, None, 1)]
    assert kinds(plan(problem, *rows)) == set()


# Switches that reduce


def test_a_switch_passes_a_sum_on():
    """Without merging, a reduction goes through any switch."""
    topology = net("a b | s", "a>s, s>b")
    problem = task(topology, wants(([0, 1], [1], True)))
    assert kinds(plan(problem, add("a>s", 0, 7), add("s>b", 1, 7))) == set()


def test_a_reducing_switch_combines_arrivals():
    """Three contributions leave the switch as one."""
    problem = task(NVLS, wants(([0, 1, 2, 3], [3], True)))
    rows = [*(add(f"{gpu}>s", 0, 7) for gpu in "abc"), add("s>d", 1, 7)]
    assert kinds(plan(problem, *rows)) == set()


def test_a_reducing_switch_may_copy_the_sum():
    """The combination leaves on several outputs."""
    problem = task(NVLS, wants(([0, 1], [2, 3], True)))
    rows = [add("a>s", 0, 7), add("b>s", 0, 7), add("s>c", 1, 7), add("s>d", 1, 7)]
    assert kinds(plan(problem, *rows)) == set()


def test_a_reducing_switch_that_does_not_copy_has_one_output():
    """No-copy switches may merge but not multiply."""
    problem = task(NVLS, wants(([0, 1], [2, 3], True)), switch=SwitchMode.NO_COPY)
    rows = [add("a>s", 0, 7), add("b>s", 0, 7), add("s>c", 1, 7), add("s>d", 1, 7)]
    assert kinds(plan(problem, *rows)) == {"switch-copy"}


def test_circuits_merge_where_their_heads_meet():
    """In cut-through the hops into the switch end their alphas at one instant."""
    topology = net("a b c | s+", "a>s 1 1/2, b>s 1 1/4, s>c")
    problem = task(topology, wants(([0, 1], [2], True)), transit=Transit.CUT_THROUGH)
    rows = [add("a>s", 0, 7), add("b>s", "1/4", 7), add("s>c", "1/2", 7)]
    assert kinds(plan(problem, *rows)) == set()
    rows[1] = add("b>s", 0, 7)
    assert kinds(plan(problem, *rows)) == {"switch-timing"}


@pytest.mark.parametrize("start", [PS, "1/2"])
def test_arrivals_merge_at_one_instant_only(start):
    """Contributions that come apart cannot be combined."""
    problem = task(NVLS, wants(([0, 1], [2], True)))
    rows = [add("a>s", 0, 7), add("b>s", start, 7), add("s>c", 1 + Fraction(start), 7)]
    assert kinds(plan(problem, *rows)) == {"switch-timing"}


def test_a_plain_switch_does_not_combine():
    """Merging needs `reduce: true`."""
    topology = net("a b c | s", "a>s, b>s, s>c")
    problem = task(topology, wants(([0, 1], [2], True)))
    rows = [add("a>s", 0, 7), add("b>s", 0, 7), add("s>c", 1, 7)]
    assert kinds(plan(problem, *rows)) == {"illegal-merge"}


def test_copies_are_not_combined():
    """Merging needs op reduce."""
    problem = task(NVLS, wants(([0, 1], [2], True)))
    rows = [store("a>s", 0, 7), store("b>s", 0, 7), store("s>c", 1, 7)]
    assert "illegal-merge" in kinds(plan(problem, *rows))


def test_a_switch_does_not_count_twice():
    """Values that overlap cannot be combined in a switch either."""
    problem = task(NVLS, wants(([0, 1], [2], True)))
    first = [add("a>s", 0, 1), add("s>b", 1, 1)]
    again = [add("a>s", 2, 2), add("b>s", 2, 2), add("s>c", 3, 2)]
    assert kinds(plan(problem, *first, *again)) == {"double-reduction"}


def test_branches_before_a_merge_carry_their_own_value():
    """What leaves a first switch is not yet what a second one combines."""
    topology = net("a b c d | s+ t+", "a>s, s>c, s>t, b>t, t>d")
    problem = task(topology, wants(([0, 1], [3], True), ([0], [2], True)))
    rows = [
        add("a>s", 0, 7),
        add("s>c", 1, 7),
        add("s>t", 1, 7),
        add("b>t", 1, 7),
        add("t>d", 2, 7),
    ]
    other = [add("a>s", 1, 8, 1), add("s>c", 2, 8, 1)]
    assert kinds(plan(problem, *rows, *other)) == set()
    only = task(topology, wants(([0, 1], [2, 3], True)))
    found = verify(plan(only, *rows))
    assert [v.detail.split(": ")[1] for v in found] == ["c ends with 1 of 2 contributions"]


def test_without_copies_what_was_received_is_used_once():
    """A GPU that keeps a sum must not send it, and none sends the same one twice."""
    problem = task(FULL, SUM_EVERYWHERE, copy=False)
    twice = [add("a>b", 0), add("b>c", 1), store("c>b", 2), store("c>a", 2)]
    assert kinds(plan(problem, *twice)) == {"gpu-copy"}
    each = [add(f"{a}>{b}", 0) for a in "abc" for b in "abc" if a != b]
    assert kinds(plan(problem, *each)) == set()


def test_without_copies_a_partial_sum_goes_on_once():
    """Relays of a tree of sums pass on what they received, which is no copy."""
    problem = task(FULL, SUM_AT_C, copy=False)
    assert kinds(plan(problem, add("a>b", 0), add("b>c", 1))) == set()
