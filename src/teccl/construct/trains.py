"""Trains: all chunks from one GPU to another follow each other closely, over all ways in turns.

A passage through several switches needs each of its links at an exact moment. Where links between
switches are faster than those of GPUs by a factor that is no whole number, passages that come in
any order leave gaps there that nothing fits. Chunks that follow each other at equal distances,
each over the next of all ways between two GPUs, hold every link in a fixed rhythm instead, and
other trains of the same rhythm fit between them. Trains go in rounds, in which all GPUs behind one
switch turn to those behind another, so that what ends together began together.

Where all switches are alike, the moments at which trains begin can be written down (`_interlaced`).
"""

from collections.abc import Iterator
from itertools import product
from math import gcd
from typing import NamedTuple

import numpy as np

from teccl.construct.filling import fill_both_ways, fill_one_of_each
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import CHUNK_TOLERANCE, NEVER, PYTHON_UNITS
from teccl.construct.plan import Plan, single_rows, with_starts
from teccl.construct.rigid_trees import joined_pieces, meets_itself
from teccl.construct.route_first import listing_work
from teccl.construct.tasks import finish_time, precedence, tasks_of_plan
from teccl.footprint import num_deliveries
from teccl.topology import Topology


def is_staged_exchange(instance: Instance) -> bool:
    """Whether equal chunks go from one GPU to one, some through several switches."""
    table, routes = instance.problem.chunks, instance.routes
    if instance.slots.max() > 1 or table.reduce.any() or len(table.sizes) > 1:
        return False
    if not routes.are_staged():
        return False
    used = np.unique(np.concatenate([table.source_set, table.destination_set]))
    if any(len(table.sets[i]) > 1 for i in used.tolist()):
        return False
    joined, pairs = (
        set(zip(routes.src.tolist(), routes.dst.tolist(), strict=True)),
        _chunks_of_pairs(instance),
    )
    return bool(pairs) and joined.issuperset(pairs)


def train_work(instance: Instance) -> int:
    """Units of placing every train once, and then its chunks."""
    routes, count = instance.routes, num_deliveries(instance.problem)
    return placing_work(instance) + listing_work(count, len(routes.links) / max(1, len(routes)))


def placing_work(instance: Instance) -> int:
    """Units of placing every train once in each rotation of its ways."""
    return PYTHON_UNITS * num_deliveries(instance.problem)


def train_plans(
    instance: Instance, goal: Goal, *, across: tuple[bool, ...] = (True, False)
) -> Iterator[Plan]:
    """Yield plans of trains, and of their chunks placed one by one in the order of these.

    Rounds go from switch to switch or from place to place, as `across` says in turn, and rotations
    are those that interlace, follow from the place of the sender, or can begin first.
    """
    best, work = NEVER, placing_work(instance)
    has_choice = any(len(ways) > 1 for ways in _shortest_routes(instance).values())
    rotations = ("interlaced", "free", "onward") if has_choice else ("onward",)
    for is_across, rotation in product(across, rotations):
        if not goal.is_worth(best, work):
            return
        if rotation == "interlaced":
            trains = _interlaced(instance) if is_across else None
        else:
            trains = _trains(instance, across=is_across, is_free=rotation == "free")
        if trains is None:
            continue
        goal.begin(work)
        found = _placed(instance, trains)
        for plan in () if found is None else _filled(instance, *found, goal):
            if plan.finish < best:
                best = plan.finish
                yield plan


def _placed(instance: Instance, trains: "_Trains") -> tuple[Plan, IntArray] | None:
    """Return a plan without times and when its transfers begin; None if trains meet themselves."""
    rows = single_rows(trains.chunk, trains.route)
    tasks = tasks_of_plan(instance, Plan(rows=rows))
    pieces = joined_pieces(tasks, trains.number, trains.offset)
    if meets_itself(pieces):
        return None
    # No chunk of a train leaves before it is ready, and those of several tenants share one.
    release = trains.release.copy()
    np.maximum.at(release, trains.number, precedence(instance, tasks).release - trains.offset)
    begun, chosen = fill_one_of_each(instance, pieces.tasks, trains.first, release)
    group = np.repeat(np.arange(len(begun)), np.diff(trains.first))[trains.number]
    is_kept = chosen[group] == trains.number
    plan = Plan(rows=single_rows(trains.chunk[is_kept], trains.route[is_kept]))
    return plan, begun[group[is_kept]] + trains.offset[is_kept]


def _filled(instance: Instance, plan: Plan, start: IntArray, goal: Goal) -> Iterator[Plan]:
    """Yield a plan of trains, and one whose chunks fill gaps one by one in the same order."""
    tasks = tasks_of_plan(instance, plan)
    finish = finish_time(tasks, start)
    yield with_starts(plan, start, finish)
    work = listing_work(len(tasks), len(tasks.hop_link) / max(1, len(tasks)))
    if goal.is_worth(finish, work):
        goal.begin(work)
        start = fill_both_ways(instance, tasks, key=start, order=precedence(instance, tasks))
        yield with_starts(plan, start, finish_time(tasks, start))


class _Trains(NamedTuple):
    """Every train in each rotation of its ways, in the order in which trains are placed.

    Parameters
    ----------
    first
        Where the rotations of each train begin, and where those of the last end.
    number, offset
        Rotation of a train that each transfer is part of, and when it begins in that.
    chunk, route
        What each transfer carries, and where.
    release
        When each rotation of a train may begin.
    """

    first: IntArray
    number: IntArray
    offset: IntArray
    chunk: IntArray
    route: IntArray
    release: IntArray


def _trains(instance: Instance, *, across: bool, is_free: bool) -> _Trains:
    """Return all trains, round by round.

    Parameters
    ----------
    across
        Whether rounds go to all behind one switch before they go to the next one.
    is_free
        Whether trains may take any rotation; otherwise each goes on where its sender's last ended.
    """
    ways, chunks = _shortest_routes(instance), _chunks_of_pairs(instance)
    places = _Places.of(instance.problem.topology, list(chunks))
    columns: list[IntArray] = []
    first, sent = [0], dict.fromkeys(places.group, 0)
    for pair in places.in_rounds(list(chunks), across=across):
        route, place = ways[pair], np.arange(len(chunks[pair]))
        last = places.group[pair[0]] + places.sender[pair[0]] + sent[pair[0]]
        sent[pair[0]] += len(place)
        offset = place * _spacing(instance, route)
        for turn in range(len(route)) if is_free else [last % len(route)]:
            number = np.full(len(place), first[-1] + (turn if is_free else 0))
            over = route[(place + turn) % len(route)]
            columns.append(np.stack([number, offset, chunks[pair], over]))
        first.append(first[-1] + (len(route) if is_free else 1))
    number, offset, chunk, route = np.concatenate(columns, axis=1)
    release = np.zeros(first[-1], dtype=np.int64)
    return _Trains(np.array(first), number, offset, chunk, route, release)


def _interlaced(instance: Instance) -> _Trains | None:
    r"""Return trains whose uses of links between switches follow each other without a gap.

    None where switches are not alike. Of G GPUs behind a switch, with W ways to those behind
    another and a slot of s for each chunk, sender a begins its n chunks of round k at

    .. math:: k n s + \lfloor (a + k) / d \rfloor \, d s / G, \qquad d = \gcd(G, W)

    and takes its ways in the rotation that has the first of them in use at multiples of W s / G,
    at those that sender a + 1 had in use in the round before. Receiver a + k is free when the round
    begins, because what came to it before began n slots earlier or more.
    """
    ways, chunks = _shortest_routes(instance), _chunks_of_pairs(instance)
    places = _Places.of(instance.problem.topology, list(chunks))
    if not places.are_full(list(chunks)) or len({len(each) for each in chunks.values()}) > 1:
        return None
    groups, size = 1 + max(places.group.values()), 1 + max(places.sender.values())
    far_apart = [pair for pair in chunks if places.group[pair[0]] != places.group[pair[1]]]
    if len({len(ways[pair]) for pair in far_apart}) != 1:
        return None
    unit = -(-max(_spacing(instance, ways[pair]) for pair in chunks) // size)
    if any(_inner_hold(instance, ways[pair]) > unit * len(ways[pair]) for pair in far_apart):
        return None
    columns, release = list[IntArray](), list[int]()
    for number, pair in enumerate(places.in_rounds(list(chunks), across=True)):
        route, place = ways[pair], np.arange(len(chunks[pair]))
        sender, far = places.sender[pair[0]], places.group[pair[1]] - places.group[pair[0]]
        along = (places.receiver[pair[1]] - sender) % size
        # Those behind the same switch come first.
        turn, round_ = 0, along - 1
        begin = round_ * len(place) * size
        if far:
            round_ = (far % groups - 1) * size + along
            turn, begin = _interlacing(sender + round_, round_ * len(place), size, len(route))
            begin += (size - 1) * len(place) * size
        over = route[(place + turn) % len(route)]
        columns.append(
            np.stack([np.full_like(place, number), place * unit * size, chunks[pair], over])
        )
        release.append(begin * unit)
    number, offset, chunk, over = np.concatenate(columns, axis=1)
    first = np.arange(len(release) + 1)
    return _Trains(first, number, offset, chunk, over, np.array(release))


def _interlacing(place: int, slot: int, size: int, ways: int) -> tuple[int, int]:
    """Return the rotation of a train and when it begins, in parts of a slot, `size` a slot.

    Of the moments at which the first way may be in use, `ways` parts apart, those of equal phase
    belong to senders that begin together, each of which keeps to one of them.
    """
    alike = gcd(size, ways)
    phase, own = divmod(place, alike)
    begin = slot * size + phase * alike
    moment = ways * (phase * pow(ways // alike, -1, size // alike) % (size // alike))
    moment += own * (ways // alike) * size
    chunk = (moment - begin) // size % ways
    return -chunk % ways, begin


def _inner_hold(instance: Instance, ways: IntArray) -> int:
    """Return how long a chunk over each of some ways holds one link between switches at most."""
    routes, held = instance.routes, dict[int, int]()
    for way in ways.tolist():
        for i in range(int(routes.res_start[way]), int(routes.res_start[way + 1])):
            held[int(routes.res[i])] = held.get(int(routes.res[i]), 0) + int(routes.res_hold[i])
    first = routes.res[routes.res_start[ways]].tolist()
    last = routes.res[routes.res_start[ways + 1] - 1].tolist()
    return max((held[res] for res in held.keys() - {*first, *last}), default=0)


def _chunks_of_pairs(instance: Instance) -> dict[tuple[int, int], list[int]]:
    """Return the chunks that go from each GPU to each other."""
    table = instance.problem.chunks
    node = np.array([nodes[0] for nodes in table.sets])
    ends = zip(node[table.source_set].tolist(), node[table.destination_set].tolist(), strict=True)
    chunks: dict[tuple[int, int], list[int]] = {}
    for chunk, pair in enumerate(ends):
        if pair[0] != pair[1]:
            chunks.setdefault(pair, []).append(chunk)
    return chunks


def _shortest_routes(instance: Instance) -> dict[tuple[int, int], IntArray]:
    """Return all routes between each two GPUs that take no longer than any other.

    They come in the order of their links, so that equal turns of several pairs are equal ways.
    """
    routes, ways = instance.routes, instance.routes.ways()
    found: dict[tuple[int, int], list[int]] = {}
    for route in sorted(range(len(routes)), key=lambda r: (int(routes.length[r]), ways[r])):
        known = found.setdefault((int(routes.src[route]), int(routes.dst[route])), [])
        if not known or routes.length[known[0]] == routes.length[route]:
            known.append(route)
    return {pair: np.array(known) for pair, known in found.items()}


def _spacing(instance: Instance, ways: IntArray) -> int:
    """Return how far apart chunks must begin that take ways in turns, with room for rounding."""
    routes, uses = instance.routes, dict[int, list[int]]()
    hold = dict[int, int]()
    for place, way in enumerate(ways.tolist()):
        for i in range(int(routes.res_start[way]), int(routes.res_start[way + 1])):
            res = int(routes.res[i])
            uses.setdefault(res, []).append(place)
            hold[res] = max(hold.get(res, 0), int(routes.res_hold[i]))
    spacing = 0
    for res, places in uses.items():
        gap = min(np.diff([*places, places[0] + len(ways)]).tolist())
        spacing = max(spacing, -(-hold[res] // max(1, gap)))
    return spacing + spacing // CHUNK_TOLERANCE


class _Places(NamedTuple):
    """Where GPUs are: their group, all that is behind the same switches, and places in these.

    Parameters
    ----------
    group
        Of each GPU.
    sender, receiver
        Place of each GPU among those of its group that send, and among those that receive.
    """

    group: dict[int, int]
    sender: dict[int, int]
    receiver: dict[int, int]

    @staticmethod
    def of(topology: Topology, pairs: list[tuple[int, int]]) -> "_Places":
        """Number the GPUs that send or receive."""
        beside: dict[int, set[int]] = {}
        for src, dst in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True):
            beside.setdefault(src, set()).add(dst)
            beside.setdefault(dst, set()).add(src)
        known: dict[frozenset[int], int] = {}
        group = {
            node: known.setdefault(frozenset(beside[node]), len(known))
            for node in sorted({node for pair in pairs for node in pair})
        }
        sides: list[dict[int, int]] = []
        for side in range(2):
            sizes = dict.fromkeys(range(len(known)), -1)
            sides.append({})
            for node in sorted({pair[side] for pair in pairs}):
                sizes[group[node]] += 1
                sides[side][node] = sizes[group[node]]
        return _Places(group, *sides)

    def are_full(self, pairs: list[tuple[int, int]]) -> bool:
        """Whether as many behind each switch send to all others as receive from all others."""
        count, size = len(self.sender), 1 + max(self.sender.values())
        groups = 1 + max(self.group.values())
        is_even = (
            count
            == len(self.receiver)
            == groups * size
            == groups * (1 + max(self.receiver.values()))
        )
        own = any(
            self.group[a] == self.group[b] and self.sender[a] == self.receiver[b] for a, b in pairs
        )
        return is_even and not own and len(pairs) == count * (count - 1)

    def in_rounds(self, pairs: list[tuple[int, int]], *, across: bool) -> list[tuple[int, int]]:
        """Return pairs such that GPUs of equal places turn to others alike.

        Those behind the same switch come first, since their ways are shorter.
        """
        groups = 1 + max(self.group.values())
        places = 1 + max(*self.sender.values(), *self.receiver.values())

        def turn(pair: tuple[int, int]) -> tuple[int, ...]:
            source, target = pair
            far = (self.group[target] - self.group[source]) % groups
            along = (self.receiver[target] - self.sender[source]) % places
            rounds = (far, along) if across else (far > 0, along, far)
            return *rounds, self.group[source], self.sender[source]

        return sorted(pairs, key=turn)
