"""Ping-pong over torch's point-to-point calls: times of messages, and what each of many costs."""

import os
import socket
import time
from typing import Any

import torch
import torch.distributed as dist

from teccl.errors import RunError
from teccl.runtime.pingpong import PingPongPlan

_DATA, _BACK = 1, 2


def measure_links(plan: PingPongPlan) -> dict[str, Any]:
    """Measure all pairs of a plan on the ranks of the world, the same result on each.

    Raises
    ------
    RunError
        If a pair names a rank that does not exist.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    bad = [pair for pair in plan.pairs if max(pair) >= size]
    if bad:
        raise RunError(f"pair {bad[0]} names a rank that is not there; start more ranks")
    wire = _Wire(max((max(sizes) for sizes in plan.sizes), default=1))
    mine: dict[int, list[list[float]]] = {}
    for i, pair in enumerate(plan.pairs):
        if rank in pair:
            exchange = _Exchange(wire, plan, i)
            mine[i] = [exchange.times(*kind) for kind in plan.kinds(i)]
        dist.barrier()
    every: list[Any] = [None] * size
    kept = {i: found for i, found in mine.items() if plan.pairs[i][0] == rank}
    dist.all_gather_object(every, (kept, socket.gethostname()))
    together: dict[int, list[list[float]]] = {}
    for part, _ in every:
        together |= part
    order = range(len(plan.pairs))
    return {
        "hosts": [host for _, host in every],
        "seconds": [together[i] for i in order],
    }


class _Wire:
    """Sends and receives on the device that there is."""

    def __init__(self, largest: int) -> None:
        self.group: Any = None
        self.device = torch.device("cpu")
        if torch.cuda.is_available() and dist.is_nccl_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
            self.group = dist.new_group(backend="nccl")
        self.buffer = torch.zeros(largest + 1, dtype=torch.uint8, device=self.device)
        self.back = torch.zeros(1, dtype=torch.uint8, device=self.device)

    def settle(self) -> None:
        """Wait for what the device has still to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class _Exchange:
    """Messages to and fro between two ranks, seen from one of them."""

    def __init__(self, wire: _Wire, plan: PingPongPlan, pair: int) -> None:
        self.wire, self.plan = wire, plan
        self.src, self.dst = plan.pairs[pair]
        self.is_src = dist.get_rank() == self.src

    def times(self, count: int, size: int) -> list[float]:
        """Seconds of each exchange; on the far rank these mean nothing."""
        rounds = range(self.plan.warmup + self.plan.repeat)
        return [self._exchange(count, size) for _ in rounds][self.plan.warmup :]

    def _exchange(self, count: int, size: int) -> float:
        """Send some messages of a size one way and a byte back."""
        data, back, group = self.wire.buffer[:size], self.wire.back, self.wire.group
        peer = self.dst if self.is_src else self.src
        make = dist.isend if self.is_src else dist.irecv
        start = time.perf_counter()
        for work in [make(data, peer, group, _DATA) for _ in range(count)]:
            work.wait()
        answer = dist.irecv if self.is_src else dist.isend
        answer(back, peer, group, _BACK).wait()
        self.wire.settle()
        return time.perf_counter() - start
