"""What a rank does in each round: ordered sends and receives, then sums, all between places."""

from dataclasses import dataclass
from typing import NamedTuple

from teccl.runtime.rank_program import Place, RankStep


class Transfer(NamedTuple):
    """A message to or from another rank."""

    peer: int
    place: Place


class Sum(NamedTuple):
    """What two places hold, combined into a third; a copy where there is no right one."""

    left: Place
    right: Place | None
    out: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One group of sends and receives of a rank, and the sums that follow it.

    Parameters
    ----------
    number
        The same on all ranks; a rank that has nothing to do in a round leaves it out.
    sends, receives
        Those to or from one peer are matched in this order.
    """

    number: int
    sends: tuple[Transfer, ...] = ()
    receives: tuple[Transfer, ...] = ()
    sums: tuple[Sum, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRounds:
    """Everything one rank does.

    Parameters
    ----------
    rank
        GPU rank.
    copies
        Source and target of copies made at the start.
    first
        Sums that need no message.
    rounds
        By number.
    scratch
        Elements of scratch.
    """

    rank: int
    copies: tuple[tuple[Place, Place], ...]
    first: tuple[Sum, ...]
    rounds: tuple[Round, ...]
    scratch: int


def sums_of(step: RankStep) -> tuple[Sum, ...]:
    """Return the additions of a step, in the order in which they are made."""
    parts = list(step.parts)
    if step.before is not None:
        parts.insert(0, step.before)
    elif step.out in parts:
        # The result takes the place of a part, which must then be read first.
        parts.remove(step.out)
        parts.insert(0, step.out)
    if not parts:
        return ()
    if len(parts) == 1:
        return () if parts[0] == step.out else (Sum(parts[0], None, step.out),)
    rest = sorted(parts[1:], key=lambda part: part != step.out)
    sums, left = [], parts[0]
    for part in rest:
        sums.append(Sum(left, part, step.out))
        left = step.out
    return tuple(sums)
