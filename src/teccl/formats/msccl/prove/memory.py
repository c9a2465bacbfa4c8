"""Running a program on symbolic data: what every chunk of the output holds in the end."""

from collections import deque

from teccl.formats.msccl.prove.actions import Actions
from teccl.formats.msccl.prove.collectives import UNWRITTEN, Setting, Value
from teccl.formats.msccl.prove.finding import FindingKind, Findings
from teccl.formats.msccl.prove.flow import ControlRun
from teccl.formats.msccl.prove.machine import Machine
from teccl.formats.msccl.prove.program_tree import ProgramStep, StepType

_REDUCING = (
    *(StepType.RECEIVE_REDUCE_SEND, StepType.RECEIVE_REDUCE_COPY),
    *(StepType.RECEIVE_REDUCE_COPY_SEND, StepType.REDUCE),
)


def check_result(
    machine: Machine, actions: Actions, run: ControlRun, setting: Setting, findings: Findings
) -> None:
    """Run the steps in an order in which they can complete and compare the output."""
    bases = {rank: setting.bases(rank) for rank in set(machine.rank)}
    memory = {rank: setting.initial(rank) for rank in bases}
    travelling: list[deque[list[Value]]] = [deque() for _ in range(machine.num_connections)]
    blocks, places = actions.block[run.order].tolist(), actions.place[run.order].tolist()
    for block, place in zip(blocks, places, strict=True):
        step, _, sends, receives = machine.actions[block][place]
        rank = machine.rank[block]
        cells, first = memory[rank], bases[rank]
        arrived = travelling[machine.receives_on[block]].popleft() if receives else None
        values = _values(setting, step, cells, first, arrived)
        if sends:
            travelling[machine.sends_on[block]].append(values)
        if step.type.writes_target:
            start = first[step.dstbuf] + step.dstoff
            cells.update(zip(range(start, start + step.cnt), values, strict=True))
    if setting.collective is not None:
        _compare(memory, bases, setting, findings)


def _values(
    setting: Setting,
    step: ProgramStep,
    cells: dict[int, Value],
    bases: dict[str, int],
    arrived: list[Value] | None,
) -> list[Value]:
    """Return what a step sends, stores or both."""
    if not step.type.reads_source:
        assert arrived is not None
        return arrived
    first = bases[step.srcbuf] + step.srcoff
    own = [cells.get(first + k, UNWRITTEN) for k in range(step.cnt)]
    if step.type not in _REDUCING:
        return own
    if arrived is None:
        first = bases[step.dstbuf] + step.dstoff
        arrived = [cells.get(first + k, UNWRITTEN) for k in range(step.cnt)]
    return list(map(setting.combine, own, arrived))


def _compare(
    memory: dict[int, dict[int, Value]],
    bases: dict[int, dict[str, int]],
    setting: Setting,
    findings: Findings,
) -> None:
    root = _root(memory, bases, setting)
    if root is None:
        findings.add(
            FindingKind.WRONG_RESULT,
            f"no gpu ends with a {setting.collective}'s result, called {setting.title}",
        )
        return
    for rank, cells in sorted(memory.items()):
        base = bases[rank]["o"]
        for chunk, value in setting.wanted(rank, root).items():
            found = cells.get(base + chunk, UNWRITTEN)
            if found != value:
                findings.add(
                    FindingKind.WRONG_RESULT,
                    f"called {setting.title}, output chunk {chunk} ends with "
                    f"{setting.describe(found)}; it must be {setting.describe(value)}",
                    gpu=rank,
                )
                break


def _root(
    memory: dict[int, dict[int, Value]], bases: dict[int, dict[str, int]], setting: Setting
) -> int | None:
    """Find the root that a broadcast or reduction was written for; files do not say it."""
    if setting.collective == "broadcast":
        rank = min(memory)
        value = memory[rank].get(bases[rank]["o"], UNWRITTEN)
        ranks = setting.contributors(value)
        return ranks[0] if len(ranks) == 1 else None
    if setting.collective == "reduce":
        for rank, cells in sorted(memory.items()):
            wanted = setting.wanted(rank, rank)
            if all(cells.get(bases[rank]["o"] + k) == value for k, value in wanted.items()):
                return rank
        return None
    return 0
