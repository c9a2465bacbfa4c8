"""Fabric: a periodic topology, its nodes and links given once for each orbit of a group.

The group G is a product of cyclic groups. A *node orbit* has one node for each element of the
group modulo its own `moduli`, which divide those of the group: equal ones make the action free, as
every GPU's must be; a 1 leaves the node in place along that axis. A *link orbit* leads from the
node with coordinates g of one orbit to the node with coordinates g + offset of another, for every
g. Nothing is ever listed once for each element.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from teccl._arrays import IntArray, ints
from teccl._files import shown
from teccl.errors import TopologyError
from teccl.orbit.lattice import Lattice, Moduli
from teccl.orbit.naming import check_name, fill_name
from teccl.topology.graph import MAX_BANDWIDTH, MAX_NAME, MIN_BANDWIDTH, NodeKind
from teccl.units import MAX_SECONDS

# A million GPUs; the schedule of one chunk has as many sends.
MAX_ORDER = 2**20
MAX_AXES = 8
MAX_ORBITS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrbit:
    """Nodes that the group takes to each other.

    Parameters
    ----------
    name
        With a place ``{i}`` for the coordinate of each axis i along which the orbit has several
        nodes, or ``{n}`` for the node's number in the orbit: ``c{0}/gpu{1}``, ``gpu{n}``; see
        `teccl.orbit.naming`.
    kind
        GPU or switch.
    moduli
        Number of different nodes along each axis; divides the group's.
    group
        Name of the chassis, rack or pod, with places as in `name`.
    """

    name: str
    moduli: Moduli
    kind: NodeKind = NodeKind.GPU
    group: str | None = None

    @property
    def is_switch(self) -> bool:
        """Whether the nodes are switches."""
        return self.kind is NodeKind.SWITCH


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOrbit:
    """Capacities that links share, each at one transfer a time; see `NodeOrbit` for the fields."""

    name: str
    moduli: Moduli
    bandwidth: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrbit:
    """Links that the group takes to each other.

    Parameters
    ----------
    src, dst
        Positions of node orbits.
    offset
        What is added to the coordinates of the source to give those of the destination.
    bandwidth, alpha, overhead
        As of a `teccl.topology.Link`.
    shares
        Positions of capacity orbits; a link uses the capacity with its own coordinates.
    """

    src: int
    dst: int
    offset: Moduli
    bandwidth: Fraction
    alpha: Fraction = Fraction(0)
    overhead: Fraction = Fraction(0)
    shares: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A periodic topology, checked.

    GPUs are numbered by rank: by the group's element first, then by orbit. Switches follow, orbit
    by orbit. Links are numbered orbit by orbit, each by the element that it belongs to.

    Parameters
    ----------
    name
        What tables print.
    moduli
        Orders of the cyclic groups.
    nodes, links, shared
        One entry for each orbit.
    ranks
        Where the fabric was found in a topology whose ranks are in another order: the rank there
        of each GPU. Empty where it is the GPU's number.
    names
        Names of all nodes by number, where they are not those that orbits give; empty otherwise.

    Examples
    --------
    >>> links = (LinkOrbit(src=0, dst=0, offset=(1,), bandwidth=Fraction(10**9)),)
    >>> Fabric(
    ...     name="circle", moduli=(5,), nodes=(NodeOrbit(name="gpu{0}", moduli=(5,)),), links=links
    ... )
    Fabric('circle', Z5, 5 gpus, 0 switches, 5 links)
    """

    name: str
    moduli: Moduli
    nodes: tuple[NodeOrbit, ...]
    links: tuple[LinkOrbit, ...]
    shared: tuple[CapacityOrbit, ...] = field(default=())
    ranks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_shape(self)
        names = [*(node.name for node in self.nodes), *(each.name for each in self.shared)]
        if len(set(names)) != len(names):
            raise TopologyError(f"{self.name}: two orbits have one name; give each its own")
        for node in self.nodes:
            _check_moduli(self, node.moduli, f"node orbit {node.name!r}")
            check_name(self.name, node.name, node.moduli)
            if node.group is not None:
                check_name(self.name, node.group, (1,) * len(self.moduli))
            if not node.is_switch and node.moduli != self.moduli:
                raise TopologyError(
                    f"{self.name}: gpus {node.name!r} stay in place under some element of the "
                    f"group; give them moduli {list(self.moduli)}"
                )
        for capacity in self.shared:
            _check_moduli(self, capacity.moduli, f"shared capacity {capacity.name!r}")
            check_name(self.name, capacity.name, capacity.moduli)
            _check_bandwidth(self, capacity.bandwidth, f"shared capacity {capacity.name!r}")
        for i, link in enumerate(self.links):
            _check_link(self, link, f"link orbit {i}")
        if not self.gpu_orbits:
            raise TopologyError(f"{self.name}: switches only; give at least one gpu")
        if self.num_gpus < 2:
            raise TopologyError(f"{self.name}: a single gpu; give at least two")
        _check_listing(self)

    def __repr__(self) -> str:
        group = "x".join(f"Z{size}" for size in self.moduli)
        return (
            f"Fabric({self.name!r}, {group}, {self.num_gpus} gpus, {self.num_switches} switches, "
            f"{self.num_links} links)"
        )

    @cached_property
    def group(self) -> Lattice:
        """The group."""
        return Lattice(self.moduli)

    @cached_property
    def gpu_orbits(self) -> tuple[int, ...]:
        """Positions of the orbits of GPUs."""
        return tuple(i for i, node in enumerate(self.nodes) if not node.is_switch)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.gpu_orbits) * self.group.order

    @property
    def num_nodes(self) -> int:
        """Number of GPUs and switches."""
        return self.num_gpus + self.num_switches

    @property
    def num_switches(self) -> int:
        """Number of switches."""
        return sum(math.prod(node.moduli) for node in self.nodes if node.is_switch)

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return int(self.link_base[-1])

    @cached_property
    def link_lattices(self) -> tuple[Lattice, ...]:
        """Elements that tell the links of each orbit apart: both ends have to agree."""
        return tuple(
            Lattice(tuple(map(math.lcm, self.nodes[link.src].moduli, self.nodes[link.dst].moduli)))
            for link in self.links
        )

    @cached_property
    def link_base(self) -> IntArray:
        """Number of the first link of each orbit, and of all links."""
        return np.cumsum([0, *(lattice.order for lattice in self.link_lattices)])

    @cached_property
    def _node_base(self) -> IntArray:
        """First number of each orbit of switches; for GPUs the place among the orbits of GPUs."""
        base, following = [], self.num_gpus
        for i, node in enumerate(self.nodes):
            base.append(following if node.is_switch else self.gpu_orbits.index(i))
            following += math.prod(node.moduli) if node.is_switch else 0
        return ints(base)

    def node_numbers(self, orbit: int, places: IntArray) -> IntArray:
        """Numbers of nodes of an orbit from their elements in its own lattice."""
        step = 1 if self.nodes[orbit].is_switch else len(self.gpu_orbits)
        numbers: IntArray = self._node_base[orbit] + places * step
        return numbers

    def nodes_of(self, orbit: int) -> IntArray:
        """Numbers of all nodes of an orbit."""
        return self.node_numbers(orbit, np.arange(math.prod(self.nodes[orbit].moduli)))

    def links_of(self, orbit: int) -> IntArray:
        """Numbers of all links of an orbit."""
        return np.arange(self.link_base[orbit], self.link_base[orbit + 1])

    def locate(self, node: int) -> tuple[int, int]:
        """Orbit of a node, and its element in the orbit's own lattice."""
        if node < self.num_gpus:
            place, position = divmod(node, len(self.gpu_orbits))
            return self.gpu_orbits[position], place
        for orbit, entry in enumerate(self.nodes):
            place = node - int(self._node_base[orbit])
            if entry.is_switch and 0 <= place < math.prod(entry.moduli):
                return orbit, place
        raise TopologyError(f"{self.name} has nodes 0 to {self.num_nodes - 1}, not {node}")

    def node_name(self, node: int) -> str:
        """Name of a node."""
        if self.names and 0 <= node < self.num_nodes:
            return self.names[node]
        orbit, place = self.locate(node)
        return fill_name(self.nodes[orbit].name, self.nodes[orbit].moduli, place)

    @cached_property
    def rank_of(self) -> IntArray:
        """Rank of each GPU in the topology, by its number."""
        return ints(list(self.ranks)) if self.ranks else np.arange(self.num_gpus)

    def gpu_of(self, rank: int) -> int:
        """Number of the GPU with a rank of the topology."""
        return self.ranks.index(rank) if self.ranks else rank

    def link_orbit(self, links: IntArray) -> IntArray:
        """Orbit of each link."""
        return np.searchsorted(self.link_base, links, side="right") - 1

    def link_at(self, link: int) -> LinkOrbit:
        """What a link has in common with all of its orbit."""
        return self.links[int(self.link_orbit(ints([link]))[0])]

    def link_ends(self, links: IntArray) -> tuple[IntArray, IntArray]:
        """Numbers of the nodes that links lead from and to."""
        src, dst = np.empty_like(links), np.empty_like(links)
        for orbit, rows in self._by_orbit(links):
            link, lattice = self.links[orbit], self.link_lattices[orbit]
            places = links[rows] - self.link_base[orbit]
            for node, offset, ends in (
                (link.src, (0,) * len(self.moduli), src),
                (link.dst, link.offset, dst),
            ):
                image = lattice.image(places, Lattice(self.nodes[node].moduli), offset)
                ends[rows] = self.node_numbers(node, image)
        return src, dst

    def moved_links(self, links: IntArray, elements: IntArray) -> IntArray:
        """Images of links, each under its own element of the group."""
        digits, images = self.group.digits(elements), np.empty_like(links)
        for orbit, rows in self._by_orbit(links):
            lattice, base = self.link_lattices[orbit], self.link_base[orbit]
            places = lattice.digits(links[rows] - base)
            images[rows] = base + lattice.number(places + digits[:, rows])
        return images

    def moved_nodes(self, nodes: IntArray, elements: IntArray) -> IntArray:
        """Images of nodes, each under its own element of the group."""
        digits, images = self.group.digits(elements), np.empty_like(nodes)
        for orbit, entry in enumerate(self.nodes):
            first, count = int(self._node_base[orbit]), math.prod(entry.moduli)
            step = 1 if entry.is_switch else len(self.gpu_orbits)
            places = (nodes - first) // step
            here = (places >= 0) & (places < count) & ((nodes - first) % step == 0)
            here &= entry.is_switch == (nodes >= self.num_gpus)
            lattice = Lattice(entry.moduli)
            image = lattice.number(lattice.digits(places[here]) + digits[:, here])
            images[here] = self.node_numbers(orbit, image)
        return images

    def _by_orbit(self, links: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Positions of the links of each orbit that occurs."""
        orbit = self.link_orbit(links)
        order = np.argsort(orbit, kind="stable")
        cuts = np.flatnonzero(np.diff(orbit[order])) + 1
        for rows in np.split(order, cuts) if len(links) else ():
            yield int(orbit[rows[0]]), rows

    def rate(self, link: LinkOrbit) -> Fraction:
        """Bytes per second that one transfer gets on a link: its own or a slower shared rate."""
        return min([link.bandwidth, *(self.shared[i].bandwidth for i in link.shares)])


def _check_shape(fabric: Fabric) -> None:
    """Refuse groups and counts that are absurd, before anything is derived from them."""
    if not 1 <= len(fabric.name) <= MAX_NAME or not fabric.name.isprintable():
        raise TopologyError(f"fabric name {shown(fabric.name)}; give 1 to {MAX_NAME} characters")
    sizes = fabric.moduli
    if not 1 <= len(sizes) <= MAX_AXES or not all(type(m) is int and m >= 1 for m in sizes):
        raise TopologyError(
            f"{fabric.name}: group {shown(list(sizes))}; give 1 to {MAX_AXES} positive orders"
        )
    if math.prod(sizes) > MAX_ORDER:
        raise TopologyError(
            f"{fabric.name}: a group of {math.prod(sizes)} elements is more than teccl handles "
            f"({MAX_ORDER}); give a smaller one"
        )
    for what, count in (("node", len(fabric.nodes)), ("link", len(fabric.links))):
        if not 1 <= count <= MAX_ORBITS:
            raise TopologyError(f"{fabric.name}: {count} {what} orbits; give 1 to {MAX_ORBITS}")


def _check_listing(fabric: Fabric) -> None:
    """Refuse ranks and names that are not one for each GPU and node."""
    ranks, names = fabric.ranks, fabric.names
    if ranks and sorted(ranks) != list(range(fabric.num_gpus)):
        raise TopologyError(
            f"{fabric.name}: ranks are not 0 to {fabric.num_gpus - 1} in some order; give each once"
        )
    fits = len(names) == len(set(names)) == fabric.num_nodes and all(
        1 <= len(name) <= MAX_NAME and name.isprintable() for name in names
    )
    if names and not fits:
        raise TopologyError(
            f"{fabric.name}: {len(names)} names for {fabric.num_nodes} nodes; give each node its "
            f"own of 1 to {MAX_NAME} characters"
        )


def _check_moduli(fabric: Fabric, moduli: Moduli, what: str) -> None:
    fits = len(moduli) == len(fabric.moduli) and all(
        type(m) is int and m >= 1 and size % m == 0
        for m, size in zip(moduli, fabric.moduli, strict=True)
    )
    if not fits:
        raise TopologyError(
            f"{fabric.name}: {what} has moduli {shown(list(moduli))}; "
            f"give divisors of {list(fabric.moduli)}"
        )


def _check_link(fabric: Fabric, link: LinkOrbit, what: str) -> None:
    for end in (link.src, link.dst):
        if not 0 <= end < len(fabric.nodes):
            raise TopologyError(
                f"{fabric.name}: {what} names node orbit {end}; give 0 to {len(fabric.nodes) - 1}"
            )
    offset_fits = len(link.offset) == len(fabric.moduli) and all(
        type(x) is int and 0 <= x < size
        for x, size in zip(link.offset, fabric.nodes[link.dst].moduli, strict=False)
    )
    if not offset_fits:
        raise TopologyError(
            f"{fabric.name}: {what} has offset {shown(list(link.offset))}; give one coordinate "
            f"for each axis, below {list(fabric.nodes[link.dst].moduli)}"
        )
    if link.src == link.dst and not any(link.offset):
        raise TopologyError(f"{fabric.name}: {what} leads from nodes to themselves; move it")
    _check_bandwidth(fabric, link.bandwidth, what)
    for cost in (link.alpha, link.overhead):
        if not 0 <= cost <= MAX_SECONDS:
            raise TopologyError(f"{fabric.name}: {what} takes {cost} s; give 0 to {MAX_SECONDS} s")
    for share in link.shares:
        if not 0 <= share < len(fabric.shared):
            raise TopologyError(
                f"{fabric.name}: {what} shares capacity {share}, which is not there"
            )
        ends = map(math.lcm, fabric.nodes[link.src].moduli, fabric.nodes[link.dst].moduli)
        if any(m % s for m, s in zip(ends, fabric.shared[share].moduli, strict=True)):
            raise TopologyError(
                f"{fabric.name}: {what} shares {fabric.shared[share].name!r}, of which there are "
                "more than links; give it divisors of theirs"
            )
    if len(set(link.shares)) != len(link.shares):
        raise TopologyError(f"{fabric.name}: {what} shares a capacity twice; name each once")


def _check_bandwidth(fabric: Fabric, bandwidth: Fraction, what: str) -> None:
    if not MIN_BANDWIDTH <= bandwidth <= MAX_BANDWIDTH:
        raise TopologyError(
            f"{fabric.name}: {what} has {bandwidth} bytes/s; "
            f"give {MIN_BANDWIDTH} to {MAX_BANDWIDTH}"
        )
