"""TimeGrid: epoch duration, kappa and delta, the only place where this arithmetic lives.

========  =============  =======================================================================
symbol    name           meaning
========  =============  =======================================================================
tau       ``epoch``      duration of an epoch in seconds
kappa     ``kappa``      epochs one chunk occupies a link
delta     ``delta``      epochs of latency added to an arrival
T tau     ``capacity``   chunks that may start on a link in any kappa consecutive epochs
========  =============  =======================================================================
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.errors import ProblemError
from teccl.problem import Problem
from teccl.units import Quantity, parse_duration

IntArray = npt.NDArray[np.int64]

# A latency of at most a tenth of an epoch is ignored (the paper's rounding).
NEGLIGIBLE = Fraction(1, 10)
# Beyond this many epochs of latency the epoch is made longer, once.
MAX_ALPHA_EPOCHS = 200
COARSENING = 5


class EpochRule(StrEnum):
    """How the epoch duration follows from the links."""

    FASTEST = "fastest"
    SLOWEST = "slowest"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrid:
    """Epochs of one duration laid over a problem.

    A chunk sent on link e in epoch k occupies it for ``kappa[e]`` epochs and is usable at the far
    end from the start of epoch ``k + kappa[e] + delta[e]``.
    """

    problem: Problem = field(repr=False)
    epoch: Fraction
    kappa: IntArray = field(init=False, repr=False, compare=False)
    delta: IntArray = field(init=False, repr=False, compare=False)
    capacity: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.epoch <= 0:
            raise ProblemError(f"epoch {self.epoch} s is not positive; give for example 1us")
        topology = self.problem.topology
        arrays = {
            "kappa": topology.each_link(
                lambda link: self.epochs_to_send(topology.rate(link), link.overhead)
            ),
            "delta": topology.each_link(lambda link: self.epochs_of_latency(link.alpha)),
            "capacity": topology.each_link(
                lambda link: self.chunks_per_epoch(topology.rate(link), link.overhead)
            ),
        }
        for name, values in arrays.items():
            if max(values, default=0) > 2**40:
                raise ProblemError(
                    f"an epoch of {float(self.epoch):.3g} s is far from the links' times; "
                    "use --epoch fastest or slowest"
                )
            array = np.array(values, dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @staticmethod
    def build(
        problem: Problem,
        epoch: EpochRule | Quantity = EpochRule.FASTEST,
        multiplier: Fraction | int = 1,
    ) -> "TimeGrid":
        """Lay a grid over a problem.

        Parameters
        ----------
        problem
            Its chunk size and links set the epoch for the rules.
        epoch
            ``"fastest"`` or ``"slowest"`` link's time for one chunk, or a duration used as it is.
        multiplier
            Factor on the duration.

        Examples
        --------
        >>> from teccl import Demand, Topology
        >>> demand = Demand.collective("allgather", size="1MB")
        >>> problem = Problem(topology=Topology.parse("ndv2:chassis=2"), demand=demand)
        >>> TimeGrid.build(problem).epoch == Fraction("1.25e-6")
        True
        """
        if multiplier <= 0:
            raise ProblemError(f"epoch multiplier {multiplier} is not positive; use 1 or more")
        if not isinstance(epoch, EpochRule) and epoch not in tuple(EpochRule):
            duration = parse_duration(epoch, what="epoch") * multiplier
            return TimeGrid(problem=problem, epoch=duration)
        topology = problem.topology
        holds = topology.each_kind(
            lambda link: link.overhead + problem.chunk_bytes / topology.rate(link)
        )
        if not holds:
            raise ProblemError("the topology has no links, so no epoch follows; add links")
        duration = (min(holds) if epoch == EpochRule.FASTEST else max(holds)) * multiplier
        if max(link.alpha for link in problem.topology.links) > MAX_ALPHA_EPOCHS * duration:
            duration *= COARSENING
        return TimeGrid(problem=problem, epoch=duration)

    def epochs_to_send(self, rate: Fraction, overhead: Fraction = Fraction(0)) -> int:
        """Kappa of a rate and an overhead: whole epochs that one chunk takes."""
        return math.ceil(self._hold(rate, overhead) / self.epoch)

    def chunks_per_epoch(self, rate: Fraction, overhead: Fraction = Fraction(0)) -> int:
        """Chunks that may start within one kappa window at a rate and an overhead."""
        return max(1, math.floor(self.epoch / self._hold(rate, overhead)))

    def shared_epochs(self, name: str) -> tuple[int, int]:
        """Kappa and chunks per window of a shared capacity: its rate, its links' least overhead."""
        topology = self.problem.topology
        sharing = (link.overhead for link in topology.links if name in link.shares)
        rate, overhead = topology.shared[name], min(sharing, default=Fraction(0))
        return self.epochs_to_send(rate, overhead), self.chunks_per_epoch(rate, overhead)

    def _hold(self, rate: Fraction, overhead: Fraction) -> Fraction:
        """Seconds for which one chunk holds a link."""
        return overhead + self.problem.chunk_bytes / rate

    def epochs_of_latency(self, alpha: Fraction) -> int:
        """Delta of a latency: whole epochs, none when it is negligible."""
        epochs = alpha / self.epoch
        return 0 if epochs <= NEGLIGIBLE else math.ceil(epochs)

    def rate_at(self, link: int, epoch: int) -> Fraction:
        """Bytes per second of a link at the start of an epoch."""
        topology = self.problem.topology
        now = epoch * self.epoch
        steps = topology.rate_steps(topology.links[link])
        return next(rate for start, rate in reversed(steps) if start <= now)

    def first_epochs(self, link: int) -> list[int]:
        """Return the epochs from which on a link has another rate at their start, 0 among them."""
        topology = self.problem.topology
        steps = topology.rate_steps(topology.links[link])
        return sorted({math.ceil(start / self.epoch) for start, _ in steps})

    def kappa_at(self, link: int, epoch: int) -> int:
        """Kappa of a link for a send in a given epoch, profiles included."""
        overhead = self.problem.topology.links[link].overhead
        return self.epochs_to_send(self.rate_at(link, epoch), overhead)

    def capacity_at(self, link: int, epoch: int) -> int:
        """Chunks that may start in the window of an epoch, profiles included."""
        overhead = self.problem.topology.links[link].overhead
        return self.chunks_per_epoch(self.rate_at(link, epoch), overhead)

    def ready_epoch(self, ready: Fraction) -> int:
        """First epoch at whose start data that is ready at a time may be sent."""
        return math.ceil(ready / self.epoch)
