"""Patching: what compiled loops need to know of a damaged fabric, and what they make as sends."""

from typing import NamedTuple

import numpy as np

from teccl._arrays import IntArray, distinct, expand, ints, is_among, new_run
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.patched import ADDED_DTYPE, Rows, lengths
from teccl.orbit.plan.exchange import cheapest
from teccl.orbit.plan.growing import link_at
from teccl.orbit.plan.removing import Deliveries
from teccl.orbit.plan.ways import Ways
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends

_NEVER = np.iinfo(np.int64).max
# What a detour may cost beside a cheapest way, in units of the cheapest step: a step at either
# end, then a few, then anything.
_DETOURS = (2, 16, 2**20)


class DamagedWays(NamedTuple):
    """Ways of the damaged fabric as compiled loops take them; see `grafting.graft`."""

    ways: Ways
    tables: tuple[IntArray, ...]
    lengths: IntArray
    lattice: tuple[IntArray, IntArray, IntArray, int]

    @staticmethod
    def of(problem: FabricProblem, damage: Damage, weight: int = 1) -> "DamagedWays":
        """Tabulate the ways of a problem's fabric, without links that are down.

        Holding a damaged link costs so many times as much as holding another for as long.
        """
        fabric, ways = problem.fabric, Ways.of(problem)
        if ways.steps.shape[1] > 2:
            raise MethodError(
                f"{fabric.name}: ways lead through several switches, which is not patched around "
                "damage; plan it without orbits"
            )
        first, second = _two_steps(ways)
        ranks = np.arange(fabric.num_gpus)
        out = np.full((len(ways), len(ranks)), -1, dtype=np.int64)
        into, near, far = out.copy(), out.copy(), ways.target
        for way in range(len(ways)):
            out[way] = link_at(problem, np.full(len(ranks), first[way]), ranks, 0)
            if second[way] >= 0:
                into[way] = link_at(problem, np.full(len(ranks), second[way]), ranks, 1)
            there = np.flatnonzero(far[way] >= 0)
            near[way][far[way][there]] = there
        for table in (out, into):
            table[damage.is_down(table)] = -1
        entered, left = ways.entered, ways.left
        count = max(1, ways.num_hubs)
        (first_in, entering), (first_out, served) = (
            _members(switch, count) for switch in (entered, left)
        )
        members = np.stack([first_in, first_out + len(entering)])
        group = fabric.group
        lattice = (
            group.digits(np.arange(group.order)),
            ints(list(group.moduli)),
            ints(list(group.strides)),
            len(fabric.gpu_orbits),
        )
        return DamagedWays(
            ways=ways,
            tables=(
                np.stack([out, into, near, far, entered, left]),
                members,
                np.concatenate([entering, served, ranks]),
            ),
            lengths=_priced(problem, damage, weight),
            lattice=lattice,
        )


def _priced(problem: FabricProblem, damage: Damage, weight: int) -> IntArray:
    """By link, for how long a chunk holds it, its latency, and the price of holding it."""
    held, alpha = lengths(problem, damage, np.arange(problem.fabric.num_links))
    price = held.copy()
    price[damage.links] *= weight
    return np.stack([held, alpha, price])


def _two_steps(ways: Ways) -> tuple[IntArray, IntArray]:
    """First and second link orbit of each way, -1 where it has no second."""
    none = np.full(len(ways), -1, dtype=np.int64)
    return ways.steps[:, 0], ways.steps[:, 1] if ways.steps.shape[1] > 1 else none


def _members(switch: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """By way and switch, where its ranks begin, and those ranks."""
    first = np.zeros((len(switch), count + 1), dtype=np.int64)
    lists, total = [np.empty(0, dtype=np.int64)], 0
    for row, numbers in zip(first, switch, strict=True):
        ranks = np.flatnonzero(numbers >= 0)
        ranks = ranks[np.argsort(numbers[ranks], kind="stable")]
        row[:] = total + np.searchsorted(numbers[ranks], np.arange(count + 1))
        lists.append(ranks)
        total += len(ranks)
    return first, np.concatenate(lists)


class Removed(NamedTuple):
    """Images that go: transfer, by its place among all, and element of the group."""

    transfer: IntArray
    element: IntArray


class Calendars(NamedTuple):
    """When links are busy with images that stay; see `bookings` for what is in the arrays."""

    line: IntArray
    freed_first: IntArray
    tail: IntArray
    first: IntArray
    images: IntArray
    freed: IntArray

    @staticmethod
    def of(
        problem: FabricProblem, sends: OrbitSends, damage: Damage, removed: Removed
    ) -> "Calendars":
        """List what each orbit's links are busy with, and what is freed of single links."""
        fabric = problem.fabric
        line = fabric.link_orbit(np.arange(fabric.num_links))
        orbit = fabric.link_orbit(sends["link"])
        by = np.argsort(orbit, kind="stable")
        start = sends["start_ps"][by]
        held = OrbitSchedule(problem=problem, sends=sends).held_ps[by]
        end = start + held
        first = np.searchsorted(orbit[by], np.arange(len(fabric.links) + 1))
        fresh = np.append(new_run(orbit[by]), True)
        # All sends on a link are equally long, so that shorter gaps are of no use.
        fresh[1:-1] |= start[1:] - end[:-1] >= held[1:]
        last = np.flatnonzero(fresh[1:])
        block = last[np.searchsorted(last, np.arange(len(by)))]
        used = np.diff(first) > 0
        tail = np.where(used, end[np.maximum(first[1:], 1) - 1], 0)[line]
        # Nothing stays on a damaged link.
        line[damage.links], tail[damage.links] = -1, 0
        link, place = _freed(problem, sends, removed, by)
        keys = distinct(link * len(by) + place)
        freed_first = np.searchsorted(keys, np.arange(fabric.num_links + 1) * len(by))
        images = np.stack([start, end, block])
        return Calendars(line, freed_first, tail, first, images, keys % len(by))

    def opened(self, room: int) -> tuple[IntArray, ...]:
        """Return calendars with room for so many bookings."""
        links = len(self.tail)
        table = np.zeros((6, links + 1), dtype=np.int64)
        table[0, :-1], table[1], table[5, :-1] = self.line, self.freed_first, self.tail
        # A link's bookings move where there is room for twice as many and four.
        books = np.empty((2, 8 * room + 8 * links), dtype=np.int64)
        return table, self.first, self.images, self.freed, books, ints([0])


def _freed(
    problem: FabricProblem, sends: OrbitSends, removed: Removed, by: IntArray
) -> tuple[IntArray, IntArray]:
    """Links that removed images would use, and places of the sends in the given order."""
    place = np.empty(len(by), dtype=np.int64)
    place[by] = np.arange(len(by))
    transfer = np.unique(sends["transfer"], return_inverse=True)[1].reshape(-1)
    rows = np.argsort(transfer, kind="stable")
    cuts = np.searchsorted(transfer[rows], np.arange(transfer.max() + 2))
    count = np.diff(cuts)[removed.transfer]
    hops = rows[expand(cuts[removed.transfer], count)]
    element = np.repeat(removed.element, count)
    return problem.fabric.moved_links(sends["link"][hops], element), place[hops]


class Images(NamedTuple):
    """What is to be served again, in this order, with the removed images of each together.

    Each is a part of a chunk's tree that was removed from one transfer on. Chunks are told apart by
    `name`; where damage is in several places, several parts may be of one.
    """

    chunk: IntArray
    element: IntArray
    name: IntArray
    first: IntArray
    removed: IntArray

    @staticmethod
    def of(problem: FabricProblem, transfers: Deliveries, removed: Removed) -> "Images":
        """Put first what began first in the plan, so that it fits the times that were freed."""
        order = problem.fabric.group.order
        root = _roots(transfers, removed, order)
        names, image, count = np.unique(root, return_inverse=True, return_counts=True)
        served = np.argsort(transfers.start[removed.transfer[names]], kind="stable")
        turn = np.empty(len(names), dtype=np.int64)
        turn[served] = np.arange(len(names))
        chunk = transfers.chunk[removed.transfer[names[served]]]
        element = removed.element[names[served]]
        return Images(
            chunk=chunk,
            element=element,
            name=np.unique(chunk * order + element, return_inverse=True)[1].reshape(-1),
            first=np.concatenate([[0], np.cumsum(count[served])]),
            removed=np.argsort(turn[image], kind="stable"),
        )

    @property
    def kin(self) -> tuple[IntArray, IntArray, IntArray]:
        """By part, its chunk; by chunk, where its removed images begin; and their places."""
        owner = np.repeat(self.name, np.diff(self.first))
        places = np.argsort(owner, kind="stable")
        first = np.searchsorted(owner[places], np.arange(self.name.max(initial=-1) + 2))
        return self.name, first, places


def _roots(transfers: Deliveries, removed: Removed, order: int) -> IntArray:
    """By removed image, the place of the first of the part that it belongs to."""
    key = removed.transfer * order + removed.element
    by = np.argsort(key)
    before = transfers.before[removed.transfer]
    wanted = before * order + removed.element
    at = by[np.minimum(np.searchsorted(key[by], wanted), len(key) - 1)]
    waits = (before >= 0) & (key[at] == wanted)
    root = np.where(waits, at, np.arange(len(key)))
    while not np.array_equal(root, root[root]):
        root = root[root]
    return root


def grafted(
    problem: FabricProblem,
    network: DamagedWays,
    transfers: Deliveries,
    removed: Removed,
    calendars: tuple[IntArray, ...],
    *,
    since: IntArray,
) -> Rows:
    """Bring copied chunks again to all ranks that lack them.

    Parameters
    ----------
    calendars
        Opened with room for two bookings of each removed image.
    since
        By chunk orbit, when owners have its chunks.
    """
    from teccl.orbit.plan.grafting import graft

    fabric = problem.fabric
    images = Images.of(problem, transfers, removed)
    rows = images.removed
    ranks = fabric.moved_nodes(transfers.receiver[removed.transfer[rows]], removed.element[rows])
    hold = np.full((problem.num_chunk_orbits, fabric.num_gpus), _NEVER)
    chunks = np.arange(problem.num_chunk_orbits)
    hold[chunks, problem.owner(chunks)] = since
    hold[transfers.chunk, transfers.receiver] = transfers.arrival
    made = graft(
        np.column_stack([images.chunk, images.element]),
        (images.first, ranks),
        images.kin,
        hold,
        network.lattice,
        network.tables,
        network.lengths,
        calendars,
    )
    if len(made) < len(ranks):
        raise _out_of_reach(problem)
    return _sends(network, images, made)


def _out_of_reach(problem: FabricProblem) -> MethodError:
    return MethodError(
        f"{problem.fabric.name}: with the damage, links that move with the group do not join all "
        "gpus through one switch at a time; plan it without orbits"
    )


def rerouted(
    problem: FabricProblem,
    network: DamagedWays,
    transfers: Deliveries,
    removed: Removed,
    calendars: Calendars,
) -> Rows:
    """Lead chunks with one destination there again, from all ranks that they still come to."""
    from teccl.orbit.plan.rerouting import reroute

    fabric, ways = problem.fabric, network.ways
    images = Images.of(problem, transfers, removed)
    costs = np.array([cheapest(ways, p)[0] for p in range(len(fabric.gpu_orbits))])
    step = int(ways.holds.min())
    room = 4 * len(images.chunk)
    while True:
        made, served = reroute(
            fabric.moved_nodes(problem.owner(images.chunk), images.element),
            _holders(problem, images, transfers, removed),
            fabric.moved_nodes(problem.target(images.chunk), images.element),
            costs,
            ints([step * detour for detour in _DETOURS]),
            network.lattice,
            network.tables,
            network.lengths,
            calendars.opened(2 * room),
            room,
        )
        if served >= 0:
            break
        room *= 4
    if served < len(images.chunk):
        raise _out_of_reach(problem)
    return _sends(network, images, made)


def _holders(
    problem: FabricProblem, images: Images, transfers: Deliveries, removed: Removed
) -> tuple[IntArray, IntArray, IntArray]:
    """Where the ranks that still get each chunk begin, those ranks, and since when."""
    order = problem.fabric.group.order
    by = np.argsort(transfers.chunk, kind="stable")
    low, high = (
        np.searchsorted(transfers.chunk[by], images.chunk, side=side) for side in ("left", "right")
    )
    transfer, image = by[expand(low, high - low)], np.repeat(np.arange(len(low)), high - low)
    element = images.element[image]
    gone = is_among(transfer * order + element, removed.transfer * order + removed.element)
    transfer, image, element = transfer[~gone], image[~gone], element[~gone]
    owner = problem.owner(images.chunk)
    rank = np.concatenate([owner, transfers.receiver[transfer]])
    since = np.concatenate([np.zeros_like(owner), transfers.arrival[transfer]])
    image = np.concatenate([np.arange(len(owner)), image])
    ranks = problem.fabric.moved_nodes(rank, images.element[image])
    turn = np.argsort(image, kind="stable")
    first = np.searchsorted(image[turn], np.arange(len(owner) + 1))
    return first, ranks[turn], since[turn]


def _sends(network: DamagedWays, images: Images, made: IntArray) -> Rows:
    """Return the sends over single links of sends over ways."""
    image, way, source, rank, start = made.T
    out, into = network.tables[0][:2]
    held, alpha, _ = network.lengths
    link, second = out[way, source], into[way, rank]
    passes = np.flatnonzero(second >= 0)
    rows = np.concatenate([np.arange(len(made)), passes])
    added = np.zeros(len(rows), dtype=ADDED_DTYPE)
    added["chunk"], added["element"] = images.chunk[image[rows]], images.element[image[rows]]
    added["link"] = np.concatenate([link, second[passes]])
    added["transfer"] = rows
    there = start + held[link] + alpha[link]
    added["start_ps"] = np.concatenate([start, there[passes]])
    return added
