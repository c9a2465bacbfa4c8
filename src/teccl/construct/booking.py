"""Booking: chunks travel along routes, each at the earliest time the network has for it.

Transfers are booked one after another and never move again. A transfer from GPU to GPU, directly
or through switches, holds each link of its way (and what that link shares) for some time from some
offset; the three ways a switch may work differ in these numbers only:

=================  ======================================  =====================  ===============
switches           a hop starts after the first            it holds its link      arrival
=================  ======================================  =====================  ===============
store-and-forward  when the hop before it has arrived      its own time           last hop's
cut-through        after the latencies before it           the slowest link's     sum of latencies
hyper-edge         at once                                 the slowest link's     sum of latencies
=================  ======================================  =====================  ===============

A circuit's time is the largest overhead and the longest transmission of its links.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from teccl.construct.calendars import Calendar, ExclusiveCalendar, RateCalendar
from teccl.errors import MethodError
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.sends import SEND_DTYPE, SendArray
from teccl.schedule.timing import transmission_from

Route = tuple[int, ...]


class Leg(NamedTuple):
    """A part of a route from a GPU with nothing but switches up to one GPU or, copied, several."""

    links: Route
    src: int
    ends: tuple[int, ...]


class Timing(NamedTuple):
    """How one chunk size travels a leg, relative to its start.

    Parameters
    ----------
    uses
        What it holds: calendar, offset and length.
    hops
        Link and offset of each send.
    rate
        Rate of the slowest link.
    travel
        Time until the arrival at each end.
    """

    uses: tuple[tuple[Calendar, int, int], ...]
    hops: tuple[tuple[int, int], ...]
    rate: int
    travel: tuple[int, ...]


class Booking:
    """Transfers booked so far, and where every chunk is from when on.

    Parameters
    ----------
    problem
        Its chunks, links, ready times and switch rules.

    Examples
    --------
    >>> from teccl import Demand, Problem, Topology
    >>> demand = Demand.collective("broadcast", size="50KB")
    >>> problem = Problem(topology=Topology.parse("line:gpus=3"), demand=demand)
    >>> booking = Booking(problem)
    >>> first = problem.topology.find_links("gpu0>gpu1") + problem.topology.find_links("gpu1>gpu2")
    >>> booking.carry(0, first)
    3000000
    >>> len(booking.sends())
    2
    """

    def __init__(self, problem: Problem) -> None:
        topology = problem.topology
        self.problem = problem
        self._is_switch = topology.is_switch.tolist()
        self._src, self._dst = topology.link_src.tolist(), topology.link_dst.tolist()
        self._transmission = problem.transmission_ps.tolist()
        self._overhead = topology.overhead_ps.tolist()
        self._alpha = topology.alpha_ps.tolist()
        self._ready = problem.ready_ps().tolist()
        self._size = problem.chunks.size_index.tolist()
        self._sets = [frozenset(nodes.tolist()) for nodes in problem.chunks.sets]
        self._source_set = problem.chunks.source_set.tolist()
        self._reduces = problem.chunks.reduce.tolist()
        self._is_circuit = (
            problem.transit is Transit.CUT_THROUGH or problem.switch is SwitchMode.HYPER_EDGE
        )
        self._has_profiles = topology.has_profiles
        self._link_rates = _whole_rates(problem)
        self._calendars = _calendars(problem, self._link_rates)
        self._legs: dict[Route, tuple[Leg, ...]] = {}
        self._timings: dict[tuple[Route, int], Timing] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._copied: set[tuple[int, int]] = set()
        self._rows: list[tuple[int, int, int, int, int, bool]] = []
        self._transfers = 0

    def legs(self, route: Route) -> tuple[Leg, ...]:
        """Return the parts into which the GPUs on a route divide it."""
        known = self._legs.get(route)
        if known is None:
            known = self._legs[route] = tuple(self._cut(route))
        return known

    def available(self, chunk: int, node: int) -> int:
        """Picoseconds from which a node may send a chunk, all booked contributions included.

        Raises
        ------
        ValueError
            If the node neither holds the chunk at the start nor receives it in what is booked.
        """
        time = self._held.get((chunk, node))
        if time is None:
            if not self._is_source(chunk, node):
                raise ValueError(f"node {node} never has chunk {chunk}; book its arrival first")
            tenant = self.problem.chunks.tenant[chunk]
            time = self._held[chunk, node] = self._ready[tenant][node]
        return time

    def carry(
        self, chunk: int, route: Route, *, earliest: int | None = None, reduce: bool = False
    ) -> int:
        """Book a chunk along a route and return its arrival in picoseconds.

        Parameters
        ----------
        chunk
            What travels.
        route
            Links from a GPU that has it to a GPU. GPUs between them store and forward it; a partial
            sum must not meet another one there. Where rates change the route of a copy may be a
            tree, each link after one that leads to it.
        earliest
            Start no earlier; None is when the first GPU has the chunk with all contributions.
        reduce
            Whether the last GPU combines what arrives with what it has.
        """
        legs = self.legs(route)
        now = self.available(chunk, legs[0].src) if earliest is None else earliest
        for position, leg in enumerate(legs):
            joins = reduce and position == len(legs) - 1
            (arrivals,) = self._book(chunk, (leg,), now, reduce=joins)
            for end, arrival in zip(leg.ends, arrivals, strict=True):
                if joins:
                    self._note_contribution(chunk, end, arrival)
                elif not reduce:
                    self._note_copy(chunk, end, arrival)
            now = arrivals[-1]
        return now

    def carry_whole(self, chunk: int, route: Route) -> None:
        """Book a copy along a route on which it waits nowhere."""
        legs = self.legs(route)
        booked = self._book(chunk, legs, self.available(chunk, legs[0].src), reduce=False)
        for leg, arrivals in zip(legs, booked, strict=True):
            for end, arrival in zip(leg.ends, arrivals, strict=True):
                self._note_copy(chunk, end, arrival)

    def deliver(self, chunk: int, route: Route) -> None:
        """Book a copy along the part of a route that lies after the last GPU that received one.

        Does nothing if the end of the route is that GPU.
        """
        legs = self.legs(route)
        reached = [i for i, leg in enumerate(legs) if (chunk, leg.ends[0]) in self._copied]
        rest = legs[reached[-1] + 1 :] if reached else legs
        if rest:
            self.carry(chunk, tuple(link for leg in rest for link in leg.links))

    def sends(self) -> SendArray:
        """Return all booked sends."""
        return np.array(self._rows, dtype=SEND_DTYPE)

    def _cut(self, route: Route) -> list[Leg]:
        found: list[list[int]] = []
        entered: dict[int, list[int]] = {}
        for link in route:
            src, dst = self._src[link], self._dst[link]
            if not self._is_switch[src]:
                found.append([])
            links = entered[src] if self._is_switch[src] else found[-1]
            links.append(link)
            if self._is_switch[dst]:
                entered[dst] = links
        legs = []
        for links in found:
            ends = tuple(self._dst[e] for e in links if not self._is_switch[self._dst[e]])
            legs.append(Leg(tuple(links), self._src[links[0]], ends))
            self._refuse_double_share(legs[-1])
        return legs

    def _refuse_double_share(self, leg: Leg) -> None:
        """Refuse a circuit that would hold a capacity twice at once, which can never be free."""
        if not self._is_circuit or not self.problem.topology.shared:
            return
        links, nodes = self.problem.topology.links, self.problem.topology.nodes
        names = [name for link in leg.links for name in links[link].shares]
        if len(set(names)) < len(names):
            raise MethodError(
                f"the way from {nodes[leg.src].name} to {nodes[leg.ends[0]].name} holds a shared "
                "capacity twice at once; use --transit store-and-forward"
            )

    def _is_source(self, chunk: int, node: int) -> bool:
        return node in self._sets[self._source_set[chunk]]

    def _note_contribution(self, chunk: int, node: int, time: int) -> None:
        key = (chunk, node)
        has_own = key in self._held or self._is_source(chunk, node)
        self._held[key] = max(time, self.available(chunk, node)) if has_own else time

    def _note_copy(self, chunk: int, node: int, time: int) -> None:
        key = (chunk, node)
        # A result replaces the partial sum that was there; of two copies the first counts.
        replaces = self._reduces[chunk] and key not in self._copied
        self._held[key] = time if replaces else min(time, self._held.get(key, time))
        self._copied.add(key)

    def _book(
        self, chunk: int, legs: Sequence[Leg], earliest: int, *, reduce: bool
    ) -> list[tuple[int, ...]]:
        """Book legs that follow each other at once, and return the arrivals of each."""
        start = earliest
        while True:
            body = self._body(chunk, legs, start)
            later = start
            for begin, timing in body:
                for calendar, offset, length in timing.uses:
                    shift = begin - start + offset
                    later = calendar.first_free(later + shift, length, timing.rate) - shift
            if later == start:
                break
            start = later
        if len(legs) > 1:
            _refuse_meeting(body)
        for begin, timing in body:
            for calendar, offset, length in timing.uses:
                calendar.add(begin + offset, length, timing.rate)
            for link, offset in timing.hops:
                self._rows.append((chunk, link, self._transfers, 0, begin + offset, reduce))
            self._transfers += 1
        return [tuple(begin + travel for travel in timing.travel) for begin, timing in body]

    def _body(self, chunk: int, legs: Sequence[Leg], start: int) -> list[tuple[int, Timing]]:
        """Return when each leg begins, and how it is travelled then."""
        body: list[tuple[int, Timing]] = []
        at = {legs[0].src: start}
        for leg in legs:
            begin = at[leg.src]
            timing = self._timing(leg.links, self._size[chunk], begin)
            body.append((begin, timing))
            at.update(zip(leg.ends, (begin + travel for travel in timing.travel), strict=True))
        return body

    def _timing(self, links: Route, size: int, start: int) -> Timing:
        if self._has_profiles:
            return self._profiled_timing(links, size, start)
        key = (links, size)
        timing = self._timings.get(key)
        if timing is None:
            timing = self._timings[key] = self._fixed_timing(links, size)
        return timing

    def _fixed_timing(self, links: Route, size: int) -> Timing:
        transmission = [self._transmission[link][size] for link in links]
        overhead = [self._overhead[link] for link in links]
        alpha = [self._alpha[link] for link in links]
        if not self._is_circuit:
            hold = [o + t for o, t in zip(overhead, transmission, strict=True)]
            whole = [a + h for a, h in zip(alpha, hold, strict=True)]
            return self._pack(links, _running_sums(whole), hold, (sum(whole),))
        at_once = self.problem.switch is SwitchMode.HYPER_EDGE
        offsets = [0] * len(links) if at_once else _running_sums(alpha)
        held = max(overhead) + max(transmission)
        return self._pack(links, offsets, [held] * len(links), (held + sum(alpha),))

    def _profiled_timing(self, links: Route, size: int, start: int) -> Timing:
        """Store and forward over links whose rate depends on when the hop starts."""
        topology, at = self.problem.topology, {self._src[links[0]]: start}
        offsets, lengths = [], []
        for link in links:
            now = at[self._src[link]]
            steps = topology.rate_steps(topology.links[link])
            length = transmission_from(
                steps, self.problem.chunks.sizes[size], now, overhead_ps=self._overhead[link]
            )
            offsets.append(now - start)
            lengths.append(length)
            at[self._dst[link]] = now + length + self._alpha[link]
        ends = (self._dst[link] for link in links)
        travel = tuple(at[end] - start for end in ends if not self._is_switch[end])
        return self._pack(links, offsets, lengths, travel)

    def _pack(
        self,
        links: Route,
        offsets: Sequence[int],
        lengths: Sequence[int],
        travel: tuple[int, ...],
    ) -> Timing:
        hops = tuple(zip(links, offsets, strict=True))
        uses = tuple(
            (calendar, offset, length)
            for (link, offset), length in zip(hops, lengths, strict=True)
            for calendar in self._calendars[link]
        )
        return Timing(uses, hops, min(self._link_rates[link] for link in links), travel)


def _refuse_meeting(body: Sequence[tuple[int, Timing]]) -> None:
    """Refuse legs at fixed times that would hold something twice at once, which may never be free.

    Raises
    ------
    MethodError
        If so.
    """
    held: dict[int, list[tuple[int, int]]] = {}
    for begin, timing in body:
        for calendar, offset, length in timing.uses:
            held.setdefault(id(calendar), []).append((begin + offset, begin + offset + length))
    if any(b < end for uses in held.values() for (_, end), (b, _) in pairwise(sorted(uses))):
        raise MethodError("legs that follow each other at once hold a link twice at once")


def _running_sums(values: Sequence[int]) -> list[int]:
    """Return the sum of what lies before each value."""
    return [0, *accumulate(values[:-1])]


def _whole_rates(problem: Problem) -> list[int]:
    """Return the links' rates as whole numbers of one common unit."""
    rates = problem.topology.rates
    unit = math.lcm(*(rate.denominator for rate in rates)) if rates else 1
    return [int(rate * unit) for rate in rates]


def _calendars(problem: Problem, rates: Sequence[int]) -> list[tuple[Calendar, ...]]:
    """Return what a transfer on each link has to book: the link itself and what it shares."""
    topology = problem.topology
    circuits = (
        problem.transit is Transit.CUT_THROUGH
        and problem.switch is not SwitchMode.HYPER_EDGE
        and topology.num_switches > 0
    )
    shared = {name: ExclusiveCalendar() for name in topology.shared}
    return [
        (
            RateCalendar(rate) if circuits else ExclusiveCalendar(),
            *(shared[name] for name in link.shares),
        )
        for link, rate in zip(topology.links, rates, strict=True)
    ]
