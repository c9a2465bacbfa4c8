"""Cost: how long a schedule takes when ranks make it in rounds.

A rank begins a round when it has ended the one before; a message starts when both its ranks have
begun its round and the links on its way are free. Every message goes by itself: what a switch
would copy or reduce on the way is sent once for each receiver and each contributor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from teccl.errors import ScheduleError
from teccl.rounds.executable import Executable
from teccl.schedule.timing import send_times


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCost:
    """A schedule in rounds.

    Parameters
    ----------
    num_rounds
        How many there are.
    most_messages
        The most that one rank sends and receives in one round.
    finish_ps
        When the last message is there.
    """

    num_rounds: int
    most_messages: int
    finish_ps: int


def round_cost(executable: Executable, *, overhead_ps: int = 0) -> RoundCost:
    """Replay a schedule in rounds.

    Parameters
    ----------
    overhead_ps
        What beginning a round takes a rank.

    Raises
    ------
    ScheduleError
        If bandwidths change over time, which rounds shift against.
    """
    schedule, messages = executable.schedule, executable.messages
    topology = schedule.problem.topology
    if topology.has_profiles:
        raise ScheduleError(
            "rounds cannot be replayed on links whose bandwidth changes over time; "
            "give a topology without profiles"
        )
    held = send_times(schedule).occupancy_ps
    start, arrival = messages.start_ps, messages.arrival_ps
    by_round: dict[int, list[int]] = {}
    for message, number in sorted(executable.rounds.items()):
        by_round.setdefault(number, []).append(message)
    ways = _Ways(executable)
    free: dict[int | str, int] = {}
    ended = [0] * topology.num_gpus
    most = 0
    for number in sorted(by_round):
        busy = np.zeros(topology.num_gpus, dtype=np.int64)
        for message in by_round[number]:
            busy[[messages.src[message], messages.dst[message]]] += 1
        most = max(most, int(busy.max()))
        begun = [end + overhead_ps * bool(busy[rank]) for rank, end in enumerate(ended)]
        for message in by_round[number]:
            src, dst = int(messages.src[message]), int(messages.dst[message])
            rows = ways.rows(message)
            offset = [int(schedule.sends["start_ps"][row] - start[message]) for row in rows]
            uses = [ways.places(row) for row in rows]
            begin = max(
                begun[src],
                begun[dst],
                *(free.get(p, 0) - o for o, each in zip(offset, uses, strict=True) for p in each),
            )
            for row, o, each in zip(rows, offset, uses, strict=True):
                free |= dict.fromkeys(each, begin + o + int(held[row]))
            end = begin + int(arrival[message] - start[message])
            ended[src], ended[dst] = max(ended[src], end), max(ended[dst], end)
    return RoundCost(
        num_rounds=executable.num_rounds, most_messages=most, finish_ps=max(ended, default=0)
    )


class _Ways:
    """The sends by which each message goes from GPU to GPU."""

    def __init__(self, executable: Executable) -> None:
        self.messages = executable.messages
        self.sends = executable.schedule.sends
        self.topology = executable.schedule.problem.topology
        self.entering: dict[tuple[int, int], list[int]] = {}
        if self.topology.num_switches:
            for row, send in enumerate(self.sends):
                end = int(self.topology.link_dst[send["link"]])
                self.entering.setdefault((int(send["transfer"]), end), []).append(row)

    def places(self, row: int) -> tuple[int | str, ...]:
        """The link of a send and the capacities that it shares."""
        link = int(self.sends["link"][row])
        return (link, *self.topology.links[link].shares)

    def rows(self, message: int) -> Sequence[int]:
        """Sends of a message, first to last."""
        root, leaf = int(self.messages.root[message]), int(self.messages.leaf[message])
        after = {leaf: leaf}
        pending = [leaf]
        while root not in after:
            row = pending.pop()
            for before in self._before(row):
                if before not in after:
                    after[before] = row
                    pending.append(before)
        way = [root]
        while way[-1] != leaf:
            way.append(after[way[-1]])
        return way

    def _before(self, row: int) -> Iterator[int]:
        start = int(self.topology.link_src[self.sends["link"][row]])
        if self.topology.is_switch[start]:
            yield from self.entering.get((int(self.sends["transfer"][row]), start), ())
