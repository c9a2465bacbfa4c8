"""Paths: one way for every delivery of its own, laid so that no link is overloaded."""

from dataclasses import dataclass

import numpy as np

from teccl.construct.corridors import Books, corridors_of, single_corridors
from teccl.construct.instance import Instance, IntArray

# Ends of corridors that a pass over all paths may look at. Where that is not enough for one search
# each, paths of one source are laid in batches, along one tree of cheapest paths.
PASS_WORK = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """One path of routes per delivery, first to last, as a CSR list."""

    chunk: IntArray
    start: IntArray
    route: IntArray


def laid_paths(
    instance: Instance,
    deliveries: tuple[IntArray, IntArray, IntArray],
    *,
    target: float,
    seed: int = 0,
    steepness: float = 30.0,
    passes: int = 6,
    length_weight: float = 1e-3,
    stretch: float = np.inf,
) -> Paths | None:
    """Lay a path for every delivery; None when some destination is out of reach.

    Parameters
    ----------
    deliveries
        Chunk, source and destination of each.
    target, steepness, passes, length_weight, stretch
        As for `teccl.construct.trees.laid_plan`.
    """
    from teccl.construct.wayfinding import lay_paths

    chunk, source, destination = deliveries
    if not len(chunk):
        return Paths(chunk=chunk, start=np.zeros(1, dtype=np.int64), route=chunk)
    corridors = corridors_of(instance, inward=False) or single_corridors(instance)
    books = Books.of(instance)
    looks = len(corridors.near_node) + len(corridors.far_node)
    start, route, peak = lay_paths(
        source,
        destination,
        max(1, len(chunk) * looks // PASS_WORK),
        books.routes,
        books.slots,
        books.links,
        tuple(corridors),
        length_weight,
        target,
        steepness,
        passes,
        seed,
        stretch,
    )
    return Paths(chunk=chunk, start=start, route=route) if np.isfinite(peak) else None
