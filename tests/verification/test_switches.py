"""Passages through switches: shapes of transfers, and the moment a switch is left."""

from fractions import Fraction

import pytest
from tests.verification.helpers import US, kinds, net, plan, task, wants, with_profile

from teccl.problem import SwitchMode, Transit

PS = Fraction(1, US)
STAR = net("a b c | s", "a>s, b>s, s>b, s>c")
CUT = {"transit": Transit.CUT_THROUGH}
HYPER = {"switch": SwitchMode.HYPER_EDGE}
NO_COPY = {"switch": SwitchMode.NO_COPY}


def test_a_copying_switch_serves_several_outputs():
    """One arrival leaves on two links at once."""
    problem = task(STAR, wants(([0], [1, 2])))
    assert kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>b", 1, 7), (0, "s>c", 1, 7))) == set()


def test_two_switches_in_a_row_are_one_transfer():
    """A chain of switches is passed hop by hop."""
    topology = net("a b | s t", "a>s, s>t 2 0.5, t>b")
    problem = task(topology, wants(([0], [1])))
    assert kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>t", 1, 7), (0, "t>b", 2, 7))) == set()


@pytest.mark.parametrize("shift", [PS, -PS])
def test_a_switch_is_left_at_the_instant_of_arrival(shift):
    """Store-and-forward switches neither hold nor foresee."""
    problem = task(STAR, wants(([0], [1])))
    rows = [(0, "a>s", 0, 7), (0, "s>b", 1 + shift, 7)]
    assert kinds(plan(problem, *rows)) == {"switch-timing"}


def test_a_profile_moves_the_instant_of_arrival():
    """The hop out of a switch follows the integral of the hop in."""
    topology = with_profile(STAR, "a>s", ("1/2", "1/4"))
    problem = task(topology, wants(([0], [1])))
    assert kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>b", "2.5", 7))) == set()
    assert kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>b", 1, 7))) == {"switch-timing"}


def test_a_hop_out_of_a_switch_needs_a_hop_in():
    """What leaves a switch entered it in the same transfer."""
    problem = task(STAR, wants(([0], [1])))
    assert kinds(plan(problem, (0, "s>b", 1, 7))) == {"unpaired-hop"}


def test_another_transfer_does_not_pair():
    """In and out are paired by the transfer, not by chunk and time."""
    problem = task(STAR, wants(([0], [1])))
    found = kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>b", 1, 8)))
    assert found == {"unpaired-hop", "lost-in-switch"}


def test_a_switch_keeps_nothing():
    """A hop into a switch goes on."""
    problem = task(STAR, wants(([0], [1])))
    rows = [(0, "a>s", 0, 7), (0, "s>b", 1, 7), (0, "a>s", 1, 8)]
    assert kinds(plan(problem, *rows)) == {"lost-in-switch"}


def test_a_transfer_carries_one_chunk():
    """Hops of two chunks under one id do not belong together."""
    problem = task(STAR, wants(([0], [1]), ([0], [2])))
    rows = [(0, "a>s", 0, 7), (0, "s>b", 1, 7), (1, "a>s", 1, 8), (1, "s>c", 2, 8)]
    assert kinds(plan(problem, *rows)) == set()
    swapped = [rows[0], (1, "s>c", 1, 7), rows[2], (0, "s>b", 2, 8)]
    assert kinds(plan(problem, *swapped)) == {"mixed-transfer"}


def test_a_transfer_has_one_op():
    """Copy and reduce do not mix under one id."""
    problem = task(STAR, wants(([0, 1], [1], True)))
    rows = [(0, "a>s", 0, 7, "copy"), (0, "s>b", 1, 7, "reduce")]
    assert "mixed-transfer" in kinds(plan(problem, *rows))


def test_separate_sends_under_one_id_are_several_roots():
    """Two direct sends are two transfers."""
    topology = net("a b c", "a>b, a>c")
    problem = task(topology, wants(([0], [1, 2])))
    assert kinds(plan(problem, (0, "a>b", 0, 7), (0, "a>c", 0, 7))) == {"several-roots"}


def test_a_transfer_ends_at_a_gpu():
    """What a GPU sends on is a new transfer."""
    topology = net("a b c", "a>b, b>c")
    problem = task(topology, wants(([0], [2])))
    assert kinds(plan(problem, (0, "a>b", 0, 7), (0, "b>c", 1, 7))) == {"several-roots"}


def test_switches_do_not_justify_each_other():
    """Two linked switches passing a chunk round are a cycle."""
    topology = net("a b | s t", "a>s, s-t, t>b")
    problem = task(topology, wants(([0], [1])), **CUT)
    rows = [(0, "s>t", 0, 7), (0, "t>s", 0, 7), (0, "t>b", 0, 7)]
    assert kinds(plan(problem, *rows)) == {"cycle"}


def test_a_switch_is_entered_once():
    """Two arrivals of one transfer at a plain switch do not merge."""
    problem = task(STAR, wants(([0, 1], [2])))
    rows = [(0, "a>s", 0, 7), (0, "b>s", 0, 7), (0, "s>c", 1, 7)]
    assert kinds(plan(problem, *rows)) == {"illegal-merge"}


@pytest.mark.parametrize("options", [NO_COPY, {"copy": False}, {**CUT, **NO_COPY}])
def test_a_switch_without_copy_has_one_output(options):
    """Switches that do not copy send each arrival on once."""
    problem = task(STAR, wants(([0], [1, 2])), **options)
    leave = 0 if "transit" in options else 1
    rows = [(0, "a>s", 0, 7), (0, "s>b", leave, 7), (0, "s>c", leave, 7)]
    assert kinds(plan(problem, *rows)) == {"switch-copy"}
    again = [(0, "a>s", 1, 8), (0, "s>c", leave + 1, 8)]
    assert kinds(plan(problem, *rows[:2], *again)) == set()


# Cut-through


def test_a_circuit_goes_through_without_stopping():
    """Each hop starts the alphas before it later; bytes pass once."""
    topology = net("a b c | s", "a>s 1 0.5, s>b 1 0.25, b>c")
    problem = task(topology, wants(([0], [2])), **CUT)
    rows = [(0, "a>s", 0, 7), (0, "s>b", "0.5", 7)]
    assert kinds(plan(problem, *rows, (0, "b>c", "1.75"), claim="2.75")) == set()
    early = Fraction("1.75") - PS
    assert kinds(plan(problem, *rows, (0, "b>c", early))) == {"too-early"}


@pytest.mark.parametrize("start", [0, 1, "1.5"])
def test_a_circuit_hop_is_due_after_the_alpha(start):
    """A hop of a circuit neither waits for the bytes nor skips the latency."""
    topology = net("a b | s", "a>s 1 0.5, s>b")
    problem = task(topology, wants(([0], [1])), **CUT)
    assert kinds(plan(problem, (0, "a>s", 0, 7), (0, "s>b", start, 7))) == {"switch-timing"}


def test_the_slowest_link_sets_the_rate_of_a_circuit():
    """A fast link is held as long as the slow one."""
    topology = net("a b c | s", "a>s 4, s>b 1, b>c")
    problem = task(topology, wants(([0], [2])), **CUT)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 0, 7)]
    assert kinds(plan(problem, *rows, (0, "b>c", 1))) == set()
    assert kinds(plan(problem, *rows, (0, "b>c", "1/4"))) == {"too-early"}


def test_the_slowest_branch_sets_the_rate_of_a_tree():
    """All branches of a copy run at the smallest rate of the tree."""
    topology = net("a b c d | s", "a>s 4, s>b 4, s>c 1, b>d")
    problem = task(topology, wants(([0], [2, 3])), **CUT)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 0, 7), (0, "s>c", 0, 7)]
    assert kinds(plan(problem, *rows, (0, "b>d", 1))) == set()
    assert kinds(plan(problem, *rows, (0, "b>d", "1/4"))) == {"too-early"}


def test_circuits_share_a_link_up_to_its_bandwidth():
    """Two circuits of rate 1 fit a link of rate 2, a third does not."""
    topology = net("a b c d | s", "a>s 2, s>b, s>c, s>d")
    problem = task(topology, wants(([0], [1]), ([0], [2]), ([0], [3])), **CUT)
    rows = [(0, "a>s", 0, 1), (0, "s>b", 0, 1), (1, "a>s", "1/2", 2), (1, "s>c", "1/2", 2)]
    later = [(2, "a>s", 1, 3), (2, "s>d", 1, 3)]
    sooner = [(2, "a>s", 1 - PS, 3), (2, "s>d", 1 - PS, 3)]
    assert kinds(plan(problem, *rows, *later)) == set()
    assert kinds(plan(problem, *rows, *sooner)) == {"overload"}


def test_a_direct_send_is_a_circuit_of_full_rate():
    """Between GPUs a link carries one transfer also in cut-through mode."""
    topology = net("a b | s", "a>b, a>s, s>b")
    problem = task(topology, wants(([0], [1]), ([0], [1])), **CUT)
    assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", "1/2"))) == {"overload"}


def test_rates_are_summed_exactly():
    """Three thirds fill a link; nothing is lost to rounding."""
    links = "a>s 1, s>b 1/3, s>c 1/3, s>d 1/3"
    problem = task(net("a b c d | s", links), wants(*[([0], [i]) for i in (1, 2, 3)]), **CUT)
    rows = [(i, link, 0, i) for i, out in enumerate("bcd") for link in ("a>s", f"s>{out}")]
    assert kinds(plan(problem, *rows)) == set()


@pytest.mark.parametrize(("missing", "expected"), [("0", set()), (f"1/{10**40}", {"overload"})])
def test_rates_are_summed_exactly_whatever_their_digits(missing, expected):
    """Rates with long denominators neither overflow nor round."""
    one, two = Fraction(10**30 + 57, 3 * 10**30 + 1), Fraction(10**31 + 33, 3 * 10**31 + 7)
    links = f"a>s {one + two - Fraction(missing)}, s>b {one}, s>c {two}"
    problem = task(net("a b c | s", links), wants(([0], [1]), ([0], [2])), **CUT)
    rows = [(i, link, 0, i) for i, out in enumerate("bc") for link in ("a>s", f"s>{out}")]
    assert kinds(plan(problem, *rows)) == expected


def test_circuits_too_share_a_capacity_one_at_a_time():
    """A shared capacity is exclusive even where rates would fit."""
    topology = net("a b c | s", "a>s 4, s>b /nic, s>c /nic", {"nic": 4})
    problem = task(topology, wants(([0], [1]), ([0], [2])), **CUT)
    rows = [(0, "a>s", 0, 1), (0, "s>b", 0, 1)]
    assert kinds(plan(problem, *rows, (1, "a>s", 1, 2), (1, "s>c", 1, 2))) == set()
    shared = kinds(plan(problem, *rows, (1, "a>s", "1/2", 2), (1, "s>c", "1/2", 2)))
    assert shared == {"shared-overlap"}


# Hyper-edges


def test_a_hyper_edge_is_one_link_with_the_sum_of_alphas():
    """All hops start together; the chunk is there after the slower rate and all alphas."""
    topology = net("a b c | s t", "a>s 4 0.5, s>t 2 0.25, t>b 1 0.25, b>c")
    problem = task(topology, wants(([0], [2])), **HYPER)
    rows = [(0, "a>s", 0, 7), (0, "s>t", 0, 7), (0, "t>b", 0, 7)]
    assert kinds(plan(problem, *rows, (0, "b>c", 2), claim=3)) == set()
    assert kinds(plan(problem, *rows, (0, "b>c", 2 - PS))) == {"too-early"}


def test_the_hops_of_a_hyper_edge_start_together():
    """A hop that waits for the alpha is wrong here."""
    topology = net("a b | s", "a>s 1 0.5, s>b")
    problem = task(topology, wants(([0], [1])), **HYPER)
    rows = [(0, "a>s", 0, 7), (0, "s>b", "0.5", 7)]
    assert kinds(plan(problem, *rows)) == {"switch-timing"}


def test_a_port_carries_one_hyper_edge_at_a_time():
    """A fast port is held for the whole slow transfer."""
    topology = net("a b c | s", "a>s 2, s>b, s>c")
    problem = task(topology, wants(([0], [1]), ([0], [2])), **HYPER)
    rows = [(0, "a>s", 0, 1), (0, "s>b", 0, 1)]
    assert kinds(plan(problem, *rows, (1, "a>s", 1, 2), (1, "s>c", 1, 2))) == set()
    early = kinds(plan(problem, *rows, (1, "a>s", "1/2", 2), (1, "s>c", "1/2", 2)))
    assert early == {"overlap"}


def test_a_hyper_edge_is_a_path():
    """Hyper-edges lead to one GPU each."""
    problem = task(STAR, wants(([0], [1, 2])), **HYPER)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 0, 7), (0, "s>c", 0, 7)]
    assert kinds(plan(problem, *rows)) == {"switch-copy"}


def test_hyper_edges_do_not_merge():
    """Even reducing switches combine nothing when they are replaced by direct links."""
    topology = net("a b c | s+", "a>s, b>s, s>c")
    problem = task(topology, wants(([0, 1], [2], True)), **HYPER)
    rows = [(0, end, 0, 7, "reduce") for end in ("a>s", "b>s", "s>c")]
    assert "illegal-merge" in kinds(plan(problem, *rows))


def test_without_switches_all_modes_mean_the_same():
    """Transit and switch modes only speak of switches."""
    topology = net("a b c", "a>b, b>c")
    for options in ({}, CUT, HYPER, NO_COPY):
        problem = task(topology, wants(([0], [1]), ([0], [1])), **options)
        assert kinds(plan(problem, (0, "a>b", 0), (1, "a>b", "1/2"))) == {"overlap"}
