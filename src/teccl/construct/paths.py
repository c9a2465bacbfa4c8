"""Paths: one way for every delivery of its own, laid so that no link is overloaded."""

from dataclasses import dataclass

import numpy as np

from teccl.construct.corridors import Books, corridors_of, single_corridors
from teccl.construct.instance import Instance, IntArray, concatenated_ranges
from teccl.construct.params import DIRECT_TOLERANCE, PASS_WORK, PASSES, STEEPNESS, TIME_PRICE


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
    steepness: float = STEEPNESS,
    passes: int = PASSES,
    length_weight: float = TIME_PRICE,
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
    books = Books.of(instance)
    corridors = corridors_of(instance, inward=False)
    if corridors is None:
        corridors = single_corridors(instance)
    looks = len(chunk) * (len(corridors.near_node) + len(corridors.far_node))
    if stretch == np.inf and looks > PASS_WORK:
        weights = (length_weight, target, steepness, passes, seed)
        paths = _direct_paths(instance, books, deliveries, weights)
        if paths is not None:
            return paths
    # Columns of a table, which would be compiled for a second time, are copied.
    start, route, peak = lay_paths(
        np.ascontiguousarray(source),
        np.ascontiguousarray(destination),
        max(1, looks // PASS_WORK),
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


def _direct_paths(
    instance: Instance,
    books: Books,
    deliveries: tuple[IntArray, IntArray, IntArray],
    weights: tuple[float, float, float, int, int],
) -> Paths | None:
    """Choose a route for every delivery, without relays; None where that overloads something."""
    chunk, source, destination = deliveries
    route, peak = straight_routes(instance, books, source, destination, weights)
    if peak > weights[1] * (1 + DIRECT_TOLERANCE):
        return None
    return Paths(chunk=chunk, start=np.arange(len(chunk) + 1), route=route)


def straight_routes(
    instance: Instance,
    books: Books,
    source: IntArray,
    destination: IntArray,
    weights: tuple[float, float, float, int, int],
) -> tuple[IntArray, float]:
    """Choose one of the routes between each two GPUs so that the fullest resource is least full.

    Returns the routes and the load of that resource, infinite where two GPUs have no route.

    Parameters
    ----------
    weights
        Price of time, target, steepness, passes and seed.
    """
    from teccl.construct.wayfinding import choose_routes

    routes, num_nodes = instance.routes, instance.problem.topology.num_nodes
    ends = routes.src * num_nodes + routes.dst
    by_ends = np.argsort(ends, kind="stable")
    wanted = source * num_nodes + destination
    begin, end = (np.searchsorted(ends[by_ends], wanted, side) for side in ("left", "right"))
    if (begin == end).any():
        return np.full(len(source), -1), np.inf
    option = by_ends[concatenated_ranges(begin, end)]
    option_start = np.concatenate([[0], np.cumsum(end - begin)])
    route, peak = choose_routes(option_start, option, books.routes, books.slots, *weights)
    return route, peak
