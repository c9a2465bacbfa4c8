"""Demands: dispatch and combine of tokens, counted by hand and on schedules."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.demand.demand_files import load_demand
from teccl.errors import DemandError
from teccl.moe import Routing, Traffic, place_experts, read_routing
from teccl.moe.demands import crossing_bytes, nodes_of
from teccl.verification import verify

BYTES = Fraction(1000)
# Experts of each token, experts, and the tokens that cross between two nodes of eight GPUs, an
# expert each, by expert, rank and node: tokens are of rank 0 first.
BY_HAND = [
    # Rank 0 holds experts 0 and 16, rank 8 experts 8 and 24.
    ([[8, 24]], 32, (2, 1, 1)),
    ([[8, 9]], 16, (2, 2, 1)),
    ([[0, 8]] * 16, 16, (16, 16, 16)),
    ([[1, 2]] * 8 + [[1, 9]] * 8, 16, (8, 8, 8)),
    ([[8, 9, 10, 11]] * 8 + [[0, 8, 1, 9]] * 8, 16, (48, 48, 16)),
]


@pytest.mark.parametrize(("choices", "experts", "counts"), BY_HAND)
def test_bytes_across_nodes_are_those_counted_by_hand(choices, experts, counts) -> None:
    """In the count, in plain and deduplicated schedules, there and back."""
    planner = teccl.Planner("dgx-h100:chassis=2")
    routing = Routing(experts=np.array(choices), num_experts=experts)
    traffic = Traffic.of(routing, place_experts(routing, 16), nodes_of(planner.topology))
    assert tuple(traffic.crossings().values()) == counts
    for make in (traffic.dispatch, traffic.combine):
        for multicast, count in ((False, counts[1]), (True, counts[2])):
            schedule = planner.plan(make(BYTES, multicast=multicast))
            assert verify(schedule) == ()
            assert crossing_bytes(schedule) == count * BYTES


def test_deduplication_is_faster_where_tokens_have_many_experts() -> None:
    """Top-8 of 64 experts on four nodes, hot ones three times the mean."""
    planner = teccl.Planner("dgx-h100:chassis=4")
    routing = read_routing("hot:tokens=2048,hot=2,skew=3", num_experts=64, top_k=8)
    traffic = Traffic.of(routing, np.arange(64) // 2, nodes_of(planner.topology))
    for make in (traffic.dispatch, traffic.combine):
        plain, shared = (
            planner.plan(make(Fraction(7168), multicast=multicast)) for multicast in (False, True)
        )
        assert verify(shared) == ()
        assert plain.finish_ps > 1.2 * shared.finish_ps


@pytest.mark.slow
def test_deduplication_is_faster_on_eight_nodes() -> None:
    """Top-8 of 256 experts on 64 GPUs, four hot ones three times the mean."""
    planner = teccl.Planner("dgx-h100:chassis=8")
    routing = read_routing("hot:tokens=65536,hot=4,skew=3", num_experts=256, top_k=8)
    traffic = Traffic.of(routing, np.arange(256) // 4, nodes_of(planner.topology))
    for make in (traffic.dispatch, traffic.combine):
        plain, shared = (
            planner.plan(make(Fraction(7168), multicast=multicast), work=2_000_000)
            for multicast in (False, True)
        )
        assert plain.finish_ps > 1.2 * shared.finish_ps


def test_balanced_placement_evens_ranks_out() -> None:
    """Every rank holds as many experts, and none a tenth more load than the mean."""
    routing = read_routing("zipf:tokens=5000,exponent=0.5", num_experts=64, top_k=4)
    ranks = place_experts(routing, 8, "balanced")
    load = np.bincount(ranks, routing.loads(), minlength=8)
    assert np.bincount(ranks).tolist() == [8] * 8
    assert load.max() < 1.1 * load.mean()


def test_a_given_placement_is_checked(tmp_path: Path) -> None:
    """A file names a rank for each expert, no other."""
    routing = Routing(experts=np.array([[0, 1]]), num_experts=3)
    path = tmp_path / "ranks.json"
    path.write_text("[1, 0, 1]")
    assert place_experts(routing, 2, str(path)).tolist() == [1, 0, 1]
    for text, words in (("[1, 0]", "places 2 experts of 3"), ("[0, 0, 2]", "expert 2 is 2")):
        path.write_text(text)
        with pytest.raises(DemandError, match=words):
            place_experts(routing, 2, str(path))


def test_tokens_at_home_leave_nothing_to_do() -> None:
    """A demand without data is refused with the reason."""
    routing = Routing(experts=np.array([[0], [1]]), num_experts=2)
    traffic = Traffic.of(routing, np.array([0, 1]), np.array([0, 0]))
    for multicast in (False, True):
        with pytest.raises(DemandError, match="every token has its experts at home"):
            traffic.dispatch(BYTES, multicast=multicast)


def test_the_command_writes_demands_that_solve_takes(tmp_path: Path, monkeypatch) -> None:
    """Dispatch and combine are files for `teccl solve`, and the summary says what is saved."""
    monkeypatch.chdir(tmp_path)
    arguments = ("demand", "moe", "hot:tokens=256,hot=1,skew=2", "--experts", 16, "--top-k", 4)
    outcome = run(
        *arguments, "--topology", "dgx-h100:chassis=2", "-o", "d.json", "--combine", "c.json",
        "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome
    found = json.loads(outcome.out)
    assert found["bytes_across_per_node"] < found["bytes_across_per_rank"]
    for name in ("d.json", "c.json"):
        schedule = teccl.Planner("dgx-h100:chassis=2").plan(load_demand(Path(name)))
        assert crossing_bytes(schedule) == found["bytes_across_per_node"]


@pytest.mark.parametrize(
    "names", [("d.json", "./d.json"), ("d.csv", "c.json"), ("d.json", "c.csv")]
)
def test_files_that_solve_could_not_read_are_refused(
    names: tuple[str, str], tmp_path: Path, monkeypatch
) -> None:
    """Two demands do not go into one file, nor into one of another kind; nothing is written."""
    monkeypatch.chdir(tmp_path)
    trace = ("demand", "moe", "zipf:tokens=9", "--experts", 4, "--top-k", 2, "--ranks", 4)
    assert_refused(run(*trace, "-o", names[0], "--combine", names[1]))
    assert not list(tmp_path.iterdir())


def test_more_tokens_than_fit_are_refused() -> None:
    """A trace that would fill the memory ends in a line, before it does."""
    routing = Routing(experts=np.zeros((20_001, 1), dtype=np.int8), num_experts=1)
    with pytest.raises(DemandError, match="at most 20000 tokens"):
        Traffic.of(routing, np.array([0]), np.arange(10_000))


def test_ranks_and_topology_exclude_each_other() -> None:
    """Exactly one of both says where ranks sit."""
    trace = ("demand", "moe", "zipf:tokens=9", "--experts", 4, "--top-k", 2)
    assert_refused(run(*trace))
    assert_refused(run(*trace, "--ranks", 4, "--topology", "dgx-h100"))
    assert_refused(run(*trace, "--topology", "dgx-h100", "--per-node", 4))
