"""LogGOPS parameters for transfers of given costs: one gap and one latency for all of them.

A transfer that holds its link longer than another becomes several messages, one after the other,
so that every transfer is a whole number of gaps. What is left over is rounded up.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from teccl.formats.goal.prove import Parameters
from teccl.units import PICOSECONDS, format_duration

# The simulator's parameters are C integers, and so is the size from which it is not eager.
MAX_INT = 2**31 - 1
# Messages that a transfer may become. Rates of real links are small multiples of one another, and
# every message is lines of text.
MAX_PIECES = 64
# A gap that fits up to this share of a transfer's time differs by rounding only.
_CLOSE = Fraction(1, 10_000)


class MessageCost(NamedTuple):
    """What a transfer costs: how long it holds its links, and until it has arrived."""

    held_ps: int
    latency_ps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalFit:
    """Parameters, and how well they fit.

    Parameters
    ----------
    parameters
        In units of `unit_ps`.
    unit_ps
        Picoseconds that one unit of time is.
    pieces
        Messages that each transfer becomes.
    slack_ps
        Most picoseconds by which a transfer's times are rounded up.
    differences
        Sentences about what does not fit.
    """

    parameters: Parameters
    unit_ps: int
    pieces: tuple[int, ...]
    slack_ps: int
    differences: tuple[str, ...]


def fit(costs: Sequence[MessageCost]) -> GoalFit:
    """Find the gap, the latency and the pieces of transfers."""
    held = {cost.held_ps for cost in costs} or {1}
    gap_ps = _gap(held)
    # Of a transfer in pieces the last one leaves all gaps but one later than the first.
    rest = {cost.latency_ps - cost.held_ps for cost in costs} or {0}
    longest = max(rest) + gap_ps
    unit = next(10**k for k in itertools.count() if longest <= MAX_INT * 10**k)
    gap = -(-gap_ps // unit)
    pieces = {h: -(-h // (gap * unit)) for h in held}
    parameters = Parameters(
        latency=-(-longest // unit),
        overhead=0,
        gap=gap,
        gap_per_byte=0,
        overhead_per_byte=0,
        eager_bytes=MAX_INT,
    )
    slack = max(pieces[h] * gap * unit - h for h in held) + parameters.latency * unit - longest
    return GoalFit(
        parameters=parameters,
        unit_ps=unit,
        pieces=tuple(pieces[cost.held_ps] for cost in costs),
        slack_ps=slack,
        differences=tuple(_differences(held, rest, gap * unit)),
    )


def _gap(held: set[int]) -> int:
    """Return the longest gap of which all times are multiples, or as nearly as pieces allow."""
    best, least = max(held), _excess(held, max(held))
    for parts in range(1, MAX_PIECES + 1):
        gap = -(-min(held) // parts)
        if max(held) > gap * MAX_PIECES:
            break
        excess = _excess(held, gap)
        if excess < least:
            best, least = gap, excess
        if least <= _CLOSE:
            break
    return best


def _excess(held: set[int], gap: int) -> Fraction:
    """Return by which share a time is rounded up to whole gaps, at most."""
    return max(Fraction(-(-h // gap) * gap - h, h) for h in held)


def _differences(held: set[int], rest: set[int], gap_ps: int) -> list[str]:
    found = []
    excess = _excess(held, gap_ps)
    if excess > _CLOSE:
        found.append(
            f"the simulator has one g, but transfers hold links for {_span(held)}; they are "
            f"rounded up to multiples of g, by {100 * float(excess):.2g} % at most, so that its "
            "time is too long rather than too short"
        )
    if len(rest) > 1:
        found.append(
            f"the simulator has one L, but latencies are {_span(rest)}; the command takes the "
            "longest, so that its time is too long rather than too short"
        )
    return found


def _span(values: set[int]) -> str:
    ends = [format_duration(Fraction(v, PICOSECONDS)) for v in (min(values), max(values))]
    return f"{ends[0]} to {ends[1]}"
