"""Where the page draws nodes and links: one view of a small topology, several of a large one.

A large topology is drawn as its groups, with a view of each group's inside. Where it has no groups,
blocks of consecutive nodes take their place.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.drawing.positions import NODE_RADIUS, Layout, arrange, grid_shape, route
from teccl.topology.graph import Link, Node, NodeKind, Topology

# GPUs that one picture shows readably; more are drawn by group.
MAX_DRAWN_GPUS = 72
# Nodes and lines that one picture can hold at all.
MAX_DRAWN_NODES = 200
MAX_LINES = 4000
# Pixels between the two directions of a wire.
_LANE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """A place in a view: one node, or a group of them."""

    node: Node
    members: tuple[int, ...]
    opens: int | None = None


def views_of(topology: Topology) -> list[dict[str, Any]]:
    """Return the views of a topology as plain data; the first is the whole."""
    if topology.num_gpus <= MAX_DRAWN_GPUS and topology.num_nodes <= MAX_DRAWN_NODES:
        spots = [_Spot(node=node, members=(i,)) for i, node in enumerate(topology.nodes)]
        whole = _view(topology, spots, topology.name)
        if len(whole["wires"]) <= MAX_LINES:
            return [whole]
    blocks = _blocks(topology)
    overview = [
        _Spot(node=_group_node(topology, name, members), members=members, opens=1 + number)
        for number, (name, members) in enumerate(blocks.items())
    ]
    return [
        _view(topology, overview, topology.name),
        *(_inside(topology, blocks, name) for name in blocks),
    ]


def _inside(topology: Topology, blocks: Mapping[str, tuple[int, ...]], name: str) -> dict[str, Any]:
    """Return the view of one group, with the groups it is linked to as single spots."""
    members = set(blocks[name])
    near = {
        other
        for link in topology.links
        for this, other in ((link.src, link.dst), (link.dst, link.src))
        if this in members and other not in members
    }
    spots = [_Spot(node=replace(topology.nodes[i], group=name), members=(i,)) for i in blocks[name]]
    for number, (other, others) in enumerate(blocks.items()):
        if other != name and near.intersection(others):
            node = _group_node(topology, other, others)
            spots.append(_Spot(node=node, members=others, opens=1 + number))
    return _view(topology, spots, name)


def _group_node(topology: Topology, name: str, members: Sequence[int]) -> Node:
    is_switch = all(topology.nodes[i].is_switch for i in members)
    return Node(name=name, kind=NodeKind.SWITCH if is_switch else NodeKind.GPU)


def _blocks(topology: Topology) -> dict[str, tuple[int, ...]]:
    """Return the members of each group; nodes without one are cut into blocks of like nodes."""
    groups: dict[str, list[int]] = {}
    loose: dict[NodeKind, list[int]] = {}
    for i, node in enumerate(topology.nodes):
        if node.group is not None:
            groups.setdefault(node.group, []).append(i)
        else:
            loose.setdefault(node.kind, []).append(i)
    shape = grid_shape(topology) if len(loose.get(NodeKind.GPU, ())) == topology.num_nodes else None
    for members in loose.values():
        size = max(16, math.ceil(math.sqrt(len(members)))) if shape is None else shape[-1]
        for start in range(0, len(members), size):
            block = members[start : start + size]
            first, last = topology.nodes[block[0]].name, topology.nodes[block[-1]].name
            groups[first if first == last else f"{first} … {_ending(first, last)}"] = block
    return {name: tuple(members) for name, members in groups.items()}


def _ending(first: str, last: str) -> str:
    """The last name without what it begins with in common with the first, digits kept."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    stem = last[:common].rstrip("0123456789")
    return last[len(stem) :] or last


def _view(topology: Topology, spots: Sequence[_Spot], title: str) -> dict[str, Any]:
    """Lay the spots out and route a line for each direction of each joined pair."""
    place = {member: number for number, spot in enumerate(spots) for member in spot.members}
    lines: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(topology.links):
        src, dst = place.get(link.src), place.get(link.dst)
        if src is not None and dst is not None and src != dst:
            lines.setdefault((src, dst), []).append(i)
    layout = arrange(_sketch(title, spots, lines))
    if all(spot.opens is not None for spot in spots):
        # Groups have long names in wide boxes.
        widest = max(_width(spot) for spot in spots)
        layout = replace(layout, positions=layout.positions * max(1.0, (widest + 20) / 62))
    wires = [_wire(layout, src, dst, links, lines) for (src, dst), links in lines.items()]
    low, high = _extent(layout, spots, [wire.pop("middle") for wire in wires])
    return {
        "title": title,
        "box": [round(float(v), 1) for v in (*low, *(high - low))],
        "frames": [
            {
                "label": box.label,
                "at": [round(v, 1) for v in (box.x, box.y, box.width, box.height)],
            }
            for box in layout.boxes
        ],
        "spots": [
            {
                "label": spot.node.name.removeprefix(f"{spot.node.group}/"),
                "kind": spot.node.kind.value,
                "members": list(spot.members),
                "opens": spot.opens,
                "at": [round(float(x), 1), round(float(y), 1)],
            }
            for spot, (x, y) in zip(spots, layout.positions, strict=True)
        ],
        "wires": wires,
    }


def _width(spot: _Spot) -> float:
    """Pixels that the page needs for the box of a switch or group."""
    return 5.6 * min(16, len(spot.node.name)) + 12


def _extent(
    layout: Layout, spots: Sequence[_Spot], middles: Sequence[npt.NDArray[np.float64]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Corners of what is drawn, with room around nodes for their labels."""
    room = np.array(
        [[max(2.0 * NODE_RADIUS, _width(spot) / 2 + 4), 2.0 * NODE_RADIUS] for spot in spots]
    )
    corners = [layout.positions - room, layout.positions + room]
    corners += [
        np.array([[box.x, box.y], [box.x + box.width, box.y + box.height]]) for box in layout.boxes
    ]
    if middles:
        corners += [np.array(middles) - 12, np.array(middles) + 12]
    points = np.concatenate(corners)
    return points.min(axis=0), points.max(axis=0)


def _sketch(title: str, spots: Sequence[_Spot], lines: Iterable[tuple[int, int]]) -> Topology:
    """Return a topology of the spots, for the layout only."""
    names = _unique([spot.node.name for spot in spots])
    nodes = [replace(spot.node, name=name) for spot, name in zip(spots, names, strict=True)]
    if all(node.is_switch for node in nodes):
        nodes = [replace(node, kind=NodeKind.GPU, reduce=False) for node in nodes]
    links = tuple(Link(src=a, dst=b, bandwidth=Fraction(1)) for a, b in lines)
    return Topology(name=title, nodes=tuple(nodes), links=links)


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names, those that repeat told apart by their place."""
    seen: set[str] = set()
    unique = []
    for i, name in enumerate(names):
        unique.append(f"{name[:150]} #{i}" if name in seen else name)
        seen.add(name)
    return unique


def _wire(
    layout: Layout,
    src: int,
    dst: int,
    links: list[int],
    lines: Mapping[tuple[int, int], list[int]],
) -> dict[str, Any]:
    """Return one direction of a wire as a curve that keeps to its own lane."""
    start, end = layout.positions[src], layout.positions[dst]
    # Routing from the lower to the higher number bends both directions the same way.
    low, high = min(src, dst), max(src, dst)
    control = route(layout, low, high, shift=0.0)
    if (dst, src) in lines:
        along = end - start
        across = np.array([-along[1], along[0]]) / max(1e-9, float(np.hypot(*along)))
        start, end, control = start + across * _LANE, end + across * _LANE, control + across * _LANE
    middle = (start + 2 * control + end) / 4
    points = [round(float(v), 1) for v in (*start, *control, *end)]
    return {"src": src, "dst": dst, "links": links, "path": points, "middle": middle}
