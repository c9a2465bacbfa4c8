"""Messages: what GPUs send each other once passages through switches are folded away.

A hop between two GPUs is one message. A transfer that passes switches becomes one message from the
GPU where it begins to every GPU where it ends. Where a switch reduces, several GPUs feed one end;
each of them sends its own part there and the receiver combines them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.schedule import Schedule
from teccl.schedule.timing import send_times

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
    root, leaf = _ends(schedule)
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


def _ends(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Pairs of sends at which messages begin and end."""
    topology, sends = schedule.problem.topology, schedule.sends
    rows = np.arange(len(sends))
    if topology.num_switches == 0:
        return rows, rows
    is_switch = topology.is_switch
    from_switch = is_switch[topology.link_src[sends["link"]]]
    to_switch = is_switch[topology.link_dst[sends["link"]]]
    direct = rows[~from_switch & ~to_switch]
    entering: dict[tuple[int, int], list[int]] = {}
    for row in rows[to_switch].tolist():
        key = (int(sends["transfer"][row]), int(topology.link_dst[sends["link"][row]]))
        entering.setdefault(key, []).append(row)
    pairs = []
    for leaf in rows[from_switch & ~to_switch].tolist():
        pairs += [(root, leaf) for root in _roots(schedule, leaf, entering, from_switch)]
    passed = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return np.concatenate([direct, passed[:, 0]]), np.concatenate([direct, passed[:, 1]])


def _roots(
    schedule: Schedule,
    leaf: int,
    entering: dict[tuple[int, int], list[int]],
    from_switch: BoolArray,
) -> list[int]:
    """Sends of a leaf's transfer that leave GPUs and flow into it, in order."""
    topology, sends = schedule.problem.topology, schedule.sends
    found, seen, frontier = [], {leaf}, [leaf]
    while frontier:
        row = frontier.pop()
        if not from_switch[row]:
            found.append(row)
            continue
        key = (int(sends["transfer"][row]), int(topology.link_src[sends["link"][row]]))
        new = [before for before in entering.get(key, []) if before not in seen]
        seen.update(new)
        frontier += new
    return sorted(found)


def _place_in_group(key: IntArray) -> IntArray:
    """How many earlier entries have the same key."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1) != 0)
    place = np.empty(len(key), dtype=np.int64)
    place[order] = np.arange(len(key)) - np.repeat(begins, np.diff(begins, append=len(key)))
    return place
