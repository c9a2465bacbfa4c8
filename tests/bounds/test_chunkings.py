"""Any number of chunks: which number is best by the bounds, worked out by hand."""

from teccl.bounds import all_bounds
from teccl.bounds.chunkings import any_number_of_chunks
from teccl.bounds.model import Bound
from teccl.demand import Demand
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
