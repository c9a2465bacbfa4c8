"""Goal: what a construction aims at, how much work it may do, and when more is worth it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from teccl.construct.params import GAP_PART, NEVER, RUN_UNITS, SECOND_TRY


@dataclass(slots=True, kw_only=True)
class Goal:
    """Aim and means of a construction, the same on every machine.

    Parameters
    ----------
    target
        A lower bound in the instance's time; nothing is better than meeting it.
    allowance
        Units of work (see `teccl.construct.params`) that may be spent beyond the first run of the
        first construction that serves.
    price
        Gap that a unit of work is worth.
    seed
        Of all random choices.
    checkpoint
        Called before each run; may raise to end the search.
    is_late
        Whether time is over, so that nothing is worth trying after a first plan.
    spent
        Units so far.
    finishes
        What each construction made, one number of chunks after another.
    known
        Finish of the best plan that there is for these chunks, or that more of them promise.
    climbs
        Whether more chunks are tried next.
    most
        Units that are left in all; no run that would take more is begun once there is a plan.
    shares
        Units that each construction has had for each number of chunks and target.
    taken
        Number of chunks with which each construction ran the last time, and units that it took.
    """

    target: int = 0
    allowance: int = 0
    price: float = 0.0
    seed: int = 0
    checkpoint: Callable[[], None] = lambda: None
    is_late: Callable[[], bool] = lambda: False
    spent: int = 0
    known: int = NEVER
    climbs: bool = False
    most: int = NEVER
    finishes: dict[str, list[int]] = field(default_factory=dict)
    shares: dict[tuple[str, int, int], int] = field(default_factory=dict)
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)

    def is_worth(self, finish: int, work: int) -> bool:
        """Whether so much work is left and worth trying after a finish; after none any is."""
        if finish == NEVER:
            return True
        is_left = self.spent + work <= self.allowance and not self.is_late()
        return is_left and min(finish, self.known) > self.target * (1 + self.price * work)

    def promised(self, name: str, finish: int) -> int:
        """What a construction that made a finish makes with twice the chunks, if those are tried.

        A pipeline takes its load and a part of its depth for each chunk: twice the chunks gain half
        of what they gained before.
        """
        before = self.latest(name)
        if not self.climbs or max(before, finish) == NEVER:
            return finish
        return self._with_twice_the_chunks(before, finish)

    def run_work(self, name: str, num_chunks: int, estimate: int) -> int:
        """Units of one run of a construction: as estimated, or as the last ones took if more."""
        chunks, units = self.taken.get(name, (1, 0))
        return max(estimate, units * num_chunks // (2 * chunks))

    def latest(self, name: str) -> int:
        """What a construction made the last time; never, if it was not worth a try yet."""
        known = self.finishes.get(name)
        return known[-1] if known else NEVER

    def next_finish(self, name: str) -> int:
        """What a construction makes with twice the chunks if these gain half as much as before."""
        known = self.finishes.get(name, [])
        if len(known) < 2 or max(known[-2:]) == NEVER:
            return self.latest(name)
        return self._with_twice_the_chunks(*known[-2:])

    def _with_twice_the_chunks(self, before: int, finish: int) -> int:
        return max(self.target, finish - max(0, before - finish) // 2)

    def is_worth_again(self, name: str, finish: int, work: int) -> bool:
        """Whether a construction is worth so much work: the less, the later it would end at best.

        What twice the chunks gained is what still more of them can gain in all.
        """
        known = self.finishes.get(name, [])
        limit = max(0, 2 * known[-1] - known[-2]) if len(known) > 1 else 0
        doubts = 1 + GAP_PART * max(0.0, limit / max(1, finish) - 1)
        if len(known) == 1:
            doubts = SECOND_TRY
        least = self.target * (1 + self.price * doubts * work)
        return finish > least and self.is_worth(finish, work)

    def claims_more(self, name: str, num_chunks: int) -> bool:
        """Note what a construction may do; whether that is more than it did before."""
        key = name, num_chunks, self.target
        had = self.shares.get(key, -1)
        self.shares[key] = max(had, self.allowance)
        return self.allowance > had

    def begin(self, work: int) -> None:
        """Count a run of so much work."""
        self.checkpoint()
        self.spent += work + RUN_UNITS
