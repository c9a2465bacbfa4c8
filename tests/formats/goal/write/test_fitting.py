"""One gap and one latency for transfers of several costs."""

import pytest

from teccl.formats.goal.write.fitting import MAX_INT, MessageCost, fit


@pytest.mark.parametrize(
    ("held", "gap", "pieces"),
    [
        ([20_000], 20_000, (1,)),
        ([20_000, 40_000, 20_000], 20_000, (1, 2, 1)),
        ([20_000, 30_000], 10_000, (2, 3)),
        ([39_063, 78_125], 39_063, (1, 2)),
        ([2_500, 62_500], 2_500, (1, 25)),
    ],
)
def test_gaps_divide_the_times(held, gap, pieces):
    """The longest gap that divides all, up to a share that is rounding only."""
    found = fit([MessageCost(h, h + 500_000) for h in held])
    assert found.parameters.gap == gap
    assert found.pieces == pieces
    assert found.parameters.latency == 500_000 + gap
    assert found.differences == ()
    assert found.slack_ps == max(n * gap - h for n, h in zip(pieces, held, strict=True))


def test_times_without_a_common_part_are_rounded_up():
    """A sentence says by how much."""
    found = fit([MessageCost(1_000, 2_000), MessageCost(1_000_003, 1_001_003)])
    (sentence,) = found.differences
    assert "one g" in sentence
    gap = found.parameters.gap
    assert all(n * gap >= h for n, h in zip(found.pieces, (1_000, 1_000_003), strict=True))
    assert max(found.pieces) <= 64


def test_other_latencies_are_said():
    """The longest one is taken."""
    found = fit([MessageCost(10, 30), MessageCost(10, 50)])
    assert found.parameters.latency == 50
    assert "one L" in found.differences[0]


def test_long_times_take_a_coarser_unit():
    """The parameters are C integers."""
    found = fit([MessageCost(10**13 + 1, 10**13 + 5)])
    assert found.unit_ps == 10_000
    assert max(found.parameters) <= MAX_INT
    assert 0 < found.slack_ps < 2 * found.unit_ps


def test_nothing_to_send():
    """A schedule without sends has parameters too."""
    assert fit([]).pieces == ()
