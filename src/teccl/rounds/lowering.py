"""Lowering: which round each message of a schedule belongs to, and each rank's rounds.

A message goes in the first round after those that bring what it carries. So there are as many
rounds as the longest chain has messages, and fewer cannot be. Within a round, messages between the
same two ranks keep the order of the schedule, on both of them.
"""

from collections.abc import Mapping, Sequence

from teccl.rounds.round_steps import RankRounds, Round, Sum, Transfer, sums_of
from teccl.runtime.rank_program import RankProgram


class _Levels:
    """After which round each step of a program can be made, as rounds of messages get known."""

    def __init__(self, program: RankProgram) -> None:
        self.program = program
        self.own = [0] * len(program.steps)
        self.before: list[list[int]] = [[] for _ in program.steps]
        for step, followers in enumerate(program.followers):
            for follower in followers:
                self.before[follower].append(step)

    def arrive(self, step: int, level: int) -> None:
        """Note that something a step waits for comes in a round."""
        self.own[step] = max(self.own[step], level)

    def of(self, step: int | None) -> int:
        """Return the round after which a step's result is there, 0 for the start."""
        if step is None:
            return 0
        level, pending = 0, [step]
        while pending:
            current = pending.pop()
            level = max(level, self.own[current])
            pending += self.before[current]
        # Everything a step waits for is known when it is asked for, so the answer stays.
        self.own[step], self.before[step] = level, []
        return level


def assign_rounds(programs: Sequence[RankProgram]) -> dict[int, int]:
    """Return the round of each message between ranks, counted from 1.

    Parameters
    ----------
    programs
        Those of all ranks, with every chunk in them.
    """
    levels = {program.rank: _Levels(program) for program in programs}
    leaves: list[tuple[int, int, int | None, int, int | None]] = []
    for program in programs:
        for departure in program.departures:
            leaves += [
                (target.message, program.rank, departure.after, target.peer, target.step)
                for target in departure.targets
            ]
    receiving = {
        receive.message: receive.step for program in programs for receive in program.receives
    }
    rounds: dict[int, int] = {}
    # Messages are numbered by start, and what feeds a message starts before it.
    for message, rank, after, peer, local_step in sorted(leaves):
        ready = levels[rank].of(after)
        if local_step is not None:
            levels[rank].arrive(local_step, ready)
            continue
        rounds[message] = ready + 1
        levels[peer].arrive(receiving[message], ready + 1)
    return rounds


def rank_rounds(program: RankProgram, rounds: Mapping[int, int]) -> RankRounds:
    """Put one rank's messages and sums into their rounds.

    Parameters
    ----------
    program
        The rank's program, for any number of elements.
    rounds
        What `assign_rounds` found for the schedule.
    """
    levels = _Levels(program)
    sends: dict[int, list[tuple[int, Transfer]]] = {}
    receives: dict[int, list[tuple[int, Transfer]]] = {}
    for receive in program.receives:
        number = rounds[receive.message]
        levels.arrive(receive.step, number)
        transfer = Transfer(receive.peer, receive.place)
        receives.setdefault(number, []).append((receive.message, transfer))
    for departure in program.departures:
        for target in departure.targets:
            if target.step is not None:
                levels.arrive(target.step, levels.of(departure.after))
                continue
            transfer = Transfer(target.peer, departure.place)
            sends.setdefault(rounds[target.message], []).append((target.message, transfer))
    sums: dict[int, list[Sum]] = {}
    for i, step in enumerate(program.steps):
        sums.setdefault(levels.of(i), []).extend(sums_of(step))
    numbers = sorted({*sends, *receives, *sums} - {0})
    return RankRounds(
        rank=program.rank,
        copies=program.copies,
        first=tuple(sums.get(0, ())),
        rounds=tuple(
            Round(
                number=number,
                sends=tuple(transfer for _, transfer in sorted(sends.get(number, ()))),
                receives=tuple(transfer for _, transfer in sorted(receives.get(number, ()))),
                sums=tuple(sums.get(number, ())),
            )
            for number in numbers
        ),
        scratch=program.scratch,
    )
