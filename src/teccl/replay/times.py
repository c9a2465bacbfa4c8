"""Times: when sends begin, free their links, pass switches and arrive."""

from dataclasses import dataclass

from teccl._arrays import IntArray
from teccl.problem import Problem
from teccl.replay.crossings import Crossing
from teccl.schedule.sends import SendArray
from teccl.schedule.timing import times_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Picoseconds of all sends.

    Parameters
    ----------
    start
        When each send begins.
    held
        How long it holds its link.
    arrival
        When what it carries is usable at the far end, if that is a GPU.
    handoff
        When a send that enters a switch must leave it.
    """

    start: IntArray
    held: IntArray
    arrival: IntArray
    handoff: IntArray

    @staticmethod
    def of(problem: Problem, rows: SendArray, start: IntArray) -> "Times":
        """Time sends that begin at given picoseconds on the links of a problem."""
        held, arrival = times_at(problem, rows, start)
        passing, handoff = Crossing.of(problem), arrival
        if passing is Crossing.CIRCUIT:
            handoff = start + problem.topology.alpha_ps[rows["link"]]
        if passing is Crossing.HYPER_EDGE:
            handoff = start
        return Times(start=start, held=held, arrival=arrival, handoff=handoff)
