"""A timeline: what each link carries when."""

from typing import Any

import numpy as np

from teccl.plotting._axes import axes, hue_colours, tidy, time_unit
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times
from teccl.units import PICOSECONDS


def plot_gantt(
    schedule: Schedule, *, ax: Any = None, max_links: int = 40, critical: bool = True
) -> Any:
    """Draw the sends of a schedule, a row per link, coloured by the chunk's first source.

    Parameters
    ----------
    schedule
        What to draw.
    ax
        Axes to draw into, None for a new figure.
    max_links
        Links shown, the busiest first.
    critical
        Whether to outline the critical path.

    Returns
    -------
    matplotlib.axes.Axes
        With one collection of bars.
    """
    topology = schedule.problem.topology
    busy = schedule.utilisation()
    links = [int(i) for i in np.argsort(-busy, kind="stable") if busy[i] > 0][:max_links]
    ax = axes(ax, 9, 1.1 + 0.22 * len(links))
    unit, scale = time_unit(schedule.finish_time_s)
    _draw_bars(ax, schedule, links, scale * PICOSECONDS, critical=critical)
    ax.set_yticks(range(len(links)), [topology.link_name(i) for i in links], fontsize=7)
    ax.set_ylim(len(links) - 0.5, -0.5)
    ax.set_xlim(0, schedule.finish_time_s / scale * 1.01)
    ax.set_xlabel(f"time ({unit})")
    for name, time_s in _marks(schedule):
        ax.axvline(time_s / scale, color="#b3261e", linestyle="--", linewidth=0.8, label=name)
    tidy(ax)
    return ax


def _draw_bars(
    ax: Any, schedule: Schedule, links: list[int], ps_per_unit: float, *, critical: bool
) -> None:
    from matplotlib.collections import PolyCollection

    table, sends = schedule.problem.chunks, schedule.sends
    firsts = np.array([members[0] for members in table.sets])
    hues = firsts[table.source_set] if not table.reduce.any() else table.block
    palette = hue_colours(int(hues.max(initial=0)) + 1)
    place = np.full(schedule.problem.topology.num_links, -1)
    place[links] = np.arange(len(links))
    rows = np.flatnonzero(place[sends["link"]] >= 0)
    left = sends["start_ps"][rows] / ps_per_unit
    right = left + send_times(schedule).occupancy_ps[rows] / ps_per_unit
    y = place[sends["link"][rows]]
    corners = np.stack(
        [
            np.stack([x, y + dy], axis=1)
            for x, dy in zip((left, left, right, right), (-0.38, 0.38, 0.38, -0.38), strict=True)
        ],
        axis=1,
    )
    on_path = set(schedule.critical_path()) if critical else set()
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=[palette[hue] for hue in hues[sends["chunk"][rows]]],
            edgecolors=["#b3261e" if row in on_path else "#ffffff" for row in rows.tolist()],
            linewidths=[1.0 if row in on_path else 0.2 for row in rows.tolist()],
        )
    )


def _marks(schedule: Schedule) -> list[tuple[str, float]]:
    """Return name and time of the lines that are drawn across."""
    bound = schedule.bound
    found = [] if bound is None else [("bound", bound.physical_ps / PICOSECONDS)]
    return [*found, ("finish", schedule.finish_time_s)]
