"""Topology files: YAML or JSON in and out, exact both ways."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from teccl import _files as files
from teccl.errors import TopologyError
from teccl.topology.graph import MAX_NAME, MAX_NODES, Link, Node, NodeKind, Topology
from teccl.units import (
    format_bandwidth,
    format_duration,
    parse_bandwidth,
    parse_duration,
)

SCHEMA_VERSION = 1
SUFFIXES = (".yaml", ".yml", ".json")
_TOP_KEYS = ("schema_version", "name", "nodes", "links", "shared")
_NODE_KEYS = ("name", "kind", "group", "reduce")
_LINK_KEYS = ("src", "dst", "bandwidth", "alpha", "overhead", "bidirectional", "profile", "shares")


def is_file_name(text: str) -> bool:
    """Whether a TOPOLOGY argument names a file rather than a preset."""
    # A preset's parameters may hold a slash (25GB/s), its name never does.
    name = text.partition(":")[0]
    return text.lower().endswith((*SUFFIXES, ".gz")) or "/" in name or "\\" in name


def load_topology(path: Path) -> Topology:
    """Read a topology file.

    Raises
    ------
    TopologyError
        If the file is missing, damaged, has unknown keys or describes an impossible network.
    """
    document = files.read_document(path, TopologyError)
    stem = path.name.split(".")[0]
    name = stem if stem.isprintable() and stem.strip() and not stem.isdigit() else "topology"
    with files.naming(path, TopologyError):
        return topology_from_dict(document, where=str(path), default_name=name[:MAX_NAME])


def save_topology(topology: Topology, path: Path) -> None:
    """Write a topology file; JSON when the name says so, else YAML."""
    document = topology_to_dict(topology)
    if ".json" in [suffix.lower() for suffix in path.suffixes]:
        text = files.to_json(document)
    else:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    files.write_atomically(path, text, TopologyError)


def topology_to_dict(topology: Topology) -> dict[str, Any]:
    """Return the topology as the plain data a file holds."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": topology.name,
        "nodes": [_node_to_dict(node) for node in topology.nodes],
        "links": [_link_to_dict(topology, link) for link in topology.links],
    }
    if topology.shared:
        document["shared"] = {
            name: format_bandwidth(bandwidth) for name, bandwidth in topology.shared.items()
        }
    return document


def topology_from_dict(
    document: Any, *, where: str = "topology", default_name: str = "topology"
) -> Topology:
    """Build a topology from plain data, refusing anything unknown."""
    top = files.expect_mapping(
        document, where, TopologyError, known=_TOP_KEYS, required=("nodes", "links")
    )
    version = top.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise TopologyError(
            f"{where}: schema_version {files.shown(version)} is not supported; "
            f"this teccl reads {SCHEMA_VERSION}"
        )
    nodes = _read_nodes(top["nodes"], where)
    shared = _read_shared(top.get("shared", {}), where)
    name = files.expect_text(top.get("name", default_name), f"{where}: name", TopologyError)
    links: list[Link] = []
    finder = _NodeFinder(name, nodes)
    for i, entry in enumerate(files.expect_list(top["links"], f"{where}: links", TopologyError)):
        links += _read_link(entry, f"{where}: links[{i}]", finder)
    return Topology(name=name, nodes=nodes, links=tuple(links), shared=shared)


class _NodeFinder:
    """Turns node names and rank numbers of a file into indices."""

    def __init__(self, name: str, nodes: tuple[Node, ...]) -> None:
        self._topology = Topology(name=name, nodes=nodes, links=())

    def __call__(self, value: Any, where: str) -> int:
        is_rank = type(value) is int and 0 <= value < MAX_NODES
        if not is_rank and not isinstance(value, str):
            raise TopologyError(f"{where} is {files.shown(value)}; give a node name or a rank")
        try:
            return self._topology.find_node(value)
        except TopologyError as problem:
            raise TopologyError(f"{where}: {problem}") from None


def _read_nodes(value: Any, where: str) -> tuple[Node, ...]:
    if isinstance(value, int):
        count = files.expect_int(value, f"{where}: nodes", TopologyError, low=1, high=MAX_NODES)
        return tuple(Node(name=f"gpu{i}") for i in range(count))
    if not isinstance(value, list):
        raise TopologyError(f"{where}: nodes is {files.shown(value)}; give a count or a list")
    return tuple(_read_node(entry, f"{where}: nodes[{i}]") for i, entry in enumerate(value))


def _read_node(value: Any, where: str) -> Node:
    entry = files.expect_mapping(value, where, TopologyError, known=_NODE_KEYS, required=("name",))
    kind = entry.get("kind", "gpu")
    if kind not in ("gpu", "switch"):
        raise TopologyError(f"{where}: kind is {files.shown(kind)}; give gpu or switch")
    group = entry.get("group")
    return Node(
        name=files.expect_text(entry["name"], f"{where}: name", TopologyError),
        kind=NodeKind(kind),
        group=group
        if group is None
        else files.expect_text(group, f"{where}: group", TopologyError),
        reduce=files.expect_bool(entry.get("reduce", False), f"{where}: reduce", TopologyError),
    )


def _read_shared(value: Any, where: str) -> dict[str, Fraction]:
    if not isinstance(value, dict):
        raise TopologyError(
            f"{where}: shared is {files.shown(value)}; give a mapping of name to bandwidth"
        )
    return {
        files.expect_text(name, f"{where}: shared", TopologyError): files.quantity(
            bandwidth, parse_bandwidth, f"{where}: shared {name}", TopologyError
        )
        for name, bandwidth in value.items()
    }


def _read_link(value: Any, where: str, find: _NodeFinder) -> list[Link]:
    entry = files.expect_mapping(
        value, where, TopologyError, known=_LINK_KEYS, required=("src", "dst", "bandwidth")
    )
    shares = entry.get("shares", [])
    shares = [shares] if isinstance(shares, str) else shares
    link = Link(
        src=find(entry["src"], f"{where}: src"),
        dst=find(entry["dst"], f"{where}: dst"),
        bandwidth=files.quantity(
            entry["bandwidth"], parse_bandwidth, f"{where}: bandwidth", TopologyError
        ),
        alpha=files.quantity(
            entry.get("alpha", 0), parse_duration, f"{where}: alpha", TopologyError
        ),
        overhead=files.quantity(
            entry.get("overhead", 0), parse_duration, f"{where}: overhead", TopologyError
        ),
        profile=_read_profile(entry.get("profile", []), f"{where}: profile"),
        shares=tuple(
            files.expect_text(name, f"{where}: shares", TopologyError)
            for name in files.expect_list(shares, f"{where}: shares", TopologyError)
        ),
    )
    both = files.expect_bool(
        entry.get("bidirectional", False), f"{where}: bidirectional", TopologyError
    )
    return [link, replace(link, src=link.dst, dst=link.src)] if both else [link]


def _read_profile(value: Any, where: str) -> tuple[tuple[Fraction, Fraction], ...]:
    steps = []
    for i, step in enumerate(files.expect_list(value, where, TopologyError)):
        if not isinstance(step, list) or len(step) != 2:
            raise TopologyError(f"{where}[{i}] is {files.shown(step)}; give [start, bandwidth]")
        steps.append(
            (
                files.quantity(step[0], parse_duration, f"{where}[{i}] start", TopologyError),
                files.quantity(step[1], parse_bandwidth, f"{where}[{i}] bandwidth", TopologyError),
            )
        )
    return tuple(steps)


def _node_to_dict(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "kind": node.kind.value}
    if node.group is not None:
        entry["group"] = node.group
    if node.reduce:
        entry["reduce"] = True
    return entry


def _link_to_dict(topology: Topology, link: Link) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "src": topology.nodes[link.src].name,
        "dst": topology.nodes[link.dst].name,
        "bandwidth": format_bandwidth(link.bandwidth),
        "alpha": format_duration(link.alpha),
    }
    if link.overhead:
        entry["overhead"] = format_duration(link.overhead)
    if link.profile:
        entry["profile"] = [
            [format_duration(start), format_bandwidth(rate)] for start, rate in link.profile
        ]
    if link.shares:
        entry["shares"] = list(link.shares)
    return entry
