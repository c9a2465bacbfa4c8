"""What sends of partial sums carry, in words."""

from tests.verification.partial import exchange, one_shot
from tests.verification.test_sum_origins import through_reducing_switch

from teccl.schedule.contributions import carried_by, contributions
from teccl.topology import Topology


def test_relays_carry_single_contributions():
    """In a one-shot AllReduce everything that is sent is one rank's, and results are of all."""
    schedule = one_shot(Topology.parse("ring:gpus=4"), 1000)
    names, carried = carried_by(schedule)
    assert sorted(names) == [f"the contribution of gpu{i}" for i in range(4)]
    assert (carried >= 0).all()
    found = contributions(schedule)
    results = [found[row] for row in schedule.sums["result"].nonzero()[0]]
    assert results == [frozenset(range(4))] * 4


def test_exchanges_carry_sums():
    """Later steps carry more; long lists are cut."""
    names, carried = carried_by(exchange(4, 1000))
    assert "the sum of gpu0, gpu1" in names
    assert "the sum of gpu0, gpu1, gpu2, gpu3 and 4 more" in names
    assert len(carried) == 64


def test_switches_merge():
    """What comes out of a reducing switch has all contributions in it."""
    schedule = through_reducing_switch()
    found = contributions(schedule)
    assert {len(found[row]) for row in schedule.sums["result"].nonzero()[0]} == {8}
