"""Program: what one rank receives, combines and sends, and what each of these waits for.

Every write makes a new *version* of a chunk at a place of its own: the user's send buffer holds the
first, arrivals and sums go to scratch, and the last version of a chunk that the rank wants lies in
the user's recv buffer. Nothing is overwritten while it may still be read, so the only waits are for
data. A sum is formed in the order of the schedule, whatever order messages come in.
"""

from dataclasses import dataclass
from typing import NamedTuple

from teccl.runtime.layout import TenantLayout


class Place(NamedTuple):
    """Elements of a buffer: 2 t is tenant t's send buffer, 2 t + 1 its recv buffer, -1 scratch."""

    buffer: int
    start: int
    stop: int


SCRATCH = -1


class Receive(NamedTuple):
    """A message to wait for: from whom, into where, and the step it is for."""

    peer: int
    tag: int
    place: Place
    step: int
    message: int


class Target(NamedTuple):
    """Where a departure goes; the rank itself for what a switch sends back, which is a step."""

    peer: int
    tag: int
    message: int
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One version of a chunk leaving on one link.

    Parameters
    ----------
    place
        What is sent.
    after
        Step that makes it, None where it is there from the start.
    link
        The link it leaves on; departures of a link keep their order.
    root
        Row of the schedule's sends.
    ready_ps
        When the rank's own data may leave.
    targets
        Who gets it.
    """

    place: Place
    after: int | None
    link: int
    root: int
    ready_ps: int
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """An arrival, or the moment a rank's late contribution joins a sum.

    Parameters
    ----------
    chunk
        Which chunk it changes.
    parts
        What is combined; one part without `before` is stored as it came.
    before
        The version that the parts are added to.
    out
        Where the new version goes.
    waits
        How many messages and steps come first.
    ready_ps
        When the rank's own contribution is there.
    """

    chunk: int
    parts: tuple[Place, ...]
    before: Place | None
    out: Place
    waits: int
    ready_ps: int = 0

    @property
    def combines(self) -> bool:
        """Whether anything is computed."""
        return self.before is not None or len(self.parts) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """One rank's part of a schedule.

    Parameters
    ----------
    rank
        GPU rank.
    layouts
        Buffers of each tenant on this rank.
    copies
        Pairs of places, copied at the start.
    receives
        By time of arrival.
    departures
        By time of start.
    steps
        What arrivals do.
    followers
        Per step, the steps that wait for it.
    scratch
        Elements of scratch.
    """

    rank: int
    layouts: tuple[TenantLayout, ...]
    copies: tuple[tuple[Place, Place], ...]
    receives: tuple[Receive, ...]
    departures: tuple[Departure, ...]
    steps: tuple[RankStep, ...]
    followers: tuple[tuple[int, ...], ...]
    scratch: int
