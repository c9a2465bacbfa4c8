"""Rule: every destination of a sum combines every rank's contribution exactly once.

Each GPU has one accumulator per chunk. Sums that flow along one tree and are copied when complete
are recognised by counting; all others are replayed with sets of contributions.
"""

import numpy as np

from teccl._arrays import IntArray
from teccl.demand import Collective
from teccl.errors import ScheduleError
from teccl.orbit.judge.case import Case
from teccl.verification.violation import ViolationKind

_NEVER = np.iinfo(np.int64).max
# Contributions that sets may hold in all: 2 GB of bits.
MAX_BITS = 2**34
# What happens at one instant, in this order.
_MERGE, _REPLACE, _SEND = range(3)


def check_sums(case: Case) -> None:
    """Check the first chunk of each orbit, unless its transfers are broken already."""
    if not case.problem.reduces or case.found:
        return
    order = np.argsort(case.chunk, kind="stable")
    chunks = np.arange(case.problem.num_chunk_orbits)
    cuts = np.searchsorted(case.chunk[order], np.append(chunks, len(chunks)))
    for chunk in chunks.tolist():
        check_sum(case, chunk, order[cuts[chunk] : cuts[chunk + 1]])


def check_sum(case: Case, chunk: int, rows: IntArray) -> None:
    """Check the sends of one chunk."""
    if not is_one_tree(case, chunk, rows):
        _replay(case, chunk, rows)


def _carried(case: Case, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Sends of a chunk that enter a GPU, and for each the send of its transfer that leaves one."""
    roots, leaves = rows[case.from_gpu[rows]], rows[case.to_gpu[rows]]
    roots = roots[np.argsort(case.transfer[roots], kind="stable")]
    return leaves, roots[np.searchsorted(case.transfer[roots], case.transfer[leaves])]


def is_one_tree(case: Case, chunk: int, rows: IntArray) -> bool:
    """Whether all contributions flow along one tree to its root, and only the total is copied.

    Every GPU of the group but the root sends its sum once to another of them, after all that comes
    to it has come. Times increase along a way, so that there is no cycle, and n - 1 senders make
    one tree of n GPUs.
    """
    num_gpus, members = case.problem.fabric.num_gpus, _members(case, chunk)
    leaves, roots = _carried(case, rows)
    adds = case.is_reduce[leaves]
    senders = case.src[roots[adds]]
    if len(senders) != len(members) - 1 or len(np.unique(senders)) != len(senders):
        return False
    if not np.isin(np.append(senders, case.dst[leaves[adds]]), members).all():
        return False
    last = np.zeros(num_gpus, dtype=np.int64)
    np.maximum.at(last, case.dst[leaves[adds]], case.arrival[leaves[adds]])
    if (last[senders] > case.start[roots[adds]]).any():
        return False
    top = int(np.setdiff1d(members, senders)[0])
    total = np.full(num_gpus, _NEVER)
    np.minimum.at(total, case.dst[leaves[~adds]], case.arrival[leaves[~adds]])
    total[top] = last[top]
    if (total[case.src[roots[~adds]]] > case.start[roots[~adds]]).any():
        return False
    return bool((total[_destinations(case, chunk)] < _NEVER).all())


def _members(case: Case, chunk: int) -> IntArray:
    """Ranks whose contributions a chunk is the sum of."""
    return case.problem.members(int(case.problem.owner(np.array([chunk]))[0]))


def _destinations(case: Case, chunk: int) -> IntArray:
    """Ranks that want a chunk."""
    if case.problem.collective is Collective.ALLREDUCE:
        return _members(case, chunk)
    return case.problem.owner(np.array([chunk]))


def _replay(case: Case, chunk: int, rows: IntArray) -> None:
    """Follow the sets of contributions in all accumulators, event by event."""
    num_gpus = case.problem.fabric.num_gpus
    if num_gpus * (num_gpus + len(rows)) > MAX_BITS:
        raise ScheduleError(
            f"{case.problem.chunk_name(chunk)} is not summed along one tree; for {num_gpus} gpus "
            "only that is judged"
        )
    leaves, roots = _carried(case, rows)
    first = rows[case.from_gpu[rows]]
    action = np.concatenate(
        [np.where(case.is_reduce[leaves], _MERGE, _REPLACE), np.full(len(first), _SEND)]
    )
    time = np.concatenate([case.arrival[leaves], case.start[first]])
    subject, carrier = np.concatenate([leaves, first]), np.concatenate([roots, first])
    order = np.lexsort((action, time))
    members = _members(case, chunk)
    accumulators = _Accumulators(case, num_gpus, members)
    columns = (each[order].tolist() for each in (action, subject, carrier, time))
    for what, row, root, moment in zip(*columns, strict=True):
        accumulators.apply(what, row, root, moment)
    for rank in _destinations(case, chunk).tolist():
        count = accumulators.held[rank].bit_count()
        if count != len(members):
            detail = f"{case.name(rank)} ends with {count} of {len(members)} contributions"
            case.add(ViolationKind.UNMET_DEMAND, detail, chunk=chunk)


class _Accumulators:
    """Contributions that each GPU holds of one chunk, and those on their way."""

    def __init__(self, case: Case, num_gpus: int, members: IntArray) -> None:
        self._case = case
        self.held = [0] * num_gpus
        for rank in members.tolist():
            self.held[rank] = 1 << rank
        self._sent: dict[int, int] = {}
        self._replaced: dict[int, tuple[int, int]] = {}

    def apply(self, what: int, row: int, root: int, moment: int) -> None:
        """Let one event happen."""
        if what == _SEND:
            self._sent[row] = self.held[int(self._case.src[row])]
            if not self._sent[row]:
                text = "is sent by a gpu that never holds it"
                self._case.add(ViolationKind.NOT_HELD, text, row=row)
            return
        gpu, arrived = int(self._case.dst[row]), self._sent[root]
        before = self.held[gpu]
        if what == _MERGE:
            if before & arrived:
                text = f"adds contributions twice at {self._case.name(gpu)}"
                self._case.add(ViolationKind.DOUBLE_REDUCTION, text, row=row)
            self.held[gpu] = before | arrived
            return
        if before & ~arrived:
            when, older = self._replaced.get(gpu, (-1, 0))
            # Of two copies of one instant the smaller may as well have come first.
            if when == moment and not (arrived & ~before) and not (older & ~arrived):
                return
            text = f"overwrites contributions at {self._case.name(gpu)}"
            self._case.add(ViolationKind.LOST_CONTRIBUTION, text, row=row)
        self._replaced[gpu] = (moment, before)
        self.held[gpu] = arrived
