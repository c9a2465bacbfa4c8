"""Shapes: every transfer is one chunk on a tree from a GPU through switches to GPUs."""

import numpy as np

from teccl.check._arrays import BoolArray, IntArray
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.transfers import Passing, Transfers, mixed_transfers, separate_roots
from teccl.check.violation import Findings, ViolationKind
from teccl.problem import Problem, SwitchMode


def check_shapes(
    sends: Sends, transfers: Transfers, timeline: Timeline, findings: Findings
) -> None:
    """Check how the hops of each transfer hang together."""
    nodes = sends.problem.topology.nodes

    def note(kind: ViolationKind, rows: IntArray, text: str) -> None:
        def add(row: int) -> None:
            detail = text.format(
                src=nodes[sends.src[row]].name,
                dst=nodes[sends.dst[row]].name,
                id=sends.transfer[row],
            )
            timeline.note(findings, sends, kind, row, detail)

        findings.add_each(kind, rows, add)

    text = "transfer {id} mixes chunks or ops; give each its own id"
    note(ViolationKind.MIXED_TRANSFER, mixed_transfers(sends, transfers), text)
    text = "transfer {id} leaves gpu {src} apart from its other hops"
    note(ViolationKind.SEVERAL_ROOTS, separate_roots(sends, transfers), text)
    text = "leaves switch {src}, which its transfer {id} never enters"
    unpaired = np.flatnonzero(~sends.from_gpu & (transfers.leaves < 0))
    note(ViolationKind.UNPAIRED_HOP, unpaired, text)
    text = "enters switch {dst} and its transfer {id} never leaves it; a switch holds nothing"
    note(ViolationKind.LOST_IN_SWITCH, transfers.entry[transfers.num_out == 0], text)
    text = "transfer {id} enters switch {dst} more than once, which may not merge it"
    merges = transfers.entry[(transfers.num_in > 1) & ~_may_merge(sends, transfers)]
    note(ViolationKind.ILLEGAL_MERGE, merges, text)
    if not _switches_copy(sends.problem):
        text = "transfer {id} leaves switch {dst} more than once; switches do not copy here"
        note(ViolationKind.SWITCH_COPY, transfers.entry[transfers.num_out > 1], text)
    text = "transfer {id} goes round in a cycle of switches"
    note(ViolationKind.CYCLE, np.flatnonzero(transfers.level < 0), text)


def _switches_copy(problem: Problem) -> bool:
    return problem.switch is SwitchMode.COPY and problem.copy


def _may_merge(sends: Sends, transfers: Transfers) -> BoolArray:
    """Whether each passage may combine the sends that enter it."""
    reduces = np.array([node.reduce for node in sends.problem.topology.nodes], dtype=bool)
    allowed = reduces[sends.dst[transfers.entry]] & sends.is_reduce[transfers.entry]
    return allowed & (transfers.passing is not Passing.HYPER_EDGE)
