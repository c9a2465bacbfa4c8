"""Partial sums: the table of sums behind the sends of a staged AllReduce or Reduce."""

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from teccl.demand import Collective
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array, sum_array

if TYPE_CHECKING:
    from teccl.construct.staged import Item, Scheme


class Delivery(NamedTuple):
    """One hop of an item of a stage."""

    item: "Item"
    link: int
    start: int
    transfer: int


class _Table:
    """Rows of partial sums as they come, each with the slot where it is kept."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.results: list[int] = []
        self._slots: dict[tuple[int, int], int] = defaultdict(int)

    def new(self, chunk: int, node: int, left: int = -1, right: int = -1) -> int:
        """Add a row in a slot of its own."""
        slot = self._slots[chunk, node]
        self._slots[chunk, node] += 1
        self.rows.append((chunk, node, slot, left, right))
        return len(self.rows) - 1

    def fold(self, parts: list[int]) -> int:
        """Add rows of a chunk and GPU one after another, all in the slot of the first addition."""
        total = parts[0]
        chunk, node, *_ = self.rows[total]
        for number, part in enumerate(parts[1:]):
            if number == 0:
                total = self.new(chunk, node, total, part)
            else:
                self.rows.append((chunk, node, self.rows[total][2], total, part))
                total = len(self.rows) - 1
        return total


def summed_schedule(problem: Problem, scheme: "Scheme", stages: list[list[Delivery]]) -> Schedule:
    """Return the schedule of an AllReduce or a Reduce whose stages' sends are given.

    All who hold a class's sum add the sums of its parts in the order of the parts, so that all
    evaluate one tree. Of a Reduce whose GPUs hold no more than one sum there is no table.
    """
    if _sums_once(problem, scheme, stages):
        columns = ((*each[1:], each.item.piece) for each in chain(*stages))
        link, start, transfer, chunk = np.array(list(columns), dtype=np.int64).T
        is_sum = np.ones(len(chunk), dtype=bool)
        sends = send_array(chunk, link, start, transfer=transfer, reduce=is_sum)
        return Schedule(problem=problem, sends=sends, method=scheme.name)
    topology = problem.topology
    ranks = problem.demand.tenants[0].members(topology.num_gpus)
    members = topology.gpus[[*ranks, *scheme.helpers]].tolist()
    position = {node: m for m, node in enumerate(members)}
    pieces = len(problem.chunks)
    table = _Table()
    # The sum of its class that a member holds, per piece and member.
    sums = {(q, m): table.new(q, members[m]) for q in range(pieces) for m in range(len(ranks))}
    src, dst = topology.link_src.tolist(), topology.link_dst.tolist()
    is_switch = topology.is_switch.tolist()
    rows: list[tuple[int, ...]] = []
    # What those who pass it on hold of an item that goes to one destination by itself.
    passed: dict[tuple[Item, int], list[int]] = defaultdict(list)
    for number, deliveries in enumerate(stages):
        held: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        before = dict(sums)
        for item, link, start, transfer in sorted(deliveries, key=lambda each: each.start):
            carries = becomes = -1
            if not is_switch[src[link]]:
                own = position.get(src[link], -1)
                mine = [before[item.piece, own]] if own in item.sources else []
                there = held[item.piece, item.parts[0], src[link]]
                if scheme.is_apart:
                    there = passed[item, src[link]]
                carries = table.fold(mine + there) if item.is_gathered else (mine + there)[0]
            if not is_switch[dst[link]]:
                becomes = table.new(item.piece, dst[link])
                if scheme.is_apart and position.get(dst[link]) not in item.destinations:
                    passed[item, dst[link]].append(becomes)
                # What GPUs add up on the way has all its parts in what comes: one stands for all.
                parts = item.parts[:1] if item.is_gathered else item.parts
                for part in parts if not passed[item, dst[link]] else ():
                    here = held[item.piece, part, dst[link]]
                    if item.is_gathered or not here:
                        here.append(becomes)
            rows.append((item.piece, link, start, transfer, carries, becomes, item.is_met))
        _add_up(table, scheme, number, members, sums=sums, held=held)
    last = [share[-1].holds for share in scheme.shares]
    table.results = [
        sums[q, m] for q in range(pieces) for m in range(len(ranks)) if last[q % len(last)][m]
    ]
    return _schedule(problem, scheme, table, rows)


def _sums_once(problem: Problem, scheme: "Scheme", stages: list[list[Delivery]]) -> bool:
    """Whether all add up what comes to them and send it on once: everything goes straight."""
    topology, tenant = problem.topology, problem.demand.tenants[0]
    if tenant.collective is not Collective.REDUCE or scheme.meets:
        return False
    members = topology.gpus[[*tenant.members(topology.num_gpus), *scheme.helpers]].tolist()
    position = {node: member for member, node in enumerate(members)}
    for each in chain(*stages):
        for node, allowed in (
            (int(topology.link_src[each.link]), each.item.sources),
            (int(topology.link_dst[each.link]), each.item.destinations),
        ):
            if not topology.is_switch[node] and position.get(node) not in allowed:
                return False
    return True


def _add_up(
    table: _Table,
    scheme: "Scheme",
    stage: int,
    members: list[int],
    *,
    sums: dict[tuple[int, int], int],
    held: dict[tuple[int, int, int], list[int]],
) -> None:
    """Let everybody who holds the sum of a class after a stage add up its parts."""
    for piece in sorted({piece for piece, _ in sums}):
        share = piece % len(scheme.shares)
        after, (own, had) = scheme.shares[share][stage], scheme.before(share, stage)
        parts: dict[int, list[int]] = defaultdict(list)
        for part, whole in sorted(set(zip(own, after.classes, strict=True))):
            if part >= 0:
                parts[whole].append(part)
        for member, node in enumerate(members):
            if not after.holds[member]:
                continue
            found = list[int]()
            for part in parts[after.classes[member]]:
                there = held.get((piece, part, node), [])
                is_own = had[member] and part == own[member]
                found += [sums[piece, member]] if is_own and not there else there
            # Parts that were added up on the way have come together.
            sums[piece, member] = table.fold(list(dict.fromkeys(found)))


def _schedule(
    problem: Problem,
    scheme: "Scheme",
    table: _Table,
    rows: list[tuple[int, ...]],
) -> Schedule:
    chunk, link, start, transfer, carries, becomes, met = np.array(rows, dtype=np.int64).T
    sends = send_array(
        chunk, link, start, transfer=transfer, carries=carries, becomes=becomes, reduce=met > 0
    )
    columns = np.array(table.rows, dtype=np.int64).T
    is_result = np.zeros(len(table.rows), dtype=bool)
    is_result[table.results] = True
    sums = sum_array(
        columns[0],
        columns[1],
        slot=columns[2],
        left=columns[3],
        right=columns[4],
        result=is_result,
    )
    return Schedule(problem=problem, sends=sends, sums=sums, same_order=True, method=scheme.name)
