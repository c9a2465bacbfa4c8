"""Overhead per transfer, by hand: what the checker, the replay, the grid and solvers make of it.

A chunk has 1000 bytes and takes 1 us at rate 1; times are in microseconds.
"""

import pytest
from tests.verification.helpers import US, find_link, kinds, net, plan, task, wants, with_profile

import teccl
from teccl.errors import MethodError, TopologyError, UnitError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.replay import simulate
from teccl.runtime.messages import messages_of
from teccl.schedule.timing import send_times
from teccl.timegrid import EpochRule, TimeGrid
from teccl.topology import Topology

LINE = "a>b 1 0.5 2, b>c 1 0.5 3"
STAR = "a>s 1 0.5 2, s>b 1/2 0.25 3"
CIRCUIT = {"transit": "cut-through"}
HYPER = {"switch": "hyper-edge"}


def line(chunks: int = 1) -> Problem:
    """Chunks from a over b to c."""
    return task(net("a b c", LINE), wants(*[((0,), (2,))] * chunks))


def star(**mode) -> Problem:
    """One chunk from a through a switch to b."""
    options = {
        "transit": Transit(mode.get("transit", "store-and-forward")),
        "switch": SwitchMode(mode.get("switch", "copy")),
    }
    return task(net("a b | s", STAR), wants(((0,), (1,))), **options)


def test_a_transfer_holds_its_link_for_overhead_and_bytes():
    """On a>b 2 + 1 us and on b>c 3 + 1 us, each arriving half a microsecond later."""
    schedule = plan(line(), (0, "a>b", 0), (0, "b>c", "7/2"), claim=8)
    assert kinds(schedule) == set()
    times = send_times(schedule)
    assert times.occupancy_ps.tolist() == [3 * US, 4 * US]
    assert times.arrival_ps.tolist() == [3 * US + US // 2, 8 * US]


def test_a_link_is_not_free_during_the_overhead():
    """A second transfer 2 us after the first finds the link held until 3 us."""
    rows = [(0, "a>b", 0), (1, "a>b", 2), (0, "b>c", "7/2"), (1, "b>c", 8)]
    assert kinds(plan(line(2), *rows)) == {"overlap"}


def test_data_is_not_there_before_the_overhead_has_passed():
    """What is sent on after 1.5 us, as without an overhead, has not come."""
    assert kinds(plan(line(), (0, "a>b", 0), (0, "b>c", "3/2"))) == {"too-early"}


def test_replay_moves_sends_to_the_earliest_times():
    """Two chunks follow each other at 3 us on a>b and at 4 us on b>c."""
    rows = [(0, "a>b", 1), (1, "a>b", 9), (0, "b>c", 20), (1, "b>c", 30)]
    replay = simulate(plan(line(2), *rows))
    assert sorted(replay.schedule.sends["start_ps"]) == [0, 3 * US, 7 * US // 2, 15 * US // 2]
    assert replay.finish_ps == 12 * US


@pytest.mark.parametrize(
    ("mode", "second", "finish"),
    [({}, "7/2", "35/4"), (CIRCUIT, "1/2", "23/4"), (HYPER, 0, "23/4")],
)
def test_switches_pay_on_each_link_and_circuits_once(mode, second, finish):
    """Stored: 2+1+0.5, then 3+2+0.25. As a circuit: 3 + 2 and 0.5 + 0.25 of latency."""
    schedule = plan(star(**mode), (0, "a>s", 0, 1), (0, "s>b", second, 1), claim=finish)
    assert kinds(schedule) == set()
    assert simulate(schedule).finish_ps == schedule.claimed_finish_ps


def test_overhead_comes_before_the_bytes_where_rates_change():
    """With 2 us of overhead the bytes begin at 2 us, when the link has slowed down to a half."""
    topology = with_profile(net("a b", "a>b 1 0 2"), "a>b", (2, "1/2"))
    schedule = plan(task(topology, wants(((0,), (1,)))), (0, "a>b", 0), claim=4)
    assert kinds(schedule) == set()
    assert simulate(schedule).finish_ps == 4 * US


def test_kappa_and_chunks_per_epoch_count_the_overhead():
    """3 and 4 us on the links are 1 and 2 epochs of the faster one, and one chunk in either."""
    grid = TimeGrid.build(line())
    assert grid.epoch * 10**6 == 3
    assert grid.kappa.tolist() == [1, 2]
    assert grid.capacity.tolist() == [1, 1]
    assert TimeGrid.build(line(), EpochRule.SLOWEST).epoch * 10**6 == 4
    assert TimeGrid.build(line(), multiplier=4).capacity.tolist() == [4, 3]


def test_the_checker_counts_the_overhead_on_the_grid():
    """With epochs of 3 us a chunk is usable after 1 + 1 epochs and holds b>c for two."""
    rows = [(0, "a>b", 0, None, "copy", 0), (0, "b>c", "7/2", None, "copy", 2)]
    assert kinds(plan(line(), *rows, epoch=3)) == set()
    early = [rows[0], (0, "b>c", "7/2", None, "copy", 1)]
    assert kinds(plan(line(), *early, epoch=3)) == {"grid-too-early"}


@pytest.mark.parametrize("method", ["milp", "astar", "construct", "shortest-path"])
def test_methods_find_the_optimum(method):
    """Three hops of 1 + 1 us on a line with no latency end after 6 us."""
    result = teccl.solve(
        "line:gpus=4,alpha=0,bandwidth=1GB/s,overhead=1us",
        "broadcast",
        size="1KB",
        chunks=1,
        method=method,
    )
    assert result.finish_time_s == 6e-6
    assert result.verified


def test_lp_refuses_an_overhead():
    """Rates have no number of transfers."""
    with pytest.raises(MethodError, match="overhead"):
        teccl.solve("ring:gpus=3", "alltoall", size="1KB", method="lp", overhead="1us")


def test_the_overhead_option_replaces_that_of_the_topology():
    """A preset's overhead, the keyword, and none at all."""
    common = {"size": "1KB", "chunks": 1, "method": "ring"}
    given = teccl.solve("ring:gpus=3,overhead=2us", "allgather", overhead="1us", **common)
    preset = teccl.solve("ring:gpus=3,overhead=1us", "allgather", **common)
    plain = teccl.solve("ring:gpus=3", "allgather", **common)
    assert given.finish_time_s == preset.finish_time_s
    assert preset.finish_time_s == pytest.approx((plain.finish_time_s or 0) + 2e-6)


def test_files_keep_an_overhead_and_leave_out_none(tmp_path):
    """A link with an overhead comes back as it was; files without one look as before."""
    topology = Topology.parse("line:gpus=2,overhead=1.5us")
    topology.save(tmp_path / "a.yaml")
    assert Topology.parse(tmp_path / "a.yaml") == topology
    Topology.parse("line:gpus=2").save(tmp_path / "b.yaml")
    assert "overhead" not in (tmp_path / "b.yaml").read_text()


@pytest.mark.parametrize(
    ("spec", "error"),
    [("line:gpus=2,overhead=-1us", TopologyError), ("line:gpus=2,overhead=fast", TopologyError)],
)
def test_a_wrong_overhead_is_refused(spec, error):
    """Overheads are durations of at least zero."""
    with pytest.raises(error, match="overhead"):
        Topology.parse(spec)


def test_a_wrong_overhead_option_is_refused():
    """So is the keyword."""
    with pytest.raises(UnitError, match="overhead"):
        teccl.solve("ring:gpus=3", "allgather", size="1KB", overhead="-1us")


def test_links_that_differ_in_overhead_are_not_alike():
    """Kinds of links, by which values are computed once, tell overheads apart."""
    topology = net("a b c", LINE)
    assert topology.overhead_ps.tolist() == [2 * US, 3 * US]
    assert topology.has_overheads
    assert topology.links[find_link(topology, "b>c")].overhead * 10**6 == 3


def test_emulated_links_pay_the_overhead():
    """The pace of a departure is 2 + 1 us of its link and 0.5 us more to its target."""
    schedule = plan(line(), (0, "a>b", 0), (0, "b>c", "7/2"))
    messages = messages_of(schedule)
    assert messages.held_ps.tolist() == [3 * US, 4 * US]
    assert (messages.arrival_ps - messages.start_ps).tolist() == [7 * US // 2, 9 * US // 2]
