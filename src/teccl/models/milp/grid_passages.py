"""Passages: what a solution sends, each way through switches in one piece, and nothing in vain.

A solution says which chunk starts on which arc when. Here its flows are joined at switches into
passages from GPU to GPUs, every passage is given the arrival that feeds it, and a search backwards
from the destinations drops whatever serves nobody.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Protocol

from teccl.keywords import SwitchMode, Transit
from teccl.models.milp.arcs import Arcs
from teccl.models.milp.general import holding_of, ready_epochs
from teccl.models.milp.variables import Holding
from teccl.problem import Problem
from teccl.timegrid import TimeGrid


class LoopError(Exception):
    """A chunk goes round in switches, which no transfer may."""


class Decodable(Protocol):
    """What the flows of a model are about."""

    @property
    def problem(self) -> Problem:
        """What is to be scheduled."""
        ...

    @property
    def grid(self) -> TimeGrid:
        """In which epochs."""
        ...

    @property
    def arcs(self) -> Arcs:
        """Whatever flows start on, over all their epochs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GridHop:
    """A link of a passage.

    Parameters
    ----------
    link
        Which.
    before
        The hop that it continues, -1 for the first.
    epoch, usable
        When it starts, and when what it carries has crossed it.
    """

    link: int
    before: int
    epoch: int
    usable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One chunk on its way from a GPU through switches, if any, to one or more GPUs.

    Parameters
    ----------
    src, epoch
        Where and when it begins.
    hops
        Its links, each after the one it continues.
    ends
        GPUs it reaches with the hop that gets there and the epoch from which it is usable.
    feeder
        Passage and end that brought the chunk to `src`, None for own data.
    """

    chunk: int
    src: int
    epoch: int
    hops: tuple[GridHop, ...]
    ends: tuple[tuple[int, int, int], ...]
    feeder: tuple[int, int] | None = None


def decode(milp: Decodable, flows: list[tuple[int, int, int]]) -> tuple[list[Passage], int]:
    """Return the passages of a solution that serve someone, and their last epoch.

    Raises
    ------
    LoopError
        If a chunk passes a switch twice on one way.
    """
    joined = _join_links(milp, flows) if milp.arcs.by_link else _join_ways(milp, flows)
    passages, finish = _prune(milp, joined)
    for passage in passages:
        _refuse_loops(milp, passage)
    return passages, finish


def _join_links(milp: Decodable, flows: list[tuple[int, int, int]]) -> list[Passage]:
    """Join flows on links at the switches they pass."""
    arcs = milp.arcs
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    hops: list[list[GridHop]] = []
    ends: list[list[tuple[int, int, int]]] = []
    heads: list[tuple[int, int, int]] = []
    for m, a, k in sorted(flows, key=lambda flow: (flow[2], flow)):
        src, end = int(arcs.src[a]), int(arcs.end[a])
        if arcs.is_switch[src]:
            entries = waiting[m, src, k]
            number, before = entries[0] if arcs.splits[src] else entries.pop(0)
        else:
            number, before = len(hops), -1
            hops.append([])
            ends.append([])
            heads.append((m, src, k))
        arrival = k + int(arcs.delay[a, k])
        hops[number].append(GridHop(link=a, before=before, epoch=k, usable=arrival))
        if arcs.is_switch[end]:
            waiting[m, end, arrival].append((number, len(hops[number]) - 1))
        else:
            ends[number].append((end, len(hops[number]) - 1, arrival))
    return [
        Passage(chunk=m, src=src, epoch=k, hops=tuple(h), ends=tuple(e))
        for (m, src, k), h, e in zip(heads, hops, ends, strict=True)
    ]


def _refuse_loops(milp: Decodable, passage: Passage) -> None:
    """Refuse a passage that enters a switch twice."""
    entered = [int(milp.problem.topology.link_dst[hop.link]) for hop in passage.hops]
    switches = [node for node in entered if milp.arcs.is_switch[node]]
    if len(set(switches)) < len(switches):
        raise LoopError


def _join_ways(milp: Decodable, flows: list[tuple[int, int, int]]) -> list[Passage]:
    """Make passages of flows on whole ways, or of the trees of ways that start together."""
    arcs = milp.arcs
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    passages: list[Passage] = []
    root: list[int] = []
    for arc, parent in enumerate(arcs.parent.tolist()):
        root.append(arc if parent < 0 else root[parent])
    for m, a, k in flows:
        if arcs.has_trees:
            groups[m, root[a], k].append(a)
        else:
            passages.append(_whole_way(milp, m, a, k))
    for (m, first, k), members in sorted(groups.items()):
        place = {a: i for i, a in enumerate(sorted(members))}
        hops = [
            GridHop(
                link=arcs.ways[a][-1],
                before=place[int(arcs.parent[a])] if arcs.parent[a] >= 0 else -1,
                epoch=k + _offsets(milp, arcs.ways[a])[-1],
                usable=k + int(arcs.delay[a, k]),
            )
            for a in place
        ]
        ends = [
            (int(arcs.end[a]), i, k + int(arcs.delay[a, k]))
            for a, i in place.items()
            if arcs.end[a] >= 0
        ]
        src = int(arcs.src[first])
        passages.append(Passage(chunk=m, src=src, epoch=k, hops=tuple(hops), ends=tuple(ends)))
    return passages


def _whole_way(milp: Decodable, m: int, a: int, k: int) -> Passage:
    way = milp.arcs.ways[a]
    offsets = _offsets(milp, way)
    arrival = k + int(milp.arcs.delay[a, k])
    held = int(milp.arcs.held[a])
    hops = []
    for i, (e, offset) in enumerate(zip(way, offsets, strict=True)):
        late = int(milp.grid.delta[e])
        usable = k + offset + late + (int(milp.grid.kappa[e]) if _stores(milp) else held)
        if milp.problem.switch is SwitchMode.HYPER_EDGE:
            usable = arrival
        hops.append(GridHop(link=e, before=i - 1, epoch=k + offset, usable=usable))
    end = (int(milp.arcs.end[a]), len(way) - 1, arrival)
    return Passage(chunk=m, src=int(milp.arcs.src[a]), epoch=k, hops=tuple(hops), ends=(end,))


def _offsets(milp: Decodable, way: tuple[int, ...]) -> list[int]:
    """Epochs from the start of a way to the start of each of its links."""
    problem, grid = milp.problem, milp.grid
    if problem.switch is SwitchMode.HYPER_EDGE:
        return [0] * len(way)
    stores = _stores(milp)
    offsets = [0]
    for e in way[:-1]:
        offsets.append(offsets[-1] + int(grid.delta[e]) + (int(grid.kappa[e]) if stores else 0))
    return offsets


def _stores(milp: Decodable) -> bool:
    """Whether a switch forwards what it has fully received."""
    return milp.problem.transit is Transit.STORE_AND_FORWARD


def _prune(milp: Decodable, passages: list[Passage]) -> tuple[list[Passage], int]:
    """Feed every passage, then keep what leads to a destination."""
    fed, spare = _feed(milp, passages)
    wanted = _wanted(milp)
    needed: list[set[int]] = [set() for _ in passages]
    finish = 0
    for key, options in spare.items():
        if key not in wanted:
            continue
        moment, number, end = min(options)
        finish = max(finish, moment)
        todo: tuple[int, int] | None = (number, end)
        while todo is not None:
            number, end = todo
            if end in needed[number]:
                break
            todo = None if needed[number] else fed[number]
            needed[number].add(end)
    kept = {number: place for place, number in enumerate(i for i, n in enumerate(needed) if n)}
    trimmed = []
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for number, place in kept.items():
        passage, ends = _trimmed(milp, passages[number], needed[number])
        places |= {(number, end): (place, i) for i, end in enumerate(ends)}
        trimmed.append(passage)
    result = [
        replace(passage, feeder=None if fed[number] is None else places[fed[number]])  # type: ignore[index]
        for passage, number in zip(trimmed, kept, strict=True)
    ]
    return result, finish


def _wanted(milp: Decodable) -> set[tuple[int, int]]:
    table = milp.problem.chunks
    return {
        (m, node)
        for m in range(len(table))
        for node in set(table.destinations(m).tolist()) - set(table.sources(m).tolist())
    }


_Arrivals = dict[tuple[int, int], list[tuple[int, int, int]]]


def _feed(
    milp: Decodable, passages: list[Passage]
) -> tuple[list[tuple[int, int] | None], _Arrivals]:
    """Return what feeds each passage, and the arrivals at each node that may serve itself."""
    holding = holding_of(milp.problem)
    table, ready = milp.problem.chunks, ready_epochs(milp.problem, milp.grid)
    arrivals: _Arrivals = defaultdict(list)
    for number, passage in enumerate(passages):
        for i, (node, _, moment) in enumerate(passage.ends):
            arrivals[passage.chunk, node].append((moment, number, i))
    for options in arrivals.values():
        options.sort()
    spare = {key: list(options) for key, options in arrivals.items()}
    fed: list[tuple[int, int] | None] = [None] * len(passages)
    for number in sorted(range(len(passages)), key=lambda i: passages[i].epoch):
        passage = passages[number]
        m, node = passage.chunk, passage.src
        is_own = node in table.sources(m)
        if is_own and ready[table.tenant[m], node] <= passage.epoch:
            continue
        if holding is Holding.MOVING:
            # Arrivals stand in line: the first that is not used yet goes on.
            _, feeder, end = spare[m, node].pop(0)
        else:
            due = [option for option in arrivals[m, node] if option[0] <= passage.epoch]
            _, feeder, end = due[0] if holding is Holding.UNLIMITED else due[-1]
        fed[number] = (feeder, end)
    return fed, spare


def _trimmed(milp: Decodable, passage: Passage, needed: set[int]) -> tuple[Passage, list[int]]:
    """Drop the branches of a passage that nobody needs, but not the link that sets its pace."""
    ends = sorted(needed)
    hops = _ways_to(passage, [passage.ends[end][1] for end in ends])
    if milp.problem.transit is Transit.CUT_THROUGH:
        kappa = milp.grid.kappa
        slowest = max(kappa[hop.link] for hop in passage.hops)
        if max(kappa[passage.hops[i].link] for i in hops) < slowest:
            for end, (_, last, _) in enumerate(passage.ends):
                way = _ways_to(passage, [last])
                if max(kappa[passage.hops[i].link] for i in way) == slowest:
                    ends = sorted({*ends, end})
                    hops = sorted({*hops, *way})
                    break
    place = {old: new for new, old in enumerate(hops)}
    kept = tuple(
        replace(passage.hops[i], before=place.get(passage.hops[i].before, -1)) for i in hops
    )
    reached = tuple(
        (node, place[hop], moment) for node, hop, moment in (passage.ends[e] for e in ends)
    )
    return replace(passage, hops=kept, ends=reached), ends


def _ways_to(passage: Passage, last: list[int]) -> list[int]:
    """Hops on the ways to some hops, in order."""
    found = set()
    for final in last:
        hop = final
        while hop >= 0 and hop not in found:
            found.add(hop)
            hop = passage.hops[hop].before
    return sorted(found)
