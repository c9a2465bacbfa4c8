"""Proof: rounds of all ranks, executed symbolically by the rules of grouped point-to-point calls.

The rules, as NCCL documents them: the calls of a group may go in any order, except that those to
or from one peer are matched in order; a rank begins a group when it has ended the one before; a
group ends when all its calls have ended; a call ends when its partner's group has begun. Nothing
here is shared with what makes the rounds: values are followed element by element, and what must
come out is stated from the collective's definition.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from teccl.demand import Collective, Tenant
from teccl.errors import VerificationError
from teccl.rounds.round_steps import RankRounds, Round, Sum, Transfer
from teccl.runtime.rank_program import SCRATCH, Place

SEND, RECV = 0, 1
# A value: how often each element of each rank's send buffer is in it.
_Value = frozenset[tuple[tuple[int, int], int]]


class RoundSizes(NamedTuple):
    """Elements of a rank's send and recv buffers."""

    send: int
    recv: int


def prove(ranks: Sequence[RankRounds], tenant: Tenant, count: int) -> None:
    """Prove that rounds end, race nowhere and give exactly what a collective must give.

    Parameters
    ----------
    ranks
        What every rank does, by rank.
    tenant
        The collective.
    count
        Elements, as nccl-tests counts them; a multiple of the ranks where each has a block.

    Raises
    ------
    VerificationError
        With the first fault found.
    """
    machine = _Machine(ranks, tenant, count)
    machine.start()
    while machine.is_open():
        if not machine.advance():
            raise VerificationError(machine.deadlock())
    machine.check_results()


class _Machine:
    """All ranks' memories and how far each has come."""

    def __init__(self, ranks: Sequence[RankRounds], tenant: Tenant, count: int) -> None:
        self.ranks, self.tenant = ranks, tenant
        self.members = tenant.members(len(ranks))
        self.shape = _Shape(tenant, self.members, count)
        self.place = [0] * len(ranks)
        self.memory: list[dict[int, list[_Value | None]]] = []
        self._interned: dict[_Value, _Value] = {}
        for rank, program in enumerate(ranks):
            sizes = self.shape.sizes(rank)
            own = [self._intern(Counter([(rank, i)])) for i in range(sizes.send)]
            blank: list[_Value | None] = [None] * sizes.recv
            self.memory.append({SEND: list(own), RECV: blank, SCRATCH: [None] * program.scratch})

    def start(self) -> None:
        """Make the copies and sums that need no message."""
        for rank, program in enumerate(self.ranks):
            for source, target in program.copies:
                self._write(rank, target, self._read(rank, source))
            self._add(rank, program.first)
            numbers = [each.number for each in program.rounds]
            if numbers != sorted(set(numbers)):
                raise VerificationError(f"rank {rank}: rounds {numbers} are not in order")

    def is_open(self) -> bool:
        """Whether some rank has not ended."""
        return any(self._group(rank) is not None for rank in range(len(self.ranks)))

    def _group(self, rank: int) -> Round | None:
        rounds = self.ranks[rank].rounds
        return rounds[self.place[rank]] if self.place[rank] < len(rounds) else None

    def advance(self) -> bool:
        """End the groups of which every call has a partner that has begun too."""
        # Groups that wait for each other end together: drop those that cannot end until none is
        # left to drop.
        able = {rank for rank in range(len(self.ranks)) if self._group(rank) is not None}
        dropped = True
        while dropped:
            stuck = {rank for rank in able if not self._is_matched(rank, able)}
            able -= stuck
            dropped = bool(stuck)
        self._check_races(able)
        arrivals: list[tuple[int, Place, int, Place]] = []
        for rank in sorted(able):
            for peer in self._peers(rank):
                arrivals += self._matched(rank, peer)
        values = [(to, into, self._read(by, place)) for by, place, to, into in arrivals]
        for to, into, value in values:
            self._write(to, into, value)
        for rank in sorted(able):
            group = self._group(rank)
            assert group is not None
            self.place[rank] += 1
            self._add(rank, group.sums)
        return bool(able)

    def _peers(self, rank: int) -> list[int]:
        group = self._group(rank)
        return sorted({send.peer for send in group.sends}) if group is not None else []

    def _is_matched(self, rank: int, able: set[int]) -> bool:
        """Whether each call of a rank's group has its partner in the peer's group."""
        group = self._group(rank)
        assert group is not None
        for peer in {call.peer for call in (*group.sends, *group.receives)}:
            other = self._group(peer) if peer in able and peer != rank else None
            if other is None:
                return False
            out, back = _to(group.sends, peer), _to(other.receives, rank)
            into, sent = _to(group.receives, peer), _to(other.sends, rank)
            if len(out) != len(back) or len(into) != len(sent):
                return False
        return True

    def _matched(self, rank: int, peer: int) -> Iterable[tuple[int, Place, int, Place]]:
        """Pairs of what a rank sends a peer and where it goes there."""
        group, other = self._group(rank), self._group(peer)
        assert group is not None
        assert other is not None
        for i, (send, receive) in enumerate(
            zip(_to(group.sends, peer), _to(other.receives, rank), strict=True)
        ):
            if _length(send.place) != _length(receive.place):
                raise VerificationError(
                    f"round {group.number}: message {i} from rank {rank} to rank {peer} has "
                    f"{_length(send.place)} elements and {_length(receive.place)} are expected"
                )
            yield rank, send.place, peer, receive.place

    def _check_races(self, able: set[int]) -> None:
        """Refuse a group that receives into what it also sends or receives."""
        for rank in able:
            group = self._group(rank)
            assert group is not None
            written: set[tuple[int, int]] = set()
            for receive in group.receives:
                cells = _cells(receive.place)
                if not written.isdisjoint(cells):
                    raise VerificationError(
                        f"round {group.number}: rank {rank} receives twice into {receive.place}"
                    )
                written.update(cells)
            for send in group.sends:
                if not written.isdisjoint(_cells(send.place)):
                    raise VerificationError(
                        f"round {group.number}: rank {rank} receives into what it sends, "
                        f"{send.place}"
                    )

    def _add(self, rank: int, sums: Iterable[Sum]) -> None:
        for left, right, out in sums:
            values = self._read(rank, left)
            if right is not None:
                others = self._read(rank, right)
                if len(values) != len(others):
                    raise VerificationError(f"rank {rank}: adds {left} and {right}")
                values = [
                    self._intern(Counter(dict(a)) + Counter(dict(b)))
                    for a, b in zip(values, others, strict=True)
                ]
            self._write(rank, out, values)

    def _intern(self, counts: Counter[tuple[int, int]]) -> _Value:
        value = frozenset(counts.items())
        return self._interned.setdefault(value, value)

    def _read(self, rank: int, place: Place) -> list[_Value]:
        values = self._cut(rank, place)
        for value in values:
            if value is None:
                raise VerificationError(f"rank {rank}: reads {place} before it is written")
        return [value for value in values if value is not None]

    def _write(self, rank: int, place: Place, values: Sequence[_Value]) -> None:
        if len(self._cut(rank, place)) != len(values):
            raise VerificationError(f"rank {rank}: writes {len(values)} elements to {place}")
        self.memory[rank][place.buffer][place.start : place.stop] = values

    def _cut(self, rank: int, place: Place) -> list[_Value | None]:
        buffer = self.memory[rank].get(place.buffer, [])
        if not 0 <= place.start <= place.stop <= len(buffer):
            raise VerificationError(f"rank {rank}: {place} lies outside its buffer")
        return buffer[place.start : place.stop]

    def deadlock(self) -> str:
        """Say which ranks wait in which rounds."""
        waiting = [
            f"rank {rank} in round {group.number}"
            for rank in range(len(self.ranks))
            if (group := self._group(rank)) is not None
        ]
        return f"no group can end: {', '.join(waiting)}"

    def check_results(self) -> None:
        """Compare every element of every recv buffer with the collective's definition."""
        for rank in range(len(self.ranks)):
            found = self.memory[rank][RECV]
            for i, wanted in enumerate(self.shape.results(rank)):
                if found[i] != frozenset((source, 1) for source in wanted):
                    raise VerificationError(
                        f"rank {rank}: element {i} of its result is {_text(found[i])}, not "
                        f"the sum of {sorted(wanted)}"
                    )


def _text(value: _Value | None) -> str:
    return "not written" if value is None else f"{sorted(value)}"


def _to(calls: Iterable[Transfer], peer: int) -> list[Transfer]:
    return [call for call in calls if call.peer == peer]


def _length(place: Place) -> int:
    return place.stop - place.start


def _cells(place: Place) -> list[tuple[int, int]]:
    return [(place.buffer, i) for i in range(place.start, place.stop)]


class _Shape:
    """What buffers a collective has and what must be in them, from its definition."""

    def __init__(self, tenant: Tenant, members: Sequence[int], count: int) -> None:
        self.collective, self.members, self.count = tenant.collective, list(members), count
        self.root = members[0] if tenant.root is None else tenant.root
        self.block = count // len(members)

    def sizes(self, rank: int) -> RoundSizes:
        """Elements of a rank's buffers."""
        if rank not in self.members:
            return RoundSizes(0, 0)
        at_root, block, count = rank == self.root, self.block, self.count
        return {
            Collective.ALLGATHER: RoundSizes(block, count),
            Collective.ALLTOALL: RoundSizes(count, count),
            Collective.REDUCESCATTER: RoundSizes(count, block),
            Collective.ALLREDUCE: RoundSizes(count, count),
            Collective.BROADCAST: RoundSizes(count * at_root, count),
            Collective.REDUCE: RoundSizes(count, count * at_root),
            Collective.SCATTER: RoundSizes(count * at_root, block),
            Collective.GATHER: RoundSizes(block, count * at_root),
        }[self.collective]

    def results(self, rank: int) -> Iterable[set[tuple[int, int]]]:
        """Return for each element of a rank's result the elements of which it is the sum."""
        if rank not in self.members:
            return []
        me, block = self.members.index(rank), self.block
        every = range(self.sizes(rank).recv)
        match self.collective:
            case Collective.ALLGATHER | Collective.GATHER:
                return [{(self.members[i // block], i % block)} for i in every]
            case Collective.ALLTOALL:
                return [{(self.members[i // block], me * block + i % block)} for i in every]
            case Collective.REDUCESCATTER:
                return [{(m, me * block + i) for m in self.members} for i in every]
            case Collective.ALLREDUCE | Collective.REDUCE:
                return [{(m, i) for m in self.members} for i in every]
            case Collective.BROADCAST:
                return [{(self.root, i)} for i in every]
            case Collective.SCATTER:
                return [{(self.root, me * block + i)} for i in every]
            case _:
                raise VerificationError(f"rounds of {self.collective} cannot be proven")
