"""Transfers: chunks going from GPU to GPU, whatever switches lie between, useless ones dropped."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from teccl.errors import ExportError
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times

# What happens to a GPU's copy of a chunk at one instant, in this order.
MERGE, REPLACE, SEND = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Transfers in order of their start.

    Parameters
    ----------
    src, dst
        Ranks in the communicator.
    chunk
        Index in the problem's table of chunks.
    start, arrival
        Picoseconds.
    merges
        Whether the receiver combines what arrives with what it has; otherwise it stores it.
    """

    src: list[int]
    dst: list[int]
    chunk: list[int]
    start: list[int]
    arrival: list[int]
    merges: list[bool]

    def __len__(self) -> int:
        return len(self.src)

    def events(self) -> list[tuple[int, int, int]]:
        """All sends and arrivals in order: time, what happens, transfer."""
        count = len(self)
        time = np.array([*self.start, *self.arrival], dtype=np.int64)
        arrives = np.where(np.array(self.merges, dtype=bool), MERGE, REPLACE)
        action = np.concatenate([np.full(count, SEND), arrives])
        transfer = np.tile(np.arange(count), 2)
        order = np.lexsort((transfer, action, time))
        return list(
            zip(time[order].tolist(), action[order].tolist(), transfer[order].tolist(), strict=True)
        )

    def take(self, kept: list[int]) -> "Transfers":
        """Return some of the transfers."""
        return Transfers(
            src=[self.src[t] for t in kept],
            dst=[self.dst[t] for t in kept],
            chunk=[self.chunk[t] for t in kept],
            start=[self.start[t] for t in kept],
            arrival=[self.arrival[t] for t in kept],
            merges=[self.merges[t] for t in kept],
        )


def transfers_of(schedule: Schedule) -> Transfers:
    """Collapse passages through switches, number GPUs by rank and drop what nobody needs.

    Raises
    ------
    ExportError
        If data passes through a GPU that takes no part in the collective.
    """
    rows = _collapse(schedule)
    rank = _ranks(schedule)
    for node in {row[2] for row in rows} | {row[3] for row in rows}:
        if node not in rank:
            name = schedule.problem.topology.nodes[node].name
            raise ExportError(
                f"{name} forwards data but takes no part in the collective; programs know the "
                "communicator's ranks only, so solve for all ranks or remove its links"
            )
    rows.sort()
    columns: list[list[int]] = [list(column) for column in zip(*rows, strict=True)] or [[]] * 6
    start, arrival, src, dst, chunk, merges = columns
    transfers = Transfers(
        src=[rank[node] for node in src],
        dst=[rank[node] for node in dst],
        chunk=chunk,
        start=start,
        arrival=arrival,
        merges=[bool(m) for m in merges],
    )
    return _prune(transfers, schedule, rank)


def _ranks(schedule: Schedule) -> dict[int, int]:
    """Place in the communicator of every node that takes part."""
    topology, tenant = schedule.problem.topology, schedule.problem.demand.tenants[0]
    members = tenant.members(topology.num_gpus)
    return {int(topology.gpus[gpu]): place for place, gpu in enumerate(members)}


_Row = tuple[int, int, int, int, int, int]


def _collapse(schedule: Schedule) -> list[_Row]:
    """Rows (start, arrival, source, destination, chunk, merges) from GPU to GPU, by node."""
    topology, sends = schedule.problem.topology, schedule.sends
    src, dst = topology.link_src[sends["link"]], topology.link_dst[sends["link"]]
    columns = (
        sends["start_ps"].tolist(),
        send_times(schedule).arrival_ps.tolist(),
        src.tolist(),
        dst.tolist(),
        sends["chunk"].tolist(),
        sends["reduce"].tolist(),
    )
    is_switch = np.array([node.is_switch for node in topology.nodes])
    hops: list[_Row] = list(zip(*columns, strict=True))
    direct = ~is_switch[src] & ~is_switch[dst]
    if direct.all():
        return hops
    rows = [hops[i] for i in np.flatnonzero(direct)]
    through = np.flatnonzero(~direct)
    order = through[np.argsort(sends["transfer"][through], kind="stable")]
    cuts = np.flatnonzero(np.diff(sends["transfer"][order])) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(order)]):
        rows += _through_switches([hops[i] for i in order[first:last]], is_switch.tolist())
    return rows


def _through_switches(hops: list[_Row], is_switch: list[bool]) -> list[_Row]:
    """Pair the GPUs at which one transfer begins with those at which it ends."""
    roots = [hop for hop in hops if not is_switch[hop[2]]]
    leaves = [hop for hop in hops if not is_switch[hop[3]]]
    if len(roots) == 1:
        start, node = roots[0][0], roots[0][2]
        return [(start, leaf[1], node, *leaf[3:]) for leaf in leaves]
    rows: list[_Row] = []
    for leaf in leaves:
        rows += _merged_rows(leaf, _feeding(leaf, hops, is_switch))
    return rows


def _feeding(leaf: _Row, hops: list[_Row], is_switch: list[bool]) -> list[_Row]:
    """Hops that leave GPUs and reach a leaf."""
    found, seen, front = [], set[int](), [leaf]
    while front:
        hop = front.pop()
        if not is_switch[hop[2]]:
            found.append(hop)
        elif hop[2] not in seen:
            seen.add(hop[2])
            front += [other for other in hops if other[3] == hop[2]]
    return sorted(found)


def _merged_rows(leaf: _Row, feeding: list[_Row]) -> list[_Row]:
    """One transfer from each GPU whose data a switch combined; the receiver combines instead.

    A receiver that contributed itself has its own part already. One that stores keeps what
    comes first and combines the rest with it, a picosecond later so that the order is plain.
    """
    _, arrival, _, node, chunk, merges = leaf
    stores = not merges and all(hop[2] != node for hop in feeding)
    rows: list[_Row] = []
    for hop in feeding:
        if hop[2] != node:
            first = stores and not rows
            rows.append((hop[0], arrival + (stores and not first), hop[2], node, chunk, not first))
    return rows


def _prune(transfers: Transfers, schedule: Schedule, rank: dict[int, int]) -> Transfers:
    """Drop arrivals of what is there already and whatever leads to no destination."""
    table = schedule.problem.chunks
    sets = [{rank[int(node)] for node in nodes} for nodes in table.sets]
    source_set, wanted_set = table.source_set.tolist(), table.destination_set.tolist()
    combined = table.reduce.tolist()
    events = transfers.events()
    held: set[tuple[int, int]] = set()
    useless = set()
    for _, action, t in events:
        chunk, dst = transfers.chunk[t], transfers.dst[t]
        if action == SEND or combined[chunk]:
            continue
        if (dst, chunk) in held or dst in sets[source_set[chunk]]:
            useless.add(t)
        held.add((dst, chunk))
    # Backwards: a place is live while its content will still be wanted or sent.
    live: dict[tuple[int, int], bool] = {}
    kept: set[int] = set()
    for _, action, t in reversed(events):
        chunk = transfers.chunk[t]
        place = (transfers.src[t] if action == SEND else transfers.dst[t], chunk)
        if action == SEND:
            if t in kept:
                live[place] = True
            continue
        if t in useless:
            continue
        if live.get(place, place[0] in sets[wanted_set[chunk]]):
            kept.add(t)
            live[place] = action == MERGE
    return transfers.take(sorted(kept))
