"""Any number of chunks: which number is best by the bounds, worked out by hand."""

from teccl.bounds import all_bounds
from teccl.bounds.chunkings import any_number_of_chunks
from teccl.bounds.model import Bound
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict
from teccl.problem import Problem
from teccl.topology import Topology


def bound_of(value: int) -> Bound:
    return Bound(kind="cut", value=value, certificate=str(value))


def a_hop(overhead: str, size: str) -> Problem:
    topology = f"line:gpus=3,alpha=0s,overhead={overhead},bandwidth=1GB/s"
    return Problem(
        topology=Topology.parse(topology), demand=Demand.collective("broadcast", size=size)
    )


def test_the_least_of_all_numbers_counts():
    """One chunk takes 9, two take 7, three 8, and four or more no less than that."""
    exact, more = {1: 9, 2: 7, 3: 8}, {1: 1, 2: 3, 3: 5, 4: 8}
    found = any_number_of_chunks(
        a_hop("1us", "1KB"),
        5,
        lambda cut: bound_of(exact[cut.num_chunks]),
        lambda cut: bound_of(more.get(cut.num_chunks, 8)),
    )
    assert [(bound.value, bound.certificate) for bound in found] == [
        (7, "cut into 2, the best number: 7")
    ]


def test_what_is_known_is_not_said_again():
    """Nothing is returned if some number may reach what is known, or larger ones may."""
    problem = a_hop("1us", "1KB")
    assert not any_number_of_chunks(problem, 9, lambda _: bound_of(9), lambda _: bound_of(20))
    assert not any_number_of_chunks(problem, 9, lambda _: bound_of(20), lambda _: bound_of(9))


def test_larger_numbers_count_if_no_small_one_is_better():
    """If small numbers all take longer, the bound for the larger ones holds."""
    found = any_number_of_chunks(
        a_hop("1us", "1KB"), 5, lambda _: bound_of(50), lambda cut: bound_of(cut.num_chunks)
    )
    assert [bound.value for bound in found] == [33]


def test_a_pipeline_of_two_hops_has_a_best_number():
    """K chunks of 9 us in all take (K + 1) (1 us + 9 us / K) on two hops: 16 us with three."""
    assert all_bounds(a_hop("1us", "9KB"))[0].value == 16_000_000


def test_chunks_that_leave_last_come_one_by_one_or_in_pairs():
    """Three chunks of 1 MB / 3 on eight GPUs: the last leave at 2.12 us and take 4.92 us more."""
    demand = Demand.collective("allreduce", size="1MB")
    problem = Problem(topology=Topology.parse("dgx-b200:rates=effective"), demand=demand)
    best = all_bounds(problem)[0]
    # 0.6 us and 1 MB / 3 at 721.8 GB/s for each chunk that leaves before; after that two hops of
    # 0.6 us, 2 x 0.468125 us and twice the bytes, by which six transfers have brought seven.
    size = 1e12 / 721.8e3 / 3
    assert abs(best.value - (2 * (0.6e6 + size) + 2 * (1.53625e6 + 2 * size))) < 10
    assert best.certificate.startswith("cut into 3")


def test_sums_that_nobody_else_contributes_to_are_left_alone():
    """A GPU that has all of a sum itself departs from nothing that others must wait for."""
    demand = demand_from_dict(
        {
            "schema_version": 1,
            "collectives": [
                {
                    "name": "own",
                    "size": "9KB",
                    "chunks": [{"sources": [0], "destinations": [0, 1], "reduce": True}],
                }
            ],
        }
    )
    topology = Topology.parse("line:gpus=3,alpha=1us,overhead=1us,bandwidth=1GB/s")
    problem = Problem(topology=topology, demand=demand)
    # One hop: an overhead, 9 KB at 1 GB/s, a latency.
    assert all_bounds(problem, fluid=False)[0].value == 11_000_000
