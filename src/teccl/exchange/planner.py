"""Planner: from a matrix of bytes to a verified schedule in milliseconds, again and again."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.exchange.attempts import Attempts
from teccl.exchange.cutting import (
    FINER,
    block_sizes,
    first_chunks,
    has_sums,
    most_chunks,
    num_pieces,
    quick,
    thorough,
)
from teccl.exchange.drafts import Draft
from teccl.exchange.orders import ExchangeJobs, refusal
from teccl.exchange.passage_network import PassageNetwork
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    # Bytes from each rank to each other, or a demand.
    Exchange = Demand | Sequence[Sequence[Any]] | npt.NDArray[Any]


class Planner:
    """Plans one exchange after another on the same network.

    Passages and routes, which depend on the topology alone, are found when the first demand comes.
    Each demand is then routed so that no link is much fuller than others, and booked link by link.
    Work is counted, never timed: the same demand, work and seed give the same schedule.

    Parameters
    ----------
    topology
        The network, a preset or a file; switches are store-and-forward.
    seed
        Of all random choices.

    Raises
    ------
    MethodError
        If the seed is no whole number from 0.

    Examples
    --------
    >>> planner = Planner("dgx-h100")
    >>> matrix = [[0 if i == j else 10**6 * (1 + j) for j in range(8)] for i in range(8)]
    >>> planner.plan(matrix)
    Schedule('planner', alltoallv on 'dgx-h100', 4032 sends, 125.422 us)
    """

    def __init__(self, topology: "str | Path | Topology", *, seed: int = 0) -> None:
        self.topology = Topology.parse(topology)
        self.seed = _whole(seed, "seed")
        self._networks: dict[bool, PassageNetwork] = {}

    def __repr__(self) -> str:
        return f"Planner({self.topology!r})"

    def plan(self, demand: "Exchange", *, work: int = 0) -> Schedule:
        """Return a verified schedule of an exchange.

        Parameters
        ----------
        demand
            Bytes from each rank to each other, or a demand whose chunks have one source each, or
            which are all sums for one GPU each.
        work
            Transfers that may be placed to improve on the first schedule, some two million in a
            second.

        Raises
        ------
        DemandError
            If the matrix does not fit, or nothing joins two GPUs.
        MethodError
            If chunks have several sources, rates change over time, or work is no number from 0.
        """
        *_, best = self._drafts(_demand(demand), _whole(work, "work"))
        return _verified(best)

    def plans(self, demand: "Exchange", *, work: int) -> Iterator[Schedule]:
        """Yield verified schedules, each faster than the one before, while work is left."""
        return map(_verified, self._drafts(_demand(demand), _whole(work, "work")))

    def network(self, *, turned: bool = False) -> PassageNetwork:
        """Return what is kept of the topology, or of the one with all links turned round."""
        if turned not in self._networks:
            topology = self.topology.transposed() if turned else self.topology
            self._networks[turned] = PassageNetwork.of(topology)
        return self._networks[turned]

    def jobs(self, demand: Demand, num_chunks: int) -> ExchangeJobs:
        """Cut a demand and look at it on the network."""
        problem = Problem(topology=self.topology, demand=demand, num_chunks=num_chunks)
        reason = refusal(problem)
        if reason is not None:
            raise MethodError(f"{reason}; use teccl.solve")
        return ExchangeJobs.of(self.network(turned=problem.has_reductions), problem)

    def _drafts(self, demand: Demand, work: int) -> Iterator[Draft]:
        """Yield better and better drafts: one quickly, then one of finer chunks, then others."""
        network = self.network(turned=has_sums(demand, self.topology))
        sizes = block_sizes(demand, self.topology)
        fewest = num_pieces(sizes, self.topology, first_chunks(network))
        jobs = self.jobs(demand, fewest)
        attempt = Attempts(jobs, np.random.default_rng(self.seed), quick(sizes))
        best = attempt.quick()
        yield best
        if work <= attempt.spent:
            return
        finest = num_pieces(sizes, self.topology, most_chunks(self.topology))
        spent = attempt.spent
        while finest > fewest and attempt.cost * finest > (work - spent) * fewest:
            finest //= FINER
        if finest > fewest:
            jobs = self.jobs(demand, finest)
        attempt = Attempts(jobs, attempt.random, thorough(work))
        while spent + attempt.cost <= work:
            before = attempt.spent
            draft = attempt.thorough()
            spent += attempt.spent - before
            if draft.finish < best.finish:
                best = draft
                yield best


def _demand(demand: "Exchange") -> Demand:
    """Return a demand, made of a matrix if that is what is given."""
    if isinstance(demand, Demand):
        return demand
    rows = demand.tolist() if isinstance(demand, np.ndarray) else demand
    return Demand.collective("alltoallv", matrix=rows)


def _whole(value: int, what: str) -> int:
    """Return a whole number, not negative."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise MethodError(f"{what} {str(value)[:40]!r} is not a whole number; give 0 or more")
    return int(value)


def _verified(draft: Draft) -> Schedule:
    """Return the schedule of a draft, judged."""
    from teccl.verification import verify

    schedule = draft.schedule()
    verify(schedule, strict=True)
    return schedule
