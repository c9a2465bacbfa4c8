"""Logs made by hand, in the format of nccl-tests: synthetic, none was measured."""

from teccl.demand import Collective
from teccl.nccl import Shape, best

SIZES = [2**k for k in range(13, 31, 2)]


def head(ranks: int, program: str = "all_reduce_perf", per_host: int = 8) -> str:
    lines = [f"# Collective test starting: {program}", "# nThread 1 nGpus 1"]
    lines += [
        f"#  Rank {r:2d} Group  0 Pid {4000 + r} on host{r // per_host} device {r % per_host} [0x0]"
        for r in range(ranks)
    ]
    lines.append("#       size         count      type   redop    root     time   algbw   busbw")
    return "\n".join(lines)


def table(seconds: dict[int, float], ranks: int, *, wrong: int = 0, unit: float = 1e6) -> str:
    """Rows of an AllReduce; `unit` is what a second is in the column of times."""
    factor = 2 * (ranks - 1) / ranks
    lines = []
    for size, time in seconds.items():
        algbw = size / time / 1e9
        cells = f"{time * unit:.2f} {algbw:.2f} {algbw * factor:.2f} {wrong}"
        lines.append(f"{size:12d} {size // 4:12d}     float     sum      -1 {cells} {cells}")
    return "\n".join(lines)


END = "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.0\n#\n"


def modelled(shape: Shape, *, large: float = 1.0, small: float = 1.0) -> dict[int, float]:
    """Times of NCCL's model, its bytes and its latency each slower by a factor."""
    found = {}
    for size in SIZES:
        choice = best(Collective.ALLREDUCE, size, shape)
        latency = choice.seconds(0, shape)
        whole = choice.seconds(size, shape)
        found[size] = latency * small + (whole - latency) * large
    return found
