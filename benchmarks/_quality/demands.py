"""Demands to draw: collective, size, who takes part, root and matrix."""

from collections.abc import Sequence
from typing import Any

from _quality.chance import Chance

COLLECTIVES = (
    "allgather",
    "alltoall",
    "reducescatter",
    "allreduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "scattergather",
    "alltoallv",
)
ROOTED = ("broadcast", "reduce", "scatter", "gather", "scattergather")
SMALLEST, LARGEST = 256, 4 * 10**9
_EDGES = (SMALLEST, *(10**n for n in range(3, 10)), LARGEST)
DECADES = (
    "256B-1KB",
    "1KB-10KB",
    "10KB-100KB",
    "100KB-1MB",
    "1MB-10MB",
    "10MB-100MB",
    "100MB-1GB",
    "1GB-4GB",
)
BELOW_1MB = DECADES[:4]


def draw_size(chance: Chance, decade: int) -> int:
    """Draw bytes of a decade: a power of two, or three digits, as likely as each other."""
    low, high = _EDGES[decade], _EDGES[decade + 1]
    if chance.coin(0.5):
        return chance.choice([1 << n for n in range(64) if low <= 1 << n < high])
    return int(chance.digits(low, high, 3))


def size_text(size: int) -> str:
    """Write a size as a user would.

    Examples
    --------
    >>> size_text(65536), size_text(1370000), size_text(777)
    ('64KiB', '1.37MB', '777B')
    """
    for unit, text in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size.bit_count() == 1:
            return f"{size // unit}{text}"
    for unit, text in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= unit and size * 1000 % unit == 0:
            return f"{size / unit:g}{text}"
    return f"{size}B"


def draw_ranks(chance: Chance, count: int) -> list[int]:
    """Draw a group of ranks: neighbours, every n-th, or any."""
    members = chance.spread_whole(2, count - 1)
    kind = chance.choice(("neighbours", "strided", "any"))
    if kind == "neighbours":
        first = chance.whole(0, count - members)
        return list(range(first, first + members))
    if kind == "strided":
        step = chance.whole(1, count // members)
        first = chance.whole(0, count - 1 - step * (members - 1))
        return list(range(first, count, step))[:members]
    return sorted(chance.sample(range(count), members))


def ranks_text(ranks: Sequence[int]) -> str:
    """Write ascending ranks with ranges.

    Examples
    --------
    >>> ranks_text([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return ",".join("-".join(map(str, run)) for run in runs)


def draw_tenant(
    chance: Chance, collective: str, size: int, ranks: Sequence[int], num_gpus: int
) -> dict[str, Any]:
    """Draw the rest of one collective call, as an entry of a demand file."""
    entry: dict[str, Any] = {"collective": collective}
    if collective == "alltoallv":
        entry["matrix"] = _draw_matrix(chance, size, len(ranks))
    else:
        entry["size"] = size_text(size)
    if len(ranks) < num_gpus:
        entry["ranks"] = ranks_text(ranks)
    if collective in ROOTED and chance.coin(0.5):
        entry["root"] = chance.choice(ranks)
    return entry


def _draw_matrix(chance: Chance, size: int, count: int) -> list[list[int]]:
    """Draw bytes between ranks, uneven and some of them zero; a rank has `size` in the mean."""
    weights = [
        [0.0 if i == j or chance.coin(0.25) else chance.spread(0.1, 10) for j in range(count)]
        for i in range(count)
    ]
    total = sum(map(sum, weights))
    if not total:  # two or three ranks, all of whose entries came out as zero
        weights[0][1] = total = 1.0
    scale = size * count / total
    return [[max(1, round(w * scale)) if w else 0 for w in row] for row in weights]
