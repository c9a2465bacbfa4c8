"""Rounds executed with numbers and eager messages: whether the result is right."""

from collections import deque

from teccl.demand import Collective
from teccl.runtime.rank_program import SCRATCH


class StuckError(Exception):
    """A rank waits for what nobody sends, or a message does not fit."""


def is_right(ranks, tenant, count: int) -> bool:
    """Whether rounds of all ranks end and give what the collective must.

    Sends are delivered at once, so this forgives more than a real back end does.
    """
    memory = [_buffers(rank, len(ranks), tenant, count, each) for rank, each in enumerate(ranks)]
    queues: dict[tuple[int, int], deque] = {}
    try:
        _execute(ranks, memory, queues)
    except (StuckError, TypeError):
        return False
    if any(queues.values()):
        return False
    return all(
        memory[rank][1] == _wanted(rank, len(ranks), tenant, count) for rank in range(len(ranks))
    )


def _own(rank: int, i: int) -> int:
    return (1_000_003 * (rank + 1) + 7_919 * i) ** 2


def _sizes(rank: int, n: int, tenant, count: int) -> tuple[int, int]:
    block, root = count // n, 0 if tenant.root is None else tenant.root
    return {
        Collective.ALLGATHER: (block, count),
        Collective.ALLTOALL: (count, count),
        Collective.REDUCESCATTER: (count, block),
        Collective.ALLREDUCE: (count, count),
        Collective.BROADCAST: (count if rank == root else 0, count),
        Collective.REDUCE: (count, count if rank == root else 0),
        Collective.SCATTER: (count if rank == root else 0, block),
        Collective.GATHER: (block, count if rank == root else 0),
    }[tenant.collective]


def _buffers(rank: int, n: int, tenant, count: int, rounds) -> dict[int, list]:
    send, recv = _sizes(rank, n, tenant, count)
    own = [_own(rank, i) for i in range(send)]
    return {0: own, 1: [None] * recv, SCRATCH: [None] * rounds.scratch}


def _wanted(rank: int, n: int, tenant, count: int) -> list[int]:
    block, root = count // n, 0 if tenant.root is None else tenant.root
    every = range(_sizes(rank, n, tenant, count)[1])
    return [_value(tenant.collective, i, rank, n, block=block, root=root) for i in every]


def _value(collective, i: int, rank: int, n: int, *, block: int, root: int) -> int:
    if collective in (Collective.ALLGATHER, Collective.GATHER):
        return _own(i // block, i % block)
    if collective is Collective.ALLTOALL:
        return _own(i // block, rank * block + i % block)
    if collective is Collective.REDUCESCATTER:
        return sum(_own(r, rank * block + i) for r in range(n))
    if collective in (Collective.ALLREDUCE, Collective.REDUCE):
        return sum(_own(r, i) for r in range(n))
    return _own(root, i if collective is Collective.BROADCAST else rank * block + i)


def _execute(ranks, memory, queues) -> None:
    """Let ranks go on in turn until all have ended."""
    place = [0] * len(ranks)
    posted = [False] * len(ranks)
    for rank, each in enumerate(ranks):
        for source, target in each.copies:
            _write(memory[rank], target, _read(memory[rank], source))
        _add(memory[rank], each.first)
    while any(place[rank] < len(each.rounds) for rank, each in enumerate(ranks)):
        moved = False
        for rank, each in enumerate(ranks):
            if place[rank] == len(each.rounds):
                continue
            group = each.rounds[place[rank]]
            if not posted[rank]:
                for call in group.sends:
                    data = _read(memory[rank], call.place)
                    queues.setdefault((rank, call.peer), deque()).append(data)
                posted[rank] = moved = True
            wanted: dict[int, int] = {}
            for call in group.receives:
                wanted[call.peer] = wanted.get(call.peer, 0) + 1
            if any(len(queues.get((peer, rank), ())) < many for peer, many in wanted.items()):
                continue
            for call in group.receives:
                _write(memory[rank], call.place, queues[call.peer, rank].popleft())
            _add(memory[rank], group.sums)
            place[rank], posted[rank], moved = place[rank] + 1, False, True
        if not moved:
            raise StuckError


def _read(buffers, place) -> list:
    return buffers[place.buffer][place.start : place.stop]


def _write(buffers, place, data) -> None:
    if len(data) != place.stop - place.start or place.stop > len(buffers[place.buffer]):
        raise StuckError
    buffers[place.buffer][place.start : place.stop] = data


def _add(buffers, sums) -> None:
    for left, right, out in sums:
        data = _read(buffers, left)
        if right is not None:
            data = [a + b for a, b in zip(data, _read(buffers, right), strict=True)]
        _write(buffers, out, data)
