"""Drawings of a topology: self-contained SVG, or DOT for Graphviz.

Links of one bandwidth and alpha have one colour, which the legend explains; wider is faster. A
line without an arrow is a link in each direction.
"""

import html
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from teccl._files import shown, write_atomically
from teccl.drawing.positions import NODE_RADIUS, Box, FloatArray, Layout, arrange, route
from teccl.errors import TopologyError
from teccl.topology.graph import Link, Node, Topology
from teccl.topology.overview import Profile, rates_text
from teccl.units import format_bandwidth, format_duration

MAX_DRAWN_NODES = 400
MAX_DRAWN_LINKS = 10_000

# Okabe and Ito's colours, which colour-blind readers can tell apart, strongest first.
_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#56b4e9", "#e69f00", "#7f7f00", "#666666"),
)
# Bandwidth, latency, and how the bandwidth changes.
_Kind = tuple[Fraction, Fraction, Profile]
_SWITCH_HEIGHT = 13.0
_LEGEND_LINE = 20.0
_FONT = 'font-family="sans-serif" font-size="9"'
_MIDDLE = 'text-anchor="middle"'
_TOP = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """How the links of one bandwidth and alpha are drawn."""

    number: int
    colour: str
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """One line of the drawing: a link, or a link and its reverse."""

    src: int
    dst: int
    style: _Style
    both_ways: bool
    shift: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A wire and the control point of its curve."""

    wire: _Wire
    control: FloatArray


def draw_svg(topology: Topology) -> str:
    """Return the topology as an SVG picture.

    Raises
    ------
    TopologyError
        If it has too many nodes or links for a picture.

    Examples
    --------
    >>> draw_svg(Topology.parse("ring:gpus=4")).startswith("<svg ")
    True
    """
    _check_drawable(topology)
    layout = arrange(topology)
    styles = _styles(topology)
    legend = list(dict.fromkeys(styles.values()))
    lines = [
        _Line(wire=wire, control=route(layout, wire.src, wire.dst, shift=wire.shift))
        for wire in _wires(topology, styles)
    ]
    left, top, right, bottom = _extent(layout, lines)
    title = _title(topology)
    texts = [7.0 * len(title) + 40, *(6.0 * len(style.text) + 80 for style in legend)]
    width = max(right - left, *texts)
    legend_top = bottom - top + _TOP
    height = legend_top + _LEGEND_LINE * len(legend) + 8
    size = f'width="{_n(width)}" height="{_n(height)}"'
    view = f'viewBox="0 0 {_n(width)} {_n(height)}"'
    place = f"{_n((width - right - left) / 2)},{_n(_TOP - top)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {_FONT}>',
        f"<title>{html.escape(title)}</title>",
        f'<rect {size} fill="#ffffff"/>',
        *_markers(lines),
        f'<text x="{_n(width / 2)}" y="20" {_MIDDLE} font-size="13">{html.escape(title)}</text>',
        f'<g transform="translate({place})">',
        *(_frame_svg(box) for box in layout.boxes),
        *_lines_svg(topology, layout, lines),
        *(_frame_label_svg(box) for box in layout.boxes),
        *_nodes_svg(topology, layout),
        "</g>",
        *_legend_svg(legend, legend_top),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def draw_dot(topology: Topology) -> str:
    """Return the topology as a Graphviz digraph.

    Examples
    --------
    >>> print(draw_dot(Topology.parse("line:gpus=2")).splitlines()[0])
    digraph "line" {
    """
    styles = _styles(topology)
    rows = [
        html.escape(_title(topology)),
        *(
            f"<FONT COLOR='{style.colour}'>{html.escape(style.text)}</FONT>"
            for style in dict.fromkeys(styles.values())
        ),
    ]
    lines = [
        f"digraph {_quoted(topology.name)} {{",
        f"  graph [label=<{'<BR/>'.join(rows)}>, labelloc=b, overlap=false, splines=true];",
        '  node [shape=circle, style=filled, fillcolor="#eaf4fb", fontsize=10];',
    ]
    groups: dict[str | None, list[int]] = {}
    for i, node in enumerate(topology.nodes):
        groups.setdefault(node.group, []).append(i)
    for number, (group, members) in enumerate(groups.items()):
        nodes = [f"n{i} [{_dot_node(topology.nodes[i])}];" for i in members]
        if group is None:
            lines += [f"  {node}" for node in nodes]
        else:
            lines.append(f"  subgraph cluster_{number} {{ label={_quoted(group)};")
            lines += [f"    {node}" for node in nodes]
            lines.append("  }")
    for wire in _wires(topology, styles):
        direction = ", dir=none" if wire.both_ways else ""
        lines.append(
            f'  n{wire.src} -> n{wire.dst} [color="{wire.style.colour}", '
            f"penwidth={_n(wire.style.width)}{direction}];"
        )
    return "\n".join([*lines, "}"]) + "\n"


def save_drawing(topology: Topology, path: str | Path) -> None:
    """Write the topology as SVG or DOT, by the ending of the file name.

    Raises
    ------
    TopologyError
        If the ending is another one, the topology too large to draw, or the file not writable.
    """
    path = Path(path)
    drawers = {".svg": draw_svg, ".dot": draw_dot}
    draw = drawers.get(path.suffix.lower())
    if draw is None:
        raise TopologyError(
            f"drawing {shown(str(path))}: the name does not say what to draw; "
            "end it in .svg, or in .dot for Graphviz"
        )
    write_atomically(path, draw(topology), TopologyError)


def _check_drawable(topology: Topology) -> None:
    for count, limit, what in (
        (topology.num_nodes, MAX_DRAWN_NODES, "nodes"),
        (topology.num_links, MAX_DRAWN_LINKS, "links"),
    ):
        if count > limit:
            raise TopologyError(
                f"{topology!r}: {count} {what} are too many for a picture (at most {limit}); "
                "draw a smaller one or write a .dot file"
            )


def _title(topology: Topology) -> str:
    counts = (
        (topology.num_gpus, "GPU"),
        (topology.num_switches, "switch"),
        (topology.num_links, "link"),
    )
    return f"{topology.name}: " + ", ".join(_plural(count, noun) for count, noun in counts if count)


def _plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"


def _kind(link: Link) -> _Kind:
    return link.bandwidth, link.alpha, link.profile


def _styles(topology: Topology) -> dict[_Kind, _Style]:
    """Style of each kind of link, the fastest first; the last colour takes the rest."""
    counts = Counter(_kind(link) for link in topology.links)
    kinds = sorted(counts, key=lambda kind: (-kind[0], *kind[1:]))
    fastest = float(kinds[0][0]) if kinds else 1.0
    own = len(kinds) if len(kinds) <= len(_COLOURS) else len(_COLOURS) - 1
    styles = {}
    for number, (bandwidth, alpha, profile) in enumerate(kinds[:own]):
        # Semicolons keep what a changing rate is apart from the latency.
        mark = ";" if profile else ","
        text = f"{rates_text(bandwidth, profile)}{mark} {format_duration(alpha)}"
        styles[bandwidth, alpha, profile] = _Style(
            number=number,
            colour=_COLOURS[number],
            # Each factor of two in bandwidth is a step, down to a hairline.
            width=max(0.8, 2.8 - 0.45 * math.log2(fastest / float(bandwidth))),
            text=f"{text}: {_plural(counts[bandwidth, alpha, profile], 'link')}",
        )
    rest = kinds[own:]
    if rest:
        count = sum(counts[kind] for kind in rest)
        text = f"{len(rest)} slower kinds, {format_bandwidth(rest[0][0])} and less: {count} links"
        style = _Style(number=own, colour=_COLOURS[own], width=0.8, text=text)
        styles.update(dict.fromkeys(rest, style))
    return styles


def _wires(topology: Topology, styles: dict[_Kind, _Style]) -> list[_Wire]:
    """Pair links with their reverses, and spread those that join the same two nodes."""
    pending: dict[tuple[int, int, _Style], int] = Counter(
        (link.src, link.dst, styles[_kind(link)]) for link in topology.links
    )
    between: dict[tuple[int, int], list[tuple[int, int, _Style, bool]]] = {}
    for (src, dst, style), count in pending.items():
        back = pending.get((dst, src, style), 0)
        paired = min(count, back)
        lines = between.setdefault((min(src, dst), max(src, dst)), [])
        lines += [(src, dst, style, True)] * (paired if src < dst else 0)
        lines += [(src, dst, style, False)] * (count - paired)
    return [
        _Wire(
            src=src,
            dst=dst,
            style=style,
            both_ways=both,
            # To the same side whichever way the line runs.
            shift=(i - (len(lines) - 1) / 2) * 6.0 * (1 if src < dst else -1),
        )
        for lines in between.values()
        for i, (src, dst, style, both) in enumerate(lines)
    ]


def _extent(layout: Layout, lines: Sequence[_Line]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of everything drawn, curves included."""
    corners = [np.zeros(2), np.array([layout.width, layout.height])]
    for line in lines:
        ends = layout.positions[line.wire.src] + layout.positions[line.wire.dst]
        # The middle of the curve is where it leans out farthest.
        middle = ends / 4 + line.control / 2
        corners += [middle - 8, middle + 8]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _markers(lines: Sequence[_Line]) -> Iterator[str]:
    """Arrow heads, one per colour that has one-way lines."""
    styles = {line.wire.style for line in lines if not line.wire.both_ways}
    for style in sorted(styles, key=lambda style: style.number):
        yield (
            f'<marker id="arrow{style.number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{style.colour}"/></marker>'
        )


def _frame_svg(box: Box) -> str:
    return (
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        'rx="8" fill="#f7f7f7" stroke="#bbbbbb"/>'
    )


def _frame_label_svg(box: Box) -> str:
    # Written over the lines, on a ground of its own that keeps it readable.
    label = _short(box.label, 24)
    x, y = box.x + 6, box.y + 5
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(6.5 * len(label) + 4)}" height="14" '
        'fill="#f7f7f7"/>'
        f'<text x="{_n(x + 2)}" y="{_n(y + 11)}" font-size="11" fill="#555555">'
        f"{html.escape(label)}</text>"
    )


def _lines_svg(topology: Topology, layout: Layout, lines: Sequence[_Line]) -> Iterator[str]:
    for style in dict.fromkeys(line.wire.style for line in lines):
        yield f'<g stroke="{style.colour}" stroke-width="{_n(style.width)}" fill="none">'
        for line in lines:
            if line.wire.style == style:
                arrow = "" if line.wire.both_ways else f' marker-end="url(#arrow{style.number})"'
                yield f'<path d="{_path(topology, layout, line)}"{arrow}/>'
        yield "</g>"


def _path(topology: Topology, layout: Layout, line: _Line) -> str:
    start, end = layout.positions[line.wire.src], layout.positions[line.wire.dst]
    is_straight = bool(np.allclose(line.control, (start + end) / 2))
    if not line.wire.both_ways:
        end = _edge(topology.nodes[line.wire.dst], end, line.control)
    points = [end] if is_straight else [line.control, end]
    there = " ".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return f"M{_n(start[0])} {_n(start[1])}{'L' if is_straight else 'Q'}{there}"


def _edge(node: Node, centre: FloatArray, origin: FloatArray) -> FloatArray:
    """The point where a line from `origin` to the centre meets the node's outline."""
    towards = origin - centre
    towards = towards / max(float(np.hypot(*towards)), 1e-9)
    if not node.is_switch:
        return centre + towards * (NODE_RADIUS + 1)
    reach_x = (_switch_width(node) / 2 + 1) / max(abs(float(towards[0])), 1e-9)
    reach_y = (_SWITCH_HEIGHT + 1) / max(abs(float(towards[1])), 1e-9)
    return centre + towards * min(reach_x, reach_y)


def _nodes_svg(topology: Topology, layout: Layout) -> Iterator[str]:
    for node, (x, y) in zip(topology.nodes, layout.positions, strict=True):
        label = html.escape(_label(node))
        if node.is_switch:
            width = _switch_width(node)
            fill = "#ffe0b3" if node.reduce else "#fff4d6"
            shape = (
                f'<rect x="{_n(x - width / 2)}" y="{_n(y - _SWITCH_HEIGHT)}" '
                f'width="{_n(width)}" height="{_n(2 * _SWITCH_HEIGHT)}" rx="4" '
                f'fill="{fill}" stroke="#a06a00"/>'
            )
        else:
            shape = (
                f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(NODE_RADIUS)}" '
                'fill="#eaf4fb" stroke="#1f5f8b"/>'
            )
        yield (
            f"<g><title>{html.escape(node.name)}</title>{shape}"
            f'<text x="{_n(x)}" y="{_n(y + 3)}" {_MIDDLE}>{label}</text></g>'
        )


def _legend_svg(legend: Sequence[_Style], top: float) -> Iterator[str]:
    for i, style in enumerate(legend):
        y = top + (i + 0.5) * _LEGEND_LINE
        yield (
            f'<path d="M20 {_n(y)}L56 {_n(y)}" stroke="{style.colour}" '
            f'stroke-width="{_n(style.width)}"/>'
            f'<text x="64" y="{_n(y + 4)}" font-size="11">{html.escape(style.text)}</text>'
        )


def _label(node: Node) -> str:
    """The name without its group, cut to what the shape holds."""
    name = node.name.removeprefix(f"{node.group}/") if node.group else node.name
    return _short(name, 14 if node.is_switch else 6)


def _switch_width(node: Node) -> float:
    return max(36.0, 5.4 * len(_label(node)) + 10)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _dot_node(node: Node) -> str:
    label = f"label={_quoted(node.name)}"
    return f'{label}, shape=box, fillcolor="#fff4d6"' if node.is_switch else label


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _n(value: float) -> str:
    """A coordinate with one decimal, equal on every platform."""
    # Rounding twice hides the last bit, in which mathematical libraries differ.
    text = f"{round(float(value), 6):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
