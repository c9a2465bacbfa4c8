"""Overlapping: the halves of a mended AllReduce at the same time where damage keeps few busy.

A GPU with a weak link takes long to send its contributions, and as long to get the sums. Mended one
after the other, both halves wait for it. But what it gets is complete long before its last
contribution is sent. So the trees of the mended halves are kept and their transfers placed anew:
sums as early as they can be beside those of the plan; then, from the moment at which the sum of
their chunk is complete, those copies that the damage made necessary. Those of the plan follow when
all sums are complete.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray, IntArray, distinct, is_among
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.patched import ADDED_DTYPE, REMOVED_DTYPE, Rows, lengths
from teccl.orbit.plan.patching import Calendars, Removed
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedHalf:
    """The sums or the copies of an AllReduce, mended on their own.

    Parameters
    ----------
    problem
        The ReduceScatter or AllGather.
    sends
        What the plan does, from the beginning of the half on.
    removed, added
        The patch, from the beginning of the patched half on.
    delay
        How much later the plan's sends are when the halves follow one another.
    """

    problem: FabricProblem
    sends: OrbitSends
    removed: Rows
    added: Rows
    delay: int

    def pairs(self, chunk: IntArray, element: IntArray, rank: IntArray) -> IntArray:
        """Number the chunks at ranks."""
        fabric = self.problem.fabric
        pair: IntArray = (chunk * fabric.group.order + element) * fabric.num_gpus + rank
        return pair


class Transport(NamedTuple):
    """Transfers from GPU to GPU, over one link or over two behind each other."""

    number: IntArray
    chunk: IntArray
    element: IntArray
    link: IntArray
    second: IntArray
    sender: IntArray
    receiver: IntArray
    start: IntArray
    arrival: IntArray

    @staticmethod
    def of(problem: FabricProblem, rows: Rows, element: IntArray, arrival: IntArray) -> "Transport":
        """Take sends apart, given when each is at the far end."""
        by = np.lexsort((rows["start_ps"], rows["transfer"]))
        hops = rows[by]
        number, first, count = np.unique(hops["transfer"], return_index=True, return_counts=True)
        if (count > 2).any():
            raise MethodError("ways of the plan lead through several switches; plan it anew")
        last = first + count - 1
        src, dst = problem.fabric.link_ends(hops["link"])
        return Transport(
            number=number,
            chunk=hops["chunk"][first],
            element=element[by][first],
            link=hops["link"][first],
            second=np.where(count > 1, hops["link"][last], -1),
            sender=src[first],
            receiver=dst[last],
            start=hops["start_ps"][first],
            arrival=arrival[by][last],
        )

    @staticmethod
    def planned(half: "MendedHalf") -> "Transport":
        """Take the plan apart, whose links are as they were before the damage."""
        plan = OrbitSchedule(problem=half.problem, sends=half.sends)
        nobody = np.zeros(len(plan), dtype=np.int64)
        return Transport.of(half.problem, plan.sends, nobody, plan.arrival_ps)

    def images(self, problem: FabricProblem, rows: IntArray, element: IntArray) -> "Transport":
        """Return some transfers of first chunks, each moved by an element."""
        fabric, some = problem.fabric, Transport(*(column[rows] for column in self))
        second, passes = some.second, np.flatnonzero(some.second >= 0)
        second[passes] = fabric.moved_links(second[passes], element[passes])
        return some._replace(
            element=element,
            link=fabric.moved_links(some.link, element),
            second=second,
            sender=fabric.moved_nodes(some.sender, element),
            receiver=fabric.moved_nodes(some.receiver, element),
        )


class _Moves(NamedTuple):
    """Transfers that are placed anew: added ones, and those of the plan that they hang on.

    `planned` says which are the plan's, whose times are the plan's, too. `pairs` are the chunks at
    ranks where they begin or end, and `ends` their places there, in two rows.
    """

    transport: Transport
    planned: BoolArray
    pairs: IntArray
    ends: IntArray

    @staticmethod
    def of(half: MendedHalf, damage: Damage) -> "_Moves":
        """List what is placed anew."""
        plan, added = Transport.planned(half), half.added
        held, alpha = lengths(half.problem, damage, added["link"])
        arrival = added["start_ps"] + held + alpha
        own = Transport.of(half.problem, added, added["element"], arrival)
        chain = plan.images(half.problem, *_ancestors(half, plan, own))
        both = Transport(*(np.concatenate(pair) for pair in zip(own, chain, strict=True)))
        ends = [half.pairs(both.chunk, both.element, x) for x in (both.sender, both.receiver)]
        pairs, places = np.unique(np.concatenate(ends), return_inverse=True)
        return _Moves(
            transport=both,
            planned=np.arange(len(both.link)) >= len(own.link),
            pairs=pairs,
            ends=places.reshape(2, -1),
        )

    def placed(
        self,
        turns: IntArray,
        ready: IntArray,
        links: IntArray,
        calendars: tuple[IntArray, ...],
        *,
        is_sum: bool,
    ) -> tuple[Rows, Rows]:
        """Place all in the given order; return what of the plan is moved, and what is sent."""
        from teccl.orbit.plan.retiming import retime

        each = self.transport
        begin, arrival = (np.where(self.planned, time, -1) for time in (each.start, each.arrival))
        table = np.stack([*self.ends, each.link, each.second, begin, arrival])
        start = np.empty_like(begin)
        start[turns] = retime(table[:, turns], ready, is_sum, links, calendars)
        moved = np.flatnonzero(self.planned & (start >= 0))
        removed = np.empty(len(moved), dtype=REMOVED_DTYPE)
        removed["transfer"], removed["element"] = each.number[moved], each.element[moved]
        sent = np.flatnonzero(start >= 0)
        passes = sent[each.second[sent] >= 0]
        rows = np.concatenate([sent, passes])
        added = np.zeros(len(rows), dtype=ADDED_DTYPE)
        added["chunk"], added["element"] = each.chunk[rows], each.element[rows]
        added["link"] = np.concatenate([each.link[sent], each.second[passes]])
        added["transfer"], added["reduce"] = rows, is_sum
        there = start[passes] + links[:, each.link[passes]].sum(axis=0)
        added["start_ps"] = np.concatenate([start[sent], there])
        return removed, added


def _ancestors(half: MendedHalf, plan: Transport, own: Transport) -> tuple[IntArray, IntArray]:
    """Images of the plan's transfers between the added ones and the root of their chunk's tree."""
    fabric, order = half.problem.fabric, half.problem.fabric.group.order
    is_sum = half.problem.reduces
    below, above = (plan.sender, plan.receiver) if is_sum else (plan.receiver, plan.sender)
    key = plan.chunk * fabric.num_gpus + below
    by = np.argsort(key)
    lost, moved = np.searchsorted(plan.number, half.removed["transfer"]), half.removed["element"]
    lacking = half.pairs(plan.chunk[lost], moved, fabric.moved_nodes(below[lost], moved))
    frontier = half.pairs(own.chunk, own.element, own.receiver if is_sum else own.sender)
    frontier = distinct(frontier[~is_among(frontier, lacking)])
    found = np.empty(0, dtype=np.int64)
    while len(frontier):
        image, rank = frontier // fabric.num_gpus, frontier % fabric.num_gpus
        chunk, element = image // order, image % order
        first = fabric.moved_nodes(rank, fabric.group.number(-fabric.group.digits(element)))
        wanted = chunk * fabric.num_gpus + first
        at = by[np.minimum(np.searchsorted(key[by], wanted), len(by) - 1)]
        # The root of a tree has nothing above it.
        at, element = at[key[at] == wanted], element[key[at] == wanted]
        found = distinct(np.concatenate([found, at * order + element]))
        frontier = distinct(
            half.pairs(plan.chunk[at], element, fabric.moved_nodes(above[at], element))
        )
    return found // order, found % order


def one_after_the_other(
    scattered: MendedHalf, gathering: MendedHalf
) -> tuple[OrbitSends, Rows, Rows]:
    """Let the copies begin when all sums are complete; see `overlapped`."""
    halves = (scattered, gathering)
    base = np.concatenate([half.sends for half in halves])
    base["start_ps"] += np.repeat([h.delay for h in halves], [len(h.sends) for h in halves])
    later = gathering.added.copy()
    later["start_ps"] += gathering.delay
    later["transfer"] += scattered.added["transfer"].max(initial=-1) + 1
    removed = np.concatenate([half.removed for half in halves])
    return base, removed, np.concatenate([scattered.added, later])


def overlapped(
    scattered: MendedHalf, gathering: MendedHalf, damage: Damage
) -> tuple[OrbitSends, Rows, Rows]:
    """Place the transfers of two mended halves anew.

    Returns
    -------
    base, removed, added
        The plan, its copies moved to the end of all sums, and the patch.
    """
    from teccl.orbit.plan.retiming import hold_all

    problem = scattered.problem
    links = np.stack(lengths(problem, damage, np.arange(problem.fabric.num_links)))
    sums, copies = _Moves.of(scattered, damage), _Moves.of(gathering, damage)
    here = _calendars(problem, scattered.sends, scattered.removed, damage, len(sums.planned))
    ready = np.zeros(len(sums.pairs), dtype=np.int64)
    turns = np.argsort(sums.transport.start + sums.planned * scattered.delay, kind="stable")
    moved, added = sums.placed(turns, ready, links, here, is_sum=True)

    last = int((added["start_ps"] + links[:, added["link"]].sum(axis=0)).max(initial=0))
    turn = max(OrbitSchedule(problem=problem, sends=scattered.sends).finish_ps, last)
    later = gathering.sends.copy()
    later["start_ps"] += turn
    base = np.concatenate([scattered.sends, later])
    removed = np.concatenate([scattered.removed, gathering.removed])
    here = _calendars(problem, base, removed, damage, len(added) + len(copies.planned))
    hold_all(added["link"], added["start_ps"], links, here)
    image = copies.pairs // problem.fabric.num_gpus
    ready = _complete(scattered, sums.pairs, ready, image)
    turns = np.lexsort((copies.transport.start, ready[copies.ends[0]]))
    for time in (copies.transport.start, copies.transport.arrival):
        time[copies.planned] += turn
    too, more = copies.placed(turns, ready, links, here, is_sum=False)
    more["transfer"] += added["transfer"].max(initial=-1) + 1
    return base, np.concatenate([removed, moved, too]), np.concatenate([added, more])


def _calendars(
    problem: FabricProblem, sends: OrbitSends, removed: Rows, damage: Damage, moves: int
) -> tuple[IntArray, ...]:
    """Calendars of a plan without some images, with room for so many moves."""
    ordered = OrbitSchedule(problem=problem, sends=sends).sends
    number = np.searchsorted(np.unique(sends["transfer"]), removed["transfer"])
    gone = Removed(number, removed["element"].copy())
    return Calendars.of(problem, ordered, damage, gone).opened(4 * moves)


def _complete(half: MendedHalf, pairs: IntArray, ready: IntArray, images: IntArray) -> IntArray:
    """When the sums of some chunks are complete, given when what was placed is at ranks."""
    problem, order = half.problem, half.problem.fabric.group.order
    plan = Transport.planned(half)
    by_chunk = np.zeros(problem.num_chunk_orbits, dtype=np.int64)
    np.maximum.at(by_chunk, plan.chunk, plan.arrival)
    chunk, element = images // order, images % order
    owner = problem.fabric.moved_nodes(problem.owner(chunk), element)
    wanted = half.pairs(chunk, element, owner)
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    late = np.where(pairs[at] == wanted, ready[at], 0)
    return np.maximum(by_chunk[chunk], late)
