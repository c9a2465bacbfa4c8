"""Sums: whether all ranks form a sum in the same order, and an order in which they do.

Adding floating-point numbers in another order gives other bytes. Where ranks that want the same
sum would form it differently, a rank that sends no partial sum on may wait for all its parts and
add them by the lowest rank that contributed to each, which is the same order everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from teccl.rounds.lowering import rank_rounds
from teccl.rounds.round_steps import Sum
from teccl.runtime.rank_program import SCRATCH, Departure, Place, RankProgram

_Term = tuple[int, int] | tuple[int, Place]


class Formed:
    """How every rank forms its sums, found by following values through the rounds.

    Parameters
    ----------
    programs
        Those of all ranks.
    rounds
        What `assign_rounds` found for them.
    """

    def __init__(self, programs: Sequence[RankProgram], rounds: Mapping[int, int]) -> None:
        self._numbers: dict[_Term, int] = {}
        self._lowest: list[int] = []
        self._memory: dict[int, dict[Place, int]] = {program.rank: {} for program in programs}
        # The lowest rank that contributed to what each message carries.
        self.lowest: dict[int, int] = {}
        self._follow(programs, rounds)
        self.is_same = self._compare(programs)

    def _follow(self, programs: Sequence[RankProgram], rounds: Mapping[int, int]) -> None:
        sums: dict[int, list[tuple[int, tuple[Sum, ...]]]] = {}
        for program in programs:
            for source, target in program.copies:
                self._memory[program.rank][target] = self._value(program.rank, source)
            lowered = rank_rounds(program, rounds)
            self._add(program.rank, lowered.first)
            for each in lowered.rounds:
                sums.setdefault(each.number, []).append((program.rank, each.sums))
        carried = _carried(programs, rounds)
        for number in range(1, max(rounds.values(), default=0) + 1):
            for message, rank, place, peer, into in carried.get(number, ()):
                value = self._value(rank, place)
                self._memory[peer][into] = value
                self.lowest[message] = self._lowest[value]
            for rank, made in sums.get(number, ()):
                self._add(rank, made)

    def _value(self, rank: int, place: Place) -> int:
        """Return the value at a place; what nothing was written to is the rank's own data."""
        memory = self._memory[rank]
        if place not in memory:
            memory[place] = self._number((rank, place), rank)
        return memory[place]

    def _add(self, rank: int, sums: Sequence[Sum]) -> None:
        for left, right, out in sums:
            value = self._value(rank, left)
            if right is not None:
                other = self._value(rank, right)
                # The order of two operands changes no bit of their sum.
                pair = (min(value, other), max(value, other))
                value = self._number(pair, min(self._lowest[value], self._lowest[other]))
            self._memory[rank][out] = value

    def _number(self, term: _Term, lowest: int) -> int:
        if term not in self._numbers:
            self._numbers[term] = len(self._lowest)
            self._lowest.append(lowest)
        return self._numbers[term]

    def _compare(self, programs: Sequence[RankProgram]) -> bool:
        """Whether all ranks that keep a sum of one chunk have formed it alike."""
        found: dict[int, int] = {}
        for program in programs:
            for step in program.steps:
                if step.out.buffer != SCRATCH:
                    value = self._memory[program.rank][step.out]
                    if found.setdefault(step.chunk, value) != value:
                        return False
        return True


def _carried(
    programs: Sequence[RankProgram], rounds: Mapping[int, int]
) -> dict[int, list[tuple[int, int, Place, int, Place]]]:
    """Messages of each round: number, sender and what it sends, receiver and where it goes."""
    into = {
        receive.message: (program.rank, receive.place)
        for program in programs
        for receive in program.receives
    }
    found: dict[int, list[tuple[int, int, Place, int, Place]]] = {}
    for program in programs:
        for departure in program.departures:
            for target in departure.targets:
                if target.step is None:
                    found.setdefault(rounds[target.message], []).append(
                        (target.message, program.rank, departure.place, *into[target.message])
                    )
    return found


def with_fixed_order(program: RankProgram, lowest: Mapping[int, int]) -> RankProgram:
    """Return a program that forms each result from all its parts at once, by lowest rank.

    Only results of which no partial sum is sent on are changed.

    Parameters
    ----------
    lowest
        The lowest rank that contributed to what each message carries.
    """
    received = {receive.place: lowest[receive.message] for receive in program.receives}
    steps, followers = list(program.steps), list(program.followers)
    into: dict[int, int] = {}
    for chain in _chains(program):
        head, last = steps[chain[0]], chain[-1]
        parts = [part for step in chain for part in steps[step].parts]
        if head.before is not None:
            parts.append(head.before)
        parts.sort(key=lambda part: (received.get(part, program.rank), part))
        waits = sum(steps[step].waits for step in chain) - (len(chain) - 1)
        for step in chain[:-1]:
            steps[step] = replace(steps[step], parts=(), before=None, waits=0)
            followers[step] = ()
        steps[last] = replace(steps[last], before=parts[0], parts=tuple(parts[1:]), waits=waits)
        into |= dict.fromkeys(chain, last)
    return replace(
        program,
        steps=tuple(steps),
        followers=tuple(followers),
        receives=tuple(r._replace(step=into.get(r.step, r.step)) for r in program.receives),
        departures=tuple(_led(departure, into) for departure in program.departures),
    )


def _led(departure: Departure, into: Mapping[int, int]) -> Departure:
    """Return a departure whose messages to the rank itself go to the joined steps."""
    if all(target.step is None for target in departure.targets):
        return departure
    targets = tuple(
        target if target.step is None else target._replace(step=into.get(target.step, target.step))
        for target in departure.targets
    )
    return replace(departure, targets=targets)


def _chains(program: RankProgram) -> list[list[int]]:
    """Steps that form a result out of own data and messages, partial sums staying inside."""
    before = {f: step for step, each in enumerate(program.followers) for f in each}
    leaving = {departure.after for departure in program.departures}
    found = []
    for last, step in enumerate(program.steps):
        if not step.combines or step.out.buffer == SCRATCH:
            continue
        chain = [last]
        while (previous := before.get(chain[0])) is not None:
            if previous in leaving or program.followers[previous] != (chain[0],):
                break
            chain.insert(0, previous)
        if previous is None and step.out not in program.steps[chain[0]].parts:
            found.append(chain)
    return found
