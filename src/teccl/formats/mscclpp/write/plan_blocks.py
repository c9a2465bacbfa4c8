"""The operations of one thread block of an MSCCL++ plan on one GPU."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from teccl.formats.mscclpp.write.plan_slots import Slot, Slots
from teccl.formats.shared.gpu_sends import GpuSend

# Transfers of some chunks by round.
Wave = dict[int, list[GpuSend]]
MAX_CHANNEL_IDS = 8
MAX_OPERANDS = 10


class BlockBuilder:
    """Writes the operations of a thread block on one rank.

    Parameters
    ----------
    rank
        Where it runs.
    waves
        What all ranks do in the blocks of this number.
    slots
        Where chunks lie.
    groups
        The machine of each rank.
    copies_own
        Whether this block copies what a rank keeps of its own input.

    Attributes
    ----------
    ops
        The operations, as the file has them.
    peers
        By type of channel the ranks at the other ends, in order.
    remote
        By type of channel the buffers of others that are written to, in order.
    """

    def __init__(
        self,
        rank: int,
        waves: Sequence[Wave],
        slots: Slots,
        groups: Sequence[str | None],
        *,
        copies_own: bool,
    ) -> None:
        self.rank = rank
        self.ops: list[dict[str, Any]] = []
        self.peers: dict[str, list[int]] = {"memory": [], "port": []}
        self.remote: dict[str, list[tuple[int, str]]] = {"memory": [], "port": []}
        self._waves = waves
        self._slots = slots
        self._groups = groups
        self._copies_own = copies_own
        # Signals that are not waited for yet, by the rank that sends them.
        self._due: Counter[int] = Counter()
        # Contributions that are not added yet, by chunk, and chunks whose sum is in the store.
        self._unmerged: dict[int, list[GpuSend]] = {}
        self._stored: set[int] = set()
        # Whether threads may disagree on what was waited for, or on what was moved.
        self._has_waited = False
        self._has_moved = False

    def build(self) -> None:
        """Write all operations."""
        sends = [send for wave in self._waves for sends in wave.values() for send in sends]
        to = sorted({send.dst for send in sends if send.src == self.rank})
        back = sorted({send.src for send in sends if send.dst == self.rank})
        for peer in sorted({*to, *back}):
            self.peers[self._kind(peer)].append(peer)
        self._last_put = {send.dst: send.number for send in self._outgoing_in_order()}
        if self._copies_own:
            self._copy_own()
        # Nobody may write to a rank that has not begun this call: it may still use its buffers.
        self._channel_ops("rlxsignal", back)
        self._channel_ops("rlxwait", to)
        self._has_waited = bool(to)
        for wave in self._waves:
            self._write_wave(wave)
        self._wait()

    def _kind(self, peer: int) -> str:
        return "memory" if self._groups[peer] == self._groups[self.rank] else "port"

    def _outgoing_in_order(self) -> Iterable[GpuSend]:
        for wave in self._waves:
            for number in sorted(wave):
                yield from (send for send in wave[number] if send.src == self.rank)

    def _write_wave(self, wave: Wave) -> None:
        for number in sorted(wave):
            outgoing = [send for send in wave[number] if send.src == self.rank]
            if outgoing:
                self._wait()
                self._reduce({send.chunk: set(send.feeds) for send in outgoing})
                self._put(outgoing)
            incoming = [send for send in wave[number] if send.dst == self.rank]
            self._due.update({send.src for send in incoming})
            for send in incoming:
                if send.reduce:
                    self._unmerged.setdefault(send.chunk, []).append(send)
                else:
                    self._stored.add(send.chunk)
        if self._unmerged:
            self._wait()
            self._reduce(dict.fromkeys(list(self._unmerged)))

    def _copy_own(self) -> None:
        own = self._slots.own(self.rank)
        if own is not None:
            source, target = (local(slot, self._slots.share) for slot in own)
            self.ops.append({"name": "copy", "src_buff": [source], "dst_buff": [target]})

    def _reduce(self, wanted: dict[int, set[int] | None]) -> None:
        """Add contributions to the sums of some chunks: those of given numbers, or all."""
        operands = []
        for chunk, numbers in wanted.items():
            here = self._unmerged.pop(chunk, [])
            ready = [send for send in here if numbers is None or send.number in numbers]
            left = [send for send in here if send not in ready]
            if left:
                self._unmerged[chunk] = left
            if ready:
                operands.append((chunk, [self._slots.landing(send) for send in ready]))
        while operands:
            self._sync()
            rows = []
            for chunk, landings in operands:
                room = MAX_OPERANDS - 1
                rows.append(
                    (self._held(chunk), *landings[:room], self._slots.store(chunk, self.rank))
                )
                self._stored.add(chunk)
                del landings[:room]
            for slots, size in joined_rows(rows):
                self._move("re", [local(slot, size) for slot in slots], reduce_op="sum")
            operands = [entry for entry in operands if entry[1]]

    def _held(self, chunk: int) -> Slot:
        """Where this rank has what it sends of a chunk."""
        own = self._slots.source(chunk, self.rank)
        if own is None or chunk in self._stored:
            return self._slots.store(chunk, self.rank)
        return own

    def _carried(self, send: GpuSend) -> Slot:
        """Where what is sent lies."""
        return self._held(send.chunk)

    def _landing(self, send: GpuSend) -> Slot:
        """Where the receiver gets it."""
        return self._slots.landing(send)

    def _put(self, outgoing: Sequence[GpuSend]) -> None:
        """Put chunks into the buffers of others and tell them."""
        self._sync()
        by_peer: dict[int, list[GpuSend]] = {}
        for send in outgoing:
            by_peer.setdefault(send.dst, []).append(send)
        for peer in sorted(by_peer, key=lambda peer: (self._kind(peer) != "port", peer)):
            rows = [(self._carried(send), self._landing(send)) for send in by_peer[peer]]
            runs = list(joined_rows(rows))
            kind, is_last = self._kind(peer), by_peer[peer][-1].number == self._last_put[peer]
            for i, ((source, target), size) in enumerate(runs):
                name = "put"
                if kind == "port" and i == len(runs) - 1:
                    # The last one waits until the network has read the caller's data.
                    name = "pwsf" if is_last else "pws"
                place = self._remote(kind, peer, target.letter)
                there = {"buffer_id": place, "index": target.place, "size": size}
                channel: dict[str, Any] = {"channel_type": kind}
                if kind == "port":
                    channel["channel_ids"] = [self.peers[kind].index(peer)]
                self._move(name, [local(source, size), there], **channel)
        near = [peer for peer in by_peer if self._kind(peer) == "memory"]
        if near:
            self._sync()
            self._channel_ops("signal", near)

    def _remote(self, kind: str, peer: int, letter: str) -> int:
        if (peer, letter) not in self.remote[kind]:
            self.remote[kind].append((peer, letter))
        return self.remote[kind].index((peer, letter))

    def _wait(self) -> None:
        """Wait for all signals that are due."""
        while self._due:
            peers = [peer for peer, _ in self._due.most_common()]
            self._channel_ops("wait", peers)
            self._due.subtract(peers)
            self._due += Counter()
            self._has_waited = True

    def _channel_ops(self, name: str, peers: Iterable[int]) -> None:
        """Write an operation on the channels to some ranks, in as many parts as it needs."""
        chosen = set(peers)
        for kind, known in self.peers.items():
            ids = [i for i, peer in enumerate(known) if peer in chosen]
            for first in range(0, len(ids), MAX_CHANNEL_IDS):
                part = ids[first : first + MAX_CHANNEL_IDS]
                self.ops.append({"name": name, "channel_ids": part, "channel_type": kind})

    def _move(self, name: str, operands: Sequence[dict[str, Any]], **more: Any) -> None:
        """Write an operation on data, the last operand being its target."""
        *sources, target = operands
        self.ops.append({"name": name, "src_buff": sources, "dst_buff": [target], **more})
        self._has_moved = True

    def _sync(self) -> None:
        """Let all threads of the block agree on what was waited for and moved so far."""
        if self._has_waited or self._has_moved:
            self.ops.append({"name": "nop"})
        self._has_waited = self._has_moved = False


def local(slot: Slot, size: int) -> dict[str, Any]:
    """Return an operand in a buffer of the rank itself."""
    return {"type": slot.letter, "index": slot.place, "size": size}


def joined_rows(rows: Iterable[tuple[Slot, ...]]) -> Iterable[tuple[tuple[Slot, ...], int]]:
    """Join rows that follow each other in all columns; yield the first of each, and how many.

    Examples
    --------
    >>> list(joined_rows([(Slot("i", 4), Slot("o", 1)), (Slot("i", 5), Slot("o", 2))]))
    [((Slot(letter='i', place=4), Slot(letter='o', place=1)), 2)]
    """
    first: tuple[Slot, ...] | None = None
    count = 0
    for row in sorted(rows):
        if first is not None and row == tuple(Slot(s.letter, s.place + count) for s in first):
            count += 1
            continue
        if first is not None:
            yield first, count
        first, count = row, 1
    if first is not None:
        yield first, count
