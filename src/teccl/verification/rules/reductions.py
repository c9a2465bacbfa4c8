"""Rule: every destination of a sum combines every source's contribution exactly once.

Each GPU has one accumulator per chunk, a set of contributions kept as the bits of an integer. A
send carries what the accumulator holds at its start. An arrival with op reduce is merged, one
with op copy replaces the accumulator; at one instant merges come first, and sends last.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints, locate
from teccl.schedule.columns import Sends
from teccl.verification.addition_trees import Trees
from teccl.verification.case import Case
from teccl.verification.timeline import Timeline
from teccl.verification.transfers import mixed_transfers
from teccl.verification.violation import ViolationKind
from teccl.verification.wanted import add_unmet, wanted_pairs

# What happens at one instant, in this order.
_OWN, _MERGE, _REPLACE, _SEND = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accumulators:
    """Accumulators that sends touch.

    Parameters
    ----------
    keys
        Chunk and node of each, sorted.
    reads, writes
        Per send, the accumulator it reads from and arrives at; meaningless where it does not.
    bit
        Place of the node among the chunk's sources, -1 where it is none.
    ready
        When its own contribution is there.
    """

    keys: IntArray
    reads: IntArray
    writes: IntArray
    bit: IntArray
    ready: IntArray

    @staticmethod
    def of(sends: Sends, timeline: Timeline, rows: IntArray) -> "_Accumulators":
        """Find the accumulators of the given sends."""
        keys, index = np.unique(
            np.concatenate(
                [
                    sends.keys(sends.chunk[rows], sends.src[rows]),
                    sends.keys(sends.chunk[rows], sends.dst[rows]),
                ]
            ),
            return_inverse=True,
        )
        places = np.zeros((2, len(sends)), dtype=np.int64)
        places[:, rows] = index.reshape(2, -1)
        chunk, node = np.divmod(keys, sends.problem.topology.num_nodes)
        return _Accumulators(
            keys=keys,
            reads=places[0],
            writes=places[1],
            bit=sends.source_position(chunk, node),
            ready=timeline.ready[sends.problem.chunks.tenant[chunk], node],
        )


def check(case: Case) -> None:
    """Replay all reductions and check what is merged, sent and held in the end."""
    if not case.problem.has_reductions:
        return
    rows = np.flatnonzero(case.sends.accumulates)
    accumulators = _Accumulators.of(case.sends, case.timeline, rows)
    replay = _Replay(case, accumulators)
    replay.run(rows)
    _check_results(case, accumulators.keys, replay.held)


def accumulated_trees(case: Case, trees: Trees) -> Iterator[tuple[int, int, int]]:
    """Yield chunk, destination and tree of additions of each result in an accumulator."""
    sends, table = case.sends, case.problem.chunks
    chunks = np.flatnonzero(table.reduce & ~sends.sum_chunks)
    rows = np.flatnonzero(sends.accumulates)
    accumulators = _Accumulators.of(sends, case.timeline, rows)
    ends = _Replay(case, accumulators).trees(rows, trees)
    final = dict(zip(accumulators.keys.tolist(), ends, strict=True))
    for chunk, node in wanted_pairs(sends, chunks):
        for key, c, n in zip(
            sends.keys(chunk, node).tolist(), chunk.tolist(), node.tolist(), strict=True
        ):
            yield c, n, final.get(key, 0)


class _Replay:
    """Contributions in accumulators and on their way, event by event."""

    def __init__(self, case: Case, accumulators: _Accumulators) -> None:
        self.case = case
        self.sends = case.sends
        self.transfers = case.transfers
        self.timeline = case.timeline
        self.accumulators = accumulators
        bits = [1 << i for i in range(int(accumulators.bit.max(initial=-1)) + 1)]
        late = (accumulators.ready > 0).tolist()
        self.own = [0 if i < 0 else bits[i] for i in accumulators.bit.tolist()]
        self.held = [0 if wait else own for wait, own in zip(late, self.own, strict=True)]
        self.value = [0] * (len(case.sends) + 1)  # The last is what a broken transfer carries.

    def run(self, rows: IntArray) -> None:
        """Replay the events of the given sends in order of time."""
        many = self.transfers.num_roots[self.transfers.index] > 1
        self.entering = self._entering(rows[many[rows]])
        carriers = self._carriers(many)
        actions, subjects, times = self._events(rows, many)
        reads = self.accumulators.reads.tolist()
        writes = self.accumulators.writes.tolist()
        held, value = self.held, self.value
        self.replaced: dict[int, tuple[int, int]] = {}
        from_gpu = self.sends.from_gpu.tolist()
        for action, subject, time in zip(actions, subjects, times, strict=True):
            if action == _SEND:
                if not from_gpu[subject]:
                    value[subject] = self._merged(subject)
                    continue
                value[subject] = held[reads[subject]]
                if not value[subject]:
                    self._note_empty(subject)
            elif action == _MERGE:
                place, arrived = writes[subject], value[carriers[subject]]
                if held[place] & arrived:
                    self._note_double(subject, self.sends.dst[subject], held[place] & arrived)
                held[place] |= arrived
            elif action == _REPLACE:
                self._replace(writes[subject], value[carriers[subject]], subject, time)
            else:
                held[subject] |= self.own[subject]

    def trees(self, rows: IntArray, trees: Trees) -> list[int]:
        """Return the tree of additions in each accumulator in the end."""
        many = self.transfers.num_roots[self.transfers.index] > 1
        carriers = self._carriers(many)
        entering = self._entering(rows[many[rows]])
        leaves, from_gpu = self.transfers.leaves.tolist(), self.sends.from_gpu.tolist()
        reads, writes = self.accumulators.reads.tolist(), self.accumulators.writes.tolist()
        bits = self.accumulators.bit.tolist()
        tree = [trees.own(bits[i]) if held else 0 for i, held in enumerate(self.held)]
        carried = [0] * len(self.value)
        changed: dict[int, int] = {}
        for action, subject, time in zip(*self._events(rows, many), strict=True):
            if action == _SEND and from_gpu[subject]:
                carried[subject] = tree[reads[subject]]
            elif action == _SEND:
                into = [carried[row] for row in entering.get(leaves[subject], [])]
                # A switch adds more than two in an order of its own, the same for all outputs.
                several = len(into) > 2
                joined = trees.joined(*into) if len(into) == 2 else sum(into)
                carried[subject] = trees.unknown("switch", leaves[subject]) if several else joined
            elif action == _OWN:
                tree[subject] = trees.joined(tree[subject], trees.own(bits[subject]))
            else:
                place, arrived = writes[subject], carried[carriers[subject]]
                new = trees.joined(tree[place], arrived) if action == _MERGE else arrived
                # Nothing says which of several arrivals of one instant is added first.
                tied = changed.get(place) == time and new != tree[place]
                tree[place] = trees.unknown("arrival", subject) if tied else new
                changed[place] = time
        return tree

    def _events(
        self, rows: IntArray, many: BoolArray
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Order all events: what happens, to which send or accumulator, when."""
        sends, timeline = self.sends, self.timeline
        own = np.flatnonzero((self.accumulators.ready > 0) & (self.accumulators.bit >= 0))
        arriving = rows[sends.to_gpu[rows]]
        # Where several roots merge, each hop carries its own value; elsewhere the root's serves.
        leaving = rows[sends.from_gpu[rows] | (many[rows] & (self.transfers.level[rows] > 0))]
        action = np.concatenate(
            [
                np.full(len(own), _OWN),
                np.where(sends.is_reduce[arriving], _MERGE, _REPLACE),
                np.full(len(leaving), _SEND),
            ]
        )
        subject = np.concatenate([own, arriving, leaving])
        time = np.concatenate(
            [self.accumulators.ready[own], timeline.arrival[arriving], timeline.start[leaving]]
        )
        depth = np.concatenate(
            [np.zeros(len(own) + len(arriving), dtype=np.int64), self.transfers.level[leaving]]
        )
        order = np.lexsort((depth, action, time))
        return action[order].tolist(), subject[order].tolist(), time[order].tolist()

    def _carriers(self, many: BoolArray) -> list[int]:
        """Return the send whose value each send carries."""
        root = self.transfers.root[self.transfers.index]
        carrier = np.where(many, np.arange(len(root)), root)
        broken = np.zeros(len(self.transfers.root), dtype=bool)
        broken[self.transfers.index[mixed_transfers(self.sends, self.transfers)]] = True
        unreached = (self.transfers.leaves < 0) & ~self.sends.from_gpu
        wrong = broken[self.transfers.index] | unreached | (root < 0)
        carriers: list[int] = np.where(wrong, len(root), carrier).tolist()
        return carriers

    def _entering(self, rows: IntArray) -> dict[int, list[int]]:
        """Sends that enter each passage of the given sends."""
        entering: dict[int, list[int]] = {}
        for row, passage in zip(rows.tolist(), self.transfers.enters[rows].tolist(), strict=True):
            entering.setdefault(passage, []).append(row)
        return entering

    def _merged(self, row: int) -> int:
        """Return what leaves a reducing switch: the union of what entered it."""
        total = 0
        for entry in self.entering.get(int(self.transfers.leaves[row]), []):
            if total & self.value[entry]:
                self._note_double(row, self.sends.src[row], total & self.value[entry])
            total |= self.value[entry]
        return total

    def _replace(self, place: int, arrived: int, row: int, time: int) -> None:
        before = self.held[place]
        lost = before & ~arrived
        if lost:
            when, older = self.replaced.get(place, (-1, 0))
            # Of two copies of one instant the smaller may as well have come first.
            if when == time and not (arrived & ~before) and not (older & ~arrived):
                return
            self._note_lost(row, lost)
        self.replaced[place] = (time, before)
        self.held[place] = arrived

    def _note(self, row: int, kind: ViolationKind, text: Callable[[], str]) -> None:
        """Add a violation; its text is only made while there is room for it."""
        if not self.case.findings.is_full(self.case.kind(kind)):
            self.case.note(kind, row, text())

    def _note_double(self, row: int, node: int, twice: int) -> None:
        self._note(
            row,
            ViolationKind.DOUBLE_REDUCTION,
            lambda: (
                f"adds the contribution of {self._whose(row, twice)} twice at {self._name(node)}"
            ),
        )

    def _note_lost(self, row: int, lost: int) -> None:
        self._note(
            row,
            ViolationKind.LOST_CONTRIBUTION,
            lambda: (
                f"overwrites the contribution of {self._whose(row, lost)} "
                f"at {self._name(self.sends.dst[row])}"
            ),
        )

    def _note_empty(self, row: int) -> None:
        kind, verb = ViolationKind.NOTHING_TO_SEND, "holds nothing of it to send"
        if self.own[self.accumulators.reads[row]]:
            kind, verb = ViolationKind.NOT_READY, "sends its own contribution before it is ready"
        start = self.timeline.start[row]
        self._note(
            row,
            kind,
            lambda: f"{self._name(self.sends.src[row])} {verb} at {self.timeline.show(start)}",
        )

    def _name(self, node: int) -> str:
        return self.case.node_name(node)

    def _whose(self, row: int, bits: int) -> str:
        """Name the first of some contributions and count the others."""
        sources = self.sends.problem.chunks.sources(int(self.sends.chunk[row]))
        first = self._name(sources[(bits & -bits).bit_length() - 1])
        more = bits.bit_count() - 1
        return f"{first} and {more} more" if more else first


def _check_results(case: Case, keys: IntArray, held: list[int]) -> None:
    """Check that every destination ends with all contributions."""
    sends, table = case.sends, case.problem.chunks
    kind = case.kind(ViolationKind.UNMET_DEMAND)
    counts = ints([value.bit_count() for value in held])
    for chunk, node in wanted_pairs(sends, np.flatnonzero(table.reduce & ~sends.sum_chunks)):
        wanted = sends.keys(chunk, node)
        found = np.minimum(locate(keys, wanted), max(0, len(keys) - 1))
        touched = keys[found] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
        has = sends.is_source(chunk, node).astype(np.int64)
        has[touched] = counts[found[touched]]
        needs = sends.sets.size[table.source_set[chunk]]
        if add_unmet(case, kind, (chunk, node), has, needs):
            return
