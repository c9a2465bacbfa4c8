"""Closing in on the fewest epochs."""

from fractions import Fraction

import pytest
from tests.models.exactly import MICROSECOND, schedule_within
from tests.verification.helpers import net, task, wants

from teccl.demand import Demand
from teccl.models.milp.arcs import arcs_of
from teccl.models.milp.horizon import MAX_OPEN, Answer, Closing, coarse_horizon
from teccl.problem import Problem
from teccl.timegrid import TimeGrid
from teccl.topology import Link, Node, Topology


def close(closing: Closing, least: int, *, blind: frozenset[int] = frozenset()) -> list[int]:
    """Answer truthfully, except for horizons that stay open; return what was asked."""
    asked = []
    for horizon in closing:
        asked.append(horizon)
        if horizon in blind:
            closing.note(horizon, Answer.OPEN)
        elif horizon >= least:
            closing.note(horizon, Answer.ENOUGH, horizon)
        else:
            closing.note(horizon, Answer.TOO_SHORT)
        assert len(asked) < 50
    return asked


@pytest.mark.parametrize("least", range(3, 30))
@pytest.mark.parametrize("upper", [None, 29])
def test_finds_the_least(least, upper):
    """Whatever the answer, both sides meet at it, and no horizon is asked for twice."""
    closing = Closing(lower=3, upper=upper)
    asked = close(closing, least)
    assert closing.lower == closing.upper == least
    assert len(set(asked)) == len(asked)


def test_lower_end_is_tried_first():
    """Most bounds can be met: one question is enough then."""
    assert close(Closing(lower=7, upper=40), 7) == [7]


def test_steps_grow_where_bounds_are_weak():
    """After a few horizons that are too short the middle is tried."""
    assert len(close(Closing(lower=1, upper=1000), 900)) < 20


def test_open_horizons_are_not_asked_again():
    """What stays open is left, and the gap is honest."""
    closing = Closing(lower=5, upper=9)
    close(closing, 6, blind=frozenset({5, 6}))
    assert (closing.lower, closing.upper) == (5, 7)


def test_gives_up_where_nothing_is_decided():
    """A back end that never answers is not asked for ever."""
    closing = Closing(lower=5)
    asked = close(closing, 6, blind=frozenset(range(1000)))
    assert len(asked) == MAX_OPEN
    assert closing.upper is None


def test_limit_comes_first():
    """A horizon that the user gives is asked for before shorter ones."""
    assert close(Closing(lower=5, limit=12), 6)[0] == 12
    too_short = Closing(lower=5, limit=7)
    assert close(too_short, 9) == [7]
    assert too_short.lower == 8
    assert too_short.upper is None


def test_gap_ends_early():
    """Within the gap nothing more is asked."""
    assert close(Closing(lower=10, upper=13, gap=Fraction(3, 10)), 10) == []


def test_coarse_grids_give_a_horizon_that_does():
    """The paper's search on long epochs yields a number of epochs that is enough."""
    topology = net("a b c d", "a>b 1, b>c 1/3, c>d 1")
    problem = task(topology, wants(*[((0,), (3,))] * 4))
    grid = TimeGrid(problem=problem, epoch=MICROSECOND)

    def is_feasible(coarse: TimeGrid, epochs: int) -> bool:
        return schedule_within(problem, epochs, epoch=coarse.epoch) is not None

    horizon = coarse_horizon(problem, grid, lower=14, is_feasible=is_feasible)
    assert horizon is not None
    assert schedule_within(problem, horizon) is not None


def test_coarse_grids_may_fail():
    """Where no candidate is feasible there is no answer."""
    problem = task(net("a b", "a>b 1"), wants(((0,), (1,))))
    grid = TimeGrid(problem=problem, epoch=MICROSECOND)
    assert coarse_horizon(problem, grid, lower=1, is_feasible=lambda *_: False) is None


@pytest.mark.parametrize("epoch", ["0.7us", "1us", "3us"])
def test_rates_that_change_are_followed_in_every_epoch(epoch):
    """Delays, spans and limits are those of the rate at the start of each epoch."""
    profile = ((Fraction(2, 10**6), Fraction(10**9)), (Fraction(9, 10**6), Fraction(8 * 10**9)))
    link = Link(src=0, dst=1, bandwidth=Fraction(2 * 10**9), profile=profile)
    topology = Topology(name="pair", nodes=(Node(name="a"), Node(name="b")), links=(link,))
    problem = Problem(topology=topology, demand=Demand.collective("broadcast", size="4KB"))
    grid = TimeGrid.build(problem, epoch=epoch)
    arcs = arcs_of(problem, grid, 16)
    kappas = [grid.kappa_at(0, k) for k in range(16)]
    assert arcs.delay[0].tolist() == kappas
    assert arcs.limit[0].tolist() == [grid.capacity_at(0, k) for k in range(16)]
    assert len(set(kappas)) > 1
