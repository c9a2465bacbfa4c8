"""Operations: transfers of neighbouring chunks on one connection, joined, with their addresses."""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from teccl.exporters.lowering.layout import INPUT, OUTPUT, SCRATCH, Copy, Layout, Place
from teccl.exporters.lowering.levels import History
from teccl.exporters.lowering.limits import DoesNotFit, Limits
from teccl.exporters.lowering.transfers import Transfers


class Operation(NamedTuple):
    """Neighbouring chunks that go from one GPU to another in one step of each.

    Parameters
    ----------
    src, dst
        Ranks.
    length
        Number of chunks.
    source
        Where they lie at the sender.
    target
        Where the receiver puts them.
    local
        What the receiver combines them with, None where it only stores.
    sent, received
        Places of both ends in the global order.
    position
        Where in its block the first chunk lies.
    """

    src: int
    dst: int
    length: int
    source: Place
    target: Place
    local: Place | None
    sent: int
    received: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """All operations in the order of `sent`, copies that GPUs make, and scratch sizes by rank."""

    items: list[Operation]
    copies: list[list[Copy]]
    scratch: list[int]


class Plan(NamedTuple):
    """What operations are made from: transfers with levels, chunks with blocks and positions."""

    transfers: Transfers
    history: History
    level: list[int]
    block: list[int]
    position: list[int]


def operations_of(plan: Plan, layout: Layout, limits: Limits, *, whole_blocks: bool) -> Operations:
    """Join transfers of one level and connection whose chunks are neighbours at both ends.

    Parameters
    ----------
    plan
        What to join.
    layout
        Where chunks lie.
    limits
        How many chunks an operation may have.
    whole_blocks
        Whether an operation may reach from one block into the next.
    """
    return _Joiner(plan, layout, limits, whole_blocks).run()


class _Member(NamedTuple):
    """One transfer with its addresses, in the order in which neighbours stand side by side."""

    target: Place
    source: Place
    local: Place
    transfer: int


# In place of an address where there is none; it is nobody's neighbour, not even its own.
_NOWHERE = -1


class _Joiner:
    """Walks over levels, keeping track of where every GPU's current copy of a chunk lies."""

    def __init__(self, plan: Plan, layout: Layout, limits: Limits, whole_blocks: bool) -> None:
        self.plan, self.layout, self.limits = plan, layout, limits
        self.whole_blocks = whole_blocks
        self.scratch, self.sizes = self._scratch_places()
        # Where the current copy of a chunk lies, once something has arrived.
        self.current: dict[tuple[int, int], Place] = {}
        self.number_of = [0] * len(plan.transfers)

    def run(self) -> Operations:
        """Build all operations."""
        transfers = self.plan.transfers
        groups: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(dict)
        for t, level in enumerate(self.plan.level):
            connection = (transfers.src[t], transfers.dst[t])
            groups[level].setdefault(connection, []).append(t)
        items: list[Operation] = []
        for level in sorted(groups):
            # What leaves in a level was there before anything of the level arrives.
            source = {
                t: self._current(transfers.src[t], transfers.chunk[t])
                for members in groups[level].values()
                for t in members
            }
            for (src, dst), members in groups[level].items():
                for run in self._runs([self._member(t, source[t]) for t in members]):
                    for member in run:
                        self.number_of[member.transfer] = len(items)
                    items.append(self._operation(src, dst, run, len(items)))
        copies = [self._own_copies(rank) for rank in range(self.layout.ranks)]
        self._receive_after_what_they_follow(items)
        _receive_in_order(items)
        return Operations(items=items, copies=copies, scratch=self.sizes)

    def _scratch_places(self) -> tuple[dict[tuple[int, int], Place], list[int]]:
        """Number the chunks that need scratch at each rank, neighbours side by side."""
        layout, transfers = self.layout, self.plan.transfers
        block, position = self.plan.block, self.plan.position
        needing: list[set[tuple[int, int, int]]] = [set() for _ in range(layout.ranks)]
        for src, dst, chunk in zip(transfers.src, transfers.dst, transfers.chunk, strict=True):
            b, q = block[chunk], position[chunk]
            if layout.home(dst, b, q) is None:
                needing[dst].add((b, q, chunk))
            if layout.own(src, b, q) is None:
                needing[src].add((b, q, chunk))
        places = {
            (rank, chunk): SCRATCH + offset
            for rank, chunks in enumerate(needing)
            for offset, (_, _, chunk) in enumerate(sorted(chunks))
        }
        sizes = [len(chunks) for chunks in needing]
        if max(sizes) > self.limits.offset:
            raise DoesNotFit(
                f"{max(sizes)} chunks of scratch are more than offsets reach ({self.limits.offset})"
            )
        return places, sizes

    def _home(self, rank: int, chunk: int) -> Place:
        """Where arrivals of a chunk are kept."""
        home = self.layout.home(rank, self.plan.block[chunk], self.plan.position[chunk])
        return self.scratch[rank, chunk] if home is None else home

    def _current(self, rank: int, chunk: int) -> Place:
        """Where a rank's copy of a chunk lies now."""
        place = self.current.get((rank, chunk))
        if place is None:
            place = self.layout.own(rank, self.plan.block[chunk], self.plan.position[chunk])
        return self.scratch[rank, chunk] if place is None else place

    def _member(self, t: int, source: Place) -> _Member:
        """Give a transfer its addresses; from now on its receiver's copy lies at home."""
        transfers = self.plan.transfers
        dst, chunk = transfers.dst[t], transfers.chunk[t]
        local = self._current(dst, chunk) if transfers.merges[t] else _NOWHERE
        home = self.current[dst, chunk] = self._home(dst, chunk)
        return _Member(home, source, local, t)

    def _runs(self, members: list[_Member]) -> list[list[_Member]]:
        """Cut the members of one level and connection into neighbouring chunks."""
        if len(members) == 1:
            return [members]
        members.sort()
        runs = [[members[0]]]
        for member in members[1:]:
            if len(runs[-1]) < self.limits.count and self._follows(runs[-1][-1], member):
                runs[-1].append(member)
            else:
                runs.append([member])
        # Transfers are numbered in the order of their start.
        return sorted(runs, key=lambda run: min(member.transfer for member in run))

    def _follows(self, before: _Member, after: _Member) -> bool:
        """Whether a chunk is the neighbour of another everywhere."""
        neighbours = (
            before.target + 1 == after.target
            and before.source + 1 == after.source
            and (
                before.local + 1 == after.local
                if before.local != _NOWHERE
                else after.local == _NOWHERE
            )
        )
        if not neighbours or self.whole_blocks:
            return neighbours
        chunk, block = self.plan.transfers.chunk, self.plan.block
        return block[chunk[before.transfer]] == block[chunk[after.transfer]]

    def _operation(self, src: int, dst: int, run: list[_Member], number: int) -> Operation:
        first = run[0]
        return Operation(
            src=src,
            dst=dst,
            length=len(run),
            source=first.source,
            target=first.target,
            local=None if first.local == _NOWHERE else first.local,
            sent=number,
            received=number,
            position=self.plan.position[self.plan.transfers.chunk[first.transfer]],
        )

    def _own_copies(self, rank: int) -> list[Copy]:
        """What a rank copies for itself, in steps of allowed length."""
        return [
            Copy(
                copy.source + done,
                copy.target + done,
                min(self.limits.count, copy.length - done),
            )
            for copy in (*self.layout.copies(rank), *self._staged(rank))
            for done in range(0, copy.length, self.limits.count)
        ]

    def _staged(self, rank: int) -> list[Copy]:
        """Copies to scratch of own data whose place will be overwritten while it waits."""
        n, c = self.layout.ranks, self.layout.pieces
        if self.layout.own(rank, rank * n, 0) is not None:
            return []
        copies: list[Copy] = []
        for (owner, chunk), scratch in self.scratch.items():
            block = self.plan.block[chunk]
            if owner != rank or block // n != rank:
                continue
            source = OUTPUT + block % n * c + self.plan.position[chunk]
            last = copies[-1] if copies else Copy(INPUT, INPUT, 0)
            follows = last.source + last.length == source and last.target + last.length == scratch
            if follows and (self.whole_blocks or source % c):
                copies[-1] = last._replace(length=last.length + 1)
            else:
                copies.append(Copy(source, scratch, 1))
        return copies

    def _receive_after_what_they_follow(self, items: list[Operation]) -> None:
        """Let an operation be received after the sends from the place that it changes."""
        for earlier, later in self.plan.history.followers:
            number, due = self.number_of[later], self.number_of[earlier]
            if items[number].received < due:
                items[number] = items[number]._replace(received=due)


def _receive_in_order(items: list[Operation]) -> None:
    """Let each connection deliver in the order in which it was given."""
    latest: dict[tuple[int, int], int] = {}
    for number, item in enumerate(items):
        due = max(item.received, latest.get((item.src, item.dst), 0))
        if due != item.received:
            items[number] = item._replace(received=due)
        latest[item.src, item.dst] = due
