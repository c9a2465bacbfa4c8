"""AllToAll in the quotient: cheapest routes to every rank, and ways that serve who comes first."""

import numpy as np

from teccl._arrays import IntArray
from teccl.errors import MethodError
from teccl.orbit.plan.growing import hops
from teccl.orbit.plan.ways import Ways
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSends

_FAR = np.iinfo(np.int64).max // 4
# Steps of all routes from one GPU, at most as many as the longest has times the GPUs; a step takes
# a few dozen bytes, some gigabytes in all.
_MOST_STEPS = 2**26


def exchanged(problem: FabricProblem) -> OrbitSends | None:
    """Return the sends of an AllToAll, None where ways do not join all GPUs.

    A chunk takes a route on which it holds links for the least time. Of several, one with the
    dearest way last, so that the busiest links wait for nothing, and over ways with little to do.
    """
    from teccl.orbit.plan.relays import choose_parents, relay

    ways = Ways.of(problem)
    num_gpus, pieces = problem.fabric.num_gpus, np.arange(problem.num_chunks)
    busy = np.where(ways.steps < 0, 0, ways.held[ways.steps]).max(axis=1)
    chunks, counts, rows = [], [], []
    for owner in range(len(problem.fabric.gpu_orbits)):
        distance, before = cheapest(ways, owner)
        wanted = problem.members(owner)
        if (distance[wanted] >= _FAR).any():
            return None
        order = np.argsort(distance, kind="stable")
        order = order[distance[order] < _FAR]
        parent, by = choose_parents(order[1:], distance, before, busy)
        # The longest first: their last steps are what the end waits for.
        last = order[:0:-1]
        last = last[np.isin(last, wanted)]
        targets = np.repeat(last, len(pieces))
        chunks.append((owner * num_gpus + targets) * len(pieces) + np.tile(pieces, len(last)))
        steps, number = _routes(targets, parent, by)
        rows.append(steps)
        counts.append(number)
    table, number = np.concatenate(rows), np.concatenate(counts)
    starts = relay(np.concatenate([[0], np.cumsum(number)]), table[:, 0].copy(), ways.figures)
    names = np.repeat(np.concatenate(chunks), number)
    return hops(ways, np.column_stack([names, table]), starts)


def cheapest(ways: Ways, owner: int) -> tuple[IntArray, IntArray]:
    """Least time for which links are held on the way to each rank, and who comes last before it.

    Returns
    -------
    distance
        By rank.
    before
        By way and rank, the rank before it on a cheapest route that ends with the way, or -1.
    """
    distance = np.full(ways.target.shape[1], _FAR)
    distance[owner] = 0
    rounds = 0
    while True:
        rounds += 1
        if rounds * len(distance) > _MOST_STEPS:
            raise MethodError(
                f"alltoall: routes among {len(distance)} gpus have more steps than fit memory, "
                "even those of one gpu; use fewer gpus"
            )
        reached = [_last_steps(ways, way, distance) for way in range(len(ways))]
        shorter = np.minimum(distance, np.min([cost for cost, _ in reached], axis=0))
        if np.array_equal(shorter, distance):
            break
        distance = shorter
    before = np.array([np.where(cost == distance, source, -1) for cost, source in reached])
    before[:, owner] = -1
    return distance, before


def _last_steps(ways: Ways, way: int, distance: IntArray) -> tuple[IntArray, IntArray]:
    """What getting to each rank costs if a way is the last step, and who comes before it then."""
    cost, source = np.full(len(distance), _FAR), np.full(len(distance), -1, dtype=np.int64)
    if ways.falls[way] is None:
        there = np.flatnonzero((ways.target[way] >= 0) & (distance < _FAR))
        cost[ways.target[way][there]] = distance[there] + ways.holds[way]
        source[ways.target[way][there]] = there
        return cost, source
    there = np.flatnonzero((ways.entered[way] >= 0) & (distance < _FAR))
    # Nearest ranks come last, so that they are who brings a chunk to their hub.
    there = there[np.argsort(-distance[there], kind="stable")]
    nearest = np.full(ways.num_hubs, -1)
    nearest[ways.entered[way][there]] = there
    ends = np.flatnonzero(ways.left[way] >= 0)
    ends = ends[nearest[ways.left[way][ends]] >= 0]
    ends = ends[ways.block[way][ends] != ways.block[way][nearest[ways.left[way][ends]]]]
    source[ends] = nearest[ways.left[way][ends]]
    cost[ends] = distance[source[ends]] + ways.holds[way]
    return cost, source


def _routes(targets: IntArray, parent: IntArray, by: IntArray) -> tuple[IntArray, IntArray]:
    """Steps of the routes to targets, as rows of way, from and to, and how many each has."""
    levels, node = [], targets
    item = np.arange(len(targets))
    while len(item):
        levels.append(np.column_stack([item, by[node], parent[node], node]))
        node = parent[node]
        going = by[node] >= 0
        node, item = node[going], item[going]
    # Found from the end of each route to its beginning.
    steps = np.concatenate(levels[::-1])
    steps = steps[np.argsort(steps[:, 0], kind="stable")]
    return steps[:, 1:], np.bincount(steps[:, 0], minlength=len(targets))
