"""Shallow trees: every chunk goes the quickest ways from whoever holds it, past what is busy.

Chunks are laid one after another. A link counts with its latency, with the time a chunk takes on it
and with the time that chunks laid before it take there, or on links that share a capacity with it,
so that equal ways are used by turns and longer ones where that is sooner. Ways of a chunk that part
in a switch are one passage, unless they need a shared capacity twice.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from teccl._kernels import kernel
from teccl.construct.filling import fill_both_ways
from teccl.construct.instance import Instance, IntArray, starts_of
from teccl.construct.meetings import Meeting
from teccl.construct.params import NEVER
from teccl.construct.tasks import Tasks, precedence
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.topology import Topology


def can_branch(problem: Problem) -> bool:
    """Whether switches copy what has come to them whole, at rates that do not change."""
    if problem.switch is not SwitchMode.COPY or problem.transit is Transit.CUT_THROUGH:
        return False
    return problem.copy and problem.buffer is None and not problem.topology.has_profiles


def tree_tasks(
    instance: Instance, passages: Mapping[int, Meeting | None], load: IntArray
) -> Tasks | None:
    """Return tasks that bring every chunk to all who want it; None where somebody is cut off.

    Parameters
    ----------
    passages
        Has the chunks that are sums: how they come together in a switch, or None for those that
        GPUs add up on the way to the only one that wants them.
    load
        For how long each resource is held by what was laid before; what is laid here is added.
    """
    topology, table = instance.problem.topology, instance.problem.chunks
    nobody, rows = np.zeros(0, dtype=np.int64), _Rows(instance)
    by_source = np.argsort(topology.link_src, kind="stable")
    entries = _lay(
        topology.num_nodes,
        starts_of(topology.link_src, topology.num_nodes),
        by_source,
        topology.link_dst,
        instance.latency + instance.hold,
        instance.hold,
        *_flat([np.array(each, dtype=np.int64) for each in rows.held]),
        load,
        *_flat([table.sources(chunk) for chunk in range(len(table))]),
        *_flat([nobody if c in passages else table.destinations(c) for c in range(len(table))]),
    )
    for chunk, entry in enumerate(entries):
        if chunk in passages:
            passage = passages[chunk]
            if passage is not None:
                rows.add_passage(chunk, table.sources(chunk).tolist(), *passage, start=0)
            continue
        if entry[0] == -2 or not _add_tree(rows, chunk, entry.tolist()):
            return None
    gathered = [chunk for chunk, passage in passages.items() if passage is None]
    if not _add_gathered(rows, gathered, load) or not rows.chunk or rows.meets_itself():
        return None
    tasks = rows.tasks(gathered)
    order = precedence(instance, tasks)
    return replace(tasks, start=fill_both_ways(instance, tasks, key=tasks.start, order=order))


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

    def tasks(self, gathered: list[int]) -> Tasks:
        """Return all tasks, in the order in which they came; relays add up what is gathered."""
        hops, uses, outs = (
            np.array(each, dtype=np.int64) for each in (self.hops, self.uses, self.outs)
        )
        first = _starts(self.num_sources)
        return Tasks(
            chunk=np.array(self.chunk, dtype=np.int64),
            reduce=np.isin(self.chunk, gathered),
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
            source_delay=np.zeros(len(self.source), dtype=np.int64),
        )


def _starts(counts: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _flat(sets: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Return sets end to end, and where each begins."""
    starts = np.concatenate([[0], np.cumsum([len(each) for each in sets])]).astype(np.int64)
    return np.concatenate(sets).astype(np.int64), starts


def _add_tree(rows: _Rows, chunk: int, entry: list[int]) -> bool:
    """Add a chunk's tree, given by links into nodes; a task begins with each link from a GPU.

    False where a way would need a shared capacity twice.
    """
    topology = rows.instance.problem.topology
    leaving: dict[int, list[int]] = {}
    for link in entry:
        if link >= 0:
            leaving.setdefault(int(topology.link_src[link]), []).append(link)
    length = rows.instance.hold + rows.instance.latency
    # Ways begin with links from GPUs; those to nodes that another passage serves are left out.
    begins = [(0, [link]) for node in leaving if entry[node] < 0 for link in leaving[node]]
    while begins:
        now, way = begins.pop()
        hops, outs, used = list[tuple[int, int]](), list[tuple[int, int]](), set[int]()
        waiting = [(way, 0)]
        while waiting:
            path, at = waiting.pop()
            link, fixed = path[0], path[1:]
            if not used.isdisjoint(rows.held[link]):
                again = [*_way_to(topology, entry, link), *path]
                if again == way:
                    return False
                begins.append((now, again))
                continue
            used.update(rows.held[link])
            end, there = int(topology.link_dst[link]), at + int(length[link])
            hops.append((link, at))
            if topology.is_switch[end]:
                onwards = [fixed] if fixed else [[onward] for onward in leaving[end]]
                waiting += [(onward, there) for onward in onwards]
            else:
                outs.append((end, there))
                begins += [(now + there, [onward]) for onward in leaving.get(end, ())]
        rows.add_passage(chunk, [int(topology.link_src[way[0]])], hops, outs, start=now)
    return True


def _way_to(topology: Topology, entry: list[int], link: int) -> list[int]:
    """Return the links of a tree from the last GPU before a link up to it."""
    found = list[int]()
    while topology.is_switch[topology.link_src[link]]:
        link = entry[int(topology.link_src[link])]
        found.insert(0, link)
    return found


def _add_gathered(rows: _Rows, chunks: list[int], load: IntArray) -> bool:
    """Add the ways on which sums come to those who want them; False if a contributor has none."""
    if not chunks:
        return True
    instance = rows.instance
    topology, table = instance.problem.topology, instance.problem.chunks
    by_end = np.argsort(topology.link_dst, kind="stable")
    length = instance.latency + instance.hold
    number, start, ends, links = _gather(
        starts_of(topology.link_dst, topology.num_nodes),
        by_end,
        np.stack([topology.link_src, topology.link_dst]),
        topology.is_switch,
        length,
        instance.hold,
        *_flat([np.array(each, dtype=np.int64) for each in rows.held]),
        load,
        np.array([table.destinations(chunk)[0] for chunk in chunks], dtype=np.int64),
        *_flat([table.sources(chunk) for chunk in chunks]),
    )
    if not len(number):
        return False
    begin, latest = 0, int(start.max())
    for chunk, left, end in zip(number.tolist(), start.tolist(), ends.tolist(), strict=True):
        way = links[begin:end].tolist()
        at = np.concatenate([[0], np.cumsum(length[way])]).tolist()
        source, goal = int(topology.link_src[way[0]]), int(topology.link_dst[way[-1]])
        hops = list(zip(way, at[:-1], strict=True))
        # Whoever is farther from the end of its ways begins sooner.
        rows.add_passage(chunks[chunk], [source], hops, [(goal, at[-1])], start=latest - left)
        begin = end
    return True


@kernel
def _gather(
    first, links, ends, is_switch, length, hold, held, held_start, load, root, source, begins
):
    """Lay the ways of all contributors to each root, one after another, past what is busy.

    Whoever is on a way adds its own, so that ways end at any GPU of the tree. Returns for each leg
    from GPU to GPU its tree, how long it takes from there to the root, where its links end among
    all, and these; nothing if a root is out of reach.
    """
    num, far = len(first) - 1, np.int64(NEVER)
    tree, start, leg_end, found = [np.int64(0)], [np.int64(0)], [np.int64(0)], [np.int64(0)]
    for c in range(len(root)):
        left = np.full(num, far)
        left[root[c]] = 0
        for i in range(begins[c], begins[c + 1]):
            if left[source[i]] < far:
                continue
            time, onward = left.copy(), np.full(num, -1, dtype=np.int64)
            done = np.zeros(num, dtype=np.bool_)
            while not done[source[i]]:
                node = -1
                for other in range(num):
                    if not done[other] and (node < 0 or time[other] < time[node]):
                        node = other
                if time[node] >= far:
                    nothing = np.zeros(0, dtype=np.int64)
                    return nothing, nothing, nothing, nothing
                done[node] = True
                for j in range(first[node], first[node + 1]):
                    link = links[j]
                    wait = np.int64(0)
                    for k in range(held_start[link], held_start[link + 1]):
                        wait = max(wait, load[held[k]])
                    there = time[node] + length[link] + wait
                    if left[ends[0, link]] == far and there < time[ends[0, link]]:
                        time[ends[0, link]] = there
                        onward[ends[0, link]] = link
            node = source[i]
            while left[node] == far or is_switch[node]:
                link = onward[node]
                if not is_switch[node]:
                    left[node] = time[node]
                    tree.append(np.int64(c))
                    start.append(time[node])
                found.append(link)
                for k in range(held_start[link], held_start[link + 1]):
                    load[held[k]] += hold[link]
                node = ends[1, link]
                if not is_switch[node]:
                    leg_end.append(np.int64(len(found) - 1))
    return np.array(tree[1:]), np.array(start[1:]), np.array(leg_end[1:]), np.array(found[1:])


@kernel
def _lay(
    num,
    first,
    links,
    dst,
    length,
    hold,
    held,
    held_start,
    load,
    source,
    source_start,
    goal,
    goal_start,
):
    """Return for each chunk and node the link of its tree that enters it, -1 for none.

    -2 at the first node marks a chunk that does not come to all who want it.
    """
    count = len(source_start) - 1
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
        # Capacities that enter a node of the tree already; a second time has to wait for the first.
        taken = np.zeros(len(load), dtype=np.bool_)
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
            if via[node] >= 0:
                _take(via[node], held, held_start, taken, via, done, time, hold)
            for i in range(first[node], first[node + 1]):
                link = links[i]
                there = time[node] + length[link]
                wait = np.int64(0)
                for j in range(held_start[link], held_start[link + 1]):
                    wait = max(wait, load[held[j]] + hold[link] * taken[held[j]])
                if there + wait < time[dst[link]]:
                    time[dst[link]] = there + wait
                    via[dst[link]] = link
        for i in range(goal_start[chunk], goal_start[chunk + 1]):
            node = goal[i]
            if time[node] >= far:
                entries[chunk, 0] = -2
                break
            while via[node] >= 0 and entries[chunk, node] < 0:
                link = via[node]
                entries[chunk, node] = link
                for j in range(held_start[link], held_start[link + 1]):
                    load[held[j]] += hold[link]
                node = src[link]
    return entries


@kernel
def _take(link, held, held_start, taken, via, done, time, hold):
    """Note what a link of a tree holds; whoever was to be entered by the same comes later."""
    for j in range(held_start[link] + 1, held_start[link + 1]):
        if taken[held[j]]:
            continue
        taken[held[j]] = True
        for other in range(len(via)):
            if done[other] or via[other] < 0:
                continue
            for k in range(held_start[via[other]] + 1, held_start[via[other] + 1]):
                if held[k] == held[j]:
                    time[other] += hold[via[other]]
