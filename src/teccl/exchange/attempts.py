"""Attempts: chunks routed once and booked in several orders, each improved by justification."""

import numpy as np

from teccl.exchange.drafts import Draft
from teccl.exchange.orders import ExchangeJobs
from teccl.exchange.tables import Care, IntArray, Legs
from teccl.schedule.ordering import order_by

# Rounds of justification, backward and forward, of each order; it ends when one gains nothing.
ROUNDS = 6
_NEVER = 2**62


class Attempts:
    """Drafts of one set of chunks.

    Parameters
    ----------
    jobs
        The chunks.
    random
        Source of random orders.
    care
        How long to balance them.

    Attributes
    ----------
    spent
        Legs booked so far, each time counted.
    """

    def __init__(self, jobs: ExchangeJobs, random: np.random.Generator, care: Care) -> None:
        self.jobs = jobs
        self.random = random
        self.legs, self.load = jobs.balanced(care)
        self.spent = len(self.legs.job)
        # Finish of the last thorough attempt in each kind of order.
        self._reached: dict[str, int] = {}

    @property
    def cost(self) -> int:
        """Legs that a thorough attempt books at most."""
        return (2 * ROUNDS + 1) * len(self.legs.job)

    def quick(self) -> Draft:
        """Book the fullest links' chunks first, or first legs first, and look back from the end.

        No worse than every chunk sent straight, by rank, where each goes to one GPU only: straight
        sends to several would cross between nodes several times.
        """
        best = self._book(self.legs, self._by_urgency())
        waves = self._book(self.legs, self._by_wave(), limit=best.finish)
        best = self._justified(min(best, waves, key=_finish), rounds=1)
        if len(self.jobs.wanted.ends) > len(self.jobs):
            return best
        return min(best, self.straight(limit=best.finish), key=_finish)

    def straight(self, *, limit: int = _NEVER) -> Draft:
        """Send every chunk straight, in rank order; of no use where it reaches the limit."""
        legs = self.jobs.direct()
        return self._book(legs, np.arange(len(legs.job)), limit=limit)

    def thorough(self) -> Draft:
        """Book in a random order and improve that; the kind of order that did best so far."""
        orders = {"portions": self._by_portion, "waves": self._by_wave}
        untried = [kind for kind in orders if kind not in self._reached]
        kind = untried[0] if untried else min(self._reached, key=self._reached.__getitem__)
        draft = self._justified(self._book(self.legs, orders[kind]()), rounds=ROUNDS)
        self._reached[kind] = draft.finish
        return draft

    def _by_urgency(self) -> IntArray:
        job, urgency = self.legs.job, self.jobs.urgency(self.legs, self.load)
        return order_by(-urgency[job], -self.jobs.time[job], job)

    def _by_wave(self) -> IntArray:
        """Order legs by how many are before them, so that relays soon have what they send on.

        Of those with as many before them chunks that go furthest are first.
        """
        job = self.legs.job
        chance = self.random.integers(len(self.jobs), size=len(self.jobs))
        return order_by(self.legs.depth(), -np.bincount(job)[job], chance[job])

    def _by_portion(self) -> IntArray:
        """Spread every block over the time, from a random moment on."""
        job = self.legs.job
        return order_by(self.jobs.portion(self.random.random(len(self.jobs)))[job], job)

    def _book(
        self, legs: Legs, order: IntArray, *, mirrored: bool = False, limit: int = _NEVER
    ) -> Draft:
        from teccl.exchange.laying import book_all

        begin = np.zeros(len(order), dtype=np.int64)
        network = self.jobs.network
        finish = book_all(
            network.fabric,
            legs,
            self.jobs.hold,
            order,
            network.num_resources,
            mirrored,
            begin,
            limit,
        )
        self.spent += len(order)
        return Draft(jobs=self.jobs, legs=legs, begin=begin, finish=int(finish))

    def _justified(self, draft: Draft, *, rounds: int) -> Draft:
        """Book from the end backwards, last first, and again forwards; while that is better."""
        from teccl.exchange.laying import lengths_of

        length = lengths_of(self.jobs.network.fabric, draft.legs, self.jobs.hold)
        best = last = draft
        for _ in range(rounds):
            order = order_by(-(last.begin + length))
            back = self._book(draft.legs, order, mirrored=True)
            last = self._book(draft.legs, order_by(-(back.begin + length)))
            if last.finish >= best.finish:
                break
            best = last
        return best


def _finish(draft: Draft) -> int:
    return draft.finish
