"""Shallow trees: every chunk goes the quickest ways from whoever holds it, past what is busy.

Chunks are laid one after another. A link counts with its latency, with the time a chunk takes on it
and with the time that chunks laid before it take there, so that equal ways are used by turns and
longer ones where that is sooner. Ways of a chunk that part in a switch are one passage.
"""

from collections.abc import Mapping
from dataclasses import replace

import numba as nb
import numpy as np

from teccl.construct.filling import fill_gaps
from teccl.construct.instance import Instance, IntArray, starts_of
from teccl.construct.meetings import Passage
from teccl.construct.params import NEVER
from teccl.construct.tasks import Tasks, precedence
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem


def can_branch(problem: Problem) -> bool:
    """Whether switches copy what has come to them whole, at rates that do not change."""
    if problem.switch is not SwitchMode.COPY or problem.transit is Transit.CUT_THROUGH:
        return False
    return problem.copy and problem.buffer is None and not problem.topology.has_profiles


def tree_tasks(instance: Instance, passages: Mapping[int, Passage]) -> Tasks | None:
    """Return tasks that bring every chunk to all who want it; None where somebody is cut off.

    `passages` are of the chunks that switches add up.
    """
    topology, table = instance.problem.topology, instance.problem.chunks
    nobody = np.zeros(0, dtype=np.int64)
    by_source = np.argsort(topology.link_src, kind="stable")
    entries = _lay(
        topology.num_nodes,
        starts_of(topology.link_src, topology.num_nodes),
        by_source,
        topology.link_dst,
        instance.latency + instance.hold,
        instance.hold,
        *_flat([table.sources(chunk) for chunk in range(len(table))]),
        *_flat([nobody if c in passages else table.destinations(c) for c in range(len(table))]),
    )
    rows = _Rows(instance)
    for chunk, entry in enumerate(entries):
        if chunk in passages:
            rows.add_passage(chunk, table.sources(chunk).tolist(), *passages[chunk], start=0)
            continue
        if entry[0] == -2:
            return None
        _add_tree(rows, chunk, entry.tolist())
    if not rows.chunk or rows.meets_itself():
        return None
    tasks = rows.tasks()
    order = precedence(instance, tasks)
    return replace(tasks, start=fill_gaps(instance, tasks, key=tasks.start, order=order))


class _Rows:
    """What tasks hold and reach, one task after another; switches pass on what has come whole."""

    def __init__(self, instance: Instance) -> None:
        topology = instance.problem.topology
        self.instance = instance
        self.start = list[int]()
        number = {name: topology.num_links + i for i, name in enumerate(topology.shared)}
        links = enumerate(topology.links)
        self.held = [[e, *(number[name] for name in link.shares)] for e, link in links]
        self.chunk, self.source, self.num_sources = list[int](), list[int](), list[int]()
        self.hops, self.outs = list[tuple[int, int]](), list[tuple[int, int]]()
        self.uses = list[tuple[int, int, int]]()
        self.num_hops, self.num_uses, self.num_outs = list[int](), list[int](), list[int]()

    def add_passage(
        self,
        chunk: int,
        sources: list[int],
        hops: list[tuple[int, int]],
        outs: list[tuple[int, int]],
        *,
        start: int,
    ) -> None:
        """Add a task: its links with when it begins on each, and nodes with when it is there."""
        hold = self.instance.hold
        uses = [(r, at, int(hold[e])) for e, at in hops for r in self.held[e]]
        self.chunk.append(chunk)
        self.start.append(start)
        self.source += sources
        self.num_sources.append(len(sources))
        self.hops += hops
        self.num_hops.append(len(hops))
        self.uses += uses
        self.num_uses.append(len(uses))
        self.outs += outs
        self.num_outs.append(len(outs))

    def meets_itself(self) -> bool:
        """Whether a task would need a shared capacity twice."""
        owner = np.repeat(np.arange(len(self.num_uses)), self.num_uses).tolist()
        used = [(task, resource) for task, (resource, _, _) in zip(owner, self.uses, strict=True)]
        return len(set(used)) < len(used)

    def tasks(self) -> Tasks:
        """Return all tasks, in the order in which they came."""
        hops, uses, outs = (
            np.array(each, dtype=np.int64) for each in (self.hops, self.uses, self.outs)
        )
        first = _starts(self.num_sources)
        return Tasks(
            chunk=np.array(self.chunk, dtype=np.int64),
            reduce=np.zeros(len(self.chunk), dtype=bool),
            src=np.array(self.source, dtype=np.int64)[first[:-1]],
            start=np.array(self.start, dtype=np.int64),
            hop_start=_starts(self.num_hops),
            hop_link=hops[:, 0],
            hop_offset=hops[:, 1],
            res_start=_starts(self.num_uses),
            res=uses[:, 0],
            res_offset=uses[:, 1],
            res_hold=uses[:, 2],
            out_start=_starts(self.num_outs),
            out_node=outs[:, 0],
            out_length=outs[:, 1],
            source_start=first,
            source=np.array(self.source, dtype=np.int64),
        )


def _starts(counts: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _flat(sets: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Return sets end to end, and where each begins."""
    starts = np.concatenate([[0], np.cumsum([len(each) for each in sets])]).astype(np.int64)
    return np.concatenate(sets).astype(np.int64), starts


def _add_tree(rows: _Rows, chunk: int, entry: list[int]) -> None:
    """Add a chunk's tree, given by links into nodes; a task begins with each link from a GPU."""
    topology = rows.instance.problem.topology
    leaving: dict[int, list[int]] = {}
    for link in entry:
        if link >= 0:
            leaving.setdefault(int(topology.link_src[link]), []).append(link)
    length = rows.instance.hold + rows.instance.latency
    begins = [(0, link) for node in leaving if entry[node] < 0 for link in leaving[node]]
    while begins:
        now, first = begins.pop()
        hops, outs, waiting = [], [], [(first, 0)]
        while waiting:
            link, at = waiting.pop()
            end, there = int(topology.link_dst[link]), at + int(length[link])
            hops.append((link, at))
            if topology.is_switch[end]:
                waiting += [(onward, there) for onward in leaving[end]]
            else:
                outs.append((end, there))
                begins += [(now + there, onward) for onward in leaving.get(end, ())]
        rows.add_passage(chunk, [int(topology.link_src[first])], hops, outs, start=now)


@nb.njit(cache=True)
def _lay(num, first, links, dst, length, hold, source, source_start, goal, goal_start):
    """Return for each chunk and node the link of its tree that enters it, -1 for none.

    -2 at the first node marks a chunk that does not come to all who want it.
    """
    count = len(source_start) - 1
    load = np.zeros(len(dst), dtype=np.int64)
    src = np.zeros(len(dst), dtype=np.int64)
    for node in range(num):
        for i in range(first[node], first[node + 1]):
            src[links[i]] = node
    entries = np.full((count, num), -1, dtype=np.int64)
    far = np.int64(NEVER)
    for chunk in range(count):
        time = np.full(num, far)
        via = np.full(num, -1, dtype=np.int64)
        done = np.zeros(num, dtype=np.bool_)
        for i in range(source_start[chunk], source_start[chunk + 1]):
            time[source[i]] = 0
        for _ in range(num):
            node = -1
            for other in range(num):
                if not done[other] and time[other] < far and (node < 0 or time[other] < time[node]):
                    node = other
            if node < 0:
                break
            done[node] = True
            for i in range(first[node], first[node + 1]):
                link = links[i]
                there = time[node] + length[link] + load[link]
                if there < time[dst[link]]:
                    time[dst[link]] = there
                    via[dst[link]] = link
        for i in range(goal_start[chunk], goal_start[chunk + 1]):
            node = goal[i]
            if time[node] >= far:
                entries[chunk, 0] = -2
                break
            while via[node] >= 0 and entries[chunk, node] < 0:
                link = via[node]
                entries[chunk, node] = link
                load[link] += hold[link]
                node = src[link]
    return entries
