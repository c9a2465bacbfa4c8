"""Attempts: chunks routed once and booked in several orders, each improved by justification."""

import numpy as np

from teccl.exchange.drafts import Draft
from teccl.exchange.jobs import Jobs
from teccl.exchange.tables import IntArray, Legs

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
    passes, patience
        See `teccl.exchange.balancing.balance`.

    Attributes
    ----------
    spent
        Legs booked so far, each time counted.
    """

    def __init__(
        self, jobs: Jobs, random: np.random.Generator, *, passes: int, patience: int
    ) -> None:
        self.jobs = jobs
        self.random = random
        self.legs, load = jobs.balanced(passes=passes, patience=patience)
        self.urgency = jobs.urgency(self.legs, load)
        self.spent = len(self.legs.job)

    @property
    def cost(self) -> int:
        """Legs that a thorough attempt books at most."""
        return (2 * ROUNDS + 1) * len(self.legs.job)

    def quick(self) -> Draft:
        """Book the fullest links' chunks first, once more after looking back from the end.

        No worse than every chunk sent straight, by rank, where each goes to one GPU only: straight
        sends to several would cross between nodes several times.
        """
        best = self._justified(self._book(self.legs, self._by_urgency()), rounds=1)
        if len(self.jobs.wanted.ends) > len(self.jobs):
            return best
        return min(best, self.straight(limit=best.finish), key=lambda draft: draft.finish)

    def straight(self, *, limit: int = _NEVER) -> Draft:
        """Send every chunk straight, in rank order; of no use where it reaches the limit."""
        legs = self.jobs.direct()
        return self._book(legs, np.arange(len(legs.job)), limit=limit)

    def thorough(self) -> Draft:
        """Spread every block over the time, from a random moment on, and improve that."""
        jitter = self.random.random(len(self.jobs))
        return self._justified(self._book(self.legs, self._by_portion(jitter)), rounds=ROUNDS)

    def _by_urgency(self) -> IntArray:
        job = self.legs.job
        return np.lexsort((np.arange(len(job)), job, -self.jobs.time[job], -self.urgency[job]))

    def _by_portion(self, jitter: np.ndarray) -> IntArray:
        job = self.legs.job
        return np.lexsort((np.arange(len(job)), job, self.jobs.portion(jitter)[job]))

    def _book(
        self, legs: Legs, order: IntArray, *, mirrored: bool = False, limit: int = _NEVER
    ) -> Draft:
        from teccl.exchange.booking import book_all

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
        from teccl.exchange.booking import lengths_of

        length = lengths_of(self.jobs.network.fabric, draft.legs, self.jobs.hold)
        best = last = draft
        for _ in range(rounds):
            order = np.argsort(-(last.begin + length), kind="stable")
            back = self._book(draft.legs, order, mirrored=True)
            last = self._book(draft.legs, np.argsort(-(back.begin + length), kind="stable"))
            if last.finish >= best.finish:
                break
            best = last
        return best
