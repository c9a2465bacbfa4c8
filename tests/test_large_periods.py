"""Periods on large fabrics behind switches: what they cost, whom they serve, what they gain."""

import pytest

import teccl
from teccl.demand import Demand
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.strategies.periods import Periods, work_of
from teccl.topology import Topology

RAILS = "dgx-h100:chassis=8,nvls=false,alpha=0"


def search_of(topology: str, collective: str = "allreduce", size: str = "550KB") -> Search:
    demand = Demand.collective(collective, size=size)
    request = Request(topology=Topology.parse(topology), demand=demand)
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    return search


@pytest.mark.parametrize("collective", ["allreduce", "allgather"])
def test_twice_the_pieces_are_twice_the_work(collective: str):
    """Rails join all GPUs over one switch each: the ways over a spine, which make gaps, count not.

    They were counted, so that eight pieces seemed to take a hundred times as long as they do.
    """
    work = work_of(search_of(RAILS, collective))
    for count in (1, 4, 16, 64):
        assert work(2 * count) <= 2 * work(count)


@pytest.mark.parametrize(
    ("topology", "collective", "serves"),
    [
        (RAILS, "allreduce", True),
        (RAILS, "allgather", True),
        (RAILS, "broadcast", False),
        ("dgx-h100:chassis=7,nvls=false", "allreduce", False),
        ("torus:dims=8x8", "allreduce", False),
        ("fat-tree:k=8", "allgather", False),
    ],
)
def test_the_first_turn_is_for_many_gpus_behind_switches(
    topology: str, collective: str, serves: bool
):
    """Small fabrics, direct links, several stages and trees of one root have it later."""
    features = search_of(topology, collective).features
    assert (Periods(is_promising=True).refusal(features) is None) is serves
    assert Periods(is_promising=False).refusal(features) is None


def test_a_turn_is_left_out_where_a_hop_takes_long():
    """At 1 KB latencies are nearly all that counts, which balance does not shorten."""
    search = search_of("dgx-h100:chassis=8,nvls=false", size="1KB")
    assert not list(Periods(is_promising=True).attempts(search))
    assert not search.budget.spent


def test_what_others_do_well_is_left_to_them():
    """Shifts of all ranks leave what one chunk takes on its second hop, which is little to gain."""
    search = search_of("star:gpus=64,alpha=0", "allgather", "64MB")
    assert len(list(Periods(is_promising=True).attempts(search))) <= 1
    assert search.budget.spent < search.budget.polish


def test_few_pieces_that_are_behind_are_followed_by_more():
    """Two halves are ahead of two pieces along balanced trees, but not of four."""
    search = search_of("dgx-h100:chassis=12,nvls=false", size="4MB")
    assert len(list(Periods(is_promising=True).attempts(search))) > 1
    first, *more = sorted(search.incumbents.by_chunks)[1:]
    ends = search.incumbents.by_chunks
    assert search.incumbents.fastest < ends[first].finish_ps
    assert search.incumbents.fastest in [ends[count].finish_ps for count in more]


@pytest.mark.slow
def test_slow_uplinks_of_large_fabrics_are_balanced():
    """One GPU of 104 has a tenth of its uplink: sums are made elsewhere, and all links are full.

    Two equal halves end 38 % above the bound, and owners more than eight times as late as it.
    """
    result = teccl.solve(
        "dgx-h100:chassis=13,nvls=false,alpha=0",
        "allreduce",
        size="550KB",
        degrade=["c0/gpu1:leaf1=10%"],
    )
    assert result.physical_gap < 0.1
