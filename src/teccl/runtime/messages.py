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
