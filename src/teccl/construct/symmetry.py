"""Symmetry: schedule one representative of every orbit and repeat it by the group.

If a group of automorphisms moves every GPU (acts freely), an AllGather need be scheduled for one
source of each orbit only. All images of a link are in use at the same time, so in the quotient an
orbit of links is one resource; what fits there fits everywhere when repeated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Tables, greedy
from teccl.construct.plan import Plan
from teccl.demand import Collective, Demand, ExplicitChunk
from teccl.problem import Problem
from teccl.topology import Topology

MAX_FACTORS = 3

# Lays the trees or paths of an instance, without times.
Lay = Callable[[Instance], Plan | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Automorphisms of a topology that move every GPU.

    Parameters
    ----------
    nodes, links
        Per element, where it takes every node and every link; the identity comes first.
    shifts
        Permutations of the nodes that generate the group.
    """

    nodes: IntArray
    links: IntArray
    shifts: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.nodes)


@lru_cache(maxsize=8)
def find_group(topology: Topology) -> Group | None:
    """Return the largest group of shifts that maps the topology onto itself, None if trivial.

    Ranks are laid out as grids of every shape that fits; a shift along an axis of the grid is
    kept if it preserves links, bandwidths and latencies.
    """
    kind = _link_kinds(topology)
    best: list[IntArray] = []
    best_size = 1
    checked: dict[bytes, bool] = {}
    for shape in _shapes(topology.num_gpus):
        if int(np.prod(shape)) <= best_size:
            continue
        kept, size = [], 1
        for axis, shift in enumerate(_shifts(shape)):
            key = shift.tobytes()
            if key not in checked:
                checked[key] = _extend(topology, kind, shift) is not None
            if checked[key]:
                kept.append(shift)
                size *= shape[axis]
        if size > best_size:
            best, best_size = kept, size
        if best_size == topology.num_gpus:
            break
    return _generate(topology, kind, best) if best_size > 1 else None


def _shapes(count: int) -> Iterator[tuple[int, ...]]:
    """Yield grids of up to a few factors with `count` places, then that of all prime factors."""
    seen = set()
    for shape in _factorings(count, MAX_FACTORS):
        seen.add(shape)
        yield shape
    primes = tuple(_primes(count))
    if primes not in seen:
        yield primes


def _factorings(count: int, most: int) -> Iterator[tuple[int, ...]]:
    if count > 1:
        yield (count,)
    if most > 1:
        for first in range(2, count // 2 + 1):
            if count % first == 0:
                for rest in _factorings(count // first, most - 1):
                    yield (first, *rest)


def _primes(count: int) -> Iterator[int]:
    factor = 2
    while count > 1:
        while count % factor == 0:
            yield factor
            count //= factor
        factor += 1


def _shifts(shape: tuple[int, ...]) -> Iterator[IntArray]:
    """Yield, per axis, the rank that each rank moves to."""
    ranks = np.arange(int(np.prod(shape))).reshape(shape)
    for axis in range(len(shape)):
        yield np.roll(ranks, -1, axis=axis).ravel()


def _extend(
    topology: Topology, kind: IntArray, shift: IntArray
) -> tuple[IntArray, IntArray] | None:
    """Extend a permutation of ranks to all nodes and links; None if it is no automorphism."""
    nodes = np.full(topology.num_nodes, -1)
    nodes[topology.gpus] = topology.gpus[shift]
    if topology.num_switches and not _match_switches(topology, kind.tolist(), nodes):
        return None
    before = np.lexsort((kind, topology.link_dst, topology.link_src))
    src, dst = nodes[topology.link_src], nodes[topology.link_dst]
    after = np.lexsort((kind, dst, src))
    same = (
        np.array_equal(topology.link_src[before], src[after])
        and np.array_equal(topology.link_dst[before], dst[after])
        and np.array_equal(kind[before], kind[after])
    )
    if not same:
        return None
    links = np.empty(topology.num_links, dtype=np.int64)
    links[after] = before
    return nodes, links


def _link_kinds(topology: Topology) -> IntArray:
    """Number the kinds of links: equal numbers mean equal bandwidth, latency and profile."""
    known: dict[object, int] = {}
    return np.array(
        [known.setdefault((x.bandwidth, x.alpha, x.profile), len(known)) for x in topology.links],
        dtype=np.int64,
    )


def _match_switches(topology: Topology, kind: list[int], nodes: IntArray) -> bool:
    """Find where a permutation of GPUs takes the switches, by what they are linked to."""
    switches = [i for i, node in enumerate(topology.nodes) if node.is_switch]
    around: dict[int, list[tuple[int, int, int]]] = {s: [] for s in switches}
    for e, link in enumerate(topology.links):
        if link.src in around:
            around[link.src].append((0, kind[e], link.dst))
        if link.dst in around:
            around[link.dst].append((1, kind[e], link.src))
    left = set(switches)
    free = set(switches)
    while left:
        progress = False
        for s in sorted(left):
            if any(nodes[far] < 0 for _, _, far in around[s] if far not in around):
                return False
            known = [(way, k, int(nodes[far])) for way, k, far in around[s] if nodes[far] >= 0]
            if not known:
                continue
            image = _image_of(topology, s, known, around, free)
            if image is None:
                return False
            nodes[s] = image
            free.discard(image)
            left.discard(s)
            progress = True
        if not progress:
            return False
    return True


def _image_of(
    topology: Topology,
    switch: int,
    known: list[tuple[int, int, int]],
    around: dict[int, list[tuple[int, int, int]]],
    free: set[int],
) -> int | None:
    """A free switch that has all the known links of another one's image."""
    for other in sorted(free):
        if len(around[other]) != len(around[switch]):
            continue
        if topology.nodes[other].reduce != topology.nodes[switch].reduce:
            continue
        if set(known) <= set(around[other]):
            return other
    return None


def _generate(topology: Topology, kind: IntArray, moves: Sequence[IntArray]) -> Group | None:
    """Return all products of commuting moves of the ranks."""
    extended = [_extend(topology, kind, move) for move in moves]
    nodes = [np.arange(topology.num_nodes)]
    links = [np.arange(topology.num_links)]
    for pair in extended:
        assert pair is not None
        step_nodes, step_links = pair
        power_nodes, power_links = step_nodes, step_links
        more_nodes, more_links = list(nodes), list(links)
        while not np.array_equal(power_nodes[topology.gpus], topology.gpus):
            more_nodes += [power_nodes[g] for g in nodes]
            more_links += [power_links[g] for g in links]
            power_nodes, power_links = step_nodes[power_nodes], step_links[power_links]
        nodes, links = more_nodes, more_links
    shifts = tuple(pair[0] for pair in extended if pair is not None)
    return Group(nodes=np.array(nodes), links=np.array(links), shifts=shifts)


def symmetric_plans(
    instance: Instance, group: Group, *, runs: int, seed: int, target: int
) -> Iterator[Plan]:
    """Yield AllGather plans that the group repeats; nothing where its shifts do not fit."""
    quotient = _quotient(instance, group)
    if quotient is None:
        return
    small, route_image, chunk_image = quotient
    tables = Tables.build(small)
    best = 2**61
    for run in range(runs):
        plan = greedy(
            small,
            tables,
            seed=seed * 1009 + run,
            join=False,
            thrifty=run % 2 == 1,
            longest_first=True,
        )
        if plan is not None and plan.finish < best:
            best = plan.finish
            yield replace(_repeated(plan, route_image, chunk_image), shifts=group.shifts)
        if best <= target:
            return


def _quotient(instance: Instance, group: Group) -> tuple[Instance, IntArray, IntArray] | None:
    """Return the instance of one chunk per orbit on orbits of links, and how to go back."""
    problem, routes = instance.problem, instance.routes
    images = _route_images(instance, group)
    if images is None or problem.topology.shared:
        return None
    fixed = (group.links == np.arange(problem.topology.num_links)).sum(axis=0)
    # A link that some shift leaves in place would carry several images at once.
    usable = np.logical_and.reduceat(fixed[routes.links] == 1, routes.link_start[:-1])
    if not usable.any():
        return None
    sources = np.array([problem.chunks.sources(k)[0] for k in range(len(problem.chunks))])
    base = np.flatnonzero(group.nodes.min(axis=0)[sources] == sources)
    small = _restricted(instance, usable, group, base)
    chunk_at = {
        (int(node), int(piece)): k
        for k, (node, piece) in enumerate(zip(sources, problem.chunks.piece, strict=True))
    }
    chunk_image = np.array(
        [
            [chunk_at[int(g[sources[k]]), int(problem.chunks.piece[k])] for k in base]
            for g in group.nodes
        ]
    )
    return small, images[:, np.flatnonzero(usable)], chunk_image


def symmetric_paths(instance: Instance, group: Group, lay: Lay) -> Plan | None:
    """Lay paths of an AllToAll for one source of each orbit and repeat them by the group.

    A link that some shifts leave in place carries as many images of a path that crosses it.

    Parameters
    ----------
    lay
        Lays paths without times, see `teccl.construct.trees.laid_plan`.
    """
    problem = instance.problem
    images = _route_images(instance, group)
    if images is None or problem.topology.shared:
        return None
    table, n = problem.chunks, problem.topology.num_nodes
    firsts = np.array([nodes[0] for nodes in table.sets])
    source, target = firsts[table.source_set], firsts[table.destination_set]
    pieces = int(table.piece.max()) + 1

    def key(source: IntArray, target: IntArray) -> IntArray:
        return (source * n + target) * pieces

    base = np.flatnonzero(group.nodes.min(axis=0)[source] == source)
    at = np.full(n * n * pieces, -1, dtype=np.int64)
    at[key(source, target) + table.piece] = np.arange(len(table))
    chunk_image = np.stack(
        [at[key(g[source[base]], g[target[base]]) + table.piece[base]] for g in group.nodes]
    )
    small = _restricted(instance, np.ones(len(instance.routes), dtype=bool), group, base)
    plan = lay(small)
    return None if plan is None else _repeated(plan, images, chunk_image)


def _route_images(instance: Instance, group: Group) -> IntArray | None:
    """Per element, where it takes every route."""
    routes, num_links = instance.routes, instance.problem.topology.num_links
    length = np.diff(routes.link_start)
    if (num_links + 1.0) ** int(length.max(initial=1)) >= 2.0**62:
        return None
    # A route's links, read as digits, are one number.
    ends = routes.link_start[1:]
    weight = (num_links + 1) ** (np.repeat(ends, length) - 1 - np.arange(len(routes.links)))
    starts = routes.link_start[:-1]
    number = np.add.reduceat((routes.links + 1) * weight, starts)
    order = np.argsort(number)
    images = np.empty((len(group), len(routes)), dtype=np.int64)
    for g, moved in enumerate(group.links):
        wanted = np.add.reduceat((moved[routes.links] + 1) * weight, starts)
        found = order[np.minimum(np.searchsorted(number[order], wanted), len(order) - 1)]
        if not np.array_equal(number[found], wanted):
            return None
        images[g] = found
    return images


def _restricted(
    instance: Instance, usable: npt.NDArray[np.bool_], group: Group, base: IntArray
) -> Instance:
    """Return the instance with usable routes on orbits of links and the base chunks only."""
    problem, table = instance.problem, instance.problem.chunks
    ways = [way for way, use in zip(instance.routes.ways(), usable, strict=True) if use]
    rank = np.full(problem.topology.num_nodes, -1)
    rank[problem.topology.gpus] = np.arange(problem.topology.num_gpus)
    ranks = [tuple(rank[nodes].tolist()) for nodes in table.sets]
    ends = zip(table.source_set[base].tolist(), table.destination_set[base].tolist(), strict=True)
    chunks = tuple(ExplicitChunk(ranks[source], ranks[target]) for source, target in ends)
    tenant = replace(
        problem.demand.tenants[0],
        collective=Collective.EXPLICIT,
        chunks=chunks,
        size=problem.chunk_bytes,
    )
    single = replace(problem, demand=Demand(tenants=(tenant,)), num_chunks=1)
    small = Instance.build(single, instance.grid, ways=ways)
    orbit = group.links.min(axis=0)
    fixed = (group.links == np.arange(problem.topology.num_links)).sum(axis=0)
    res, hold = small.routes.res, small.routes.res_hold
    routes = replace(small.routes, res=orbit[res], res_hold=hold * fixed[res])
    return replace(small, routes=routes)


def _repeated(plan: Plan, route_image: IntArray, chunk_image: IntArray) -> Plan:
    """Repeat a quotient's rows by every element of the group."""
    copies = len(route_image)
    rows = np.tile(plan.rows, (copies, 1))
    rows[:, 0] = chunk_image[:, plan.rows[:, 0]].ravel()
    rows[:, 1] = route_image[:, plan.rows[:, 1]].ravel()
    rows[:, 3] = np.arange(len(rows))
    rows[:, 4] = 0
    return Plan(rows=rows, finish=plan.finish)


def is_symmetric_demand(problem: Problem, collective: Collective) -> bool:
    """Whether a collective of all ranks is all that is asked for."""
    tenants = problem.demand.tenants
    return (
        len(tenants) == 1
        and tenants[0].collective is collective
        and not tenants[0].ready
        and len(tenants[0].members(problem.topology.num_gpus)) == problem.topology.num_gpus
    )
