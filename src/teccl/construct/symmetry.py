"""Symmetry: schedule one representative of every orbit and repeat it by the group.

If a group of automorphisms moves every GPU (acts freely), an AllGather need be scheduled for one
source of each orbit only. All images of a link are in use at the same time, so in the quotient an
orbit of links is one resource; what fits there fits everywhere when repeated.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, count

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray, concatenated_ranges
from teccl.construct.multicast import Tables, greedy
from teccl.construct.params import GRID_FACTORS, NEVER, SEEDS
from teccl.construct.plan import Plan
from teccl.demand import Collective, Demand, ExplicitChunk
from teccl.keywords import SwitchMode
from teccl.problem import Problem
from teccl.topology import Topology

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


@lru_cache(maxsize=2)
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
    for shape in _factorings(count, GRID_FACTORS):
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
    """Number the kinds of links: equal numbers mean that data takes as long on them."""
    known: dict[object, int] = {}
    kinds = [(x.bandwidth, x.alpha, x.overhead, x.profile) for x in topology.links]
    return np.array([known.setdefault(kind, len(known)) for kind in kinds], dtype=np.int64)


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


def symmetric_plans(instance: Instance, group: Group, *, seed: int) -> Iterator[Plan | None]:
    """Yield AllGather plans that the group repeats, run after run, None for one that is no better.

    Nothing where its shifts do not fit. Every other run is thrifty.
    """
    quotient = _quotient(instance, group)
    if quotient is None:
        return
    small, kept, chunk_image = quotient
    tables = Tables.build(small)
    best = NEVER
    for run in count():
        plan = greedy(
            small,
            tables,
            seed=seed * SEEDS + run,
            join=False,
            thrifty=run % 2 == 1,
            longest_first=True,
        )
        repeated = None
        if plan is not None and plan.finish < best:
            repeated = _repeated(instance, plan, group, kept, chunk_image)
            if repeated is None:
                return
            best = plan.finish
            repeated = replace(repeated, shifts=group.shifts)
        yield repeated


def plans_in_quotient(
    instance: Instance, make: Callable[[Instance], Iterator[Plan]]
) -> Iterator[Plan]:
    """Make plans for one source of each orbit and yield them repeated by the group.

    The whole group leaves least to do but may have to do without links that some shifts leave in
    place; the part that moves all links comes next.
    """
    topology = instance.problem.topology
    known: list[tuple[IntArray, ...]] = []
    for group in (find_group(topology), free_group(topology)):
        quotient = None if group is None else _quotient(instance, group)
        if group is None or quotient is None or any(_is_same(group.shifts, k) for k in known):
            continue
        known.append(group.shifts)
        small, kept, chunk_image = quotient
        for plan in make(_apart(small)):
            repeated = _repeated(instance, plan, group, kept, chunk_image)
            if repeated is not None:
                yield replace(repeated, shifts=group.shifts)


@lru_cache(maxsize=2)
def free_group(topology: Topology) -> Group | None:
    """Return the largest part of the group, made of some of its shifts, that moves every link.

    A rotation of the GPUs below a leaf leaves the links above it in place; that of all leaves
    does not.
    """
    whole = find_group(topology)
    if whole is None:
        return None
    rank = np.full(topology.num_nodes, -1)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    moves = [rank[shift[topology.gpus]] for shift in whole.shifts]
    kind = _link_kinds(topology)
    best = None
    for size in range(len(moves), 0, -1):
        for chosen in combinations(moves, size):
            group = _generate(topology, kind, chosen)
            is_free = group is not None and bool((group.links[1:] != group.links[0]).all())
            if group is not None and is_free and (best is None or len(group) > len(best)):
                best = group
    return best


def _apart(small: Instance) -> Instance:
    """Forbid branches that join a passage: each image would be a transfer of its own."""
    if small.problem.switch is not SwitchMode.COPY:
        return small
    return replace(small, problem=replace(small.problem, switch=SwitchMode.NO_COPY))


def improved_in_quotient(
    instance: Instance, plan: Plan, improve: Callable[[Instance, Plan], Plan]
) -> Plan | None:
    """Improve what a group repeats for one source of each orbit, and repeat that.

    Parameters
    ----------
    plan
        As `symmetric_plans` and `plans_in_quotient` make it.
    improve
        Returns a plan of an instance at least as good as a given one.

    Returns
    -------
    Plan or None
        None where the plan is no such one, or nothing is gained.
    """
    groups = (group(instance.problem.topology) for group in (find_group, free_group))
    group = next((g for g in groups if g is not None and _is_same(g.shifts, plan.shifts)), None)
    quotient = None if group is None else _quotient(instance, group)
    if group is None or quotient is None:
        return None
    small, kept, chunk_image = quotient
    number = np.full(len(instance.problem.chunks), -1)
    number[chunk_image[0]] = np.arange(chunk_image.shape[1])
    place = np.full(len(instance.routes), -1)
    place[kept] = np.arange(len(kept))
    rows = plan.rows[number[plan.rows[:, 0]] >= 0]
    rows[:, 0], rows[:, 1] = number[rows[:, 0]], place[rows[:, 1]]
    if (rows[:, 1] < 0).any() or rows[:, 4].any():
        return None
    start = replace(plan, rows=rows, shifts=())
    better = improve(_apart(small), start)
    if better is start:
        return None
    repeated = _repeated(instance, better, group, kept, chunk_image)
    return None if repeated is None else replace(repeated, shifts=group.shifts)


def num_images(plan: Plan) -> int:
    """Return how often the shifts of a plan repeat it, itself included."""
    return math.prod(_order(shift) for shift in plan.shifts)


def _order(shift: IntArray) -> int:
    """Return after how many steps a permutation has everything in place again."""
    power, order = shift, 1
    while (power != np.arange(len(shift))).any():
        power, order = shift[power], order + 1
    return order


def _is_same(shifts: Sequence[IntArray], others: Sequence[IntArray]) -> bool:
    """Whether two groups are made of the same shifts."""
    return len(shifts) == len(others) and all(map(np.array_equal, shifts, others))


def _quotient(instance: Instance, group: Group) -> tuple[Instance, IntArray, IntArray] | None:
    """Return the instance of one chunk per orbit on orbits of links, and how to go back."""
    problem, routes = instance.problem, instance.routes
    if problem.topology.shared:
        return None
    fixed = (group.links == np.arange(problem.topology.num_links)).sum(axis=0)
    # A link that some shift leaves in place would carry several images at once.
    usable = np.logical_and.reduceat(fixed[routes.links] == 1, routes.link_start[:-1])
    if not usable.any():
        return None
    base, chunk_image = _chunk_images(problem, group)
    sources = np.unique([problem.chunks.sources(k)[0] for k in base.tolist()])
    usable &= ~_replaceable(instance, group, sources)
    small = _restricted(instance, usable, group, base)
    return small, np.flatnonzero(usable), chunk_image


def _chunk_images(problem: Problem, group: Group) -> tuple[IntArray, IntArray]:
    """Return the chunks of one source of each orbit and, per element, where it takes each of them.

    Chunks have one source; those that several want are wanted by all alike.
    """
    table, n = problem.chunks, problem.topology.num_nodes
    firsts = np.array([nodes[0] for nodes in table.sets])
    source, target = firsts[table.source_set], firsts[table.destination_set]
    is_single = np.array([len(nodes) == 1 for nodes in table.sets])[table.destination_set]
    target = np.where(is_single, target, source)
    pieces = int(table.piece.max()) + 1

    def key(source: IntArray, target: IntArray) -> IntArray:
        return (source * n + target) * pieces

    base = np.flatnonzero(group.nodes.min(axis=0)[source] == source)
    at = np.full(n * n * pieces, -1, dtype=np.int64)
    at[key(source, target) + table.piece] = np.arange(len(table))
    moved = [key(g[source[base]], g[target[base]]) + table.piece[base] for g in group.nodes]
    return base, np.stack([at[places] for places in moved])


def _replaceable(instance: Instance, group: Group, sources: IntArray) -> npt.NDArray[np.bool_]:
    """Mark routes in place of which one from the only source does as well, at any time.

    Through one large switch all routes to a node hold the same orbits of links. The source has its
    chunk from the start, so that nobody else need send it along routes like its own.
    """
    routes, topology = instance.routes, instance.problem.topology
    orbit = group.links.min(axis=0)
    number = _as_numbers(topology.num_links, routes.link_start, orbit[routes.links])
    if len(sources) > 1 or number is None or float(number.max()) * topology.num_nodes >= NEVER:
        return np.zeros(len(routes), dtype=bool)
    like = number * topology.num_nodes + routes.dst
    own = routes.src == sources[0]
    replaceable: npt.NDArray[np.bool_] = np.isin(like, like[own]) & ~own
    return replaceable


def symmetric_paths(instance: Instance, group: Group, lay: Lay) -> Plan | None:
    """Lay paths of an AllToAll for one source of each orbit and repeat them by the group.

    A link that some shifts leave in place carries as many images of a path that crosses it.

    Parameters
    ----------
    lay
        Lays paths without times, see `teccl.construct.trees.laid_plan`.
    """
    problem = instance.problem
    if problem.topology.shared:
        return None
    base, chunk_image = _chunk_images(problem, group)
    every = np.arange(len(instance.routes))
    plan = lay(_restricted(instance, np.ones(len(every), dtype=bool), group, base))
    return None if plan is None else _repeated(instance, plan, group, every, chunk_image)


def _route_images(instance: Instance, group: Group, chosen: IntArray) -> IntArray | None:
    """Per element, where it takes each of the chosen routes; None if to none."""
    routes, num_links = instance.routes, instance.problem.topology.num_links
    number = _as_numbers(num_links, routes.link_start, routes.links)
    if number is None:
        return None
    order = np.argsort(number)
    number = number[order]
    low, high = routes.link_start[chosen], routes.link_start[chosen + 1]
    start = np.concatenate([[0], np.cumsum(high - low)])
    links = routes.links[concatenated_ranges(low, high)]
    images = np.empty((len(group), len(chosen)), dtype=np.int64)
    for g, moved in enumerate(group.links):
        wanted = _as_numbers(num_links, start, moved[links])
        assert wanted is not None
        found = np.minimum(np.searchsorted(number, wanted), len(order) - 1)
        if not np.array_equal(number[found], wanted):
            return None
        images[g] = order[found]
    return images


def _as_numbers(num_links: int, start: IntArray, links: IntArray) -> IntArray | None:
    """Read the links of each route as the digits of one number; None if some have too many."""
    length = np.diff(start)
    if (num_links + 1.0) ** int(length.max(initial=1)) >= NEVER:
        return None
    place = np.repeat(start[1:], length) - 1 - np.arange(len(links))
    numbers: IntArray = np.add.reduceat((links + 1) * (num_links + 1) ** place, start[:-1])
    return numbers


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


def _repeated(
    instance: Instance, plan: Plan, group: Group, kept: IntArray, chunk_image: IntArray
) -> Plan | None:
    """Repeat a quotient's rows by every element of the group; `kept` are its routes here."""
    used, index = np.unique(plan.rows[:, 1], return_inverse=True)
    route_image = _route_images(instance, group, kept[used])
    if route_image is None:
        return None
    rows = np.tile(plan.rows, (len(group), 1))
    rows[:, 0] = chunk_image[:, plan.rows[:, 0]].ravel()
    rows[:, 1] = route_image[:, index].ravel()
    rows[:, 3] = np.arange(len(rows))
    rows[:, 4] = 0
    return Plan(rows=rows, finish=plan.finish)


def fits_quotient(problem: Problem) -> bool:
    """Whether calendars of one source's chunks tell what those of all sources hold.

    In a GPU that keeps some chunks those of other sources wait, too, of which they know nothing.
    """
    return not problem.buffer


def is_symmetric_demand(problem: Problem, collective: Collective) -> bool:
    """Whether a collective of all ranks is all that is asked for."""
    tenants = problem.demand.tenants
    return (
        len(tenants) == 1
        and tenants[0].collective is collective
        and not tenants[0].ready
        and len(tenants[0].members(problem.topology.num_gpus)) == problem.topology.num_gpus
    )
