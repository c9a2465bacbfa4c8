"""Columns: the sends of a schedule with what they refer to, and who holds what at the start."""

from dataclasses import dataclass

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints, locate
from teccl.problem import ChunkTable, Problem
from teccl.schedule.sends import Schedule


class NodeSetColumn:
    """Membership in the node sets of a chunk table, for whole arrays at a time."""

    def __init__(self, table: ChunkTable, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self.size = ints([len(nodes) for nodes in table.sets])
        self._first = np.cumsum(self.size) - self.size
        self.members = np.concatenate([*table.sets, ints([])]).astype(np.int64)
        self._keys = np.repeat(np.arange(len(self.size)), self.size) * num_nodes + self.members

    def position(self, sets: IntArray, nodes: IntArray) -> IntArray:
        """Place of each node within its set, -1 where it is not a member."""
        keys = sets * self._num_nodes + nodes
        found = locate(self._keys, keys)
        inside = np.minimum(found, len(self._keys) - 1)
        return np.where(self._keys[inside] == keys, found - self._first[sets], -1)

    def first(self, sets: IntArray) -> IntArray:
        """Where each set begins in `members`."""
        return self._first[sets]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """One array entry per send.

    Parameters
    ----------
    problem
        What the schedule solves.
    sets
        Sources and destinations of its chunks.
    chunk, link, transfer, is_reduce
        As in the schedule; `is_reduce` is the send's op.
    src, dst
        Nodes the link leads from and to.
    from_gpu, to_gpu
        Whether these are GPUs.
    combines
        Whether the chunk is a reduction.
    size
        Index of the chunk's size.
    carries, becomes
        Rows of the schedule's partial sums, -1 where there are none.
    in_sums
        Whether the chunk is kept in partial sums.
    sum_chunks
        The same for each chunk.
    """

    problem: Problem
    sets: NodeSetColumn
    chunk: IntArray
    link: IntArray
    transfer: IntArray
    is_reduce: BoolArray
    src: IntArray
    dst: IntArray
    from_gpu: BoolArray
    to_gpu: BoolArray
    combines: BoolArray
    size: IntArray
    carries: IntArray
    becomes: IntArray
    in_sums: BoolArray
    sum_chunks: BoolArray

    def __len__(self) -> int:
        return len(self.chunk)

    @staticmethod
    def of(schedule: Schedule) -> "Sends":
        """Take a schedule's sends apart."""
        problem, rows = schedule.problem, schedule.sends
        topology = problem.topology
        chunk, link = rows["chunk"].astype(np.int64), rows["link"].astype(np.int64)
        src, dst = topology.link_src[link], topology.link_dst[link]
        is_switch = np.array([node.is_switch for node in topology.nodes], dtype=bool)
        sum_chunks = np.zeros(len(problem.chunks), dtype=bool)
        carries = becomes = np.broadcast_to(np.int64(-1), len(rows))
        if schedule.sums is not None:
            sum_chunks[schedule.sums["chunk"]] = True
            carries, becomes = (rows[name].astype(np.int64) for name in ("carries", "becomes"))
        return Sends(
            problem=problem,
            sets=NodeSetColumn(problem.chunks, topology.num_nodes),
            chunk=chunk,
            link=link,
            transfer=rows["transfer"].astype(np.int64),
            is_reduce=rows["reduce"].copy(),
            src=src,
            dst=dst,
            from_gpu=~is_switch[src],
            to_gpu=~is_switch[dst],
            combines=problem.chunks.reduce[chunk],
            size=problem.chunks.size_index[chunk],
            carries=carries,
            becomes=becomes,
            in_sums=sum_chunks[chunk],
            sum_chunks=sum_chunks,
        )

    @property
    def accumulates(self) -> BoolArray:
        """Whether each send is of a sum for which every GPU has one accumulator."""
        return self.combines & ~self.in_sums

    def keys(self, chunk: IntArray, node: IntArray) -> IntArray:
        """One number for each pair of chunk and node."""
        return chunk * self.problem.topology.num_nodes + node

    def source_position(self, chunk: IntArray, node: IntArray) -> IntArray:
        """Place of a node among the sources of a chunk, -1 where it is none."""
        return self.sets.position(self.problem.chunks.source_set[chunk], node)

    def is_source(self, chunk: IntArray, node: IntArray) -> BoolArray:
        """Whether a node holds a chunk, or contributes to it, at the start."""
        return self.source_position(chunk, node) >= 0

    def is_wanted(self, chunk: IntArray, node: IntArray) -> BoolArray:
        """Whether a node is a destination of a chunk."""
        return self.sets.position(self.problem.chunks.destination_set[chunk], node) >= 0
