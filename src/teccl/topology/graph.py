"""Topology, Node and Link: a directed multigraph of GPUs and switches with alpha-beta links."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from teccl._suggest import did_you_mean
from teccl.errors import TopologyError
from teccl.units import MAX_SECONDS, picoseconds

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]

MAX_NODES = 100_000
MAX_LINKS = 5_000_000
MAX_NAME = 200
MIN_BANDWIDTH, MAX_BANDWIDTH = Fraction(1), Fraction(10**18)


class NodeKind(StrEnum):
    """What a node is."""

    GPU = "gpu"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU or a switch.

    Parameters
    ----------
    name
        Unique in the topology; what tables and errors print.
    kind
        GPU or switch.
    group
        The chassis, rack or pod it belongs to.
    reduce
        Whether a switch may combine arrivals of one chunk (SHARP, NVLS).
    """

    name: str
    kind: NodeKind = NodeKind.GPU
    group: str | None = None
    reduce: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, "node")
        if self.group is not None:
            _check_name(self.group, f"group of node {self.name}")
        if self.reduce and self.kind is NodeKind.GPU:
            raise TopologyError(
                f"node {self.name} is a gpu with reduce; every gpu reduces, "
                "so drop the key or make it a switch"
            )

    @property
    def is_switch(self) -> bool:
        """Whether the node is a switch."""
        return self.kind is NodeKind.SWITCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a wire between two nodes, by node index.

    Parameters
    ----------
    src, dst
        Indices of the nodes it leads from and to.
    bandwidth
        Bytes per second.
    alpha
        Latency in seconds, paid once per transfer while the link is free again.
    overhead
        Seconds for which each transfer holds the link beside its bytes.
    profile
        Pairs (start in seconds, bytes per second) that replace `bandwidth` from then on.
    shares
        Names of shared capacities that a transfer on this link occupies too.
    """

    src: int
    dst: int
    bandwidth: Fraction
    alpha: Fraction = Fraction(0)
    overhead: Fraction = Fraction(0)
    profile: tuple[tuple[Fraction, Fraction], ...] = ()
    shares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A validated network of GPUs and switches.

    The order of the GPUs among the nodes is the rank order.

    Parameters
    ----------
    name
        What tables print.
    nodes, links
        Links name nodes by index; parallel links are separate entries.
    shared
        Bandwidth of each named capacity that several links share.

    Examples
    --------
    >>> Topology.parse("ring:gpus=4")
    Topology('ring', 4 gpus, 0 switches, 8 links)
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    shared: Mapping[str, Fraction] = field(default_factory=dict)

    link_src: IntArray = field(init=False, repr=False, compare=False)
    link_dst: IntArray = field(init=False, repr=False, compare=False)
    gpus: IntArray = field(init=False, repr=False, compare=False)
    is_switch: npt.NDArray[np.bool_] = field(init=False, repr=False, compare=False)
    _index: dict[str, int] = field(init=False, repr=False, compare=False)
    _kinds: list[int] = field(init=False, repr=False, compare=False)
    _kind: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name, "topology name")
        index = _index_nodes(self.nodes)
        for capacity, bandwidth in self.shared.items():
            _check_name(capacity, "shared capacity")
            _check_bandwidth(bandwidth, f"shared capacity {capacity}")
        _check_links(self)
        derived: dict[str, Any] = {
            "nodes": tuple(self.nodes),
            "links": tuple(self.links),
            "shared": dict(self.shared),
            "link_src": _frozen(link.src for link in self.links),
            "link_dst": _frozen(link.dst for link in self.links),
            "gpus": _frozen(i for i, node in enumerate(self.nodes) if not node.is_switch),
            "is_switch": np.array([node.is_switch for node in self.nodes], dtype=bool),
            "_index": index,
        }
        derived["is_switch"].flags.writeable = False
        derived["_kinds"], derived["_kind"] = _kinds_of_links(derived["links"])
        for key, value in derived.items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return (
            f"Topology({self.name!r}, {self.num_gpus} gpus, {self.num_switches} switches, "
            f"{self.num_links} links)"
        )

    def describe(self) -> str:
        """Return its name and size, as messages tell it."""
        return f"{self.name} ({self.num_gpus} GPUs, {self.num_links} links)"

    def __hash__(self) -> int:
        return hash((self.name, self.nodes, self.links, frozenset(self.shared.items())))

    @staticmethod
    def parse(text: "str | Path | Topology") -> "Topology":
        """Build a topology from a preset specification or a file.

        Parameters
        ----------
        text
            ``"ndv2:chassis=2"``, a path to a YAML or JSON file, or a topology, which is returned.

        Raises
        ------
        TopologyError
            If there is no such preset or file, or it is wrong.
        """
        if isinstance(text, Topology):
            return text
        from teccl.topology.presets import build_preset
        from teccl.topology.topology_files import is_file_name, load_topology

        if isinstance(text, Path) or is_file_name(text):
            return load_topology(Path(text))
        return build_preset(text)

    def save(self, path: str | Path) -> None:
        """Write the topology as YAML or, by the file name, JSON."""
        from teccl.topology.topology_files import save_topology

        save_topology(self, Path(path))

    @property
    def num_nodes(self) -> int:
        """Number of GPUs and switches."""
        return len(self.nodes)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    @property
    def num_switches(self) -> int:
        """Number of switches."""
        return len(self.nodes) - len(self.gpus)

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return len(self.links)

    @property
    def has_profiles(self) -> bool:
        """Whether any link's bandwidth changes over time."""
        return any(self.links[i].profile for i in self._kinds)

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """Bytes per second of each link at time zero, shared capacities included."""
        return tuple(self.each_link(self.rate))

    @property
    def alpha_ps(self) -> IntArray:
        """Latency of each link in picoseconds, rounded up."""
        return np.array(self.each_link(lambda link: picoseconds(link.alpha)), dtype=np.int64)

    @property
    def overhead_ps(self) -> IntArray:
        """Overhead of a transfer on each link in picoseconds, rounded up."""
        return np.array(self.each_link(lambda link: picoseconds(link.overhead)), dtype=np.int64)

    @property
    def has_overheads(self) -> bool:
        """Whether transfers on any link cost more than their bytes."""
        return any(self.links[i].overhead for i in self._kinds)

    def with_overhead(self, overhead: Fraction) -> "Topology":
        """The topology with one overhead on all links."""
        links = tuple(replace(link, overhead=overhead) for link in self.links)
        return replace(self, links=links)

    @property
    def link_kind(self) -> IntArray:
        """Kind of each link, counted as `each_kind` lists them."""
        return np.array(self._kind, dtype=np.int64)

    def each_link(self, value: Callable[[Link], T]) -> list[T]:
        """Value of every link, computed once for all links that differ in their ends only."""
        found = self.each_kind(value)
        return [found[kind] for kind in self._kind]

    def each_kind(self, value: Callable[[Link], T]) -> list[T]:
        """Value of one link of each kind; links of a kind differ in their ends only."""
        return [value(self.links[i]) for i in self._kinds]

    def rate(self, link: Link) -> Fraction:
        """Bytes per second that one transfer gets on a link: its own or a slower shared rate."""
        return min([link.bandwidth, *(self.shared[name] for name in link.shares)])

    def rate_steps(self, link: Link) -> tuple[tuple[Fraction, Fraction], ...]:
        """Pairs (start, rate) of a link over time, the first at zero, shared rates included."""
        limit = min([self.shared[name] for name in link.shares], default=None)
        steps = [(Fraction(0), link.bandwidth)]
        for start, bandwidth in link.profile:
            if start == 0:
                steps.pop()
            steps.append((start, bandwidth))
        return tuple((start, b if limit is None else min(b, limit)) for start, b in steps)

    def find_node(self, name: str | int) -> int:
        """Index of a node by name or, for GPUs, by rank number.

        Raises
        ------
        TopologyError
            If there is no such node; the message has the nearest name.
        """
        if isinstance(name, str) and name in self._index:
            return self._index[name]
        text = str(name).strip()
        if text.isascii() and text.isdigit():
            if len(text) < 10 and int(text) < self.num_gpus:
                return int(self.gpus[int(text)])
            raise TopologyError(
                f"rank {text[:20]}: {self.name} has ranks 0 to {self.num_gpus - 1}; give one"
            )
        raise TopologyError(
            f"no node {text[:80]!r} in {self.name}{did_you_mean(text, self._index)}"
        )

    def find_links(self, spec: str) -> tuple[int, ...]:
        """Indices of the links that ``A:B`` (both ways), ``A>B`` or ``A:*`` names."""
        for position, char in enumerate(spec):
            if char not in ":>":
                continue
            left, right = spec[:position], spec[position + 1 :]
            try:
                ends = self._link_ends(left, right, one_way=char == ">")
            except TopologyError:
                continue
            found = tuple(i for i, link in enumerate(self.links) if ends(link))
            if found:
                return found
            raise TopologyError(
                f"link {spec!r}: {self.name} has no link between these nodes; "
                f"give one of {self._some_links(self.find_node(left))}"
            )
        # No split names two nodes: let the first plain split say which name is wrong.
        left, separator, right = spec.partition(":" if ":" in spec else ">")
        if not separator:
            raise TopologyError(f"link {spec!r}: write A:B (both ways), A>B (one way) or A:*")
        self._link_ends(left, right, one_way=separator == ">")
        raise AssertionError("unreachable: some split would have matched")

    def _some_links(self, node: int, most: int = 4) -> str:
        """Name a few links that a node has, as `find_links` reads them."""
        here = self.nodes[node].name
        ends = {
            link.dst if link.src == node else link.src
            for link in self.links
            if node in (link.src, link.dst)
        }
        names = [f"{here}:{self.nodes[end].name}" for end in sorted(ends)]
        return ", ".join([*names[:most], *(["..."] if len(names) > most else [])]) or "those it has"

    def _link_ends(self, left: str, right: str, *, one_way: bool) -> Any:
        a = self.find_node(left)
        if right == "*":
            return lambda link: link.src == a or (link.dst == a and not one_way)
        b = self.find_node(right)
        if one_way:
            return lambda link: (link.src, link.dst) == (a, b)
        return lambda link: {link.src, link.dst} == {a, b}

    def without_links(self, specs: Sequence[str]) -> "Topology":
        """The topology with the named links removed."""
        gone = {i for spec in specs for i in self.find_links(spec)}
        kept = tuple(link for i, link in enumerate(self.links) if i not in gone)
        return replace(self, links=kept)

    def degraded(self, factors: Mapping[str, Fraction]) -> "Topology":
        """The topology with the named links' bandwidth multiplied by a factor."""
        links = list(self.links)
        for spec, factor in factors.items():
            if factor <= 0:
                raise TopologyError(
                    f"degrade {spec}: factor {factor} is not positive; "
                    "remove a link that is down (--without-link)"
                )
            for i in self.find_links(spec):
                link = links[i]
                # What the link gave, shared capacities included, it gives a fraction of.
                steps = self.rate_steps(link)
                slower = tuple((start, rate * factor) for start, rate in steps[1:])
                links[i] = replace(link, bandwidth=steps[0][1] * factor, profile=slower)
        return replace(self, links=tuple(links))

    def transposed(self) -> "Topology":
        """The topology with every link reversed."""
        links = tuple(replace(link, src=link.dst, dst=link.src) for link in self.links)
        return replace(self, links=links)

    def link_name(self, link: int) -> str:
        """``src > dst`` by node names, as certificates and violations print it."""
        ends = self.links[link]
        return f"{self.nodes[ends.src].name} > {self.nodes[ends.dst].name}"


def _frozen(values: Iterable[int]) -> IntArray:
    array = np.fromiter(values, dtype=np.int64)
    array.setflags(write=False)
    return array


def _index_nodes(nodes: Sequence[Node]) -> dict[str, int]:
    if not nodes:
        raise TopologyError("the topology has no nodes; give at least one gpu")
    if len(nodes) > MAX_NODES:
        raise TopologyError(f"{len(nodes)} nodes are more than teccl handles ({MAX_NODES})")
    index: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if node.name in index:
            raise TopologyError(f"node name {node.name!r} appears twice; names must be unique")
        index[node.name] = i
    if all(node.is_switch for node in nodes):
        raise TopologyError("the topology has switches only; give at least one gpu")
    return index


def _kinds_of_links(links: Sequence[Link]) -> tuple[list[int], list[int]]:
    """First link of every kind, and each link's kind: links that differ in more than their ends."""
    known: dict[object, int] = {}
    first: list[int] = []
    kinds = []
    for i, link in enumerate(links):
        # Pairs of integers hash much faster than fractions.
        times = (link.alpha.as_integer_ratio(), link.overhead.as_integer_ratio())
        speed = (link.bandwidth.as_integer_ratio(), times)
        kind = known.setdefault((speed, link.profile, link.shares), len(known))
        if kind == len(first):
            first.append(i)
        kinds.append(kind)
    return first, kinds


def _check_links(topology: Topology) -> None:
    if len(topology.links) > MAX_LINKS:
        raise TopologyError(f"{len(topology.links)} links are more than teccl handles")
    # Links of a preset have the same objects for figures, and to check them once is enough.
    good: set[tuple[int, ...]] = set()
    for i, link in enumerate(topology.links):
        for end in (link.src, link.dst):
            if not 0 <= end < len(topology.nodes):
                raise TopologyError(
                    f"link {i} names node {end}; nodes are 0 to {len(topology.nodes) - 1}"
                )
        figures = (link.bandwidth, link.alpha, link.overhead, link.profile, link.shares)
        known = tuple(map(id, figures))
        if known not in good or link.src == link.dst:
            _check_link(topology, link)
            good.add(known)


def _check_link(topology: Topology, link: Link) -> None:
    where = f"link {topology.nodes[link.src].name} > {topology.nodes[link.dst].name}"
    if link.src == link.dst:
        raise TopologyError(f"{where} leads to its own node; drop it")
    _check_bandwidth(link.bandwidth, where)
    _check_latency(link.alpha, "alpha", where)
    _check_latency(link.overhead, "overhead", where)
    _check_profile(link.profile, where)
    _check_shares(link.shares, topology.shared, where)


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise TopologyError(f"{what} {name!r} is not a name; give a non-empty text")
    if len(name) > MAX_NAME or not name.isprintable():
        raise TopologyError(
            f"{what} {name[:40]!r} has control characters or more than {MAX_NAME} characters; "
            "give a short printable name"
        )
    if name.isascii() and name.isdigit():
        raise TopologyError(f"{what} {name!r} reads as a rank number; write for example gpu{name}")


def _check_bandwidth(bandwidth: object, where: str) -> None:
    if not isinstance(bandwidth, Fraction) or bandwidth <= 0:
        raise TopologyError(
            f"{where} has bandwidth {bandwidth}; give a positive, finite one or drop the link"
        )
    if not MIN_BANDWIDTH <= bandwidth <= MAX_BANDWIDTH:
        raise TopologyError(
            f"{where} has bandwidth {float(bandwidth):.3g} B/s; give one from 1B/s to 1e18 B/s"
        )


def _check_latency(time: object, what: str, where: str) -> None:
    if not isinstance(time, Fraction) or not 0 <= time <= MAX_SECONDS:
        raise TopologyError(f"{where} has {what} {time}; give a finite latency of at least 0")


def _check_profile(profile: Sequence[tuple[Fraction, Fraction]], where: str) -> None:
    for _, bandwidth in profile:
        _check_bandwidth(bandwidth, f"profile of {where}")
    starts = [start for start, _ in profile]
    if any(not isinstance(s, Fraction) or not 0 <= s <= MAX_SECONDS for s in starts):
        raise TopologyError(f"profile of {where} has a negative start; times begin at 0")
    if any(late <= early for early, late in pairwise(starts)):
        raise TopologyError(f"profile of {where} is not in increasing order of start; sort it")


def _check_shares(shares: Sequence[str], shared: Mapping[str, Fraction], where: str) -> None:
    for name in shares:
        if name not in shared:
            hint = did_you_mean(name, shared)
            raise TopologyError(f"{where} shares {name!r}, which `shared` does not define{hint}")
    if len(set(shares)) != len(shares):
        raise TopologyError(f"{where} names a shared capacity twice; name each once")
