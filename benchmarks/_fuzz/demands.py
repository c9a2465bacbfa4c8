"""Demands to draw: every collective, matrices, explicit chunks, groups, tenants, ready times."""

from collections.abc import Sequence
from typing import Any

from _quality.chance import Chance
from _quality.demands import COLLECTIVES, ROOTED

SIZES = (
    *("1B", "2B", "3B", "7B", "100B", "1KB", "1000B", "4KiB", "12345B", "64KB", "1MB", "1/3KB"),
    "1.5KiB",
)
READY = ("0", "1us", "0.5us", "10us", "1/7us")
_KINDS = (*COLLECTIVES, "explicit")


def draw_demand(chance: Chance, num_gpus: int) -> dict[str, Any]:
    """Draw what a demand file holds: one to three tenants."""
    count = chance.choice((1, 1, 1, 1, 2, 3))
    tenants = [_draw_tenant(chance, num_gpus, f"tenant{i}") for i in range(count)]
    if count > 1:
        for tenant in tenants:
            tenant["priority"] = chance.choice((1, 2, 10))
    return {"schema_version": 1, "collectives": tenants}


def _draw_tenant(chance: Chance, num_gpus: int, name: str) -> dict[str, Any]:
    kind = chance.choice(_KINDS)
    ranks = list(range(num_gpus))
    if chance.coin(0.25):
        ranks = chance.sample(ranks, chance.whole(1, num_gpus))
    entry: dict[str, Any] = {"name": name}
    if kind == "alltoallv":
        entry["matrix"] = _draw_matrix(chance, len(ranks))
    elif kind == "explicit":
        entry |= {"size": chance.choice(SIZES), "chunks": _draw_chunks(chance, ranks)}
    else:
        entry |= {"collective": kind, "size": chance.choice(SIZES)}
    if kind != "explicit" and ranks != list(range(num_gpus)):
        entry["ranks"] = ranks
    if kind in ROOTED and chance.coin(0.5):
        entry["root"] = chance.choice(ranks)
    if chance.coin(0.2):
        late = chance.sample(ranks, chance.whole(1, len(ranks)))
        entry["ready"] = {str(rank): chance.choice(READY) for rank in sorted(late)}
    return entry


def _draw_matrix(chance: Chance, count: int) -> list[list[str]]:
    """Draw bytes between ranks, some of them zero, the diagonal included, or whole rows."""
    return [
        ["0" if chance.coin(zeros) else chance.choice(SIZES) for _ in range(count)]
        for zeros in [chance.choice((0.4, 0.4, 0.4, 0.9, 1.0)) for _ in range(count)]
    ]


def _draw_chunks(chance: Chance, ranks: Sequence[int]) -> list[dict[str, Any]]:
    """Draw pieces of data with any sources and destinations, the same ones included."""
    return [
        {
            "sources": chance.sample(ranks, chance.choice((1, 1, min(2, len(ranks)), len(ranks)))),
            "destinations": chance.sample(ranks, chance.whole(1, len(ranks))),
            **({"reduce": True} if chance.coin(0.3) else {}),
            **({"size": chance.choice(SIZES)} if chance.coin(0.2) else {}),
        }
        for _ in range(chance.whole(1, 4))
    ]
