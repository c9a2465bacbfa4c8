"""Strategies of `auto`, in the order in which they have their turn: one file, one entry each."""

from teccl.synthesis.portfolio import Strategy
from teccl.synthesis.strategies.baselines import Baselines
from teccl.synthesis.strategies.chains import Chains
from teccl.synthesis.strategies.closing import ExactOffGrid
from teccl.synthesis.strategies.construction import ConstructionStrategy
from teccl.synthesis.strategies.counterparts import Counterparts
from teccl.synthesis.strategies.exact import ExactOnGrid
from teccl.synthesis.strategies.exchange import Exchange
from teccl.synthesis.strategies.forests import Forests
from teccl.synthesis.strategies.improvement import Improvement
from teccl.synthesis.strategies.mixed import Mixed
from teccl.synthesis.strategies.narrow_cuts import NarrowCuts
from teccl.synthesis.strategies.periods import Periods
from teccl.synthesis.strategies.polish import Polish
from teccl.synthesis.strategies.restart import Restart
from teccl.synthesis.strategies.shifts import Shifts
from teccl.synthesis.strategies.staged import Staged
from teccl.synthesis.strategies.unicasts import Unicasts

__all__ = ["CONSTRUCT", "PORTFOLIO"]

_FIRST: list[Strategy] = [
    Chains(),
    Periods(is_promising=True, phases=2),
    Staged(is_promising=True),
    Mixed(is_promising=True),
    Exchange(),
    Shifts(),
    Unicasts(is_promising=True),
    Forests(is_promising=True),
    Periods(is_promising=True, phases=1),
    ConstructionStrategy(),
    NarrowCuts(),
    Unicasts(is_promising=False),
]
_MORE: list[Strategy] = [
    Counterparts(),
    Forests(is_promising=False),
    Periods(is_promising=False),
    Polish(),
    Staged(is_promising=False),
    Mixed(is_promising=False),
]
# What makes schedules from nothing, without baselines and solvers.
CONSTRUCT: list[Strategy] = [*_FIRST, *_MORE, Improvement()]
PORTFOLIO: list[Strategy] = [
    Restart(),
    *_FIRST,
    Baselines(),
    *_MORE,
    ExactOffGrid(),
    Improvement(),
    ExactOnGrid(),
]
