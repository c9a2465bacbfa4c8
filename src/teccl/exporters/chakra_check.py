"""A reader of execution traces that checks them: matching, dependencies, no deadlock, delivery."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from teccl.exporters import chakra_messages as messages

_CHUNK = re.compile(r"chunk (\d+)")


class _Place(NamedTuple):
    """A node: its rank and id."""

    rank: int
    node: int


def check_traces(traces: Sequence[bytes]) -> str | None:
    """Read the traces of all ranks and return what is wrong with them, None if nothing is.

    Every send must meet one receive of the same tag and size on the rank it names, dependencies
    must exist and leave no circle, and a rank may pass on a chunk that it received only after that
    receive: a chunk that is not reduced begins its way on one rank.
    """
    nodes: dict[_Place, Any] = {}
    for rank, data in enumerate(traces):
        try:
            _, listed = messages.read_trace(data)
        except ValueError as damage:
            return f"rank {rank}: {damage}"
        for node in listed:
            place = _Place(rank, node.id)
            if place in nodes:
                return f"rank {rank}: id {node.id} appears twice"
            nodes[place] = node
    waits: dict[_Place, list[_Place]] = {}
    for place, node in nodes.items():
        waits[place] = [_Place(place.rank, dep) for dep in (*node.data_deps, *node.ctrl_deps)]
        missing = next((dep for dep in waits[place] if dep not in nodes), None)
        if missing is not None:
            return f"rank {place.rank}: node {node.id} depends on {missing.node}, not there"
    problem = _match(nodes, waits, len(traces))
    if problem is not None:
        return problem
    order = _order(waits)
    if len(order) < len(nodes):
        stuck = min(set(nodes) - set(order))
        return f"rank {stuck.rank}: node {stuck.node} waits for itself, over others"
    return _check_data(nodes, order)


def _attributes(node: Any) -> dict[str, int]:
    """Return the attributes that are numbers, which is all that sends and receives need."""
    numbers = ("int32_val", "int64_val")
    return {
        a.name: getattr(a, kind) for a in node.attr if (kind := a.WhichOneof("value")) in numbers
    }


def _match(nodes: dict[_Place, Any], waits: dict[_Place, list[_Place]], ranks: int) -> str | None:
    """Pair sends with receives; a receive waits for its send."""
    sent: dict[tuple[int, int, int], tuple[_Place, int]] = {}
    taken: dict[tuple[int, int, int], tuple[_Place, int]] = {}
    for place, node in nodes.items():
        if node.type not in (messages.SEND, messages.RECEIVE):
            continue
        values = _attributes(node)
        is_send = node.type == messages.SEND
        peer = values.get("comm_dst" if is_send else "comm_src", -1)
        if not 0 <= peer < ranks or peer == place.rank or "comm_tag" not in values:
            return f"rank {place.rank}: node {node.id} names no other rank or has no tag"
        ends = (place.rank, peer) if is_send else (peer, place.rank)
        table = sent if is_send else taken
        key = (*ends, values["comm_tag"])
        if key in table:
            return f"rank {place.rank}: node {node.id} repeats tag {values['comm_tag']}"
        table[key] = place, values.get("comm_size", -1)
    for key in sorted(sent.keys() | taken.keys()):
        if key not in sent or key not in taken:
            alone = sent.get(key) or taken[key]
            return f"rank {alone[0].rank}: node {alone[0].node} has no counterpart"
        if sent[key][1] != taken[key][1] or sent[key][1] < 1:
            sizes = f"{sent[key][1]} and {taken[key][1]} bytes"
            return f"rank {key[0]}: the ends of tag {key[2]} differ in size, {sizes}"
        waits[taken[key][0]].append(sent[key][0])
    return None


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


def _check_data(nodes: dict[_Place, Any], order: Sequence[_Place]) -> str | None:
    """Check that what a rank sends came from one that had it, over the dependencies on data."""
    owners: dict[str, set[int]] = {}
    reduced: set[str] = set()
    for place in order:
        node, chunk = nodes[place], _chunk_of(nodes[place])
        if node.type == messages.COMPUTE and not node.data_deps:
            continue
        if chunk is None:
            return f"rank {place.rank}: node {place.node} does not name its chunk"
        feeds = [nodes[_Place(place.rank, dep)] for dep in node.data_deps]
        if any(_chunk_of(feed) != chunk for feed in feeds):
            return f"rank {place.rank}: node {place.node} depends on another chunk"
        if any(feed.type == messages.COMPUTE and not feed.data_deps for feed in feeds):
            return f"rank {place.rank}: node {place.node} depends on a sum of nothing"
        if node.type == messages.SEND and not node.data_deps:
            owners.setdefault(chunk, set()).add(place.rank)
        elif node.type == messages.COMPUTE:
            reduced.add(chunk)
    for chunk, ranks in owners.items():
        if len(ranks) > 1 and chunk not in reduced:
            return f"chunk {chunk} begins on ranks {sorted(ranks)}; one of them has not got it yet"
    return None


def _chunk_of(node: Any) -> str | None:
    found = _CHUNK.search(node.name)
    return None if found is None else found[1]
