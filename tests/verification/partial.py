"""AllReduce schedules with several partial sums, made by hand: relays, exchanges, both mixed."""

import random
from dataclasses import replace

import numpy as np

import teccl
from teccl.problem import Problem, SwitchMode
from teccl.schedule import Schedule, send_array, sum_array
from teccl.topology import Topology

SPECS = (
    "ring:gpus=4",
    "ring:gpus=5",
    "line:gpus=4",
    "fully-connected:gpus=4",
    "star:gpus=4",
    "star:gpus=5",
    "mesh:dims=2x3",
    "hypercube:dimension=2",
)


class Ledger:
    """Collects sends and partial sums; rows are numbered as they come."""

    def __init__(self) -> None:
        self.sends: list[tuple[int, int, int, int, int, int]] = []
        self.sums: list[tuple[int, int, int, int]] = []
        self.results: set[int] = set()

    def row(self, chunk: int, node: int, left: int = -1, right: int = -1) -> int:
        """Add a partial sum."""
        self.sums.append((chunk, node, left, right))
        return len(self.sums) - 1

    def fold(self, chunk: int, node: int, rows: list[int]) -> int:
        """Add rows one after another."""
        total = rows[0]
        for row in rows[1:]:
            total = self.row(chunk, node, total, row)
        return total

    def schedule(self, problem: Problem, **options) -> Schedule:
        """Return the schedule, on slots of its own for every row."""
        columns = list(zip(*self.sends, strict=True))
        sends = send_array(
            columns[0],
            columns[1],
            columns[2],
            transfer=columns[3],
            carries=columns[4],
            becomes=columns[5],
        )
        chunk, node, left, right = zip(*self.sums, strict=True)
        marks = [row in self.results for row in range(len(self.sums))]
        sums = sum_array(chunk, node, left=left, right=right, result=marks)
        return Schedule(problem=problem, sends=sends, sums=sums, **options)


def one_shot(
    topology: Topology,
    size: int,
    pieces: int = 1,
    *,
    same_order: bool = True,
    switch: SwitchMode = SwitchMode.COPY,
) -> Schedule:
    """Let every contribution reach every GPU as the chunks of an AllGather would, and add there."""
    gathered = teccl.solve(
        topology,
        "allgather",
        size=size * topology.num_gpus,
        chunks=pieces,
        method="construct",
        switch=switch.value if topology.num_switches else "copy",
    ).schedule
    demand = teccl.Demand.collective("allreduce", size=size)
    problem = Problem(
        topology=topology, demand=demand, num_chunks=pieces, whole_buffer=True, switch=switch
    )
    ledger, table, gpus = Ledger(), gathered.problem.chunks, topology.gpus.tolist()
    held: dict[tuple[int, int, int], int] = {}
    for piece in range(pieces):
        for gpu in gpus:
            held[piece, gpu, gpu] = ledger.row(piece, gpu)
            for other in gpus:
                if other != gpu:
                    held[piece, gpu, other] = ledger.row(piece, gpu)
            order = gpus if same_order else [gpu, *(each for each in gpus if each != gpu)]
            total = ledger.fold(piece, gpu, [held[piece, gpu, each] for each in order])
            ledger.results.add(total)
    for send in gathered:
        piece, source = int(table.piece[send.chunk]), int(table.sources(send.chunk)[0])
        src, dst = topology.link_src[send.link], topology.link_dst[send.link]
        carries = held.get((piece, int(src), source), -1)
        becomes = held.get((piece, int(dst), source), -1)
        ledger.sends.append((piece, send.link, send.start_ps, send.transfer, carries, becomes))
    return ledger.schedule(problem, method="one-shot", same_order=same_order)


def exchange(dimension: int, size: int) -> Schedule:
    """Exchange whole buffers along the dimensions of a hypercube, by sums kept apart."""
    topology = Topology.parse(f"hypercube:dimension={dimension}")
    demand = teccl.Demand.collective("allreduce", size=size)
    problem = Problem(topology=topology, demand=demand, whole_buffer=True)
    links = {
        (int(s), int(d)): i
        for i, (s, d) in enumerate(zip(topology.link_src, topology.link_dst, strict=True))
    }
    ledger, step = Ledger(), int(problem.transmission_ps[0, 0] + topology.alpha_ps[0])
    total = {gpu: ledger.row(0, gpu) for gpu in range(2**dimension)}
    for bit in range(dimension):
        arrived = {gpu: ledger.row(0, gpu) for gpu in total}
        for gpu, row in total.items():
            other, transfer = gpu ^ 1 << bit, len(ledger.sends)
            send = (0, links[gpu, other], bit * step, transfer, row, arrived[other])
            ledger.sends.append(send)
        total = {gpu: ledger.row(0, gpu, total[gpu], arrived[gpu]) for gpu in total}
    ledger.results = set(total.values())
    return ledger.schedule(problem, method="exchange", same_order=True)


def packed(schedule: Schedule) -> Schedule:
    """Let additions take the slot of what they add first, where nothing else reads that later."""
    sums, sends = schedule.sums.copy(), schedule.sends
    read = set(sends["carries"].tolist()) | set(np.flatnonzero(sums["result"]).tolist())
    uses = np.bincount(np.concatenate([sums["left"], sums["right"]]) + 1, minlength=len(sums) + 1)
    for row in np.flatnonzero(sums["left"] >= 0).tolist():
        left = int(sums["left"][row])
        if left not in read and uses[left + 1] == 1:
            sums["slot"][row] = sums["slot"][left]
    return replace(schedule, sums=sums)


def random_partial(seed: int) -> Schedule:
    """Return a random correct AllReduce with several partial sums."""
    rng = random.Random(seed)
    size = rng.choice([256, 4096, 65536, 10**6])
    if rng.random() < 0.25:
        schedule = exchange(rng.choice([1, 2, 3]), size)
    else:
        spec = rng.choice(SPECS)
        same_order = rng.random() < 0.7
        switch = rng.choice([SwitchMode.COPY, SwitchMode.NO_COPY])
        pieces = rng.choice([1, 2])
        topology = Topology.parse(spec)
        schedule = one_shot(topology, size, pieces, same_order=same_order, switch=switch)
    return packed(schedule) if rng.random() < 0.5 else schedule
