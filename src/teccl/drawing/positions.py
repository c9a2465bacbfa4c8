"""Where the nodes of a topology stand in a drawing.

Groups become boxes side by side, switches outside all groups stand in rows above them, by their
distance from the GPUs. Inside a box, or on the whole page when there are no groups, GPUs stand on
a grid where the links say so, else on a circle with their switch in the middle, or below rows of
switches when there are several. Links are straight lines, bent where they would run over a node.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.topology.graph import Topology

NODE_RADIUS = 17.0
_SPACING = 46.0
_ROW = 70.0
_MARGIN = 26.0
_TITLE = 20.0
_GAP = 40.0
# A row longer than this is broken into several.
_MAX_ROW = 32
# A chassis of GPUs around one switch is drawn as a row up to this size, then as a circle.
_MAX_HUB = 16
# More GPUs around a switch stand on two circles, one inside the other.
_MAX_CIRCLE = 40
# Planes of a three-dimensional grid stand behind each other, each moved by this part of a step;
# more planes would cover each other.
_BEHIND = (0.38, -0.24)
_MAX_PLANES = 5
# Bends tried, as parts of a line's length, until a line passes no node but its ends.
_BENDS = (0.0, 0.12, -0.12, 0.22, -0.22, 0.35, -0.35, 0.5, -0.5)
_SAMPLES = np.linspace(0.04, 0.96, 24)[:, None]

Points = dict[int, tuple[float, float]]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The frame around a group."""

    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions of all nodes, frames of the groups and the size of the whole, in pixels."""

    positions: FloatArray
    boxes: tuple[Box, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """Nodes that stand together, in coordinates of their own."""

    label: str | None
    points: Points

    @property
    def width(self) -> float:
        return max(x for x, _ in self.points.values()) + 2 * _MARGIN

    @property
    def height(self) -> float:
        return max(y for _, y in self.points.values()) + 2 * _MARGIN + self.title

    @property
    def title(self) -> float:
        return 0.0 if self.label is None else _TITLE


def arrange(topology: Topology) -> Layout:
    """Return a place for every node."""
    groups: dict[str | None, list[int]] = {}
    for i, node in enumerate(topology.nodes):
        groups.setdefault(node.group, []).append(i)
    loose = groups.get(None, [])
    above = [i for i in loose if topology.nodes[i].is_switch] if len(groups) > 1 else []
    tiers = _tiers(topology)
    cells = []
    for label, nodes in groups.items():
        inside = [i for i in nodes if i not in above] if label is None else nodes
        if inside:
            cells.append(_Cell(label=label, points=_cell_points(topology, inside, tiers, label)))
    stacked = not above and len(cells) == 2 and all(_is_hub(topology, cell) for cell in cells)
    if stacked:
        cells[0] = _Cell(label=cells[0].label, points=_upside_down(cells[0].points))
    columns = 1 if stacked else _columns(len(cells), has_above=bool(above))
    return _place(topology, cells, above, tiers, columns)


def _place(
    topology: Topology, cells: Sequence[_Cell], above: Sequence[int], tiers: list[int], columns: int
) -> Layout:
    """Put the cells in rows of `columns`, the loose switches above them."""
    positions = np.zeros((topology.num_nodes, 2))
    boxes = []
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    widths = [sum(cell.width for cell in row) + _GAP * (len(row) - 1) for row in rows]
    top = _rows_of(above, tiers)
    top_width = max((len(switches) * 2 * _SPACING for switches in top), default=0.0)
    width = max([*widths, top_width]) + 2 * _GAP
    y = _GAP
    for switches in top:
        for i, node in enumerate(switches):
            positions[node] = (width / 2 + (i - (len(switches) - 1) / 2) * 2 * _SPACING, y)
        y += _ROW
    for row, row_width in zip(rows, widths, strict=True):
        x = (width - row_width) / 2
        for cell in row:
            for node, (left, down) in cell.points.items():
                positions[node] = (x + _MARGIN + left, y + _MARGIN + cell.title + down)
            if cell.label is not None:
                boxes.append(Box(label=cell.label, x=x, y=y, width=cell.width, height=cell.height))
            x += cell.width + _GAP
        y += max(cell.height for cell in row) + _GAP
    return Layout(positions=positions, boxes=tuple(boxes), width=width, height=y)


def _columns(count: int, *, has_above: bool) -> int:
    if has_above:
        return min(count, 8)
    return count if count <= 3 else math.ceil(math.sqrt(count))


def _cell_points(
    topology: Topology, nodes: Sequence[int], tiers: list[int], label: str | None
) -> Points:
    """Places of the nodes of one cell, the least coordinates being 0."""
    switches = [i for i in nodes if topology.nodes[i].is_switch]
    gpus = [i for i in nodes if not topology.nodes[i].is_switch]
    shape = grid_shape(topology) if len(gpus) == topology.num_nodes else None
    if shape is not None:
        points = _grid(gpus, shape)
    elif len(switches) > 1 or not gpus:
        points = _rows([*_rows_of(switches, tiers), *_broken(gpus)])
    elif label is not None and switches and _is_star(topology, gpus) and len(gpus) <= _MAX_HUB:
        points = _rows([gpus, switches])
    else:
        points = _circle(gpus, switches)
    left, top = (min(point[axis] for point in points.values()) for axis in (0, 1))
    return {i: (x - left, y - top) for i, (x, y) in points.items()}


def _grid(gpus: Sequence[int], shape: tuple[int, int, int]) -> Points:
    step = (1.6 if shape[0] == 1 else 2.8) * _SPACING
    points = {}
    for gpu in gpus:
        plane, row, column = (int(place) for place in np.unravel_index(gpu, shape))
        points[gpu] = (step * (column + plane * _BEHIND[0]), step * (row + plane * _BEHIND[1]))
    return points


def _circle(gpus: Sequence[int], centre: Sequence[int]) -> Points:
    if centre and len(gpus) > _MAX_CIRCLE:
        return _two_circles(gpus, centre)
    # Small circles are often full of chords, which need room to be told apart.
    spacing = _SPACING if len(gpus) > 24 else 1.35 * _SPACING
    radius = max(1.3 * _SPACING, len(gpus) * spacing / math.tau)
    points = dict.fromkeys(centre, (0.0, 0.0))
    for i, gpu in enumerate(gpus):
        angle = math.tau * i / len(gpus) - math.pi / 2
        points[gpu] = (radius * math.cos(angle), radius * math.sin(angle))
    return points


def _two_circles(gpus: Sequence[int], centre: Sequence[int]) -> Points:
    """Every other GPU stands on an inner circle, so that the names stay readable."""
    outer = len(gpus) * _SPACING * 1.12 / (2 * math.tau) + 26
    points = dict.fromkeys(centre, (0.0, 0.0))
    for i, gpu in enumerate(gpus):
        angle = math.tau * i / len(gpus) - math.pi / 2
        radius = outer - 60 * (i % 2)
        points[gpu] = (radius * math.cos(angle), radius * math.sin(angle))
    return points


def _rows(rows: Sequence[Sequence[int]]) -> Points:
    """Rows below each other, each spread over the width of the longest."""
    width = max(len(row) for row in rows) * _SPACING
    points = {}
    for number, row in enumerate(rows):
        step = width / len(row)
        for i, node in enumerate(row):
            points[node] = (step * (i + 0.5), number * 1.4 * _ROW)
    return points


def _rows_of(switches: Sequence[int], tiers: list[int]) -> list[Sequence[int]]:
    """Switches by distance from the GPUs, the farthest first."""
    levels = sorted({tiers[i] for i in switches}, reverse=True)
    rows = [[i for i in switches if tiers[i] == level] for level in levels]
    return [part for row in rows for part in _broken(row)]


def _broken(row: Sequence[int]) -> list[Sequence[int]]:
    return [row[i : i + _MAX_ROW] for i in range(0, len(row), _MAX_ROW)]


def _upside_down(points: Points) -> Points:
    bottom = max(y for _, y in points.values())
    return {i: (x, bottom - y) for i, (x, y) in points.items()}


def _is_hub(topology: Topology, cell: _Cell) -> bool:
    """Whether the cell is drawn as a row of GPUs with its switch below."""
    gpus = [i for i in cell.points if not topology.nodes[i].is_switch]
    has_switch = len(cell.points) - len(gpus) == 1
    return has_switch and _is_star(topology, gpus) and len(gpus) <= _MAX_HUB


def _is_star(topology: Topology, gpus: Sequence[int]) -> bool:
    """Whether no link joins two of these GPUs."""
    members = set(gpus)
    return not any(link.src in members and link.dst in members for link in topology.links)


def _tiers(topology: Topology) -> list[int]:
    """Hops from each node to the nearest GPU, links taken either way."""
    tiers = [len(topology.nodes) if node.is_switch else 0 for node in topology.nodes]
    changed = True
    while changed:
        changed = False
        for link in topology.links:
            for a, b in ((link.src, link.dst), (link.dst, link.src)):
                if tiers[a] + 1 < tiers[b]:
                    tiers[b] = tiers[a] + 1
                    changed = True
    return tiers


def grid_shape(topology: Topology) -> tuple[int, int, int] | None:
    """Planes, rows and columns if all links join neighbours on such a grid or across its edges."""
    count = topology.num_nodes
    ends = np.stack([topology.link_src, topology.link_dst])
    if count <= _MAX_ROW and np.all(np.abs(ends[0] - ends[1]) == 1):
        return 1, 1, count
    for planes in range(1, min(_MAX_PLANES, count) + 1):
        for columns in range(2, count // planes // 2 + 1):
            shape = planes, count // planes // columns, columns
            if math.prod(shape) == count and _fits(ends, shape):
                return shape
    return None


def _fits(ends: npt.NDArray[np.int64], shape: tuple[int, int, int]) -> bool:
    """Whether each link is one step along one axis, or joins the two ends of an axis."""
    places = np.stack(np.unravel_index(ends, shape))
    gaps = np.abs(places[:, 0] - places[:, 1])
    sizes = np.array(shape)[:, None]
    steps = (gaps == 1) | ((gaps > 0) & (gaps == sizes - 1))
    return bool(np.all(np.count_nonzero(gaps, axis=0) == 1) and np.all(steps.any(axis=0)))


def route(layout: Layout, src: int, dst: int, *, shift: float) -> FloatArray:
    """Return the control point of a quadratic curve between two nodes.

    Parameters
    ----------
    layout
        Where all nodes stand.
    src, dst
        The nodes it joins.
    shift
        Pixels by which the middle of the line is moved aside, for lines between the same nodes.
    """
    start, end = layout.positions[src], layout.positions[dst]
    along = end - start
    across = np.array([-along[1], along[0]])
    middle: FloatArray = (start + end) / 2
    others = np.delete(layout.positions, [src, dst], axis=0)
    controls = (middle + across * bend for bend in _BENDS)
    control = next((c for c in controls if _is_clear(start, c, end, others)), middle)
    # A curve reaches half as far out as its control point.
    shifted: FloatArray = control + across * (2 * shift / float(np.hypot(*along)))
    return shifted


def _is_clear(start: FloatArray, control: FloatArray, end: FloatArray, others: FloatArray) -> bool:
    """Whether a curve stays off the other nodes."""
    t = _SAMPLES
    curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end
    gaps = curve[:, None, :] - others[None, :, :]
    return not bool(np.any(np.hypot(gaps[..., 0], gaps[..., 1]) < NODE_RADIUS + 1.5))
