"""Who holds a chunk when: causality of copied chunks, delivery, and data that is not copied."""

from collections.abc import Iterator

import numpy as np

from teccl.check._arrays import (
    NEVER,
    BoolArray,
    IntArray,
    expand,
    last_marked,
    locate,
    new_run,
    number_runs,
)
from teccl.check.sends import Sends
from teccl.check.timeline import Timeline
from teccl.check.violation import Findings, ViolationKind
from teccl.schedule.ordering import order_by

# Wanted pairs of chunk and node that are looked at together.
_BLOCK = 4_000_000


def first_arrivals(sends: Sends, timeline: Timeline, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Keys of chunk and node in order, and the earliest arrival among the rows at each."""
    keys = sends.keys(sends.chunk[rows], sends.dst[rows])
    order = order_by(keys)
    keys, arrival = keys[order], timeline.arrival[rows][order]
    first = np.flatnonzero(new_run(keys))
    if len(first) == len(keys):
        return keys, arrival
    return keys[first], np.minimum.reduceat(arrival, first)


def _look_up(keys: IntArray, values: IntArray, wanted: IntArray) -> IntArray:
    """Values at the wanted keys, `NEVER` where there is no such key."""
    if not len(keys):
        return np.full(len(wanted), NEVER)
    found = np.minimum(locate(keys, wanted), len(keys) - 1)
    return np.where(keys[found] == wanted, values[found], NEVER)


def check_holdings(sends: Sends, timeline: Timeline, findings: Findings) -> None:
    """Check that a GPU holds a copied chunk when it begins to send it."""
    arriving = np.flatnonzero(sends.to_gpu & ~sends.combines)
    keys, earliest = first_arrivals(sends, timeline, arriving)
    rows = np.flatnonzero(sends.from_gpu & ~sends.combines)
    received = _look_up(keys, earliest, sends.keys(sends.chunk[rows], sends.src[rows]))
    is_source = sends.is_source(sends.chunk[rows], sends.src[rows])
    own = np.where(is_source, timeline.own_ready(sends, rows), NEVER)
    held_from = np.minimum(own, received)
    early = timeline.start[rows] < held_from
    never = held_from == NEVER
    unready = early & is_source & (own <= received)
    nodes = sends.problem.topology.nodes

    def note(kind: ViolationKind, marked: BoolArray, text: str) -> None:
        def add(i: int) -> None:
            detail = text.format(
                gpu=nodes[sends.src[rows[i]]].name,
                start=timeline.show(timeline.start[rows[i]]),
                due=timeline.show(held_from[i]),
            )
            timeline.note(findings, sends, kind, int(rows[i]), detail)

        findings.add_each(timeline.kind(kind), np.flatnonzero(marked), add)

    if not timeline.is_grid:
        note(ViolationKind.NOT_HELD, never, "{gpu} sends it at {start} and never holds it")
    text = "{gpu} sends its own data at {start}, which is ready at {due}"
    note(ViolationKind.NOT_READY, unready, text)
    text = "{gpu} sends it at {start} but holds it from {due} on"
    note(ViolationKind.TOO_EARLY, early & ~unready & ~never, text)


def check_ops(sends: Sends, timeline: Timeline, findings: Findings) -> None:
    """Check that nothing is reduced into a chunk that is not a reduction."""

    def add(row: int) -> None:
        detail = "op reduce on a chunk that is copied; use op copy"
        timeline.note(findings, sends, ViolationKind.WRONG_OP, row, detail)

    wrong = np.flatnonzero(sends.is_reduce & ~sends.combines)
    findings.add_each(ViolationKind.WRONG_OP, wrong, add)


def check_delivery(sends: Sends, timeline: Timeline, findings: Findings) -> None:
    """Check that every destination of a copied chunk that is not a source receives it."""
    table, nodes = sends.problem.chunks, sends.problem.topology.nodes
    arriving = np.flatnonzero(sends.to_gpu & ~sends.combines)
    keys, earliest = first_arrivals(sends, timeline, arriving)
    kind = ViolationKind.UNMET_DEMAND
    for chunk, node in wanted_pairs(sends, np.flatnonzero(~table.reduce)):
        wanted = ~sends.is_source(chunk, node)
        missing = wanted & (_look_up(keys, earliest, sends.keys(chunk, node)) == NEVER)

        def add(i: int, chunk: IntArray = chunk, node: IntArray = node) -> None:
            detail = f"never reaches {nodes[node[i]].name}, which wants it"
            findings.add(kind, detail, chunk=int(chunk[i]))

        findings.add_each(kind, np.flatnonzero(missing), add)
        if findings.is_full(kind):
            return


def wanted_pairs(sends: Sends, chunks: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield blocks of pairs (chunk, destination); a whole demand may be too large for memory."""
    sets = sends.problem.chunks.destination_set[chunks]
    size = sends.sets.size[sets]
    block = np.cumsum(size) // _BLOCK
    for number in np.unique(block):
        here = slice(*np.searchsorted(block, [number, number + 1]))
        members = expand(sends.sets.first(sets[here]), size[here])
        yield np.repeat(chunks[here], size[here]), sends.sets.members[members]


def check_gpu_copies(sends: Sends, timeline: Timeline, findings: Findings) -> None:
    """Check, where nothing may be copied, that a GPU sends on no more than it received.

    A GPU that wants the chunk keeps one arrival for itself. Sources may send their own data any
    number of times.
    """
    if sends.problem.copy:
        return
    key, time, row, is_forward = _passing_events(sends, timeline)
    run = number_runs(key)
    change = np.where(is_forward, -1, 1)
    total = np.cumsum(change)
    before = last_marked(new_run(key), run)
    stock = total - total[before] + change[before]
    nodes = sends.problem.topology.nodes

    def add(i: int) -> None:
        gpu = nodes[sends.src[row[i]]].name
        detail = f"{gpu} forwards it at {timeline.show(time[i])} more often than it received it"
        timeline.note(findings, sends, ViolationKind.GPU_COPY, int(row[i]), detail)

    kind = timeline.kind(ViolationKind.GPU_COPY)
    findings.add_each(kind, np.flatnonzero(is_forward & (stock < 0)), add)
    if not timeline.is_grid:
        gone = np.append(new_run(key)[1:], True)[: len(key)] & (stock == 0)
        _check_kept(sends, timeline, findings, row[gone], is_forward[gone])


def _check_kept(
    sends: Sends, timeline: Timeline, findings: Findings, rows: IntArray, is_forward: BoolArray
) -> None:
    """Check the GPUs that forwarded all they received: none of them may want the chunk."""
    node = np.where(is_forward, sends.src[rows], sends.dst[rows])
    wanted = sends.is_wanted(sends.chunk[rows], node)
    nodes = sends.problem.topology.nodes

    def add(i: int) -> None:
        detail = f"{nodes[node[i]].name} wants it but forwards every copy it received"
        timeline.note(findings, sends, ViolationKind.GPU_COPY, int(rows[i]), detail)

    findings.add_each(ViolationKind.GPU_COPY, np.flatnonzero(wanted), add)


def _passing_events(
    sends: Sends, timeline: Timeline
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Arrivals and forwards at GPUs that are no sources: key, time, send, whether a forward.

    Sorted by key and time; an arrival stands before a forward of the same moment.
    """
    arriving, leaving = np.flatnonzero(sends.to_gpu), np.flatnonzero(sends.from_gpu)
    row = np.concatenate([arriving, leaving])
    is_forward = np.repeat([False, True], [len(arriving), len(leaving)])
    node = np.where(is_forward, sends.src[row], sends.dst[row])
    time = np.where(is_forward, timeline.start[row], timeline.arrival[row])
    key = sends.keys(sends.chunk[row], node)
    order = np.lexsort((is_forward, time, key))
    order = order[~sends.is_source(sends.chunk[row[order]], node[order])]
    return key[order], time[order], row[order], is_forward[order]
