"""Placement: which rank holds each expert, in turn, balanced by load or as given."""

from pathlib import Path

import numpy as np

from teccl import _files as files
from teccl.errors import DemandError
from teccl.moe.token_choices import IntArray, Routing

PLACEMENTS = ("round-robin", "balanced")


def place_experts(routing: Routing, num_ranks: int, placement: str = "round-robin") -> IntArray:
    """Return the rank of each expert.

    Parameters
    ----------
    placement
        ``round-robin``, ``balanced`` (most loaded experts first, each to the least loaded rank that
        has room, which is for experts over ranks, rounded up), or a JSON file with a list of ranks,
        one for each expert.
    """
    if num_ranks < 1:
        raise DemandError(f"{num_ranks} ranks hold no expert; give at least one")
    if placement == "round-robin":
        return np.arange(routing.num_experts) % num_ranks
    if placement == "balanced":
        return _balanced(routing.loads(), num_ranks)
    path = Path(placement)
    if path.suffix.lower() not in (".json", ".yaml", ".yml"):
        raise DemandError(
            f"placement {placement[:60]!r} is not known; use {' or '.join(PLACEMENTS)}, or give a "
            "JSON file with the rank of each expert"
        )
    with files.naming(path, DemandError):
        found = files.expect_list(files.read_document(path, DemandError), path.name, DemandError)
        ranks = [
            files.expect_int(r, f"expert {i}", DemandError, low=0, high=num_ranks - 1)
            for i, r in enumerate(found)
        ]
        if len(ranks) != routing.num_experts:
            raise DemandError(
                f"{path.name} places {len(ranks)} experts of {routing.num_experts}; place each"
            )
    return np.array(ranks, dtype=np.int64)


def _balanced(load: IntArray, num_ranks: int) -> IntArray:
    """Place the most loaded experts first, each where there is least load and room."""
    room = np.full(num_ranks, -(-len(load) // num_ranks))
    total = np.zeros(num_ranks, dtype=np.int64)
    rank = np.empty(len(load), dtype=np.int64)
    for expert in np.argsort(-load, kind="stable"):
        least = int(np.where(room > 0, total, np.iinfo(np.int64).max).argmin())
        rank[expert] = least
        total[least] += load[expert]
        room[least] -= 1
    return rank
