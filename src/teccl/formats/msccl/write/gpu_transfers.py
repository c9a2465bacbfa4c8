"""Transfers: chunks going from GPU to GPU, whatever switches lie between, useless ones dropped."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from teccl.errors import ExportError
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Sends and arrivals, sorted by chunk, time, what happens, and transfer.

    Parameters
    ----------
    transfer, action
        Of every event; actions are those of `kernels`.
    first
        Place of each chunk's first event, and of the end.
    """

    transfer: Integers
    action: Integers
    first: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTransfers:
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

    src: Integers
    dst: Integers
    chunk: Integers
    start: Integers
    arrival: Integers
    merges: Flags

    def __len__(self) -> int:
        return len(self.src)

    def events(self, num_chunks: int) -> Events:
        """All sends and arrivals of every chunk."""
        from teccl.formats.msccl.write.compiled import MERGE, REPLACE, SEND

        count = len(self)
        time = np.concatenate([self.start, self.arrival])
        action = np.concatenate([np.full(count, SEND), np.where(self.merges, MERGE, REPLACE)])
        transfer, chunk = np.tile(np.arange(count), 2), np.tile(self.chunk, 2)
        order = np.lexsort((transfer, action, time, chunk))
        first = np.searchsorted(chunk[order], np.arange(num_chunks + 1))
        return Events(transfer=transfer[order], action=action[order], first=first)

    def take(self, kept: Integers | Flags) -> "GpuTransfers":
        """Return some of the transfers."""
        return GpuTransfers(
            src=self.src[kept],
            dst=self.dst[kept],
            chunk=self.chunk[kept],
            start=self.start[kept],
            arrival=self.arrival[kept],
            merges=self.merges[kept],
        )


def transfers_of(schedule: Schedule) -> GpuTransfers:
    """Collapse passages through switches, number GPUs by rank and drop what nobody needs.

    Raises
    ------
    ExportError
        If data passes through a GPU that takes no part in the collective.
    """
    problem = schedule.problem
    rows = _collapse(schedule)
    rows = rows[np.lexsort(rows.T[::-1])]
    start, arrival, src, dst, chunk, merges = rows.T
    rank = ranks_of(problem)
    refuse_strangers(problem, rank, rows[:, 2:4])
    transfers = GpuTransfers(
        src=rank[src],
        dst=rank[dst],
        chunk=chunk.copy(),
        start=start.copy(),
        arrival=arrival.copy(),
        merges=merges.astype(bool),
    )
    return transfers.take(_useful(transfers, problem, rank))


def refuse_strangers(problem: Problem, rank: Integers, nodes: Integers) -> None:
    """Refuse data that passes through a GPU that takes no part in the collective."""
    for node in np.unique(nodes):
        if rank[node] < 0:
            raise ExportError(
                f"{problem.topology.nodes[node].name} forwards data but takes no part in the "
                "collective; programs know the communicator's ranks only, so solve for all ranks "
                "or remove its links"
            )


def ranks_of(problem: Problem) -> Integers:
    """Place in the communicator of every node, -1 for those that take no part."""
    topology = problem.topology
    members = problem.demand.tenants[0].members(topology.num_gpus)
    rank = np.full(len(topology.nodes), -1)
    rank[topology.gpus[list(members)]] = np.arange(len(members))
    return rank


def _useful(transfers: GpuTransfers, problem: Problem, rank: Integers) -> Flags:
    """Leave out arrivals of what is there already and whatever leads to no destination."""
    from teccl.formats.msccl.write.compiled import useful

    table = problem.chunks
    holds = np.zeros((len(table.sets), int(rank.max()) + 1), dtype=bool)
    for flags, nodes in zip(holds, table.sets, strict=True):
        flags[rank[list(nodes)]] = True
    events = transfers.events(len(table.reduce))
    return useful(
        events.transfer,
        events.action,
        events.first,
        transfers.src,
        transfers.dst,
        table.reduce,
        holds[table.source_set],
        holds[table.destination_set],
    )


def _collapse(schedule: Schedule) -> Integers:
    """Rows (start, arrival, source, destination, chunk, merges) from GPU to GPU, by node."""
    topology, sends = schedule.problem.topology, schedule.sends
    src, dst = topology.link_src[sends["link"]], topology.link_dst[sends["link"]]
    arrival = send_times(schedule).arrival_ps
    columns = (sends["start_ps"], arrival, src, dst, sends["chunk"], sends["reduce"])
    hops = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
    is_switch = np.array([node.is_switch for node in topology.nodes])
    begins, ends = ~is_switch[src], ~is_switch[dst]
    if (begins & ends).all():
        return hops
    _, passage = np.unique(sends["transfer"], return_inverse=True)
    passage[begins & ends] = -1
    roots = np.bincount(passage[begins & ~ends], minlength=int(passage.max()) + 1)
    root_of = np.zeros(len(roots), dtype=np.int64)
    root_of[passage[begins & ~ends]] = np.flatnonzero(begins & ~ends)
    plain = np.flatnonzero(ends & ((passage < 0) | (roots[passage] == 1)))
    rows = hops[plain]
    through = passage[plain] >= 0
    root = root_of[passage[plain[through]]]
    rows[through, 0], rows[through, 2] = hops[root, 0], hops[root, 2]
    merged = np.flatnonzero((passage >= 0) & (roots[passage] > 1))
    order = merged[np.argsort(passage[merged], kind="stable")]
    cuts = np.flatnonzero(np.diff(passage[order])) + 1
    extra: list[_Row] = []
    for first, last in pairwise([0, *cuts.tolist(), len(order)]):
        one = [tuple(hops[i].tolist()) for i in order[first:last]]
        extra += _through_reducing_switches(one, is_switch.tolist())
    return np.concatenate([rows, np.array(extra, dtype=np.int64).reshape(-1, 6)])


_Row = tuple[int, ...]


def _through_reducing_switches(hops: list[_Row], is_switch: list[bool]) -> list[_Row]:
    """Pair the GPUs at which one transfer begins with those at which it ends."""
    rows: list[_Row] = []
    for leaf in hops:
        if not is_switch[leaf[3]]:
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
