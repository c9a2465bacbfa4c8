"""Messages: what GPUs send each other once passages through switches are folded away.

A hop between two GPUs is one message. A transfer that passes switches becomes one message from the
GPU where it begins to every GPU where it ends. Where a switch reduces, several GPUs feed one end;
each of them sends its own part there and the receiver combines them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.schedule import Schedule
from teccl.schedule.folding import ends_of_messages
from teccl.schedule.timing import send_times

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# What happens at one instant at one rank, in this order.
OWN, MERGE, STORE, SEND = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """All messages of a schedule, by start time; one array entry each.

    Parameters
    ----------
    chunk
        What is sent.
    src, dst
        GPU ranks.
    root, leaf
        Rows of the schedule's sends that leave `src` and enter `dst`. Messages with one leaf are
        combined on arrival.
    start_ps, arrival_ps
        When the schedule sends and delivers it.
    held_ps
        How long it holds the first link.
    reduce
        Whether it is combined with what the receiver has.
    tag
        Its number among the messages between the same two ranks.
    """

    chunk: IntArray
    src: IntArray
    dst: IntArray
    root: IntArray
    leaf: IntArray
    start_ps: IntArray
    arrival_ps: IntArray
    held_ps: IntArray
    reduce: BoolArray
    tag: IntArray

    def __len__(self) -> int:
        return len(self.chunk)


def messages_of(schedule: Schedule) -> Messages:
    """Fold a schedule's sends into messages between GPUs."""
    topology, sends = schedule.problem.topology, schedule.sends
    root, leaf = ends_of_messages(schedule)
    times = send_times(schedule)
    start = sends["start_ps"].astype(np.int64)
    order = np.lexsort((sends["chunk"][leaf], sends["link"][leaf], leaf, start[root]))
    root, leaf = root[order], leaf[order]
    rank = np.full(topology.num_nodes, -1, dtype=np.int64)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    src = rank[topology.link_src[sends["link"][root]]]
    dst = rank[topology.link_dst[sends["link"][leaf]]]
    return Messages(
        chunk=sends["chunk"][leaf].astype(np.int64),
        src=src,
        dst=dst,
        root=root,
        leaf=leaf,
        start_ps=start[root],
        arrival_ps=times.arrival_ps[leaf],
        held_ps=times.occupancy_ps[root],
        reduce=sends["reduce"][leaf].copy(),
        tag=_place_in_group(src * topology.num_gpus + dst),
    )


def active_ranks(schedule: Schedule) -> tuple[int, ...]:
    """GPU ranks that take part in some collective or forward for others."""
    problem = schedule.problem
    num_gpus = problem.topology.num_gpus
    found = {rank for tenant in problem.demand.tenants for rank in tenant.members(num_gpus)}
    messages = messages_of(schedule)
    found.update(messages.src.tolist(), messages.dst.tolist())
    return tuple(sorted(found))


def _place_in_group(key: IntArray) -> IntArray:
    """How many earlier entries have the same key."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1) != 0)
    place = np.empty(len(key), dtype=np.int64)
    place[order] = np.arange(len(key)) - np.repeat(begins, np.diff(begins, append=len(key)))
    return place


def dropped_replacements(schedule: Schedule, messages: Messages) -> frozenset[int]:
    """Rows of sends whose arrival replaces nothing because a fuller copy came with it.

    The judge lets copies of a sum that arrive at one instant come in either order. A program needs
    one: the copy with fewer contributions yields. Only there does it have to know who contributed
    to what; elsewhere the order of time says it all.
    """
    accumulates = schedule.problem.chunks.reduce.copy()
    if schedule.sums is not None:
        accumulates[schedule.sums["chunk"]] = False
    copies = np.flatnonzero(~messages.reduce & accumulates[messages.chunk])
    _, first = np.unique(messages.leaf[copies], return_index=True)
    copies = copies[first]
    keys = np.stack([messages.chunk[copies], messages.dst[copies], messages.arrival_ps[copies]])
    _, index, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    tied = np.unique(messages.chunk[copies[counts[index.ravel()] > 1]])
    dropped: set[int] = set()
    for chunk in tied.tolist():
        dropped |= _dropped_of_chunk(schedule, messages, chunk)
    return frozenset(dropped)


def _dropped_of_chunk(schedule: Schedule, messages: Messages, chunk: int) -> set[int]:
    """Replay who holds which contributions to one chunk."""
    problem = schedule.problem
    gpus = problem.topology.gpus
    ready = problem.ready_ps()[int(problem.chunks.tenant[chunk])]
    sources = set(problem.chunks.sources(chunk).tolist())
    here = np.flatnonzero(messages.chunk == chunk).tolist()
    events: list[tuple[int, int, int]] = [
        (int(ready[gpu]), OWN, rank) for rank, gpu in enumerate(gpus.tolist()) if gpu in sources
    ]
    groups: dict[int, list[int]] = {}
    for message in here:
        groups.setdefault(int(messages.leaf[message]), []).append(message)
        events.append((int(messages.start_ps[message]), SEND, message))
    for leaf, group in groups.items():
        kind = MERGE if messages.reduce[group[0]] else STORE
        events.append((int(messages.arrival_ps[group[0]]), kind, leaf))
    held = [0] * len(gpus)
    value: dict[int, int] = {}
    replaced: dict[int, tuple[int, int]] = {}
    dropped = set()
    for time, kind, subject in sorted(events):
        if kind == OWN:
            held[subject] |= 1 << subject
        elif kind == SEND:
            value[subject] = held[int(messages.src[subject])]
        else:
            group = groups[subject]
            arrived = 0
            for message in group:
                arrived |= value[message]
            rank = int(messages.dst[group[0]])
            when, leaf = replaced.get(rank, (-1, -1))
            if kind == MERGE:
                held[rank] |= arrived
            elif when == time and arrived | held[rank] == held[rank]:
                dropped.add(subject)
            else:
                if when == time:
                    dropped.add(leaf)
                replaced[rank] = (time, subject)
                held[rank] = arrived
    return dropped
