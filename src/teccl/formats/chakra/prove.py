"""A reader of execution traces that checks them: matching, dependencies, no deadlock, delivery."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from teccl.formats.shared import chakra_messages as messages
from teccl.problem import Problem

_CHUNK = re.compile(r"chunk (\d{1,9})\b", re.ASCII)


class _Place(NamedTuple):
    """A node: its rank and id."""

    rank: int
    node: int


class _FoundError(Exception):
    """What is wrong with the traces."""


def check_traces(traces: Sequence[bytes], problem: Problem) -> str | None:
    """Read the traces of all ranks and return what is wrong with them, None if nothing is.

    Every send must meet one receive of the same tag and size on the rank it names, dependencies
    must exist and leave no circle. What the nodes hold follows from their dependencies on data: a
    send without any carries the rank's own data, a computation adds what it depends on, and the
    rank's own data if that is one node only. Nothing may be added twice, and every destination
    must end with all that the problem wants there.
    """
    try:
        nodes = _read(traces)
        waits = _waits(nodes)
        source = _match(nodes, len(traces))
        for receive, send in source.items():
            waits[receive].append(send)
        order = _order(waits)
        if len(order) < len(nodes):
            stuck = min(set(nodes) - set(order))
            return f"rank {stuck.rank}: node {stuck.node} waits for itself, over others"
        _Contents(nodes, source, problem).check(order)
    except _FoundError as found:
        return str(found)
    return None


def _read(traces: Sequence[bytes]) -> dict[_Place, Any]:
    nodes: dict[_Place, Any] = {}
    for rank, data in enumerate(traces):
        try:
            _, listed = messages.read_trace(data)
        except ValueError as damage:
            raise _FoundError(f"rank {rank}: {damage}") from None
        for node in listed:
            place = _Place(rank, node.id)
            if place in nodes:
                raise _FoundError(f"rank {rank}: id {node.id} appears twice")
            nodes[place] = node
    return nodes


def _waits(nodes: dict[_Place, Any]) -> dict[_Place, list[_Place]]:
    """Return what each node waits for on its rank."""
    waits: dict[_Place, list[_Place]] = {}
    for place, node in nodes.items():
        waits[place] = [_Place(place.rank, dep) for dep in (*node.data_deps, *node.ctrl_deps)]
        missing = next((dep for dep in waits[place] if dep not in nodes), None)
        if missing is not None:
            raise _FoundError(
                f"rank {place.rank}: node {node.id} depends on {missing.node}, not there"
            )
    return waits


def _attributes(node: Any) -> dict[str, int]:
    """Return the attributes that are numbers, which is all that sends and receives need."""
    numbers = ("int32_val", "int64_val")
    return {
        a.name: getattr(a, kind) for a in node.attr if (kind := a.WhichOneof("value")) in numbers
    }


def _match(nodes: dict[_Place, Any], ranks: int) -> dict[_Place, _Place]:
    """Return the send of each receive."""
    sent: dict[tuple[int, int, int], tuple[_Place, int]] = {}
    taken: dict[tuple[int, int, int], tuple[_Place, int]] = {}
    for place, node in nodes.items():
        if node.type not in (messages.SEND, messages.RECEIVE):
            continue
        values = _attributes(node)
        is_send = node.type == messages.SEND
        peer = values.get("comm_dst" if is_send else "comm_src", -1)
        if not 0 <= peer < ranks or peer == place.rank or "comm_tag" not in values:
            raise _FoundError(
                f"rank {place.rank}: node {node.id} names no other rank or has no tag"
            )
        ends = (place.rank, peer) if is_send else (peer, place.rank)
        table = sent if is_send else taken
        key = (*ends, values["comm_tag"])
        if key in table:
            raise _FoundError(f"rank {place.rank}: node {node.id} repeats tag {values['comm_tag']}")
        table[key] = place, values.get("comm_size", -1)
    for key in sorted(sent.keys() | taken.keys()):
        if key not in sent or key not in taken:
            alone = sent.get(key) or taken[key]
            raise _FoundError(f"rank {alone[0].rank}: node {alone[0].node} has no counterpart")
        if sent[key][1] != taken[key][1] or sent[key][1] < 1:
            sizes = f"{sent[key][1]} and {taken[key][1]} bytes"
            raise _FoundError(f"rank {key[0]}: the ends of tag {key[2]} differ in size, {sizes}")
    return {taken[key][0]: sent[key][0] for key in sent}


def _order(waits: dict[_Place, list[_Place]]) -> list[_Place]:
    """Return nodes in an order in which they can run, as far as they can."""
    left = {place: len(deps) for place, deps in waits.items()}
    followers: dict[_Place, list[_Place]] = {}
    for place, deps in waits.items():
        for dep in deps:
            followers.setdefault(dep, []).append(place)
    ready = deque(sorted(place for place, count in left.items() if not count))
    order = []
    while ready:
        place = ready.popleft()
        order.append(place)
        for follower in followers.get(place, ()):
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return order


class _Contents:
    """What nodes hold of their chunk: a bit for each member of the group whose data is in it."""

    def __init__(
        self, nodes: dict[_Place, Any], source: dict[_Place, _Place], problem: Problem
    ) -> None:
        self._nodes, self._source = nodes, source
        topology, self._table = problem.topology, problem.chunks
        members = sorted(problem.demand.tenants[0].members(topology.num_gpus))
        self._position = {int(topology.gpus[rank]): i for i, rank in enumerate(members)}
        self._chunk = {place: _chunk_of(node) for place, node in nodes.items()}
        self._held: dict[_Place, int] = {}

    def check(self, order: Sequence[_Place]) -> None:
        """Find out what every node holds, and whether the destinations have what they want."""
        ends: dict[tuple[int, int], set[int]] = {}
        for place in order:
            node, chunk = self._nodes[place], self._chunk[place]
            if node.type == messages.COMPUTE and not node.data_deps:
                continue
            if chunk is None or chunk >= len(self._table):
                raise _FoundError(f"rank {place.rank}: node {place.node} does not name its chunk")
            self._held[place] = held = self._content(place, node, chunk)
            ends.setdefault((chunk, place.rank), set()).add(held)
        for chunk in range(len(self._table)):
            everything = self._whose(chunk)
            for wanting in self._table.destinations(chunk).tolist():
                rank = self._position[wanting]
                if everything not in {*ends.get((chunk, rank), ()), everything & 1 << rank}:
                    raise _FoundError(f"rank {rank} never has all of chunk {chunk}")

    def _whose(self, chunk: int) -> int:
        """Return the members whose data makes up a chunk."""
        return sum(1 << self._position[node] for node in self._table.sources(chunk).tolist())

    def _content(self, place: _Place, node: Any, chunk: int) -> int:
        """Return what a node holds, from what those hold that it depends on."""
        where = f"rank {place.rank}: node {place.node}"
        feeds = [_Place(place.rank, dep) for dep in node.data_deps]
        if any(self._chunk[feed] != chunk for feed in feeds):
            raise _FoundError(f"{where} depends on another chunk")
        if any(feed not in self._held for feed in feeds):
            raise _FoundError(f"{where} depends on a sum of nothing")
        own = self._whose(chunk) & 1 << place.rank
        if node.type == messages.RECEIVE:
            return self._held[self._source[place]]
        parts = [self._held[feed] for feed in feeds]
        if node.type == messages.SEND and not parts:
            if not own:
                raise _FoundError(f"{where} sends chunk {chunk}, which the rank has not got yet")
            return own
        if node.type == messages.COMPUTE and len(parts) == 1:
            parts.append(own)
        total = 0
        for part in parts:
            if node.type == messages.COMPUTE and total & part:
                raise _FoundError(f"{where} adds the same data to chunk {chunk} twice")
            total |= part
        return total


def _chunk_of(node: Any) -> int | None:
    found = _CHUNK.search(node.name)
    return None if found is None else int(found[1])
