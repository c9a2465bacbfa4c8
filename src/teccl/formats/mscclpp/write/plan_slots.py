"""Where chunks lie in the buffers of an MSCCL++ plan."""

from typing import NamedTuple

from teccl.demand import Collective
from teccl.errors import ExportError
from teccl.formats.shared.gpu_sends import GpuSend
from teccl.schedule import Schedule

_KNOWN = (
    Collective.ALLGATHER,
    Collective.ALLTOALL,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
)


class Slot(NamedTuple):
    """One chunk of a buffer of some rank, by its letter: input, output or scratch."""

    letter: str
    place: int


class Slots:
    """The layout of a collective's buffers, and of scratch as it is handed out.

    Parameters
    ----------
    schedule
        One collective among all GPUs of the topology.
    in_place
        Whether input and output overlap.

    Attributes
    ----------
    collective
        Its name in a plan.
    loop
        Chunks of the larger of input and output.
    sizes
        Chunks of each rank's buffers by letter.
    """

    def __init__(self, schedule: Schedule, *, in_place: bool) -> None:
        problem = schedule.problem
        tenant = problem.demand.tenants[0]
        ranks = tuple(range(problem.topology.num_gpus))
        if len(problem.demand.tenants) > 1 or tenant.collective not in _KNOWN:
            known = ", ".join(kind.value for kind in _KNOWN)
            raise ExportError(
                f"mscclpp has no collective {problem.demand.title}; it takes one of {known}"
            )
        if tenant.members(len(ranks)) != ranks:
            raise ExportError(
                "mscclpp: not all GPUs take part, in order of rank; cut the topology to those that "
                "do"
            )
        if in_place and tenant.collective is Collective.ALLTOALL:
            raise ExportError("mscclpp: an alltoall in place would overwrite what it has to send")
        self.collective = tenant.collective.value
        self.in_place = in_place
        self._kind = tenant.collective
        self.share = problem.num_chunks
        self._table = problem.chunks
        self._num_ranks = len(ranks)
        whole = problem.whole_buffer and tenant.collective is Collective.ALLREDUCE
        self.loop = self.share if whole else len(ranks) * self.share
        inputs = self.share if self._kind is Collective.ALLGATHER else self.loop
        outputs = self.share if self._kind is Collective.REDUCESCATTER else self.loop
        self.sizes = [{"i": inputs, "o": outputs, "s": 0} for _ in ranks]
        self._scratch: dict[tuple[object, ...], Slot] = {}

    def own(self, rank: int) -> tuple[Slot, Slot] | None:
        """First chunks from and to which a rank copies its own part, None if it need not."""
        if self.in_place or self._kind.reduces:
            return None
        first = rank * self.share
        return Slot("i", 0 if self._kind is Collective.ALLGATHER else first), Slot("o", first)

    def source(self, chunk: int, rank: int) -> Slot | None:
        """Where a rank's own data of a chunk lies, None if it has none."""
        block, piece = int(self._table.block[chunk]), int(self._table.piece[chunk])
        if self._kind is Collective.ALLGATHER:
            return Slot("i", piece) if rank == block else None
        if self._kind is Collective.ALLTOALL:
            src, dst = divmod(block, self._num_ranks)
            return Slot("i", dst * self.share + piece) if rank == src else None
        return Slot("i", block * self.share + piece)

    def result(self, chunk: int, rank: int) -> Slot | None:
        """Where a rank wants a chunk, None if it does not."""
        block, piece = int(self._table.block[chunk]), int(self._table.piece[chunk])
        if self._kind is Collective.ALLTOALL:
            src, dst = divmod(block, self._num_ranks)
            return Slot("o", src * self.share + piece) if rank == dst else None
        if self._kind is Collective.REDUCESCATTER:
            return Slot("o", piece) if rank == block else None
        return Slot("o", block * self.share + piece)

    def store(self, chunk: int, rank: int) -> Slot:
        """Where a rank keeps what it receives or adds up of a chunk."""
        return self.result(chunk, rank) or self._hand_out(rank, ("store", chunk, rank))

    def scratch(self, rank: int, row: int) -> Slot:
        """Where a rank keeps a partial sum that has no other place."""
        return self._hand_out(rank, ("sum", row))

    def landing(self, send: GpuSend) -> Slot:
        """Where a transfer puts its data: scratch if it has to be added to something."""
        if send.reduce:
            return self._hand_out(send.dst, ("landing", send.number))
        return self.store(send.chunk, send.dst)

    def _hand_out(self, rank: int, key: tuple[object, ...]) -> Slot:
        if key not in self._scratch:
            self._scratch[key] = Slot("s", self.sizes[rank]["s"])
            self.sizes[rank]["s"] += 1
        return self._scratch[key]
