"""Peeling: from rates to paths, and from paths to whole sub-chunks with an order in time.

Within each commodity data leaves a node in the order in which it came, so that replaying the rates
epoch by epoch splits them into parcels, each with its way and its epochs. Every chunk is then split
into the same number of equal sub-chunks, each of which follows a parcel.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.models.lp.fluid import Rates
from teccl.models.lp.fluid_network import FluidNetwork
from teccl.problem import Problem

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Chunks below which a rate or a parcel is a solver's rounding.
NEGLIGIBLE = 1e-6
# Sub-chunks that are moved to another way to even out the links, per sub-chunk.
MAX_MOVES = 4


class FluidHop(NamedTuple):
    """An arc taken in an epoch, after other hops."""

    before: "FluidHop | None"
    arc: int
    epoch: int


class Parcel(NamedTuple):
    """An amount that took one way through time: arcs, and the epoch of each."""

    amount: float
    arcs: tuple[int, ...]
    epochs: tuple[int, ...]


def peel(network: FluidNetwork, rates: Rates) -> dict[tuple[int, int], list[Parcel]]:
    """Split rates into parcels by commodity and destination."""
    kept = rates.amount > NEGLIGIBLE
    order = np.lexsort(
        (rates.arc, network.is_switch[network.src[rates.arc]], rates.epoch, rates.commodity)
    )
    order = order[kept[order]]
    found: dict[tuple[int, int], list[Parcel]] = {}
    owner = rates.commodity[order]
    for s in range(len(network.demand)):
        mine = order[np.searchsorted(owner, s) : np.searchsorted(owner, s, side="right")]
        _peel_one(network, rates, s, mine, found)
    return found


def _peel_one(
    network: FluidNetwork,
    rates: Rates,
    s: int,
    entries: IntArray,
    found: dict[tuple[int, int], list[Parcel]],
) -> None:
    """Replay one commodity's rates; entries are in the order of their epochs."""
    # At each node, parcels in the order of their arrival: (usable from, amount, last hop).
    queues: list[deque[tuple[int, float, FluidHop | None]]] = [
        deque() for _ in range(network.num_nodes)
    ]
    supply = float(network.demand[s].sum())
    for n in np.flatnonzero(network.holds[s]):
        queues[n].append((int(network.ready[s, n]), supply, None))
    epochs = rates.epoch[entries]
    for low in np.flatnonzero(np.diff(epochs, prepend=-1)).tolist():
        high = int(np.searchsorted(epochs, epochs[low], side="right"))
        _replay(network, rates, entries[low:high], queues)
    for d in np.flatnonzero(network.demand[s]):
        parcels = [
            Parcel(amount, *_unrolled(network, hop))
            for _, amount, hop in queues[d]
            if hop is not None and amount > NEGLIGIBLE
        ]
        # Beside chunks a million times as large, a solver takes what is wanted here for rounding.
        found[s, int(d)] = parcels or [_quickest(network, s, int(d))]


def _quickest(network: FluidNetwork, s: int, d: int) -> Parcel:
    """Return what a node wants of a commodity as one parcel on the way that gets there first."""
    reached: dict[int, tuple[int, FluidHop | None]] = {
        int(n): (int(network.ready[s, n]), None) for n in np.flatnonzero(network.holds[s])
    }
    for _ in range(network.num_nodes):
        for arc, (a, b) in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True)):
            if a not in reached:
                continue
            epoch, hop = reached[a]
            later = epoch + int(network.delay[arc])
            if b not in reached or later < reached[b][0]:
                reached[b] = later, FluidHop(hop, arc, epoch)
    return Parcel(float(network.demand[s, d]), *_unrolled(network, reached[d][1]))


def _replay(
    network: FluidNetwork,
    rates: Rates,
    entries: IntArray,
    queues: list[deque[tuple[int, float, FluidHop | None]]],
) -> None:
    """Move what the rates of one epoch move.

    Arcs that take no epoch feed others in the same one, so that some have to be tried again.
    """
    epoch = int(rates.epoch[entries[0]])
    pending = list(zip(rates.arc[entries].tolist(), rates.amount[entries].tolist(), strict=True))
    has_instant = bool((network.delay[rates.arc[entries]] == 0).any())
    while pending:
        left = []
        for arc, amount in pending:
            taken = _take(queues[network.src[arc]], amount, epoch)
            for part, hop in taken:
                queue = queues[network.dst[arc]]
                _arrive(queue, epoch + int(network.delay[arc]), part, FluidHop(hop, arc, epoch))
            short = amount - sum(part for part, _ in taken)
            if short > NEGLIGIBLE:
                left.append((arc, short))
        if not has_instant or sum(a for _, a in left) >= sum(a for _, a in pending):
            return
        pending = left


def _take(
    queue: deque[tuple[int, float, FluidHop | None]], amount: float, epoch: int
) -> list[tuple[float, FluidHop | None]]:
    """Take what came first; what a solver's rounding leaves short is let go."""
    taken: list[tuple[float, FluidHop | None]] = []
    while amount > NEGLIGIBLE / 10 and queue and queue[0][0] <= epoch:
        since, there, hop = queue.popleft()
        part = min(there, amount)
        # A crumb of a parcel is not worth a way of its own.
        if there - part > NEGLIGIBLE / 10:
            queue.appendleft((since, there - part, hop))
        taken.append((part, hop))
        amount -= part
    return taken


def _arrive(
    queue: deque[tuple[int, float, FluidHop | None]], when: int, amount: float, hop: FluidHop
) -> None:
    """Insert a parcel by the time of its arrival; arcs differ in their delays."""
    later = []
    while queue and queue[-1][0] > when:
        later.append(queue.pop())
    queue.append((when, amount, hop))
    queue.extend(reversed(later))


def _unrolled(
    network: FluidNetwork, hop: FluidHop | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Arcs and epochs of a way, first to last, without what leads back to a GPU it has left."""
    arcs: list[int] = []
    epochs: list[int] = []
    while hop is not None:
        arcs.append(hop.arc)
        epochs.append(hop.epoch)
        hop = hop.before
    arcs, epochs = arcs[::-1], epochs[::-1]
    seen = {int(network.src[arcs[0]]): 0}
    at = 0
    while at < len(arcs):
        node = int(network.dst[arcs[at]])
        at += 1
        if network.is_switch[node]:
            continue
        if node in seen:
            del arcs[seen[node] : at], epochs[seen[node] : at]
            at = seen[node]
            seen = {n: i for n, i in seen.items() if i <= at}
        seen[node] = at
    return tuple(arcs), tuple(epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journeys:
    """The way of every sub-chunk: passages between GPUs, and when each is due.

    Parameters
    ----------
    problem
        The problem with its chunks split.
    chunk
        Sub-chunk of each journey.
    passages
        Per journey, the links of each passage from GPU to GPU.
    due
        Per journey, the epoch in which the rates start each passage.
    """

    problem: Problem
    chunk: list[int]
    passages: list[list[tuple[int, ...]]]
    due: list[list[float]]


class _Choice(NamedTuple):
    """The parcel that a sub-chunk follows, and where within it."""

    pair: tuple[int, int]
    chunk: int
    parcel: Parcel
    at: float


def split_problem(problem: Problem, parts: int) -> Problem:
    """Cut every chunk into equal parts; a buffer holds as many bytes as before."""
    buffer = None if problem.buffer is None else problem.buffer * parts
    return replace(problem, num_chunks=problem.num_chunks * parts, buffer=buffer)


def journeys(
    network: FluidNetwork, parcels: dict[tuple[int, int], list[Parcel]], parts: int
) -> Journeys:
    """Let every sub-chunk follow a parcel, in proportion to the parcels' amounts."""
    problem = split_problem(network.problem, parts)
    pairs = _chunks_of_pairs(network, problem)
    chosen: list[_Choice] = []
    ways = {
        pair: sorted(parcels[pair], key=lambda parcel: (parcel.arcs, parcel.epochs))
        for pair in pairs
    }
    for pair, chunks in pairs.items():
        for chunk, (parcel, at) in zip(chunks, _sampled(ways[pair], len(chunks)), strict=True):
            chosen.append(_Choice(pair, chunk, parcel, at))
    chosen = _evened(network, chosen, ways, parts)
    legs = [_passages(network, choice.parcel, choice.at) for choice in chosen]
    return Journeys(
        problem=problem,
        chunk=[choice.chunk for choice in chosen],
        passages=[ways for ways, _ in legs],
        due=[due for _, due in legs],
    )


def _chunks_of_pairs(network: FluidNetwork, split: Problem) -> dict[tuple[int, int], list[int]]:
    """Sub-chunks of each commodity and destination."""
    from teccl.models.lp.fluid_network import fluid_network

    if split == network.problem:
        return network.chunks
    return fluid_network(split, replace(network.grid, problem=split)).chunks


def _sampled(options: Sequence[Parcel], count: int) -> list[tuple[Parcel, float]]:
    """Pick parcels at equal distances along their amounts, and where within each."""
    amounts = np.array([parcel.amount for parcel in options])
    ends = np.cumsum(amounts)
    marks = (np.arange(count) + 0.5) * ends[-1] / count
    index = np.minimum(np.searchsorted(ends, marks, side="right"), len(options) - 1)
    within = 1 - (ends[index] - marks) / amounts[index]
    return [(options[i], float(at)) for i, at in zip(index.tolist(), within, strict=True)]


@dataclass(slots=True, kw_only=True)
class _Loads:
    """How busy sub-chunks make every place, in epochs.

    Parameters
    ----------
    places, cost
        By arc, the places it takes, and epochs that one sub-chunk takes of each.
    load
        By place.
    users
        Journeys that take each place.
    """

    places: list[IntArray]
    cost: list[FloatArray]
    load: FloatArray
    users: dict[int, set[int]] = field(default_factory=dict)

    @staticmethod
    def of(network: FluidNetwork, parts: int) -> "_Loads":
        """Start with nothing."""
        rate = np.array([float(steps[0][1]) for steps in network.limits])
        uses = [np.flatnonzero(network.use_arc == arc) for arc in range(len(network))]
        places = [network.use_place[use] for use in uses]
        cost = [network.use_weight[use] / rate[network.use_place[use]] / parts for use in uses]
        return _Loads(places=places, cost=cost, load=np.zeros(network.num_places))

    def add(self, journey: int, arcs: tuple[int, ...]) -> None:
        """Let a journey take a way."""
        for arc in arcs:
            np.add.at(self.load, self.places[arc], self.cost[arc])
            for place in self.places[arc].tolist():
                self.users.setdefault(place, set()).add(journey)

    def remove(self, journey: int, arcs: tuple[int, ...]) -> None:
        """Let a journey leave its way."""
        for arc in arcs:
            np.subtract.at(self.load, self.places[arc], self.cost[arc])
            for place in self.places[arc].tolist():
                self.users[place].discard(journey)

    def peak(self, arcs: tuple[int, ...]) -> float:
        """Busiest place of a way if one more journey took it."""
        return max(float((self.load[self.places[a]] + self.cost[a]).max()) for a in arcs)


def _evened(
    network: FluidNetwork,
    chosen: list[_Choice],
    ways: dict[tuple[int, int], list[Parcel]],
    parts: int,
) -> list[_Choice]:
    """Move sub-chunks off the places that rounding made the busiest."""
    loads = _Loads.of(network, parts)
    chosen = list(chosen)
    for i, choice in enumerate(chosen):
        loads.add(i, choice.parcel.arcs)
    for _ in range(MAX_MOVES * len(chosen)):
        move = _best_move(loads, chosen, ways)
        if move is None:
            break
        i, parcel = move
        loads.remove(i, chosen[i].parcel.arcs)
        loads.add(i, parcel.arcs)
        chosen[i] = chosen[i]._replace(parcel=parcel, at=0.5)
    return chosen


def _best_move(
    loads: _Loads, chosen: list[_Choice], ways: dict[tuple[int, int], list[Parcel]]
) -> tuple[int, Parcel] | None:
    """Return a sub-chunk and another way of its pair that relieve the busiest place."""
    worst = int(loads.load.argmax())
    best: tuple[int, Parcel] | None = None
    best_peak = loads.load[worst] - NEGLIGIBLE
    seen: set[tuple[tuple[int, int], tuple[int, ...]]] = set()
    for i in sorted(loads.users.get(worst, ())):
        choice = chosen[i]
        if (choice.pair, choice.parcel.arcs) in seen:
            continue
        seen.add((choice.pair, choice.parcel.arcs))
        options = {option.arcs: option for option in ways[choice.pair]}
        for arcs, option in options.items():
            if any(worst in loads.places[arc] for arc in arcs):
                continue
            peak = loads.peak(arcs)
            if peak < best_peak:
                best, best_peak = (i, option), peak
    return best


def _passages(
    network: FluidNetwork, parcel: Parcel, at: float
) -> tuple[list[tuple[int, ...]], list[float]]:
    """Join arcs through switches into passages; due within the epoch by the place in the parcel."""
    passages: list[tuple[int, ...]] = []
    due: list[float] = []
    for arc, epoch in zip(parcel.arcs, parcel.epochs, strict=True):
        if passages and network.is_switch[network.src[arc]]:
            passages[-1] += network.ways[arc]
        else:
            passages.append(network.ways[arc])
            due.append(epoch + min(max(at, 0.0), 0.999))
    return passages, due
