"""Running a program's control flow: who waits for whom, and whether all get to the end.

A step that can run stays able to run until it does: a connection has one sender and one receiver,
and published progress only grows. So all interleavings end in the same state, and one of them
decides whether the program can hang.

A step that moves several chunks may be cut by the runtime into as many transfers, whatever the
size of the message; cutting finest leaves the least room in the queues, and a program that ends
then ends under every coarser cut, so the finest is what runs here.
"""

from dataclasses import dataclass

from teccl.programs.finding import FindingKind, Findings
from teccl.programs.machine import Action, Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome of running a program's control flow.

    Parameters
    ----------
    order
        Pairs (block, place among its actions) in an order in which they can complete.
    stuck
        Blocks that did not get to their end.
    place
        Number of actions that each block completed.
    """

    order: list[tuple[int, int]]
    stuck: list[int]
    place: list[int]


def run_control(machine: Machine, depth: int | None) -> Run:
    """Run until every block has ended or none can go on.

    Parameters
    ----------
    machine
        What to run.
    depth
        Transfers that fit a connection before a send blocks, None for any number.
    """
    return _Control(machine, depth).run()


class _Control:
    """Where every block is, and who waits for what."""

    def __init__(self, machine: Machine, depth: int | None) -> None:
        self.machine = machine
        self.depth = depth if depth is not None else 1 << 60
        count = len(machine.actions)
        self.place = [0] * count
        self.part = [0] * count
        self.published = [-1] * count
        self.queued = [0] * machine.num_connections
        # Who waits: for progress of a block, for data on a connection, for room on one.
        self.for_progress: list[list[int]] = [[] for _ in range(count)]
        self.for_data = [-1] * machine.num_connections
        self.for_room = [-1] * machine.num_connections
        self.order: list[tuple[int, int]] = []
        self.ready = list(range(count))[::-1]

    def run(self) -> Run:
        """Let blocks advance until none can."""
        while self.ready:
            self._advance(self.ready.pop())
        actions = self.machine.actions
        stuck = [b for b, place in enumerate(self.place) if place < len(actions[b])]
        return Run(order=self.order, stuck=stuck, place=self.place)

    def _advance(self, block: int) -> None:
        """Run a block until it has to wait."""
        actions, published = self.machine.actions[block], self.published
        out, into = self.machine.sends_on[block], self.machine.receives_on[block]
        for place in range(self.place[block], len(actions)):
            step, waits, sends, receives = actions[place]
            if waits and self.part[block] == 0:
                for target, number in waits:
                    if published[target] < number:
                        self.for_progress[target].append(block)
                        return
            if (sends or receives) and not self._move(
                block, out if sends else -1, into if receives else -1, step.cnt
            ):
                return
            self.order.append((block, place))
            self.place[block] = place + 1
            if step.hasdep:
                published[block] = step.number
                self.ready += self.for_progress[block]
                self.for_progress[block].clear()

    def _move(self, block: int, out: int, into: int, count: int) -> bool:
        """Move as many chunks of a step as can be; say whether all were moved."""
        queued, left = self.queued, count - self.part[block]
        while left:
            # Chunks pass one by one, but nobody else can tell.
            able = left
            if into >= 0:
                able = min(able, queued[into])
                if not able:
                    self.for_data[into] = block
            if able and out >= 0:
                able = min(able, self.depth - queued[out])
                if not able:
                    self.for_room[out] = block
            if not able:
                self.part[block] = count - left
                return False
            left -= able
            if into >= 0:
                queued[into] -= able
                self._wake(self.for_room, into)
            if out >= 0:
                queued[out] += able
                self._wake(self.for_data, out)
        self.part[block] = 0
        return True

    def _wake(self, waiting: list[int], connection: int) -> None:
        if waiting[connection] >= 0:
            self.ready.append(waiting[connection])
            waiting[connection] = -1


def check_deadlock(machine: Machine, run: Run, depth: int, findings: Findings) -> None:
    """Say of every block that is stuck what it waits for."""
    ends = _ends(machine)
    for block in run.stuck:
        action = machine.actions[block][run.place[block]]
        reason = _missing_progress(machine, run, action)
        if reason is None:
            reason = _full_or_empty(machine, block, action, ends, depth)
        findings.add(
            FindingKind.DEADLOCK,
            reason,
            gpu=machine.rank[block],
            block=machine.block_id[block],
            step=action.step.number,
        )


def _ends(machine: Machine) -> tuple[dict[int, int], dict[int, int]]:
    senders = {c: b for b, c in enumerate(machine.sends_on) if c >= 0}
    receivers = {c: b for b, c in enumerate(machine.receives_on) if c >= 0}
    return senders, receivers


def _missing_progress(machine: Machine, run: Run, action: Action) -> str | None:
    """Say which progress a stuck step waits for, None if for none."""
    for target, number in action.waits:
        done = machine.actions[target][: run.place[target]]
        if all(not (a.step.hasdep and a.step.number >= number) for a in done):
            later = any(a.step.hasdep and a.step.number >= number for a in machine.actions[target])
            tail = "" if later else ", which no step from there on publishes (hasdep)"
            return f"waits for ever for step {number} of tb {machine.block_id[target]}{tail}"
    return None


def _full_or_empty(
    machine: Machine,
    block: int,
    action: Action,
    ends: tuple[dict[int, int], dict[int, int]],
    depth: int,
) -> str:
    """Say which connection a stuck step waits for."""
    kind = action.step.type
    if kind.receives:
        sender = ends[0][machine.receives_on[block]]
        detail = f"{kind.code} waits for data from gpu {machine.rank[sender]}"
        if kind.sends:
            receiver = ends[1][machine.sends_on[block]]
            detail += f" or for room towards gpu {machine.rank[receiver]}"
        return f"{detail} for ever at {depth} transfers per connection"
    receiver = ends[1][machine.sends_on[block]]
    return (
        f"{kind.code} waits for ever for room towards gpu {machine.rank[receiver]}, whose "
        f"connection holds {depth} transfers"
    )
