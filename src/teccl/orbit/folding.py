"""Folding: a listed topology as a fabric, by shifts of its ranks that map it onto itself.

Ranks are laid out as a grid. A shift along an axis is extended to the switches by what they are
linked to and kept only if it then takes every link to a link of the same rate, latency and
overhead. Switches above others that stay in place are rotated among those that are linked alike, so
that links between switches move, too. What results is compared with the topology link by link, so
that a wrong guess on the way can lose a fabric but never give a wrong one.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from teccl._arrays import IntArray, new_run
from teccl.orbit.fabric import MAX_AXES, MAX_ORBITS, Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.lattice import Lattice, Moduli
from teccl.orbit.layout import NodeOrder, connected, levels, renumbered
from teccl.orbit.naming import find_name
from teccl.topology import Link, Topology

# Axes of the grids of ranks that are tried: three tiers, or three dimensions and what is left.
_AXES = 3
# GPUs times orbits of GPUs: sends that one chunk of each orbit has.
MAX_LISTED = 2**21


def fold(topology: Topology, layout: NodeOrder | None = None) -> Fabric | None:
    """Return the topology as a fabric, None where no shift of ranks moves every GPU.

    Profiles, shared capacities and switches that reduce are not folded.

    Parameters
    ----------
    layout
        The order in which nodes are shifted, in place of that of the topology; the fabric lists
        ranks that are in another order, and names that follow no pattern.
    """
    if not is_plain(topology):
        return None
    order = layout or NodeOrder.of(topology)
    largest = None
    for shape in _shapes(topology, order):
        moves = [_extended(topology, order, *axis) for axis in shape]
        moduli = tuple(size for size, _ in shape)
        orbits = _orbits(topology, order, moduli, [move for move in moves if move is not None])
        fabric = None if orbits is None else _assembled(topology, order, moduli, orbits)
        if fabric is not None and orbits is not None:
            fabric = _listing(topology, fabric, order, orbits)
        if fabric is not None and is_joined(fabric):
            return fabric
        largest = largest or fabric
        if topology.num_gpus**2 // math.prod(moduli) > MAX_LISTED:
            break
    return largest


def is_plain(topology: Topology) -> bool:
    """Whether a topology has nothing that fabrics do not: neither profiles nor sums in switches.

    Shared capacities are known to fabrics, but not folded.
    """
    has_more = topology.has_profiles or topology.shared
    return not has_more and not any(node.reduce for node in topology.nodes)


def _shapes(topology: Topology, order: NodeOrder) -> Iterator[list[tuple[int, int]]]:
    """Yield sizes and strides of the axes of groups, outermost first, larger groups first.

    Of equally large ones those with the fewest axes, but first the axes of a layout. What no shift
    serves is left to the fastest running places of a rank.
    """
    count = topology.num_gpus
    works: dict[tuple[int, int], bool] = {}
    blocks = list(_blocks(topology, order))

    def serves(size: int, stride: int) -> bool:
        if (size, stride) not in works:
            works[size, stride] = (
                all(_keeps(block, size, stride) for block in blocks)
                and _extended(topology, order, size, stride) is not None
            )
        return works[size, stride]

    every = (
        sizes
        for elements in sorted(_divisors(count), reverse=True)
        for axes in range(1, _AXES + 1)
        for sizes in _factorings(elements, axes)
    )
    known = [order.sizes] if order.sizes and count % math.prod(order.sizes) == 0 else []
    for sizes in itertools.chain(known, every):
        strides = [count // math.prod(sizes[: i + 1]) for i in range(len(sizes))]
        shape = list(zip(sizes, strides, strict=True))
        if len(shape) <= MAX_AXES and all(serves(*axis) for axis in shape):
            yield shape


def _blocks(topology: Topology, order: NodeOrder) -> Iterator[IntArray]:
    """Yield by rank the part that switches of each level and below join, from the lowest on.

    The level of a switch is its distance from GPUs, so that whatever maps the topology onto itself
    maps parts onto parts. Links among GPUs come first.
    """
    src, dst, level = topology.link_src, topology.link_dst, levels(topology)
    for height in np.unique(level).tolist():
        low = (level[src] <= height) & (level[dst] <= height)
        yield renumbered(connected(topology.num_nodes, src[low], dst[low])[order.gpus])


def _keeps(block: IntArray, size: int, stride: int) -> bool:
    """Whether a shift of ranks maps each part onto one."""
    moved = np.roll(block.reshape(-1, size, stride), -1, axis=1).ravel()
    pairs = len(np.unique(block * len(block) + moved))
    return pairs == len(np.unique(block))


def is_joined(fabric: Fabric) -> bool:
    """Whether links that no element of the group leaves in place join all GPUs."""
    free = [i for i, x in enumerate(fabric.link_lattices) if x.order == fabric.group.order]
    ends = [fabric.link_ends(fabric.links_of(i)) for i in free]
    src, dst = (np.concatenate([np.arange(0), *(both[i] for both in ends)]) for i in (0, 1))
    labels = connected(fabric.num_nodes, src, dst)[: fabric.num_gpus]
    return bool((labels == labels[0]).all())


def _divisors(count: int) -> list[int]:
    return [d for d in range(2, count + 1) if count % d == 0]


def _factorings(count: int, axes: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a product of so many factors above one."""
    if axes == 1:
        yield (count,)
        return
    for first in range(2, count // 2 + 1):
        if count % first == 0:
            for rest in _factorings(count // first, axes - 1):
                yield (first, *rest)


def _extended(topology: Topology, order: NodeOrder, size: int, stride: int) -> IntArray | None:
    """Where a shift of ranks along one axis takes every node; None if it is no automorphism."""
    ranks = np.arange(topology.num_gpus).reshape(-1, size, stride)
    nodes = np.full(topology.num_nodes, -1)
    nodes[order.gpus] = order.gpus[np.roll(ranks, -1, axis=1).ravel()]
    kinds = topology.link_kind
    ends = np.stack([topology.link_src, topology.link_dst, kinds])
    if topology.num_switches and not _match_switches(topology, order.place, ends, nodes, size):
        return None
    image = np.stack([nodes[ends[0]], nodes[ends[1]], kinds])
    same = np.array_equal(ends[:, np.lexsort(ends)], image[:, np.lexsort(image)])
    return nodes if same else None


def _match_switches(
    topology: Topology, place: IntArray, ends: IntArray, nodes: IntArray, size: int
) -> bool:
    """Find where the switches go, from GPUs outwards, by the images of what they are linked to.

    Switches that are linked to the same nodes keep their order, which is that of `place`, unless
    all of these are switches that stay in place: then they are rotated, as far as `size` such
    shifts bring them back. Whether that was right is seen when all links are compared.
    """
    src, dst, kind = ends
    way = np.repeat([0, 1], len(src))
    around = np.stack([np.append(src, dst), way, np.append(kind, kind), np.append(dst, src)])
    around = around[:, topology.is_switch[around[0]]]
    every = np.arange(len(nodes))
    while (nodes < 0).any():
        taken = np.isin(every, nodes)
        there: dict[bytes, list[int]] = {}
        for node, text in _signatures(around, np.where(taken, every, -1)):
            if not taken[node]:
                there.setdefault(text, []).append(node)
        here: dict[bytes, list[int]] = {}
        moves = around[:, nodes[around[3]] != around[3]]
        moved = set(moves[0, nodes[moves[3]] >= 0].tolist())
        for node, text in _signatures(around, nodes):
            if nodes[node] < 0:
                here.setdefault(text, []).append(node)
        if not here or any(len(there.get(text, ())) < len(alike) for text, alike in here.items()):
            return False
        for text, members in here.items():
            alike = sorted(members, key=place.__getitem__)
            images = sorted(there[text], key=place.__getitem__)[: len(alike)]
            if images == alike and not moved.intersection(alike):
                step = len(alike) // math.gcd(len(alike), size)
                images = images[step:] + images[:step]
            nodes[alike] = images
    return True


def _signatures(around: IntArray, names: IntArray) -> Iterator[tuple[int, bytes]]:
    """What each switch is linked to among the nodes that have names, which are not negative."""
    node, way, kind, far = around[:, names[around[3]] >= 0]
    order = np.lexsort((names[far], kind, way, node))
    table = np.stack([way, kind, names[far]], axis=1)[order]
    first = np.flatnonzero(new_run(node[order]))
    for rows, begin in zip(np.split(table, first[1:]), first.tolist(), strict=False):
        yield int(node[order[begin]]), rows.tobytes()


def _orbits(
    topology: Topology, order: NodeOrder, moduli: Moduli, moves: list[IntArray]
) -> list[IntArray] | None:
    """Nodes of each orbit as an array with one axis for each of the group, GPUs first."""
    rest = topology.num_gpus // math.prod(moduli)
    if rest > MAX_ORBITS:
        return None
    orbits = [order.gpus[position::rest].reshape(moduli) for position in range(rest)]
    left = topology.is_switch.copy()
    while left.any():
        nodes = np.flatnonzero(left)[:1].reshape(())
        for move in moves:
            powers = [nodes]
            while (power := move[powers[-1]]).flat[0] != nodes.flat[0]:
                powers.append(power)
            nodes = np.stack(powers, axis=-1)
        divides = not (np.array(moduli) % nodes.shape).any()
        if not divides or len(np.unique(nodes)) < nodes.size or len(orbits) >= MAX_ORBITS:
            return None
        left[nodes.ravel()] = False
        orbits.append(nodes)
    return orbits


def _assembled(
    topology: Topology, order: NodeOrder, moduli: Moduli, orbits: list[IntArray]
) -> Fabric | None:
    """Build the fabric with such orbits of nodes; None unless it has the topology's links."""
    orbit_of = np.empty(topology.num_nodes, dtype=np.int64)
    digits = np.empty((len(moduli), topology.num_nodes), dtype=np.int64)
    for i, nodes in enumerate(orbits):
        orbit_of[nodes.ravel()] = i
        digits[:, nodes.ravel()] = Lattice(nodes.shape).digits(np.arange(nodes.size))
    src, dst = topology.link_src, topology.link_dst
    sizes = np.array([nodes.shape for nodes in orbits]).T
    common = np.gcd(sizes[:, orbit_of[src]], sizes[:, orbit_of[dst]])
    offset = (digits[:, dst] - digits[:, src]) % common
    keys = np.stack([orbit_of[src], orbit_of[dst], topology.link_kind, *offset])
    classes, first, count = np.unique(keys, axis=1, return_index=True, return_counts=True)
    links = []
    for (a, b, _, *step), i, number in zip(classes.T.tolist(), first, count, strict=True):
        images = math.prod(map(math.lcm, orbits[a].shape, orbits[b].shape))
        link = topology.links[int(i)]
        orbit = LinkOrbit(
            src=a,
            dst=b,
            offset=tuple(step),
            bandwidth=link.bandwidth,
            alpha=link.alpha,
            overhead=link.overhead,
        )
        links += [orbit] * (int(number) // images)
    names = [_named(topology, i, nodes) for i, nodes in enumerate(orbits)]
    if len(links) > MAX_ORBITS or not links:
        return None
    fabric = Fabric(name=topology.name, moduli=moduli, nodes=tuple(names), links=tuple(links))
    return fabric if _is_same(topology, fabric, _numbered(topology, order, orbits)) else None


def _numbered(topology: Topology, order: NodeOrder, orbits: list[IntArray]) -> IntArray:
    """Nodes of the topology by their number in the fabric."""
    switches = (nodes.ravel() for nodes in orbits if _is_switch(topology, nodes))
    return np.concatenate([order.gpus, *switches])


def _listing(
    topology: Topology, fabric: Fabric, order: NodeOrder, orbits: list[IntArray]
) -> Fabric:
    """Return the fabric with what its orbits do not say: ranks, and names of nodes."""
    numbers = _numbered(topology, order, orbits).tolist()
    names = tuple(topology.nodes[i].name for i in numbers)
    is_said = all(fabric.node_name(i) == name for i, name in enumerate(names))
    ranks = tuple(np.searchsorted(topology.gpus, order.gpus).tolist())
    return replace(
        fabric,
        ranks=() if ranks == tuple(range(len(ranks))) else ranks,
        names=() if is_said else names,
    )


def _is_same(topology: Topology, fabric: Fabric, node: IntArray) -> bool:
    """Whether a fabric, every link listed, is the topology; `node` has its nodes by number."""
    if fabric.num_links != topology.num_links:
        return False
    src, dst = fabric.link_ends(np.arange(fabric.num_links))
    number = {value: i for i, value in enumerate(topology.each_kind(_kind))}
    kinds = np.array([number[_kind(link)] for link in fabric.links])
    mine = np.stack([node[src], node[dst], kinds[fabric.link_orbit(np.arange(fabric.num_links))]])
    kind = np.array([number[value] for value in topology.each_kind(_kind)])[topology.link_kind]
    theirs = np.stack([topology.link_src, topology.link_dst, kind])
    return np.array_equal(mine[:, np.lexsort(mine)], theirs[:, np.lexsort(theirs)])


def _kind(link: Link | LinkOrbit) -> tuple[Fraction, Fraction, Fraction]:
    """What links of a kind have in common."""
    return link.bandwidth, link.alpha, link.overhead


def _is_switch(topology: Topology, nodes: IntArray) -> bool:
    return topology.nodes[int(nodes.flat[0])].is_switch


def _named(topology: Topology, number: int, nodes: IntArray) -> NodeOrbit:
    """Return the orbit of some nodes, named after them where one pattern gives all their names."""
    members = [topology.nodes[i] for i in nodes.ravel().tolist()]
    kind = members[0].kind
    name = find_name([node.name for node in members], nodes.shape)
    groups = [node.group for node in members]
    return NodeOrbit(
        name=name or f"{kind.value}s{number}-{{n}}",
        kind=kind,
        moduli=nodes.shape,
        group=None if None in groups else find_name([g for g in groups if g], nodes.shape),
    )
