"""Interprets a schedule file: carries out its sends by the documents and names what breaks."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from _fuzz.document import PICO, Document, Hop, Wire, quantity, read, up


def faults(path: Path) -> list[str]:
    """Return what is wrong with a schedule file, in words."""
    document = read(path)
    timed = _Timed(document)
    found = [*timed.faults, *_overlaps(document, timed), *_waiting(document, timed)]
    found += _copies(document, timed)
    found += _Deliveries(document, timed).faults()
    return [*found, *_epochs(document)]


class _Timed:
    """Passages of the schedule with the instants at which each hop begins and ends."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.faults: list[str] = []
        # By hop: when its link is free again, when the data is at its end.
        self.free: dict[Hop, int] = {}
        self.arrival: dict[Hop, int] = {}
        self.rate: dict[Hop, Fraction] = {}
        self.entry: dict[Hop, tuple[Hop, ...]] = {}
        passages = defaultdict(list)
        for hop in document.hops:
            passages[hop.transfer].append(hop)
        for hops in passages.values():
            if len({(hop.chunk, hop.op) for hop in hops}) > 1:
                self.faults.append(f"transfer {hops[0].transfer} has several chunks or operations")
            self._lengths(hops)
            self._pair(hops)

    @property
    def is_circuit(self) -> bool:
        """Whether a passage is one pipe with the rate of its slowest link."""
        options = self.document.options
        return options["transit"] == "cut-through" or options["switch"] == "hyper-edge"

    def _lengths(self, hops: list[Hop]) -> None:
        wires, chunks = self.document.wires, self.document.chunks
        slowest = min(wires[hop.link].rate for hop in hops)
        overhead = max(wires[hop.link].overhead_ps for hop in hops)
        for hop in hops:
            wire, size = wires[hop.link], chunks[hop.chunk].size
            if self.is_circuit and len(hops) > 1:
                self.rate[hop] = slowest
                busy = overhead + up(size / slowest * PICO)
            else:
                self.rate[hop] = wire.rate
                busy = wire.busy_ps(size, hop.start)
            self.free[hop] = hop.start + busy
            latency = wire.alpha_ps
            if self.document.options["switch"] == "hyper-edge":
                latency = sum(wires[each.link].alpha_ps for each in hops)
            self.arrival[hop] = self.free[hop] + latency

    def _pair(self, hops: list[Hop]) -> None:
        """Find for each hop out of a switch what enters it, at the instant that is due."""
        document, wires = self.document, self.document.wires
        enters = defaultdict(list)
        for hop in hops:
            enters[wires[hop.link].dst].append(hop)
        leaves = defaultdict(list)
        for hop in hops:
            leaves[wires[hop.link].src].append(hop)
        for node, outs in leaves.items():
            if not document.is_switch[node]:
                continue
            ins = enters[node]
            for out in outs:
                self.entry[out] = tuple(ins)
                if not ins or any(self._due(each) != out.start for each in ins):
                    self.faults.append(f"{out} leaves a switch that nothing enters at that time")
            if len(ins) > 1 and not document.reduces[node]:
                self.faults.append(f"switch {node} adds up {ins}")
            if len(outs) > 1 and not (
                document.options["copy"] and document.options["switch"] == "copy"
            ):
                self.faults.append(f"switch {node} copies in {outs}")
        for node, ins in enters.items():
            if document.is_switch[node] and not leaves[node]:
                self.faults.append(f"{ins} ends in a switch")

    def _due(self, hop: Hop) -> int:
        """When what a hop carries leaves the switch at its end."""
        if self.document.options["switch"] == "hyper-edge":
            # All ports on the way begin at once.
            return hop.start
        if self.document.options["transit"] == "cut-through":
            return hop.start + self.document.wires[hop.link].alpha_ps
        return self.arrival[hop]


def _overlaps(document: Document, timed: _Timed) -> Iterator[str]:
    """Links and shared capacities carry one transfer at a time, or circuits whose rates fit."""
    users: dict[object, list[Hop]] = defaultdict(list)
    for hop in document.hops:
        users[hop.link].append(hop)
        for name in document.wires[hop.link].shares:
            users[name].append(hop)
    for resource, hops in users.items():
        is_shared = isinstance(resource, str)
        capacity = document.shared[str(resource)] if is_shared else None
        hops.sort(key=lambda hop: hop.start)
        if document.options["transit"] == "cut-through":
            yield from _overloads(document, timed, hops, capacity)
        else:
            for first, second in pairwise(hops):
                if timed.free[first] > second.start:
                    yield f"{first} and {second} overlap on {resource!r}"


def _overloads(
    document: Document, timed: _Timed, hops: list[Hop], capacity: Fraction | None
) -> Iterator[str]:
    """Name circuits at whose start the rates on one link or capacity are more than it has."""
    # Of a link or capacity, circuits that have not ended yet, by their end.
    busy: list[tuple[int, int, Fraction]] = []
    load = Fraction(0)
    for number, hop in enumerate(hops):
        while busy and busy[0][0] <= hop.start:
            load -= heapq.heappop(busy)[2]
        if timed.free[hop] > hop.start:
            load += timed.rate[hop]
            heapq.heappush(busy, (timed.free[hop], number, timed.rate[hop]))
        # Whoever begins at this instant counts, whichever stands first.
        is_last = number + 1 == len(hops) or hops[number + 1].start > hop.start
        if is_last and load > (capacity or document.wires[hop.link].rate):
            yield f"{hop} overloads {document.wires[hop.link]}"


def _waiting(document: Document, timed: _Timed) -> Iterator[str]:
    """Count what waits at GPUs to be passed on, data that is copied only."""
    limit = document.options["buffer"]
    if limit is None:
        return
    stays: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for hop in document.hops:
        chunk, node = document.chunks[hop.chunk], document.wires[hop.link].dst
        if chunk.is_sum or document.is_switch[node] or node in chunk.sources:
            continue
        arrivals = sorted({timed.arrival[h] for h in _into(document, hop.chunk, node)})
        later = [time for time in arrivals if time > timed.arrival[hop]]
        end = later[0] if later else None
        departures = [
            h.start
            for h in _out_of(document, hop.chunk, node)
            if h.start >= timed.arrival[hop] and (end is None or h.start < end)
        ]
        if departures and max(departures) > timed.arrival[hop]:
            stays[node].append((timed.arrival[hop], max(departures)))
    for node, spans in stays.items():
        for begin, _ in spans:
            if sum(b <= begin < e for b, e in set(spans)) > limit:
                yield f"more than {limit} chunks wait at node {node} at {begin} ps"


def _into(document: Document, chunk: int, node: int) -> list[Hop]:
    return document.into.get((chunk, node), [])


def _out_of(document: Document, chunk: int, node: int) -> list[Hop]:
    return document.out_of.get((chunk, node), [])


def _copies(document: Document, timed: _Timed) -> Iterator[str]:
    """Without copies, what a GPU passes on or keeps uses up an arrival each time."""
    if document.options["copy"]:
        return
    for number, chunk in enumerate(document.chunks):
        for node in document.gpus:
            if chunk.is_sum:
                yield from _used_sums(document, timed, number, node)
            if chunk.is_sum or node in chunk.sources:
                continue
            arrivals = [timed.arrival[h] for h in _into(document, number, node)]
            departures = sorted(h.start for h in _out_of(document, number, node))
            if len(departures) + (node in chunk.wanted) > len(arrivals):
                yield f"node {node} copies chunk {number}"
            for count, time in enumerate(departures, start=1):
                if sum(arrival <= time for arrival in arrivals) < count:
                    yield f"node {node} sends chunk {number} at {time} before it came often enough"


def _used_sums(document: Document, timed: _Timed, number: int, node: int) -> Iterator[str]:
    """Without copies, what a GPU received of a sum leaves with one send or stays, not both."""
    if document.content.get("sums"):
        return
    departures = sorted(h.start for h in _out_of(document, number, node))
    arrivals = sorted((timed.arrival[h], h.op) for h in _into(document, number, node))
    for time, op in arrivals:
        ends = [t for t, kind in arrivals if t > time and kind == "copy"]
        uses = [t for t in departures if t >= time and (not ends or t < ends[0])]
        stays = not ends and node in document.chunks[number].wanted
        if len(uses) + stays > 1:
            yield f"node {node} uses what it received of sum {number} at {time} ({op}) twice"


class _Deliveries:
    """What is where and when: data that is copied, accumulators and partial sums."""

    def __init__(self, document: Document, timed: _Timed) -> None:
        self.document, self.timed = document, timed
        self.last = 0
        sums = document.content.get("sums")
        self.rows = _rows(sums) if sums else []
        self.summed = {row["chunk"] for row in self.rows}

    def faults(self) -> Iterator[str]:
        """Yield demands that are not met, and sends of what is not there."""
        for number, chunk in enumerate(self.document.chunks):
            if not chunk.is_sum:
                yield from self._data(number)
            elif number not in self.summed:
                yield from self._accumulators(number)
        if self.rows:
            yield from self._partial_sums()
        finish = self.document.content["finish_ps"]
        last = max(self.timed.arrival.values(), default=0)
        if last != finish or self.last > finish:
            yield f"the file ends at {finish} ps, its sends at {last}, all is there at {self.last}"
        bound = self.document.content["bound"]
        if bound and max(bound["physical_ps"], bound["chunk_ps"] or 0) > finish:
            yield f"it ends at {finish} ps, before its bound"

    def _ready(self, number: int, node: int) -> int:
        chunk = self.document.chunks[number]
        return self.document.ready_ps.get((chunk.tenant, node), 0)

    def _hops(self, number: int) -> list[Hop]:
        return [hop for hop in self.document.hops if hop.chunk == number]

    def _wire(self, hop: Hop) -> Wire:
        return self.document.wires[hop.link]

    def _data(self, number: int) -> Iterator[str]:
        chunk = self.document.chunks[number]
        there = {node: self._ready(number, node) for node in chunk.sources}
        for hop in self._hops(number):
            node, time = self._wire(hop).dst, self.timed.arrival[hop]
            if not self.document.is_switch[node]:
                there[node] = min(there.get(node, time), time)
        for hop in self._hops(number):
            src = self._wire(hop).src
            if not self.document.is_switch[src] and not there.get(src, hop.start + 1) <= hop.start:
                yield f"{hop} begins before node {src} has the chunk"
        for node in chunk.wanted - chunk.sources:
            if node not in there:
                yield f"chunk {number} never comes to node {node}"
            self.last = max(self.last, there.get(node, 0))

    def _accumulators(self, number: int) -> Iterator[str]:
        """Carry out additions in order of time; at one instant arrivals come before departures."""
        chunk = self.document.chunks[number]
        held: dict[int, list[int]] = {node: [node] for node in chunk.sources}
        content: dict[Hop, list[int]] = {}
        events = [(hop.start, 1, hop) for hop in self._hops(number)]
        events += [(self.timed.arrival[hop], 0, hop) for hop in self._hops(number)]
        last = dict.fromkeys(chunk.wanted, 0)
        for time, is_departure, hop in sorted(events, key=lambda event: event[:2]):
            node = self._wire(hop).src if is_departure else self._wire(hop).dst
            if self.document.is_switch[node]:
                continue
            if is_departure:
                content[hop] = list(held.get(node, []))
                is_early = node in chunk.sources and time < self._ready(number, node)
                if not content[hop] or is_early:
                    yield f"{hop} begins before node {node} has something to add"
                continue
            parts = [part for each in self._origins(hop) for part in content.get(each, [])]
            held[node] = held.get(node, []) + parts if hop.op == "reduce" else parts
            last[node] = time
        for node in chunk.wanted:
            if sorted(held.get(node, [])) != sorted(chunk.sources):
                yield f"node {node} has {held.get(node)} in chunk {number}"
            self.last = max(self.last, last[node])

    def _origins(self, hop: Hop) -> list[Hop]:
        """Return the hops out of GPUs whose data a hop brings."""
        if not self.document.is_switch[self._wire(hop).src]:
            return [hop]
        return [each for entry in self.timed.entry.get(hop, ()) for each in self._origins(entry)]

    def _partial_sums(self) -> Iterator[str]:
        """Follow rows of partial sums: what is in each, and from when."""
        arrivals = {hop.becomes: hop for hop in self.document.hops if hop.becomes is not None}
        content: dict[int, list[int]] = {}
        there: dict[int, int] = {}
        done: set[int] = set()
        while len(done) < len(self.rows):
            before = len(done)
            for i, row in enumerate(self.rows):
                if i in done:
                    continue
                found = self._made(i, row, arrivals, content, there)
                if found is not None:
                    content[i], there[i] = found
                    done.add(i)
            if len(done) == before:
                yield "partial sums wait for one another"
                return
        yield from self._carried(there)
        for number in self.summed:
            chunk = self.document.chunks[number]
            results = {
                row["node"]: i
                for i, row in enumerate(self.rows)
                if row["result"] and row["chunk"] == number
            }
            for node in chunk.wanted:
                if node not in results or sorted(content[results[node]]) != sorted(chunk.sources):
                    yield f"chunk {number} at node {node} is not the sum that is wanted"
                elif chunk.wanted != chunk.sources or len(chunk.sources) > 1:
                    self.last = max(self.last, there[results[node]])

    def _carried(self, there: dict[int, int]) -> Iterator[str]:
        """Judge what sends say that they carry."""
        for hop in self.document.hops:
            if hop.carries is None or self.document.is_switch[self._wire(hop).src]:
                continue
            if self.rows[hop.carries]["node"] != self._wire(hop).src:
                yield f"{hop} carries a sum of another node"
            elif there[hop.carries] > hop.start:
                yield f"{hop} begins before its sum is there"

    def _made(
        self,
        index: int,
        row: dict[str, int | None],
        arrivals: dict[int | None, Hop],
        content: dict[int, list[int]],
        there: dict[int, int],
    ) -> tuple[list[int], int] | None:
        """Return what is in a row and from when, None as long as it is not known."""
        number, node = int(row["chunk"] or 0), int(row["node"] or 0)
        if index in arrivals:
            hop = arrivals[index]
            first = self._origins(hop)
            if any(each.carries not in content for each in first):
                return None
            parts = [part for each in first for part in content[int(each.carries or 0)]]
            return parts, self.timed.arrival[hop]
        adds = [row[side] for side in ("left", "right") if row[side] is not None]
        if not adds:
            return [node], self._ready(number, node)
        if any(each not in content for each in adds):
            return None
        parts = [part for each in adds for part in content[int(each or 0)]]
        return parts, max(there[int(each or 0)] for each in adds)


def _rows(sums: dict[str, list[int | None]]) -> list[dict[str, int | None]]:
    names = list(sums)
    return [dict(zip(names, row, strict=True)) for row in zip(*sums.values(), strict=True)]


def _epochs(document: Document) -> Iterator[str]:
    """Judge the grid's links and holdings where passages are stored and forwarded."""
    grid, options = document.content["grid"], document.options
    hops = [hop for hop in document.hops if hop.epoch is not None]
    is_plain = options["transit"] == "store-and-forward" and options["switch"] != "hyper-edge"
    if grid is None or not hops or not is_plain or any(len(w.steps) > 1 for w in document.wires):
        return
    tau = quantity(grid["epoch"])
    # Epochs count in chunks of one size; a shorter one takes as many.
    size = max(chunk.size for chunk in document.chunks)
    by_link = defaultdict(list)
    for hop in hops:
        by_link[hop.link].append(hop)
    for link, users in by_link.items():
        wire = document.wires[link]
        kappa = _kappa(wire, size, tau)
        most = max(1, int(tau / (wire.overhead + size / wire.rate)))
        for hop in users:
            begins = [h for h in users if hop.epoch <= h.epoch < hop.epoch + kappa]
            if len(begins) > most:
                yield f"{len(begins)} chunks begin on link {link} from epoch {hop.epoch} on"
    yield from _holdings(document, hops, tau, size)


def _kappa(wire: Wire, size: Fraction, tau: Fraction) -> int:
    return up((wire.overhead + size / wire.rate) / tau)


def _holdings(document: Document, hops: list[Hop], tau: Fraction, size: Fraction) -> Iterator[str]:
    for number, chunk in enumerate(document.chunks):
        if chunk.is_sum:
            continue
        own = [hop for hop in hops if hop.chunk == number]
        usable: dict[int, list[int]] = defaultdict(list)
        for hop in own:
            wire = document.wires[hop.link]
            delta = 0 if wire.alpha <= tau / 10 else up(wire.alpha / tau)
            usable[wire.dst].append(int(hop.epoch or 0) + _kappa(wire, size, tau) + delta)
        for hop in own:
            src = document.wires[hop.link].src
            if document.is_switch[src]:
                if hop.epoch not in usable[src]:
                    yield f"{hop} leaves a switch in an epoch in which nothing comes"
            elif src not in chunk.sources and not any(t <= hop.epoch for t in usable[src]):
                yield f"{hop} begins in an epoch in which node {src} lacks the chunk"
