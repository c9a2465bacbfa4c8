"""AllGather in the quotient: one tree a chunk orbit, grown over ways as soon as they are free."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from teccl._arrays import BoolArray, IntArray
from teccl.errors import MethodError
from teccl.orbit.plan.ways import Ways
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSends, orbit_array

# Parts of the way to the farthest rank between which spare ranks are looked for: where trees are
# wide, and nobody's latency depends on them.
_BANDS = ((0.25, 0.75), (0.5, 0.9), (0.1, 0.5), (0, 0.25), (0, 1))


def gathered(problem: FabricProblem) -> Iterator[OrbitSends]:
    """Yield the sends of AllGathers, which differ in the ranks that are kept to fill gaps.

    The last ones bring a chunk once into every part that cheaper ways join, and leave the rest to
    these.

    Nothing is yielded where ways over links that move with the group do not join all GPUs.
    """
    from teccl.orbit.plan.kernels import grow

    chunks = np.arange(problem.num_chunk_orbits)
    owner = problem.owner(chunks)
    ways = _inside(problem, Ways.of(problem), owner)
    for blocks, spares in (
        (ways.block, _spares(problem, ways, owner)),
        *_once(problem, ways, owner),
    ):
        tables = (ways.target, ways.entered, blocks)
        members = _members(ways, blocks)
        for spare in spares:
            sends, starts = grow(owner, problem.group_size, ways.figures, tables, members, spare)
            if len(sends) < len(chunks) * (problem.group_size - 1):
                return
            yield hops(ways, sends, starts)


def _once(
    problem: FabricProblem, ways: Ways, owner: IntArray
) -> Iterator[tuple[IntArray, list[BoolArray]]]:
    """Yield blocks that are what cheaper ways join, if there are such, and no spare ranks."""
    blocks = ways.block.copy()
    for way in np.flatnonzero(~ways.is_straight).tolist():
        blocks[way] = _joined(blocks[way], parts(ways, way, ways.holds < ways.holds[way]))
    if not np.array_equal(blocks, ways.block):
        yield blocks, [np.zeros((len(owner), problem.fabric.num_gpus), dtype=bool)]


def _joined(some: IntArray, others: IntArray) -> IntArray:
    """Number of the part of each rank that two partitions join, one of which may leave out some."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    there = np.flatnonzero(some >= 0)
    shape = (int(some.max()) + 1, int(others.max()) + 1)
    size = sum(shape)
    edges = (some[there], shape[0] + others[there])
    graph = coo_array((np.ones(len(there)), edges), shape=(size, size))
    labels = connected_components(graph, directed=False)[1].astype(np.int64)
    return np.where(some < 0, -1, labels[some])


def _inside(problem: FabricProblem, ways: Ways, owner: IntArray) -> Ways:
    """Ways among the ranks of the owners' group; those of its images are images of these.

    Raises
    ------
    MethodError
        If owners are in different groups.
    """
    if problem.groups is None:
        return ways
    label = problem.labels
    if (label[owner] != label[owner[0]]).any():
        raise MethodError(
            f"{problem.fabric.name}: gpus of one element of the symmetry are in different groups; "
            "plan them as tenants, without orbits"
        )
    is_in = label == label[owner[0]]
    there = (ways.target >= 0) & is_in & is_in[ways.target]
    return replace(
        ways,
        target=np.where(there, ways.target, -1),
        entered=np.where(is_in, ways.entered, -1),
        left=np.where(is_in, ways.left, -1),
    )


def _spares(problem: FabricProblem, ways: Ways, owner: IntArray) -> Iterator[BoolArray]:
    """Yield which ranks are spare for each chunk: none, then some of a band of distances."""
    from teccl.orbit.plan.kernels import mark_apart

    spare = np.zeros((len(owner), problem.fabric.num_gpus), dtype=bool)
    yield spare
    if not ways.is_straight.any():
        return
    distances = [_distances(ways, rank) for rank in owner.tolist()]
    for low, high in _BANDS:
        for row, distance in zip(spare, distances, strict=True):
            most = int(distance.max())
            within = (distance > low * most) & (distance <= high * most)
            row[:] = mark_apart(np.flatnonzero(within), ways.target)
        yield spare.copy()


def _distances(ways: Ways, rank: int) -> IntArray:
    """Straight ways from one rank to every other, 0 where there are none."""
    found = np.full(ways.target.shape[1], -1, dtype=np.int64)
    found[rank], reached, steps = 0, np.array([rank]), 0
    while len(reached):
        steps += 1
        near = np.unique(ways.target[:, reached])
        reached = near[(near >= 0) & (found[near] < 0)]
        found[reached] = steps
    return np.maximum(found, 0)


def _members(ways: Ways, block: IntArray) -> tuple[IntArray, IntArray]:
    """By way and hub, the ranks that it leads to, those of different parts in turn.

    A part is what ways over other links join. A switch between parts serves one rank of each first,
    who then passes the chunk on inside. A way through several switches serves one rank of each
    block.
    """
    start = np.zeros((len(ways), ways.num_hubs + 1), dtype=np.int64)
    lists, total = [np.zeros(0, dtype=np.int64)], 0
    for way in np.flatnonzero(~ways.is_straight).tolist():
        ranks = np.flatnonzero(ways.left[way] >= 0)
        place = ways.left[way][ranks] * (block[way].max() + 1) + block[way][ranks]
        ranks = ranks[np.unique(place, return_index=True)[1]]
        others = np.ones(len(ways), dtype=bool)
        hub, part = ways.left[way][ranks], parts(ways, way, others)[ranks]
        ordered = np.lexsort((ranks, _turns(hub, part), hub))
        counts = np.bincount(hub, minlength=ways.num_hubs)
        start[way] = total + np.concatenate([[0], np.cumsum(counts)])
        lists.append(ranks[ordered])
        total += len(ranks)
    return start, np.concatenate(lists)


def _turns(switch: IntArray, part: IntArray) -> IntArray:
    """How many ranks of the same switch and part come before each one."""
    order = np.lexsort((part, switch))
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(switch[order]) != 0) | (np.diff(part[order]) != 0)
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - first
    return turn


def parts(ways: Ways, apart: int, some: BoolArray) -> IntArray:
    """Number of the part of each rank, joined by those of some ways that pass no switch of one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    num_ranks = ways.target.shape[1]
    ends = np.array([(link.src, link.dst) for link in ways.fabric.links]).reshape(-1, 2)
    is_switch = np.array([node.is_switch for node in ways.fabric.nodes])
    own = ends[ways.steps[apart][ways.steps[apart] >= 0]].ravel()
    shares = (np.isin(ends, own[is_switch[own]]) & is_switch[ends]).any(axis=1)
    shares[ways.steps[apart][ways.steps[apart] >= 0]] = True
    some = some & ~(shares[ways.steps] & (ways.steps >= 0)).any(axis=1)
    ranks, far = [np.arange(0)], [np.arange(0)]
    for way in np.flatnonzero(some).tolist():
        for table, base in ((ways.target, 0), (ways.entered, num_ranks), (ways.left, num_ranks)):
            there = np.flatnonzero(table[way] >= 0)
            ranks.append(there)
            far.append(base + table[way][there])
    rows, columns = np.concatenate(ranks), np.concatenate(far)
    size = num_ranks + ways.num_hubs
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    labels: IntArray = connected_components(graph, directed=False)[1][:num_ranks].astype(np.int64)
    return labels


def hops(ways: Ways, sends: IntArray, starts: IntArray) -> OrbitSends:
    """Return the sends over single links of sends over ways.

    Parameters
    ----------
    sends
        Rows of chunk, way, from and to.
    starts
        When they begin.
    """
    chunk, way, source, rank = sends.T
    rows, links, times = [], [], []
    for number in np.unique(way).tolist():
        here = np.flatnonzero(way == number)
        for step, found in enumerate(ways.links(number, source[here], rank[here])):
            rows.append(here)
            links.append(found)
            times.append(starts[here] + ways.lags[number, step])
    order = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    return orbit_array(
        chunk=chunk[order],
        link=np.concatenate([order[:0], *links]),
        start_ps=np.concatenate([order[:0], *times]),
        transfer=order,
    )


def link_at(problem: FabricProblem, orbits: IntArray, ranks: IntArray, end: int) -> IntArray:
    """Link of each orbit that has a rank at one of its ends."""
    fabric = problem.fabric
    found = np.empty(len(orbits), dtype=np.int64)
    for orbit in np.unique(orbits).tolist():
        links = np.arange(fabric.link_base[orbit], fabric.link_base[orbit + 1])
        at = np.full(fabric.num_gpus, -1, dtype=np.int64)
        at[fabric.link_ends(links)[end]] = links
        rows = orbits == orbit
        found[rows] = at[ranks[rows]]
    return found
