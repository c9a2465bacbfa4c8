"""Running a program's control flow: who waits for whom, and whether all get to the end.

A step that can run stays able to run until it does: a connection has one sender and one receiver,
and published progress only grows. So all interleavings end in the same state, and one of them
decides whether the program can hang.

A step that moves several chunks may be cut by the runtime into as many transfers, whatever the
size of the message; cutting finest leaves the least room in the queues, and a program that ends
then ends under every coarser cut, so the finest is what runs here.
"""

from dataclasses import dataclass

from teccl.formats.msccl.prove.actions import Actions, Integers
from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.msccl.prove.machine import Action, Machine

_ANY_NUMBER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRun:
    """The outcome of running a program's control flow.

    Parameters
    ----------
    order
        Actions in an order in which they can complete.
    stuck
        Blocks that did not get to their end.
    place
        Number of actions that each block completed.
    """

    order: Integers
    stuck: list[int]
    place: list[int]


def run_control(actions: Actions, depth: int | None) -> ControlRun:
    """Run until every block has ended or none can go on.

    Parameters
    ----------
    actions
        What to run.
    depth
        Transfers that fit a connection before a send blocks, None for any number.
    """
    from teccl.formats.msccl.prove.stepping import completed

    order, place = completed(
        actions.first,
        actions.first_wait,
        actions.wait_block,
        actions.wait_number,
        actions.published,
        actions.count,
        actions.sends_on,
        actions.receives_on,
        _ANY_NUMBER if depth is None else depth,
        actions.num_connections,
    )
    left = actions.first[:-1] + place < actions.first[1:]
    return ControlRun(order=order, stuck=left.nonzero()[0].tolist(), place=place.tolist())


def check_deadlock(machine: Machine, run: ControlRun, depth: int, findings: Findings) -> None:
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


def _missing_progress(machine: Machine, run: ControlRun, action: Action) -> str | None:
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
