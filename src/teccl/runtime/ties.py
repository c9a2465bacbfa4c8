"""Ties: of two copies of a sum that arrive at one instant, the one with fewer contributions yields.

The checker lets such copies come in either order. A program needs one, and only there does it
have to know who contributed to what; elsewhere the order of time says it all.
"""

import numpy as np

from teccl.runtime.messages import Messages
from teccl.schedule import Schedule

_OWN, _MERGE, _STORE, _SEND = range(4)


def dropped_replacements(schedule: Schedule, messages: Messages) -> frozenset[int]:
    """Rows of sends whose arrival replaces nothing because a fuller copy came with it."""
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
        (int(ready[gpu]), _OWN, rank) for rank, gpu in enumerate(gpus.tolist()) if gpu in sources
    ]
    groups: dict[int, list[int]] = {}
    for message in here:
        groups.setdefault(int(messages.leaf[message]), []).append(message)
        events.append((int(messages.start_ps[message]), _SEND, message))
    for leaf, group in groups.items():
        kind = _MERGE if messages.reduce[group[0]] else _STORE
        events.append((int(messages.arrival_ps[group[0]]), kind, leaf))
    held = [0] * len(gpus)
    value: dict[int, int] = {}
    replaced: dict[int, tuple[int, int]] = {}
    dropped = set()
    for time, kind, subject in sorted(events):
        if kind == _OWN:
            held[subject] |= 1 << subject
        elif kind == _SEND:
            value[subject] = held[int(messages.src[subject])]
        else:
            group = groups[subject]
            arrived = 0
            for message in group:
                arrived |= value[message]
            rank = int(messages.dst[group[0]])
            when, leaf = replaced.get(rank, (-1, -1))
            if kind == _MERGE:
                held[rank] |= arrived
            elif when == time and arrived | held[rank] == held[rank]:
                dropped.add(subject)
            else:
                if when == time:
                    dropped.add(leaf)
                replaced[rank] = (time, subject)
                held[rank] = arrived
    return dropped
