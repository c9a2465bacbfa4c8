"""Executable: a schedule prepared for ranks that run it with any number of elements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from teccl.demand import Collective
from teccl.errors import ScheduleError
from teccl.rounds.lowering import assign_rounds, rank_rounds
from teccl.rounds.round_steps import RankRounds
from teccl.rounds.sum_orders import Formed, with_fixed_order
from teccl.runtime.extract import rank_program
from teccl.runtime.messages import Messages, messages_of
from teccl.runtime.rank_program import RankProgram
from teccl.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """A schedule with everything that no number of elements changes.

    Parameters
    ----------
    schedule, messages
        What to run.
    rounds
        The round of each message.
    lowest
        Where ranks would form one sum in different orders: the lowest rank that contributed to
        what each message carries. None leaves the schedule's order.
    is_same
        Whether all ranks end with the same bytes, also in floating point.
    is_exchange
        Whether it is an AllToAll in which no rank passes on what it got: each gives every other
        its block straight.
    """

    schedule: Schedule
    messages: Messages = field(repr=False)
    rounds: Mapping[int, int] = field(repr=False)
    lowest: Mapping[int, int] | None = field(repr=False)
    is_same: bool
    is_exchange: bool

    @staticmethod
    def of(schedule: Schedule) -> "Executable":
        """Prepare a correct schedule of one collective.

        Raises
        ------
        ScheduleError
            If it serves several collectives at once.
        """
        problem = schedule.problem
        if len(problem.demand.tenants) > 1:
            raise ScheduleError(
                f"the schedule serves {len(problem.demand.tenants)} collectives at once; "
                "make one schedule for each"
            )
        messages = messages_of(schedule)
        count = full_count(schedule)
        programs = [
            rank_program(schedule, messages, rank, itemsize=1, count=count)
            for rank in range(problem.topology.num_gpus)
        ]
        rounds = assign_rounds(programs)
        lowest = None
        is_same = True
        if problem.has_reductions:
            formed = Formed(programs, rounds)
            is_same = formed.is_same
            if not is_same:
                lowest = formed.lowest
                fixed = [with_fixed_order(program, lowest) for program in programs]
                is_same = Formed(fixed, rounds).is_same
        return Executable(
            schedule=schedule,
            messages=messages,
            rounds=rounds,
            lowest=lowest if is_same else None,
            is_same=is_same,
            is_exchange=_is_exchange(problem.demand.tenants[0].collective, programs),
        )

    @property
    def num_rounds(self) -> int:
        """How many rounds there are."""
        return max(self.rounds.values(), default=0)

    def program(self, rank: int, count: int | None) -> RankProgram:
        """Return a rank's program for some number of elements, as nccl-tests counts them."""
        program = rank_program(self.schedule, self.messages, rank, itemsize=1, count=count)
        return program if self.lowest is None else with_fixed_order(program, self.lowest)

    def rank_rounds(self, rank: int, count: int | None) -> RankRounds:
        """Return a rank's rounds for some number of elements."""
        return rank_rounds(self.program(rank, count), self.rounds)


def _is_exchange(collective: Collective, programs: Sequence[RankProgram]) -> bool:
    departures = (departure for program in programs for departure in program.departures)
    return collective is Collective.ALLTOALL and all(each.after is None for each in departures)


def full_count(schedule: Schedule) -> int | None:
    """Return a number of elements with which no chunk is empty; None where bytes are given."""
    problem = schedule.problem
    tenant = problem.demand.tenants[0]
    if tenant.matrix is not None or tenant.chunks is not None:
        return None
    return problem.num_chunks * len(tenant.members(problem.topology.num_gpus))
