"""The grid's rules, judged on epochs of one microsecond; only ``grid-`` kinds are looked at."""

from fractions import Fraction

import pytest
from tests.verification.generate import MODES, random_schedule
from tests.verification.helpers import kinds, net, plan, task, wants, with_profile

from teccl.problem import SwitchMode, Transit

CUT = {"transit": Transit.CUT_THROUGH}
HYPER = {"switch": SwitchMode.HYPER_EDGE}


def grid_kinds(problem, *rows, epoch=1):
    """Kinds of grid violation of rows (chunk, link, epoch[, transfer[, op]])."""
    hops = [
        (chunk, link, k, *(rest or [None]), *([] if len(rest) == 2 else ["copy"]), k)
        for chunk, link, k, *rest in rows
    ]
    found = kinds(plan(problem, *hops, epoch=epoch))
    return {kind for kind in found if kind.startswith("grid-")}


def test_random_schedules_on_whole_epochs_are_correct():
    """Where all lengths are whole epochs, physical and grid rules agree."""
    schedules = [s for s in map(random_schedule, range(300)) if s.grid is not None]
    assert len(schedules) > 50
    assert {mode["switch"] for mode in MODES.values() if "switch" in mode} <= {
        s.problem.switch for s in schedules
    }
    assert all(kinds(schedule) == set() for schedule in schedules)


def test_one_chunk_starts_per_window():
    """A link of half a chunk per epoch takes a chunk every second epoch."""
    problem = task(net("a b", "a>b 1/2"), wants(([0], [1]), ([0], [1])))
    assert grid_kinds(problem, (0, "a>b", 0), (1, "a>b", 2)) == set()
    assert grid_kinds(problem, (0, "a>b", 0), (1, "a>b", 1)) == {"grid-capacity"}


def test_a_fast_link_starts_several_chunks_per_epoch():
    """A link of two and a half chunks per epoch starts two."""
    problem = task(net("a b", "a>b 5/2"), wants(*[([0], [1])] * 3))
    assert grid_kinds(problem, (0, "a>b", 0), (1, "a>b", 0), (2, "a>b", 1)) == set()
    assert grid_kinds(problem, *[(i, "a>b", 0) for i in range(3)]) == {"grid-capacity"}


def test_kappa_is_exact():
    """A rate of a third takes three epochs, not four."""
    problem = task(net("a b c", "a>b 1/3, b>c"), wants(([0], [2])))
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", 3)) == set()
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", 2)) == {"grid-too-early"}


@pytest.mark.parametrize(
    ("alpha", "delta"), [("0", 0), ("1/10", 0), ("101/1000", 1), ("1", 1), ("1001/1000", 2)]
)
def test_latency_counts_whole_epochs(alpha, delta):
    """Delta rounds up, a tenth of an epoch is ignored."""
    problem = task(net("a b c", f"a>b 1 {alpha}, b>c"), wants(([0], [2])))
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", 1 + delta)) == set()
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", delta)) == {"grid-too-early"}


def test_own_data_waits_for_a_whole_epoch():
    """Data that is ready within an epoch leaves in the next."""
    problem = task(net("a b", "a>b"), wants(([0], [1]), ready={0: "3/2"}))
    assert grid_kinds(problem, (0, "a>b", 2)) == set()
    assert grid_kinds(problem, (0, "a>b", 1)) == {"grid-not-ready"}


def test_a_profile_counts_at_the_start_of_the_epoch():
    """A send keeps the kappa of its own epoch."""
    topology = with_profile(net("a b c", "a>b, b>c"), "a>b", (1, "1/2"), (4, 2))
    problem = task(topology, wants(*[([0], [2])] * 4))
    rows = [(0, "a>b", 0), (1, "a>b", 1), (2, "a>b", 4), (3, "a>b", 4)]
    hops = [(0, "b>c", 1), (1, "b>c", 3), (2, "b>c", 5), (3, "b>c", 6)]
    assert grid_kinds(problem, *rows, *hops) == set()
    assert grid_kinds(problem, *rows, hops[0], (1, "b>c", 2), *hops[2:]) == {"grid-too-early"}
    crowded = [rows[0], rows[1], (2, "a>b", 2), rows[3]]
    assert grid_kinds(problem, *crowded, *hops) == {"grid-capacity"}


def test_a_switch_is_left_in_the_epoch_of_arrival():
    """Store-and-forward on the grid: kappa and delta of the hop in, exactly."""
    topology = net("a b | s", "a>s 1/2 1, s>b")
    problem = task(topology, wants(([0], [1])))
    assert grid_kinds(problem, (0, "a>s", 0, 7), (0, "s>b", 3, 7)) == set()
    for epoch in (2, 4):
        wrong = grid_kinds(problem, (0, "a>s", 0, 7), (0, "s>b", epoch, 7))
        assert wrong == {"grid-switch-timing"}


def test_a_circuit_pays_its_largest_kappa_once():
    """Cut-through: the deltas of the way and one kappa."""
    topology = net("a b c | s", "a>s 1 1, s>b 1/2 1, b>c")
    problem = task(topology, wants(([0], [2])), **CUT)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 1, 7)]
    assert grid_kinds(problem, *rows, (0, "b>c", 4)) == set()
    assert grid_kinds(problem, *rows, (0, "b>c", 3)) == {"grid-too-early"}
    held = [rows[0], (0, "s>b", 2, 7), (0, "b>c", 5)]
    assert grid_kinds(problem, *held) == {"grid-switch-timing"}


def test_circuits_share_a_link_by_their_kappas():
    """Two circuits of kappa 2 fill a link of kappa 1; a third does not fit."""
    links = "a>s 1, s>b 1/2, s>c 1/2, s>d 1/2"
    problem = task(net("a b c d | s", links), wants(*[([0], [i]) for i in (1, 2, 3)]), **CUT)
    rows = [(0, "a>s", 0, 0), (0, "s>b", 0, 0), (1, "a>s", 1, 1), (1, "s>c", 1, 1)]
    assert grid_kinds(problem, *rows, (2, "a>s", 2, 2), (2, "s>d", 2, 2)) == set()
    assert grid_kinds(problem, *rows, (2, "a>s", 1, 2), (2, "s>d", 1, 2)) == {"grid-capacity"}


def test_shares_of_circuits_are_summed_exactly():
    """Kappas of 2, 3 and 6 fill a link."""
    links = "a>s 1, s>b 1/2, s>c 1/3, s>d 1/6"
    problem = task(net("a b c d | s", links), wants(*[([0], [i]) for i in (1, 2, 3)]), **CUT)
    rows = [(i, link, 0, i) for i, out in enumerate("bcd") for link in ("a>s", f"s>{out}")]
    assert grid_kinds(problem, *rows) == set()


@pytest.mark.parametrize(("count", "expected"), [(12, set()), (13, {"grid-capacity"})])
def test_shares_of_many_kappas_do_not_overflow(count, expected):
    """Shares with a common denominator of 27 digits are summed exactly."""
    # One in 101, 103, 107, ...: twelve of them are below a tenth, thirteen above.
    primes = [101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163]
    assert (
        sum(Fraction(1, p) for p in primes[:12])
        < Fraction(1, 10)
        < sum(Fraction(1, p) for p in primes)
    )
    names = [f"g{p}" for p in primes]
    links = ", ".join(["a>s 1/10", *(f"s>g{p} 1/{p}" for p in primes)])
    topology = net(f"a {' '.join(names)} | s", links)
    problem = task(topology, wants(*[([0], [i + 1]) for i in range(count)]), **CUT)
    rows = [(i, link, 0, i) for i in range(count) for link in ("a>s", f"s>{names[i]}")]
    assert grid_kinds(problem, *rows) == expected


@pytest.mark.parametrize(("more", "delta"), [("0", 0), (f"1/{10**40}", 1)])
def test_alphas_are_summed_exactly(more, delta):
    """Two twentieths of an epoch are negligible, a trifle more is not."""
    second = Fraction(1, 20) + Fraction(more)
    topology = net("a b c | s", f"a>s 1 1/20, s>b 1 {second}, b>c")
    problem = task(topology, wants(([0], [2])), **HYPER)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 0, 7)]
    assert grid_kinds(problem, *rows, (0, "b>c", 1 + delta)) == set()
    assert grid_kinds(problem, *rows, (0, "b>c", delta)) == {"grid-too-early"}


def test_a_hyper_edge_rounds_the_sum_of_its_alphas():
    """Two latencies of a fifteenth of an epoch sum to more than a tenth."""
    topology = net("a b c | s", "a>s 1 1/15, s>b 1/2 1/15, b>c")
    problem = task(topology, wants(([0], [2])), **HYPER)
    rows = [(0, "a>s", 0, 7), (0, "s>b", 0, 7)]
    assert grid_kinds(problem, *rows, (0, "b>c", 3)) == set()
    assert grid_kinds(problem, *rows, (0, "b>c", 2)) == {"grid-too-early"}
    apart = [rows[0], (0, "s>b", 1, 7), (0, "b>c", 4)]
    assert grid_kinds(problem, *apart) == {"grid-switch-timing"}


def test_a_port_of_hyper_edges_keeps_its_own_window():
    """A fast port starts a chunk every epoch even if the way is slow."""
    topology = net("a b c | s", "a>s 1, s>b 1/2, s>c 1/2")
    problem = task(topology, wants(([0], [1]), ([0], [2])), **HYPER)
    rows = [(0, "a>s", 0, 1), (0, "s>b", 0, 1)]
    assert grid_kinds(problem, *rows, (1, "a>s", 1, 2), (1, "s>c", 1, 2)) == set()
    same = grid_kinds(problem, *rows, (1, "a>s", 0, 2), (1, "s>c", 0, 2))
    assert same == {"grid-capacity"}


def test_a_shared_capacity_has_a_window_of_its_own():
    """Starts on all links of a NIC count together."""
    topology = net("a b c", "a>b 9 /nic, a>c 9 /nic", {"nic": "1/2"})
    problem = task(topology, wants(([0], [1, 2])))
    assert grid_kinds(problem, (0, "a>b", 0), (0, "a>c", 2)) == set()
    assert grid_kinds(problem, (0, "a>b", 0), (0, "a>c", 1)) == {"grid-shared-capacity"}


def test_reductions_are_judged_in_epochs():
    """A partial sum sent before its part is usable misses it."""
    problem = task(net("a b c", "a>b, b>c"), wants(([0, 1, 2], [2], True)))
    rows = [(0, "a>b", 0, None, "reduce"), (0, "b>c", 1, None, "reduce")]
    assert grid_kinds(problem, *rows) == set()
    early = [rows[0], (0, "b>c", 0, None, "reduce")]
    assert grid_kinds(problem, *early) == {"grid-unmet-demand"}


def test_a_contribution_counts_once_on_the_grid_too():
    """Both partners of an exchange must send before either has received."""
    problem = task(net("a b", "a-b"), wants(([0, 1], [0, 1], True)))
    rows = [(0, "a>b", 0, None, "reduce"), (0, "b>a", 0, None, "reduce")]
    assert grid_kinds(problem, *rows) == set()
    late = [rows[0], (0, "b>a", 1, None, "reduce")]
    assert grid_kinds(problem, *late) == {"grid-double-reduction"}


def test_an_empty_accumulator_has_nothing_to_send_on_the_grid():
    """A relay waits for the epoch in which data is usable."""
    problem = task(net("a r b", "a>r, r>b"), wants(([0], [2], True)))
    rows = [(0, "a>r", 0, None, "reduce"), (0, "r>b", 1, None, "reduce")]
    assert grid_kinds(problem, *rows) == set()
    early = [rows[0], (0, "r>b", 0, None, "reduce")]
    assert "grid-nothing-to-send" in grid_kinds(problem, *early)


def test_copies_lose_nothing_in_epochs():
    """Of two copies the larger must be usable last."""
    topology = net("a b d", "a>b, a>d, b>d")
    problem = task(topology, wants(([0, 1], [2], True)))
    rows = [(0, "a>b", 0, None, "reduce"), (0, "b>d", 1), (0, "a>d", 1)]
    assert grid_kinds(problem, *rows) == set()
    late = [*rows[:2], (0, "a>d", 2)]
    assert grid_kinds(problem, *late) == {"grid-lost-contribution", "grid-unmet-demand"}


def test_buffers_are_judged_in_epochs():
    """Without buffer a chunk leaves in the epoch in which it becomes usable."""
    problem = task(net("a b c", "a>b, b>c"), wants(([0], [2])), buffer=0)
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", 1)) == set()
    assert grid_kinds(problem, (0, "a>b", 0), (0, "b>c", 2)) == {"grid-buffer-exceeded"}


def test_without_copy_forwards_wait_for_their_epoch():
    """The second forward needs a second arrival that is usable by then."""
    topology = net("a h b c", "a>h 2, h>b, h>c")
    problem = task(topology, wants(([0], [2, 3])), copy=False)
    rows = [(0, "a>h", 0), (0, "h>b", 1), (0, "h>c", 1)]
    assert grid_kinds(problem, *rows, (0, "a>h", 0)) == set()
    assert grid_kinds(problem, *rows, (0, "a>h", 1)) == {"grid-gpu-copy"}


def test_epochs_and_times_are_judged_apart():
    """A schedule may be right in picoseconds and wrong on its grid, and the other way round."""
    problem = task(net("a b c", "a>b, b>c"), wants(([0], [2])))
    rows = [(0, "a>b", 0, None, "copy", 0), (0, "b>c", 1, None, "copy", 0)]
    assert kinds(plan(problem, *rows, epoch=1)) == {"grid-too-early"}
    rows = [(0, "a>b", 0, None, "copy", 0), (0, "b>c", 0, None, "copy", 1)]
    assert kinds(plan(problem, *rows, epoch=1)) == {"too-early"}


def test_a_coarse_grid_forgets_small_latencies_only():
    """Epochs of ten microseconds carry ten chunks and ignore one microsecond."""
    problem = task(net("a b c", "a>b 1 1, b>c 1 1"), wants(*[([0], [2])] * 10))
    rows = [(i, "a>b", 0) for i in range(10)] + [(i, "b>c", 1) for i in range(10)]
    assert grid_kinds(problem, *rows, epoch=10) == set()
    assert grid_kinds(problem, *rows, epoch=9) == {"grid-capacity", "grid-too-early"}
