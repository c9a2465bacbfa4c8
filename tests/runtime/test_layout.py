"""Layouts: sizes and places of buffers, worked out by hand."""

from fractions import Fraction

import pytest

from teccl.demand import Demand
from teccl.errors import ScheduleError
from teccl.problem import Problem
from teccl.runtime.layout import padded_bytes, tenant_layout
from teccl.topology import Topology


def layout(collective: str, rank: int, size="10B", *, itemsize=1, count=None, gpus=4, **options):
    demand = Demand.collective(collective, size=size, **options)
    problem = Problem(topology=Topology.parse(f"ring:gpus={gpus}"), demand=demand)
    return tenant_layout(problem, demand.tenants[0], rank, itemsize=itemsize, count=count)


@pytest.mark.parametrize(
    ("collective", "root", "other"),
    [
        ("allgather", (3, 12), (3, 12)),
        ("alltoall", (12, 12), (12, 12)),
        ("reducescatter", (12, 3), (12, 3)),
        ("allreduce", (10, 10), (10, 10)),
        ("broadcast", (10, 10), (0, 10)),
        ("reduce", (10, 10), (10, 0)),
        ("scatter", (12, 3), (0, 3)),
        ("gather", (3, 12), (3, 0)),
        ("scattergather", (12, 12), (3, 3)),
    ],
)
def test_counts_of_all_collectives(collective, root, other):
    """Ten bytes over four ranks: blocks of three elements where MPI wants equal ones."""
    found = [layout(collective, rank) for rank in (0, 2)]
    assert [(f.send_count, f.recv_count) for f in found] == [root, other]


def test_a_rank_outside_the_group_has_no_buffers():
    """Forwarding ranks need none."""
    found = layout("allgather", 3, ranks=[0, 1, 2])
    assert (found.send_count, found.recv_count) == (0, 0)


def test_allreduce_cuts_its_buffer_without_padding():
    """Ten elements over four ranks lie at 0, 2, 5 and 7."""
    assert list(layout("allreduce", 1).send.values()) == [0, 2, 5, 7]


def test_alltoall_keeps_its_own_block():
    """Rank 2 copies its third block to its third place."""
    (copy,) = layout("alltoall", 2).self_copies
    assert copy == ((6, 9), (6, 9))


def test_alltoallv_packs_rows_and_columns():
    """Blocks follow each other in the order of ranks, each padded onto whole elements."""
    matrix = [["1B", "5B"], ["9B", "0B"]]
    found = layout("alltoallv", 0, size=0, matrix=matrix, ranks=[0, 1], itemsize=4)
    assert (found.send_count, found.recv_count) == (1 + 2, 1 + 3)
    assert found.send == {1: 1}
    assert found.recv == {2: 1}


def test_count_replaces_the_size():
    """A schedule made for ten bytes carries a thousand elements."""
    assert layout("allreduce", 0, count=1000).send_count == 1000
    assert layout("allgather", 0, count=1002, itemsize=4).recv_count == 1004


def test_count_has_no_meaning_for_a_matrix():
    """A demand that says how much goes where takes no count."""
    with pytest.raises(ScheduleError, match="count 5 has no meaning"):
        layout("alltoallv", 0, size=0, matrix=[["0B", "1B"], ["1B", "0B"]], ranks=[0, 1], count=5)


def test_pieces_split_a_block_evenly():
    """Seven elements in three pieces: two, two and three."""
    found = layout("broadcast", 0, size="7B")
    spans = [found.piece(0, i, Fraction(7, 3)) for i in range(3)]
    assert spans == [(0, 2), (2, 4), (4, 7)]


def test_padded_bytes():
    """A kilobyte over three ranks in float32 needs 84 elements a block."""
    demand = Demand.collective("allgather", size="1KB")
    problem = Problem(topology=Topology.parse("ring:gpus=3"), demand=demand)
    assert padded_bytes(problem, demand.tenants[0], 4) == 3 * 84 * 4
