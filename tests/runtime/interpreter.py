"""A plain interpreter of rank programs, without MPI: messages come in any order.

Bytes are read from the sender's memory when a message is delivered, not when it is sent, so that a
program that overwrites what it is still sending gives wrong results.
"""

import random

import numpy as np

from teccl.runtime.buffers import count_wrong, expected_recv, fill_send, poison
from teccl.runtime.engine import REDUCTIONS
from teccl.runtime.extract import rank_program
from teccl.runtime.messages import messages_of
from teccl.runtime.rank_program import SCRATCH
from teccl.schedule import Schedule


class Rank:
    """One rank's memory and progress."""

    def __init__(self, program, dtype: np.dtype, op: str) -> None:
        self.program, self.op = program, op
        self.arrays = {SCRATCH: np.zeros(program.scratch, dtype=dtype)}
        for t, layout in enumerate(program.layouts):
            self.arrays[2 * t] = np.zeros(layout.send_count, dtype=dtype)
            self.arrays[2 * t + 1] = np.zeros(layout.recv_count, dtype=dtype)
            fill_send(layout, t, self.arrays[2 * t], op)
            poison(self.arrays[2 * t + 1])
        poison(self.arrays[SCRATCH])
        self.left = [step.waits for step in program.steps]
        self.done: set[int] = set()
        self.queues: dict[int, list[int]] = {}
        for i, departure in enumerate(program.departures):
            self.queues.setdefault(departure.link, []).append(i)
        for source, target in program.copies:
            self.at(target)[:] = self.at(source)

    def at(self, place) -> np.ndarray:
        return self.arrays[place.buffer][place.start : place.stop]

    def startable(self) -> list[int]:
        """First departures of links whose data is there."""
        heads = [queue[0] for queue in self.queues.values() if queue]
        after = [self.program.departures[i].after for i in heads]
        return [
            i for i, step in zip(heads, after, strict=True) if step is None or step in self.done
        ]

    def deliver(self, number: int) -> None:
        self.left[number] -= 1
        assert self.left[number] >= 0
        if self.left[number]:
            return
        step, combine = self.program.steps[number], REDUCTIONS[self.op]
        if step.combines:
            values = [self.at(part).copy() for part in step.parts]
            if step.before is not None:
                values.insert(0, self.at(step.before).copy())
            total = values[0]
            for value in values[1:]:
                total = combine(total, value)
            self.at(step.out)[:] = total
        self.done.add(number)
        for follower in self.program.followers[number]:
            self.deliver(follower)


def run_programs(
    schedule: Schedule, *, dtype: str = "float64", op: str = "sum", seed: int = 0
) -> int:
    """Run all ranks with messages in random order; return the number of wrong elements."""
    rng, kind = random.Random(seed), np.dtype(dtype)
    messages = messages_of(schedule)
    ranks = [
        Rank(rank_program(schedule, messages, rank, itemsize=kind.itemsize), kind, op)
        for rank in range(schedule.problem.topology.num_gpus)
    ]
    awaited = {
        (receive.peer, rank.program.rank, receive.tag): receive
        for rank in ranks
        for receive in rank.program.receives
    }
    flying = []
    while True:
        options = [("start", rank, i) for rank in ranks for i in rank.startable()]
        options += [("arrive", None, i) for i in range(len(flying))]
        if not options:
            break
        what, rank, i = rng.choice(options)
        if what == "start":
            departure = rank.program.departures[i]
            rank.queues[departure.link].remove(i)
            for target in departure.targets:
                if target.step is not None:
                    rank.deliver(target.step)
                else:
                    key = (rank.program.rank, target.peer, target.tag)
                    flying.append((rank, departure.place, awaited.pop(key), target.peer))
        else:
            sender, place, receive, peer = flying.pop(i)
            ranks[peer].at(receive.place)[:] = sender.at(place)
            ranks[peer].deliver(receive.step)
    assert not awaited, f"{len(awaited)} messages were never sent"
    assert all(not queue for rank in ranks for queue in rank.queues.values())
    return sum(
        count_wrong(rank.arrays[2 * t + 1], expected_recv(layout, t, kind, op))
        for rank in ranks
        for t, layout in enumerate(rank.program.layouts)
    )
