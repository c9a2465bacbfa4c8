"""Staged sums: AllReduces and Reduces that form sums of larger and larger classes of GPUs.

A share of the buffer has levels. At each level the members fall into classes, unions of those of
the level before, and some members of a class hold its sum. A stage brings the sums of the parts of
every class to those that hold the sum of the class, who add them in one order; every stage is a
multicast of data that several GPUs may hold. One level with all members is one-shot, pairs after
pairs are an exchange by recursive doubling, one holder and then all is a ReduceScatter and an
AllGather.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from teccl.construct.constructions import construct
from teccl.construct.filling import fill_both_ways
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray, starts_of
from teccl.construct.meetings import Meeting, Meetings
from teccl.construct.nearest import nearest_plan
from teccl.construct.params import JUSTIFICATIONS, LISTING_UNITS, NEVER
from teccl.construct.partial_sums import Delivery, summed_schedule
from teccl.construct.plan import Plan
from teccl.construct.realise import realise
from teccl.construct.shaking import shaken
from teccl.construct.shallow_trees import can_branch, tree_tasks
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    finish_time,
    justify,
    precedence,
    schedule_tasks,
    tasks_of_plan,
)
from teccl.demand import Collective, Demand, ExplicitChunk
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.schedule.ordering import order_by
from teccl.topology import Topology

# Class of those who contribute nothing.
HELPS = -1


class Level(NamedTuple):
    """Classes of members, by position among them, and which members hold their class's sum."""

    classes: tuple[int, ...]
    holds: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How an AllReduce, or a Reduce, is staged.

    Parameters
    ----------
    name
        What people call it.
    shares
        Levels of each share of the buffer, as many for each; the last has one class, which all
        members hold, or the root. Pieces belong to shares in turn.
    helpers
        Ranks of GPUs that contribute nothing and want nothing, but may hold sums; levels have them
        after the members.
    meets
        Stages in which the parts of a class are added up in a switch, where their ways meet.
    is_apart
        Whether everything goes to each destination by itself, so that nobody copies what it passes
        on; there is one stage then.
    """

    name: str
    shares: tuple[tuple[Level, ...], ...]
    helpers: tuple[int, ...] = ()
    meets: frozenset[int] = frozenset()
    is_apart: bool = False

    @property
    def num_stages(self) -> int:
        """Levels of every share."""
        return len(self.shares[0])

    def before(self, share: int, stage: int) -> Level:
        """Return what is held before a stage; at first everybody has what it contributes."""
        if stage:
            return self.shares[share][stage - 1]
        helpers = len(self.helpers)
        first = singletons(len(self.shares[share][0].classes) - helpers)
        return Level(first.classes + (HELPS,) * helpers, first.holds + (False,) * helpers)


class Item(NamedTuple):
    """The sum of a part of a class, of one piece of the buffer, on its way in a stage.

    Of several parts each source has one. They are added up in a switch, where they meet, or else by
    GPUs on the way to the only destination.
    """

    piece: int
    parts: tuple[int, ...]
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    is_met: bool = False

    @property
    def is_gathered(self) -> bool:
        """Whether GPUs add it up on its way."""
        return len(self.parts) > 1 and not self.is_met


def singletons(count: int) -> Level:
    """Return the level at which everybody holds what it contributes."""
    return Level(tuple(range(count)), (True,) * count)


def everybody(count: int) -> Level:
    """Return the level at which all hold the sum of all."""
    return Level((0,) * count, (True,) * count)


def stage_items(scheme: Scheme, num_pieces: int, stage: int) -> list[list[Item]]:
    """List what a stage moves: sums that somebody wants who does not have them, by class."""
    found: dict[tuple[int, int], list[Item]] = defaultdict(list)
    for piece in range(num_pieces):
        share = piece % len(scheme.shares)
        before, after = scheme.before(share, stage), scheme.shares[share][stage]
        holders: dict[int, list[int]] = defaultdict(list)
        wanting: dict[int, list[int]] = defaultdict(list)
        for member, (part, whole) in enumerate(zip(before.classes, after.classes, strict=True)):
            if before.holds[member]:
                holders[part].append(member)
            if after.holds[member]:
                wanting[whole].append(member)
        whole_of = dict(zip(before.classes, after.classes, strict=True))
        for part, sources in sorted(holders.items()):
            goals = wanting[whole_of[part]]
            if scheme.is_apart:
                found[piece, whole_of[part]] += [
                    Item(piece, (part,), tuple(sources), (each,))
                    for each in goals
                    if each not in sources
                ]
            elif not set(goals) <= set(sources):
                item = Item(piece, (part,), tuple(sources), tuple(goals))
                found[piece, whole_of[part]].append(item)
    return list(found.values())


def staged_schedule(
    problem: Problem, scheme: Scheme, goal: Goal, *, known: int = NEVER
) -> Schedule | None:
    """Construct an AllReduce or a Reduce by a scheme; None where some stage cannot be made.

    Parameters
    ----------
    problem
        One of one tenant; every chunk is a piece.
    scheme
        The stages.
    goal
        Its allowance is for all stages together.
    known
        When the best schedule so far ends.
    """
    base = Instance.build(problem)
    # Without overheads more pieces are worth more than the work on the order of few (quality).
    shake = partial(shaken, goal=goal, known=known) if problem.topology.has_overheads else None
    found = None if scheme.is_apart else _along_shallow_trees(base, scheme, shake)
    is_rooted = problem.demand.tenants[0].collective is Collective.REDUCE
    if scheme.meets or is_rooted:
        return None if found is None else summed_schedule(problem, scheme, found.deliveries)
    # Shares with one owner each are made by constructions anyway, as two halves.
    work = LISTING_UNITS * len(problem.chunks) * problem.num_gpus
    is_owned = scheme.num_stages > 1 and sum(scheme.shares[0][0].holds) == 1
    if found is None or (not is_owned and goal.is_worth(found.finish, work)):
        others = _constructed(base, scheme, goal)
        made = [each for each in (found, others) if each is not None]
        found = min(made, key=attrgetter("finish"), default=None)
    return None if found is None else summed_schedule(problem, scheme, found.deliveries)


def shallow_finish(problem: Problem, scheme: Scheme) -> int | None:
    """When a scheme ends whose sums take the quickest ways; None where there are none."""
    if scheme.is_apart:
        return None
    found = _along_shallow_trees(Instance.build(problem), scheme, None)
    return None if found is None else found.finish


class _Stages(NamedTuple):
    """Sends of all stages, and when the last of them arrives."""

    deliveries: list[list[Delivery]]
    finish: int


def _constructed(base: Instance, scheme: Scheme, goal: Goal) -> _Stages | None:
    """Return stages each of which is made by the best construction; None if one cannot be."""
    allowance = goal.allowance // (scheme.num_stages + 1)
    # Nothing is known of how soon one stage of several can end.
    target = goal.target if scheme.num_stages == 1 else 0
    stages = []
    for number in range(scheme.num_stages):
        items = sorted(chain(*stage_items(scheme, len(base.problem.chunks), number)))
        part = replace(goal, target=target, allowance=allowance, spent=0)
        stage = _stage(base, items, part, scheme.helpers, is_first=number == 0)
        goal.spent += part.spent
        if stage is None:
            return None
        stages.append(stage)
    first = stages[0]
    if len(stages) == 1 and first.plan is not None:
        return _Stages(_realised(first.instance, first.plan, first.item), first.finish)
    pipelining = replace(goal, spent=0)
    found = _pipelined(base, stages, len(scheme.shares), pipelining)
    goal.spent += pipelining.spent
    return found


def _along_shallow_trees(
    base: Instance, scheme: Scheme, shake: Callable[..., IntArray] | None
) -> _Stages | None:
    """Return stages in which everything takes the quickest ways; None if something cannot."""
    if not can_branch(base.problem):
        return None
    stages, load = [], np.zeros(base.num_resources, dtype=np.int64)
    for number in range(scheme.num_stages):
        classes = stage_items(scheme, len(base.problem.chunks), number)
        items, passages = _joined(base, scheme, classes, meets=number in scheme.meets)
        problem, numbers = _stage_problem(base.problem, items, scheme.helpers, is_first=number == 0)
        instance = replace(base, problem=problem, ready=problem.ready_ps())
        tasks = tree_tasks(instance, passages, load)
        if tasks is None:
            return None
        finish = finish_time(tasks, tasks.start)
        item = [items[i] for i in numbers]
        stages.append(_Stage(instance=instance, plan=None, tasks=tasks, finish=finish, item=item))
    return _pipelined(base, stages, len(scheme.shares), None, shake=shake)


def _joined(
    base: Instance, scheme: Scheme, classes: list[list[Item]], *, meets: bool
) -> tuple[list[Item], dict[int, Meeting | None]]:
    """Return the items of a stage, those of a class as one where they are added up on the way.

    With them come the passages in which they meet, None for those that GPUs gather: a sum for one
    GPU, where links join GPUs.
    """
    topology = base.problem.topology
    ranks = base.problem.demand.tenants[0].members(topology.num_gpus)
    members = topology.gpus[[*ranks, *scheme.helpers]].tolist()
    gathers = has_direct_links(topology)
    meetings = Meetings(topology, base.hold, base.latency) if meets else None
    joined, single = list[tuple[Item, Meeting | None]](), list[Item]()
    for parts in classes:
        # Holders of the same part take turns.
        sources = tuple(item.sources[item.piece % len(item.sources)] for item in parts)
        goals, passage = parts[0].destinations, None
        if meetings is not None and len(parts) > 1:
            nodes = ([members[m] for m in each] for each in (sources, goals))
            passage = meetings.passage(*nodes)
        if passage is None and not (gathers and len(goals) == 1 < len(parts)):
            single += parts
            continue
        together = tuple(item.parts[0] for item in parts)
        whole = Item(parts[0].piece, together, sources, goals, passage is not None)
        joined.append((whole, passage))
    passages = {number: passage for number, (_, passage) in enumerate(joined)}
    return [item for item, _ in joined] + sorted(single), passages


def has_direct_links(topology: Topology) -> bool:
    """Whether links join GPUs, so that ways lead over others that can add up."""
    ends = topology.is_switch[topology.link_src] | topology.is_switch[topology.link_dst]
    return bool((~ends).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """A stage: `item` says what each chunk of its instance is; shallow trees have no plan."""

    instance: Instance
    plan: Plan | None
    tasks: Tasks
    finish: int
    item: list[Item]


def _stage(
    base: Instance, items: list[Item], goal: Goal, helpers: tuple[int, ...], *, is_first: bool
) -> _Stage | None:
    """Multicast the items of a stage as fast as some construction can."""
    problem, numbers = _stage_problem(base.problem, items, helpers, is_first=is_first)
    instance = replace(base, problem=problem, ready=problem.ready_ps())
    plans = list(construct(instance, goal))
    if not problem.topology.has_profiles:
        # Constructions save bandwidth, which counts for little where sums are small.
        plans += [plan for plan in [nearest_plan(instance)] if plan is not None]
    plan = min(plans, key=attrgetter("finish"), default=None)
    if plan is None:
        return None
    tasks = tasks_of_plan(instance, plan)
    chosen = [items[i] for i in numbers]
    return _Stage(instance=instance, plan=plan, tasks=tasks, finish=plan.finish, item=chosen)


def _stage_problem(
    problem: Problem, items: list[Item], helpers: tuple[int, ...], *, is_first: bool
) -> tuple[Problem, Sequence[int]]:
    """Return the multicast of a stage, and which item each of its chunks is."""
    tenant = problem.demand.tenants[0]
    ranks = tenant.members(problem.topology.num_gpus)
    if is_first and all(len(i.sources) == 1 and len(i.destinations) == len(ranks) for i in items):
        # Everything to everybody is an AllGather, whose symmetry is known.
        pieces = len(problem.chunks)
        whole = tenant.size * len(ranks)
        gather = replace(tenant, collective=Collective.ALLGATHER, size=whole)
        order = np.lexsort(([i.piece for i in items], [i.parts[0] for i in items])).tolist()
        count, share = pieces, Demand(tenants=(gather,))
        return replace(problem, demand=share, num_chunks=count, whole_buffer=False), order
    exchange = _whole_exchange(problem, items) if is_first else None
    if exchange is not None:
        return exchange
    ranks = (*ranks, *helpers)
    chunks = tuple(
        ExplicitChunk(
            tuple(ranks[m] for m in i.sources),
            tuple(ranks[m] for m in i.destinations),
            len(i.parts) > 1,
        )
        for i in items
    )
    # Ready times hold in all stages: whoever holds a sum has added its own contribution.
    explicit = replace(
        tenant,
        collective=Collective.EXPLICIT,
        root=None,
        chunks=chunks,
        size=problem.chunk_bytes,
        ranks=None,
    )
    demand = Demand(tenants=(explicit,))
    return replace(problem, demand=demand, num_chunks=1, whole_buffer=False), range(len(items))


def _whole_exchange(problem: Problem, items: list[Item]) -> tuple[Problem, list[int]] | None:
    """Return everything from everybody to each other as an AllToAll, whose symmetry is known."""
    tenant = problem.demand.tenants[0]
    ranks = tenant.members(problem.topology.num_gpus)
    member = {int(problem.topology.gpus[rank]): place for place, rank in enumerate(ranks)}
    number = {(i.sources, i.destinations, i.piece): place for place, i in enumerate(items)}
    size = tenant.size * len(ranks)
    whole = replace(tenant, collective=Collective.ALLTOALL, size=size, root=None)
    count, demand = len(problem.chunks), Demand(tenants=(whole,))
    # Other stages have fewer items than the table would have chunks, of which it would be full.
    if len(items) != count * len(ranks) * (len(ranks) - 1):
        return None
    exchange = replace(problem, demand=demand, num_chunks=count, whole_buffer=False)
    table = exchange.chunks
    if len(table) != len(items) or any(len(nodes) > 1 for nodes in table.sets):
        return None
    ends = (
        ((member[int(table.sources(k)[0])],), (member[int(table.destinations(k)[0])],), int(piece))
        for k, piece in enumerate(table.piece)
    )
    order = [number.get(each, -1) for each in ends]
    return None if -1 in order else (exchange, order)


def _realised(instance: Instance, plan: Plan, item: list[Item]) -> list[list[Delivery]]:
    """Return the sends of the only stage."""
    sends = realise(instance, plan, method="stage").sends
    return [
        [
            Delivery(item[chunk], link, start, transfer)
            for chunk, link, start, transfer in zip(
                *(sends[name].tolist() for name in ("chunk", "link", "start_ps", "transfer")),
                strict=True,
            )
        ]
    ]


def _pipelined(
    base: Instance,
    stages: list[_Stage],
    num_shares: int,
    goal: Goal | None,
    *,
    shake: Callable[..., IntArray] | None = None,
) -> _Stages:
    """Schedule the transfers of all stages together: each starts as soon as its sum is there.

    List scheduling has a try too where there is a goal for it, and so has shaking.
    """
    parts = [stage.tasks for stage in stages]
    ends = np.cumsum([0, *(stage.finish for stage in stages)])
    tasks = _concatenated(parts, ends[:-1].tolist())
    order = _whole_precedence(stages, parts)
    piece = np.concatenate(
        [np.array([item.piece for item in stage.item])[stage.tasks.chunk] for stage in stages]
    )
    best, finish_of = tasks.start, partial(finish_time, tasks)
    # Stage after stage, or the first pieces of all shares through all stages first, or each piece.
    turns = (np.zeros_like(piece), piece // num_shares, piece)
    keys = [turn * ends[-1] + tasks.start for turn in turns]
    for key in [*keys, _paced(tasks, parts, piece // num_shares)]:
        best = min(best, fill_both_ways(base, tasks, key=key, order=order), key=finish_of)
        work = LISTING_UNITS * len(tasks)
        if goal is not None and goal.is_worth(finish_of(best), work):
            goal.begin(work)
            start = schedule_tasks(base, tasks, key=key, order=order)
            start = justify(base, tasks, start, rounds=JUSTIFICATIONS, order=order)
            best = min(best, start, key=finish_of)
    if shake is not None:
        best = shake(base, tasks, best, order=order)
    return _Stages(list(_deliveries(stages, parts, best)), finish_of(best))


def _paced(tasks: Tasks, parts: list[Tasks], turn: IntArray) -> IntArray:
    """Return a key by which pieces begin in turn as fast as the fullest link takes them.

    A stage comes as much later as the stages before it take on their way.
    """
    pace = int(np.bincount(tasks.res, tasks.res_hold).max(initial=0)) // (int(turn.max()) + 1)
    reach = np.cumsum([0, *(int(part.out_length.max(initial=0)) for part in parts)])
    due = turn * pace + np.repeat(reach[:-1], list(map(len, parts)))
    key = np.empty_like(due)
    key[np.lexsort((tasks.start, due))] = np.arange(len(due))
    return key


def _deliveries(
    stages: list[_Stage], parts: list[Tasks], start: IntArray
) -> Iterator[list[Delivery]]:
    """Yield the sends of each stage from the starts of all tasks."""
    first = 0
    for stage, tasks in zip(stages, parts, strict=True):
        owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.hop_start))
        when = start[first + owner] + tasks.hop_offset
        chunk = tasks.chunk[owner]
        columns = (chunk.tolist(), tasks.hop_link.tolist(), when.tolist(), (first + owner).tolist())
        yield [
            Delivery(stage.item[chunk], link, time, transfer)
            for chunk, link, time, transfer in zip(*columns, strict=True)
        ]
        first += len(tasks)


def _concatenated(parts: list[Tasks], offsets: list[int]) -> Tasks:
    """Return the tasks of all stages, each stage at its time."""

    def joined(name: str) -> IntArray:
        return np.concatenate([getattr(part, name) for part in parts])

    def starts(name: str) -> IntArray:
        counts = np.concatenate([np.diff(getattr(part, name)) for part in parts])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    begin = [part.start + offset for part, offset in zip(parts, offsets, strict=True)]
    plain = ["chunk", "src", "hop_link", "hop_offset", "res", "res_offset", "res_hold"]
    plain += ["out_node", "out_length", "source", "source_delay"]
    return Tasks(
        reduce=np.concatenate([part.reduce for part in parts]),
        start=np.concatenate(begin),
        **{name: joined(name) for name in plain},
        **{name: starts(name) for name in ("hop_start", "res_start", "out_start", "source_start")},
    )


def _whole_precedence(stages: list[_Stage], parts: list[Tasks]) -> Precedence:
    """Derive who waits for whom: in a stage as ever, and for sums of earlier stages."""
    before, after, lag, release = [], [], [], []
    # For each piece and GPU, the tasks that have brought it parts of sums, with when they do.
    brought: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    first = 0
    for stage, tasks in zip(stages, parts, strict=True):
        order = precedence(stage.instance, tasks)
        release.append(order.release)
        before.append(first + np.repeat(np.arange(len(tasks)), np.diff(order.next_start)))
        after.append(first + order.next_task)
        lag.append(order.next_lag)
        arcs = list(_waits_for_sums(stage, tasks, first, brought))
        columns = np.array(arcs, dtype=np.int64).reshape(-1, 3)
        before.append(columns[:, 0])
        after.append(columns[:, 1])
        lag.append(columns[:, 2])
        _note_arrivals(stage, tasks, first, brought)
        first += len(tasks)
    all_before, all_after = np.concatenate(before), np.concatenate(after)
    by_task = order_by(all_before)
    return Precedence(
        waits=np.bincount(all_after, minlength=first),
        next_start=starts_of(all_before, first),
        next_task=all_after[by_task],
        next_lag=np.concatenate(lag)[by_task],
        release=np.concatenate(release),
    )


def _nodes_of(stage: _Stage, chunk: int, *, sources: bool) -> set[int]:
    table = stage.instance.problem.chunks
    nodes = table.sources(chunk) if sources else table.destinations(chunk)
    return set(nodes.tolist())


def _waits_for_sums(
    stage: _Stage,
    tasks: Tasks,
    first: int,
    brought: dict[tuple[int, int], list[tuple[int, int]]],
) -> Iterator[tuple[int, int, int]]:
    """Yield arcs to the tasks that send a sum from those that brought its parts."""
    sources: dict[int, set[int]] = {}
    sender = np.repeat(np.arange(len(tasks)), np.diff(tasks.source_start))
    entries = (sender, tasks.chunk[sender], tasks.source, tasks.source_delay)
    for task, chunk, node, delay in zip(*(each.tolist() for each in entries), strict=True):
        if chunk not in sources:
            sources[chunk] = _nodes_of(stage, chunk, sources=True)
        if node in sources[chunk]:
            for other, length in brought.get((stage.item[chunk].piece, node), ()):
                yield other, first + task, max(0, length - delay)


def _note_arrivals(
    stage: _Stage,
    tasks: Tasks,
    first: int,
    brought: dict[tuple[int, int], list[tuple[int, int]]],
) -> None:
    """Note what a stage brings to those who asked for it."""
    goals: dict[int, set[int]] = {}
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.out_start))
    chunks = tasks.chunk[owner].tolist()
    arrivals = zip(
        owner.tolist(), chunks, tasks.out_node.tolist(), tasks.out_length.tolist(), strict=True
    )
    for task, chunk, node, length in arrivals:
        if chunk not in goals:
            goals[chunk] = _nodes_of(stage, chunk, sources=False)
        if node in goals[chunk]:
            brought[stage.item[chunk].piece, node].append((first + task, length))
