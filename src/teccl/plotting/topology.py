"""A topology with its links, coloured by what they are or by a value each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from teccl.drawing.positions import NODE_RADIUS, arrange, route
from teccl.plotting._axes import COLOURS, PlottingError, axes
from teccl.topology import Topology
from teccl.topology.overview import rates_text
from teccl.units import format_duration

MAX_DRAWN_NODES = 400


def plot_topology(
    topology: Topology,
    *,
    ax: Any = None,
    values: Sequence[float] | None = None,
    label: str = "busy part",
) -> Any:
    """Draw nodes and links.

    Parameters
    ----------
    topology
        What to draw.
    ax
        Axes to draw into, None for a new figure.
    values
        A number from 0 to 1 for each link, such as `Schedule.utilisation`; without it, links of
        one kind have one colour, which the legend explains.
    label
        What the values are.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per link.

    Raises
    ------
    PlottingError
        If there are too many nodes, or not one value per link.
    """
    if topology.num_nodes > MAX_DRAWN_NODES:
        raise PlottingError(
            f"{topology!r}: {topology.num_nodes} nodes are too many for a figure "
            f"(at most {MAX_DRAWN_NODES})"
        )
    if values is not None and len(values) != topology.num_links:
        raise PlottingError(
            f"{len(values)} values for {topology.num_links} links of {topology!r}; give one each"
        )
    layout = arrange(topology)
    ax = axes(ax, layout.width / 80, layout.height / 80)
    _draw_frames(ax, layout)
    _draw_links(ax, topology, layout, values, label)
    _draw_nodes(ax, topology, layout)
    ax.set_xlim(0, layout.width)
    ax.set_ylim(layout.height, 0)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def _draw_frames(ax: Any, layout: Any) -> None:
    from matplotlib.patches import FancyBboxPatch

    for box in layout.boxes:
        ax.add_patch(
            FancyBboxPatch(
                (box.x, box.y),
                box.width,
                box.height,
                boxstyle="round,pad=0,rounding_size=8",
                facecolor="#f4f5f7",
                edgecolor="#c3c8cf",
            )
        )
        ax.text(box.x + 6, box.y + 16, box.label, fontsize=8, color="#555555")


def _draw_links(
    ax: Any, topology: Topology, layout: Any, values: Sequence[float] | None, label: str
) -> None:
    from matplotlib.collections import LineCollection

    kinds = sorted(
        {(link.bandwidth, link.alpha, link.profile) for link in topology.links}, reverse=True
    )
    paths = [_curve(layout, link.src, link.dst) for link in topology.links]
    if values is not None:
        lines = LineCollection(paths, cmap="magma_r", linewidths=2.0, zorder=1)
        lines.set_array(np.asarray(values, dtype=float))
        lines.set_clim(0, 1)
        ax.add_collection(lines)
        ax.figure.colorbar(lines, ax=ax, label=label, shrink=0.6)
        return
    colour = {kind: COLOURS[min(i, len(COLOURS) - 1)] for i, kind in enumerate(kinds)}
    own = [colour[link.bandwidth, link.alpha, link.profile] for link in topology.links]
    ax.add_collection(LineCollection(paths, colors=own, linewidths=1.2, zorder=1))
    for kind in kinds[: len(COLOURS)]:
        bandwidth, alpha, profile = kind
        mark = ";" if profile else ","
        text = f"{rates_text(bandwidth, profile)}{mark} {format_duration(alpha)}"
        ax.plot([], [], color=colour[kind], label=text)
    if kinds:
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, frameon=False, fontsize=8
        )


def _curve(layout: Any, src: int, dst: int) -> Any:
    """Return points of the curve of one link, a little to its right hand side."""
    start, end = layout.positions[src], layout.positions[dst]
    control = route(layout, min(src, dst), max(src, dst), shift=0.0)
    along = end - start
    aside = np.array([-along[1], along[0]]) * (2.0 / max(1e-9, float(np.hypot(*along))))
    t = np.linspace(0, 1, 20)[:, None]
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end + aside


def _draw_nodes(ax: Any, topology: Topology, layout: Any) -> None:
    from matplotlib.patches import Circle, Rectangle

    for node, (x, y) in zip(topology.nodes, layout.positions, strict=True):
        name = node.name.removeprefix(f"{node.group}/")
        if node.is_switch:
            width = max(38.0, 5.6 * len(name) + 10)
            place = (x - width / 2, y - 13)
            shape: Any = Rectangle(place, width, 26, facecolor="#fff3d6", edgecolor="#99690a")
        else:
            shape = Circle((x, y), NODE_RADIUS, facecolor="#e9f1fc", edgecolor="#4a6fa5")
        shape.set_zorder(2)
        ax.add_patch(shape)
        ax.text(x, y, name[:14], ha="center", va="center", fontsize=6, zorder=3, parse_math=False)
