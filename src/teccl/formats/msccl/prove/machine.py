"""Machine: a program made ready to run, with every connection and dependency resolved."""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.msccl.prove.program_tree import Program, ProgramStep, StepType


class Action(NamedTuple):
    """A real step and what it waits for.

    Parameters
    ----------
    step
        As written; `step.number` is what it publishes.
    waits
        Pairs (block, step number) that must have been published.
    sends, receives
        Whether it uses the outgoing and the incoming connection.
    """

    step: ProgramStep
    waits: tuple[tuple[int, int], ...]
    sends: bool
    receives: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """All thread blocks of all GPUs, numbered through.

    Parameters
    ----------
    rank, block_id
        Where each block comes from.
    actions
        The real steps of each block, in order.
    sends_on, receives_on
        Connection of each block in either direction, -1 for none.
    num_connections
        Connections are numbered through as well.
    """

    rank: list[int]
    block_id: list[int]
    actions: list[list[Action]]
    sends_on: list[int]
    receives_on: list[int]
    num_connections: int


def build_machine(program: Program, findings: Findings) -> Machine:
    """Resolve connections and dependencies of a program whose structure is sound."""
    rank: list[int] = []
    block_id: list[int] = []
    actions: list[list[Action]] = []
    ends: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for gpu in program.gpus:
        index = {block.id: len(rank) + i for i, block in enumerate(gpu.blocks)}
        for block in gpu.blocks:
            this = index[block.id]
            rank.append(gpu.id)
            block_id.append(block.id)
            actions.append(_actions(block.steps, index))
            if block.send >= 0:
                ends[gpu.id, block.send, block.chan][0].append(this)
            if block.recv >= 0:
                ends[block.recv, gpu.id, block.chan][1].append(this)
    machine = Machine(
        rank=rank,
        block_id=block_id,
        actions=actions,
        sends_on=[-1] * len(rank),
        receives_on=[-1] * len(rank),
        num_connections=len(ends),
    )
    for number, (name, (senders, receivers)) in enumerate(ends.items()):
        for block_number in senders:
            machine.sends_on[block_number] = number
        for block_number in receivers:
            machine.receives_on[block_number] = number
        _check_ends(machine, name, senders, receivers, findings)
    return machine


def _actions(steps: tuple[ProgramStep, ...], index: dict[int, int]) -> list[Action]:
    """Put the dependencies of nops on the real step that follows them."""
    found: list[Action] = []
    waits: list[tuple[int, int]] = []
    for step in steps:
        if step.depid >= 0:
            waits.append((index[step.depid], step.deps))
        if step.type is not StepType.NOTHING:
            found.append(Action(step, tuple(waits), step.type.sends, step.type.receives))
            waits = []
    return found


def _check_ends(
    machine: Machine,
    name: tuple[int, int, int],
    senders: list[int],
    receivers: list[int],
    findings: Findings,
) -> None:
    """Check that a connection has one block at each end and pairs its operations by position."""
    src, dst, channel = name
    title = f"connection {src} > {dst} on channel {channel}"
    for role, blocks in (("send", senders), ("receive", receivers)):
        if len(blocks) > 1:
            ids = ", ".join(str(machine.block_id[b]) for b in blocks)
            gpu = machine.rank[blocks[0]]
            findings.add(
                FindingKind.PEER, f"tbs {ids} all {role} on {title}; only one may", gpu=gpu
            )
    if not senders or not receivers:
        declared, other = (senders, dst) if senders else (receivers, src)
        findings.add(
            FindingKind.PEER,
            f"{title} is not declared by gpu {other}; the runtime hangs while connecting",
            gpu=machine.rank[declared[0]],
            block=machine.block_id[declared[0]],
        )
    if len(senders) == len(receivers) == 1:
        _check_pairs(machine, title, senders[0], receivers[0], findings)


def _check_pairs(
    machine: Machine, title: str, sender: int, receiver: int, findings: Findings
) -> None:
    """Check that the k-th send and the k-th receive of a connection move as many chunks."""
    sent = [a.step for a in machine.actions[sender] if a.sends]
    received = [a.step for a in machine.actions[receiver] if a.receives]
    for k, (out, into) in enumerate(zip(sent, received, strict=False)):
        if out.cnt != into.cnt:
            findings.add(
                FindingKind.COUNT_MISMATCH,
                f"receive {k} of {title} takes {into.cnt} chunks but step {out.number} of gpu "
                f"{machine.rank[sender]}, tb {machine.block_id[sender]} sends {out.cnt}",
                gpu=machine.rank[receiver],
                block=machine.block_id[receiver],
                step=into.number,
            )
            return
    if len(sent) != len(received):
        more, place = (sent, sender) if len(sent) > len(received) else (received, receiver)
        step = more[min(len(sent), len(received))]
        findings.add(
            FindingKind.UNMATCHED,
            f"{title} has {len(sent)} sends and {len(received)} receives",
            gpu=machine.rank[place],
            block=machine.block_id[place],
            step=step.number,
        )
