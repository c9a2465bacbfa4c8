"""Rank files: a placement as launchers take it."""

from collections.abc import Callable

from teccl.errors import ExportRefused
from teccl.placement.exchanging import Placement


def seats(placement: Placement) -> list[tuple[str, int]]:
    """Host and device of each rank: a GPU's group, and its place among the GPUs of that."""
    topology = placement.topology
    hosts: dict[str, int] = {}
    found = []
    for gpu in topology.gpus:
        host = topology.nodes[gpu].group or "localhost"
        found.append((host, hosts.get(host, 0)))
        hosts[host] = hosts.get(host, 0) + 1
    return [found[gpu] for gpu in placement.gpu]


def mpirun(placement: Placement) -> str:
    """Rank file of Open MPI, ``mpirun --rankfile FILE``: host and CPU slot of each rank.

    Open MPI binds a rank to the CPU slot of its device's number and knows nothing of devices: the
    program itself takes the device of that number.
    """
    lines = [f"rank {r}={host} slot={device}" for r, (host, device) in enumerate(seats(placement))]
    return "\n".join(lines) + "\n"


def torchrun(placement: Placement) -> str:
    """Lines to start torchrun on each host: which devices its ranks use, in which order.

    Raises
    ------
    ExportRefused
        If ranks that follow each other are not on one host each, which torchrun does not know.
    """
    placed = seats(placement)
    hosts = list(dict.fromkeys(host for host, _ in placed))
    per_host, rest = divmod(len(placed), len(hosts))
    blocks = [placed[i * per_host : (i + 1) * per_host] for i in range(len(hosts))]
    if rest or any(len({host for host, _ in block}) > 1 for block in blocks):
        raise ExportRefused(
            "torchrun gives each host ranks that follow each other, and this placement mixes "
            "hosts; use mpirun or nccl, or order groups so that those inside a host come first"
        )
    lines = [f"# nnodes {len(hosts)}, nproc-per-node {per_host}"]
    for number, block in enumerate(blocks):
        devices = ",".join(str(device) for _, device in block)
        lines.append(
            f"{block[0][0]}: CUDA_VISIBLE_DEVICES={devices} torchrun --nnodes={len(hosts)} "
            f"--node-rank={number} --nproc-per-node={per_host}"
        )
    return "\n".join(lines) + "\n"


def nccl(placement: Placement) -> str:
    """Table of rank, host and CUDA device, for programs that call ncclCommInitRank themselves."""
    rows = [f"{r},{host},{device}" for r, (host, device) in enumerate(seats(placement))]
    return "\n".join(["rank,host,device", *rows]) + "\n"


FORMATS: dict[str, Callable[[Placement], str]] = {
    "mpirun": mpirun,
    "torchrun": torchrun,
    "nccl": nccl,
}
