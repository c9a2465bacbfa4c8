"""Rooms of gates whose transfers have an overhead: no schedule of any sizes moves more."""

import random
from fractions import Fraction

import pytest

from teccl.bounds import Bound, all_bounds
from teccl.bounds.rooms import Room, Share, least_end
from teccl.demand import Demand
from teccl.problem import Problem
from teccl.topology import Topology


def most_moved(room: Room, time: int) -> int:
    """Bytes that transfers of whole bytes move by T, all sequences of sizes tried."""
    best, reached = 0, {0: 0}
    while reached:
        onward: dict[int, int] = {}
        for busy, moved in reached.items():
            for size in range(1, int(room.largest) + 1):
                end = busy + room.overhead + int(room.pace * size)
                if end + room.wait * size <= time - room.away:
                    onward[end] = max(onward.get(end, 0), moved + size)
        best, reached = max([best, *onward.values()]), onward
    return best


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_transfers_moves_more(seed):
    """Every sequence of sizes that keeps its deadlines moves at most what the room allows."""
    rng = random.Random(seed)
    room = Room(
        away=rng.randrange(5),
        overhead=rng.randrange(1, 6),
        pace=Fraction(rng.randrange(1, 4)),
        wait=Fraction(rng.randrange(6)),
        largest=Fraction(rng.randrange(1, 8)),
    )
    for time in range(5, 45, 5):
        assert most_moved(room, time) <= room.bytes_by(time)


def test_transfers_of_the_best_sizes_fill_a_room():
    """A first piece of four bytes and a second one of one are all that ten picoseconds allow."""
    room = Room(0, 2, Fraction(1), Fraction(1), Fraction(100))
    assert room.bytes_by(10) == most_moved(room, 10) == 5


def test_beyond_the_transfers_told_apart_data_is_fluid():
    """Very many transfers are taken to have no overhead, so that a room is never too small."""
    room = Room(0, 1, Fraction(1), Fraction(0), Fraction(1))
    assert room.bytes_by(1000) >= 500


def test_a_limit_holds_for_all_rooms_together():
    """What counts of two rooms is no more than their limit."""
    room = Room(0, 0, Fraction(1), Fraction(0), Fraction(1))
    assert Share([room, room], Fraction(7), 3).bytes_by(5) == 21


def test_the_least_end_is_rounded_down():
    """Seven bytes at two picoseconds each are over at fourteen, a half byte more at fifteen."""
    share = Share([Room(0, 0, Fraction(2), Fraction(0), Fraction(1))])
    assert least_end([share], Fraction(7), 0) == 14
    assert least_end([share], Fraction(15, 2), 0) == 15
    assert least_end([share], Fraction(29, 4), 0) == 14
    assert least_end([share], Fraction(7), 14) is None


def best(spec: str, collective: str) -> Bound:
    """The best bound for pieces of any sizes, equal or not."""
    problem = Problem(
        topology=Topology.parse(spec), demand=Demand.collective(collective, size="1MB")
    )
    return all_bounds(problem, most_cuts=4, whole=False)[0]


def test_copies_for_a_chassis_must_leave_the_other_one_early():
    """Eight blocks of 62.5 KB over NICs: what serves all of a chassis leaves before the rest."""
    bound = best("dgx-b200:chassis=2,rates=effective", "allgather")
    assert bound.kind == "served"
    # One transfer a NIC of 0.73 blocks, 1 us and 0.94 us, then 1.7 us to the other GPU, 0.94 us for
    # its bytes there, 1.54 us over NVLink: all that is later serves one GPU of eight.
    assert 6.0e6 < bound.value < 6.1e6


def test_contributions_that_meet_left_early():
    """On eight GPUs transfers of 0.4, 0.19 and 0.03 of the buffer leave in time, and three come."""
    bound = best("dgx-b200:rates=effective", "allreduce")
    assert bound.kind == "departures"
    # Between leaving early and the end are 4 x 468 ns and 0.6 us; at 5.26 us 7 x 0.615 buffers left
    # early and 2.69 came one by one.
    assert 5.25e6 < bound.value < 5.27e6
