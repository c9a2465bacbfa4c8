r"""Arcs: what a chunk may be started on, and what that holds, on the grid.

=================  ==========================================================================
switches           an arc is
=================  ==========================================================================
store-and-forward  a link
circuits, no copy  a whole way from GPU to GPU, also for hyper-edges
circuits, copy     a way that begins at a GPU, up to some link, at one rate; a tree of such
                   arcs is one circuit
=================  ==========================================================================

Circuits are modelled whole because they take no time in a switch: arcs link by link would let two
linked switches each claim to have a chunk from the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from teccl.errors import MethodError
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

IntArray = npt.NDArray[np.int64]

# Ways through switches beyond which circuits are not listed.
MAX_WAYS = 50_000
# A time that no schedule reaches; sums of two of them do not overflow.
NEVER = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Arcs:
    """Arcs as arrays; times are epochs.

    Parameters
    ----------
    by_link
        Whether arcs are links, with the same numbers.
    ways
        Links of each arc from its GPU (or, link by link, its switch) on.
    src, end
        Node that an arc leaves, and node that it reaches, -1 where it ends within a switch.
    parent
        The arc that an arc of a circuit's tree continues, -1 for roots.
    held
        Epochs that the arc's circuit holds its links, which for a link is its kappa.
    delay
        By arc and epoch of the start, epochs until what it carries is usable at its end. Rates
        that change over time make it change; otherwise all columns are equal.
    last_node, last_kappa
        Where the last link of an arc leads, be it a switch, and its kappa.
    use_arc, use_place, use_offset, use_load
        What arcs hold: a place (links first, then shared capacities), from when, how much of it.
    use_span
        By use and epoch of the start, for how long.
    limit
        By place and epoch, how much it bears.
    splits
        By node, whether it is a switch that copies.
    """

    by_link: bool
    ways: tuple[tuple[int, ...], ...]
    src: IntArray
    end: IntArray
    parent: IntArray
    held: IntArray
    delay: IntArray
    last_node: IntArray
    last_kappa: IntArray
    use_arc: IntArray
    use_place: IntArray
    use_offset: IntArray
    use_load: IntArray
    use_span: IntArray
    limit: IntArray
    splits: npt.NDArray[np.bool_]
    is_switch: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ways)

    @property
    def is_root(self) -> npt.NDArray[np.bool_]:
        """Which arcs start by themselves."""
        return self.parent < 0

    @property
    def has_trees(self) -> bool:
        """Whether circuits branch."""
        return bool((self.parent >= 0).any())

    def distances(self) -> IntArray:
        """Least epochs from node to node."""
        from scipy.sparse.csgraph import floyd_warshall

        n = len(self.is_switch)
        graph = np.full((n, n), np.inf)
        ends = np.flatnonzero(self.end >= 0)
        np.minimum.at(graph, (self.src[ends], self.end[ends]), self.delay[ends].min(axis=1))
        way = floyd_warshall(graph) if n > 1 else np.zeros((1, 1))
        np.fill_diagonal(way, 0)
        return np.where(np.isfinite(way), way, NEVER).astype(np.int64)


def arcs_of(
    problem: Problem,
    grid: TimeGrid,
    horizon: int,
    splits: npt.NDArray[np.bool_] | None = None,
    *,
    whole_ways: bool = False,
    backwards: bool = False,
) -> Arcs:
    """List the arcs of a problem on a grid of `horizon` epochs.

    Parameters
    ----------
    splits
        Which nodes are switches that copy, None for what the problem says.
    whole_ways
        Whether to model ways through switches whole although they store and forward, which
        keeps chunks from going round in switches.
    backwards
        Whether the schedule will be run backwards, so that what a send holds from its start on is
        held up to its arrival here.
    """
    splits = splitting_switches(problem) if splits is None else splits
    listing = _Listing(problem, grid, horizon, splits)
    topology = problem.topology
    cut = topology.num_switches > 0 and problem.transit is Transit.CUT_THROUGH
    hyper = topology.num_switches > 0 and problem.switch is SwitchMode.HYPER_EDGE
    listing.stores = not cut and not hyper
    listing.backwards = backwards
    if listing.stores and not whole_ways:
        listing.add_links()
    elif hyper or not listing.splits.any():
        for way in _ways(problem):
            listing.add_way(way, hyper=hyper)
    else:
        listing.add_trees(_ways(problem))
    return listing.pack()


def splitting_switches(problem: Problem) -> npt.NDArray[np.bool_]:
    """Which nodes are switches that copy."""
    copies = problem.copy and problem.switch is SwitchMode.COPY
    return problem.topology.is_switch & copies


def _ways(problem: Problem) -> list[tuple[int, ...]]:
    """List every way from GPU to GPU with nothing but different switches between them."""
    topology = problem.topology
    is_switch = topology.is_switch
    out: list[list[int]] = [[] for _ in range(topology.num_nodes)]
    for e, src in enumerate(topology.link_src.tolist()):
        out[src].append(e)
    dst = topology.link_dst.tolist()
    found: list[tuple[int, ...]] = []

    def grow(way: tuple[int, ...], seen: frozenset[int]) -> Iterator[tuple[int, ...]]:
        node = dst[way[-1]]
        if node in seen:
            return
        if not is_switch[node]:
            yield way
            return
        for e in out[node]:
            yield from grow((*way, e), seen | {node})

    for gpu in topology.gpus.tolist():
        for e in out[gpu]:
            for way in grow((e,), frozenset({gpu})):
                if _holds_once(problem, way):
                    found.append(way)
                if len(found) > MAX_WAYS:
                    raise MethodError(
                        f"more than {MAX_WAYS} ways lead through the switches of "
                        f"{topology.name}; use --transit store-and-forward or --method construct"
                    )
    return found


def _holds_once(problem: Problem, way: tuple[int, ...]) -> bool:
    """Whether a circuit would not hold a shared capacity twice at once."""
    names = [name for e in way for name in problem.topology.links[e].shares]
    return len(names) == len(set(names))


class _Listing:
    """Collects arcs and what they hold."""

    def __init__(
        self, problem: Problem, grid: TimeGrid, horizon: int, splits: npt.NDArray[np.bool_]
    ) -> None:
        self.problem, self.grid, self.horizon = problem, grid, horizon
        self.topology = problem.topology
        self.kappa, self.delta = grid.kappa.tolist(), grid.delta.tolist()
        self.splits = splits
        self.src: list[int] = []
        self.end: list[int] = []
        self.parent: list[int] = []
        self.held: list[int] = []
        self.delay: list[int] = []
        self.ways: list[tuple[int, ...]] = []
        # Arc, place, offset, span, load.
        self.uses: list[tuple[int, int, int, int, Fraction]] = []
        self.shared = {
            name: self.topology.num_links + i for i, name in enumerate(self.topology.shared)
        }
        self.is_circuit = False
        self.by_link = False
        self.stores = False
        self.backwards = False

    def add_links(self) -> None:
        """Let every link be an arc."""
        self.by_link = True
        for e, link in enumerate(self.topology.links):
            delay = self.kappa[e] + self.delta[e]
            arc = self._add((e,), -1, link.dst, self.kappa[e], delay)
            self._hold(arc, e, 0, self.kappa[e], Fraction(1), delay)

    def add_way(self, way: tuple[int, ...], *, hyper: bool) -> None:
        """Let a whole way be an arc."""
        if self.stores:
            self._add_stored_way(way)
            return
        held = max(self.kappa[e] for e in way)
        links = self.topology.links
        alphas = [self.delta[e] for e in way]
        late = sum(alphas)
        if hyper:
            late = self.grid.epochs_of_latency(sum((links[e].alpha for e in way), Fraction(0)))
        self.is_circuit = not hyper
        arc = self._add(way, -1, links[way[-1]].dst, held, held + late)
        for i, e in enumerate(way):
            if hyper:
                begin = held + late - self.kappa[e] if self.backwards else 0
                self._hold(arc, e, begin, self.kappa[e], Fraction(1), held + late - begin)
            else:
                share = self._share(e, held)
                self._hold(arc, e, sum(alphas[:i]), held, share, held + alphas[i])

    def _add_stored_way(self, way: tuple[int, ...]) -> None:
        lengths = [self.kappa[e] + self.delta[e] for e in way]
        last = self.topology.links[way[-1]].dst
        arc = self._add(way, -1, last, self.kappa[way[0]], sum(lengths))
        for i, e in enumerate(way):
            self._hold(arc, e, sum(lengths[:i]), self.kappa[e], Fraction(1), lengths[i])

    def _add_stored_trees(self, ways: list[tuple[int, ...]]) -> None:
        """Let every beginning of a way be an arc; each hop starts when the one before is there."""
        known: dict[tuple[int, ...], int] = {}
        prefixes = {way[:i] for way in ways for i in range(1, len(way) + 1)}
        for way in sorted(prefixes, key=lambda way: (len(way), way)):
            lengths = [self.kappa[e] + self.delta[e] for e in way]
            last = self.topology.links[way[-1]].dst
            end = -1 if self.topology.nodes[last].is_switch else last
            parent = known.get(way[:-1], -1)
            arc = self._add(way, parent, end, self.kappa[way[0]], sum(lengths))
            known[way] = arc
            begin = sum(lengths[:-1])
            self._hold(arc, way[-1], begin, self.kappa[way[-1]], Fraction(1), lengths[-1])

    def add_trees(self, ways: list[tuple[int, ...]]) -> None:
        """Let every beginning of a way be an arc, once for each rate of a circuit around it."""
        if self.stores:
            self._add_stored_trees(ways)
            return
        self.is_circuit = True
        links = self.topology.links
        rates: dict[int, set[int]] = {}
        for way in ways:
            rates.setdefault(way[0], set()).update(self.kappa[e] for e in way)
        known: dict[tuple[tuple[int, ...], int], int] = {}
        prefixes = sorted({way[:i] for way in ways for i in range(1, len(way) + 1)})
        for way in sorted(prefixes, key=lambda way: (len(way), way)):
            slowest = max(self.kappa[e] for e in way)
            offset = sum(self.delta[e] for e in way[:-1])
            for held in sorted(rates[way[0]]):
                if held < slowest:
                    continue
                last = links[way[-1]].dst
                end = -1 if self.topology.nodes[last].is_switch else last
                parent = known.get((way[:-1], held), -1)
                late = offset + self.delta[way[-1]] + held
                arc = self._add(way, parent, end, held, late)
                known[way, held] = arc
                share = self._share(way[-1], held)
                self._hold(arc, way[-1], offset, held, share, held + self.delta[way[-1]])

    def _share(self, link: int, held: int) -> Fraction:
        """How much of a link a circuit takes that holds it for some epochs."""
        return Fraction(self.kappa[link], held * int(self.grid.capacity[link]))

    def _add(self, way: tuple[int, ...], parent: int, end: int, held: int, delay: int) -> int:
        self.ways.append(way)
        self.src.append(self.topology.links[way[0]].src)
        self.end.append(end)
        self.parent.append(parent)
        self.held.append(held)
        self.delay.append(delay)
        return len(self.ways) - 1

    def _hold(  # noqa: PLR0917, one use in the order of its columns
        self, arc: int, link: int, offset: int, span: int, load: Fraction, length: int
    ) -> None:
        """Let an arc hold a link, and what the link shares, which is held at its own rate.

        `length` is the time from the offset until what is carried has crossed the link.
        """
        self.uses.append((arc, link, offset, span, load))
        for name in self.topology.links[link].shares:
            held, _ = self.grid.shared_epochs(name)
            begin = offset + length - held if self.backwards else offset
            self.uses.append((arc, self.shared[name], begin, held, Fraction(1)))

    def pack(self) -> Arcs:
        """Return the arrays."""
        horizon = self.horizon
        delay = np.repeat(np.array(self.delay, dtype=np.int64)[:, None], horizon, axis=1)
        columns = list(zip(*self.uses, strict=True)) or [(), (), (), (), ()]
        span = np.repeat(np.array(columns[3], dtype=np.int64)[:, None], horizon, axis=1)
        place = np.array(columns[1], dtype=np.int64)
        load, limit = self._whole_loads(place, columns[4])
        limits = np.repeat(limit[:, None], horizon, axis=1)
        last = np.array([way[-1] for way in self.ways], dtype=np.int64)
        if self.topology.has_profiles:
            self._follow_profiles(delay, span, place, limits)
        return Arcs(
            by_link=self.by_link,
            ways=tuple(self.ways),
            src=np.array(self.src, dtype=np.int64),
            end=np.array(self.end, dtype=np.int64),
            parent=np.array(self.parent, dtype=np.int64),
            held=np.array(self.held, dtype=np.int64),
            delay=delay,
            last_node=self.topology.link_dst[last],
            last_kappa=self.grid.kappa[last],
            use_arc=np.array(columns[0], dtype=np.int64),
            use_place=place,
            use_offset=np.array(columns[2], dtype=np.int64),
            use_load=load,
            use_span=span,
            limit=limits,
            splits=self.splits,
            is_switch=self.topology.is_switch,
        )

    def _whole_loads(
        self, place: IntArray, loads: tuple[Fraction, ...]
    ) -> tuple[IntArray, IntArray]:
        """Scale the loads of each place to whole numbers, its limit with them."""
        links = [1 if self.is_circuit else int(c) for c in self.grid.capacity]
        shared = [self.grid.shared_epochs(name)[1] for name in self.topology.shared]
        scale = [1] * (len(links) + len(shared))
        for p, load in zip(place.tolist(), loads, strict=True):
            scale[p] = lcm(scale[p], load.denominator)
        whole = [int(load * scale[p]) for p, load in zip(place.tolist(), loads, strict=True)]
        limit = np.array(links + shared, dtype=np.int64) * np.array(scale, dtype=np.int64)
        return np.array(whole, dtype=np.int64), limit

    def _follow_profiles(
        self, delay: IntArray, span: IntArray, place: IntArray, limit: IntArray
    ) -> None:
        """Write what links with changing rates do in each epoch; there, arcs are links."""
        for e, link in enumerate(self.topology.links):
            if not link.profile:
                continue
            kappa = np.empty(self.horizon, dtype=np.int64)
            for first in self.grid.first_epochs(e):
                kappa[first:] = self.grid.kappa_at(e, first)
                limit[e, first:] = self.grid.capacity_at(e, first)
            delay[e] = kappa + self.delta[e]
            span[place == e] = kappa
