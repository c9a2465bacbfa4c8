"""How busy links are over time."""

from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.plotting._axes import axes, time_unit
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times


def plot_utilisation(
    schedule: Schedule, *, ax: Any = None, max_links: int = 40, bins: int = 80
) -> Any:
    """Draw the busy part of each link in equal pieces of the finish time.

    Parameters
    ----------
    schedule
        What to draw.
    ax
        Axes to draw into, None for a new figure.
    max_links
        Links shown, the busiest first.
    bins
        Pieces of time.

    Returns
    -------
    matplotlib.axes.Axes
        With one image.
    """
    busy = schedule.utilisation()
    links = [int(i) for i in np.argsort(-busy, kind="stable") if busy[i] > 0][:max_links]
    ax = axes(ax, 9, 1.1 + 0.22 * len(links))
    unit, scale = time_unit(schedule.finish_time_s)
    picture = ax.imshow(
        busy_parts(schedule, bins)[links],
        aspect="auto",
        interpolation="nearest",
        cmap="magma_r",
        vmin=0,
        vmax=1,
        extent=(0, schedule.finish_time_s / scale, len(links) - 0.5, -0.5),
    )
    topology = schedule.problem.topology
    names = [f"{topology.link_name(i)}  {100 * busy[i]:.0f} %" for i in links]
    ax.set_yticks(range(len(links)), names, fontsize=7)
    ax.set_xlabel(f"time ({unit})")
    ax.figure.colorbar(picture, ax=ax, label="busy part", pad=0.01)
    return ax


def busy_parts(schedule: Schedule, bins: int) -> npt.NDArray[np.float64]:
    """Return, for each link, the part of each of some equal pieces of time that it is busy."""
    width = max(1.0, schedule.finish_ps / bins)
    parts = np.zeros((schedule.problem.topology.num_links, bins))
    occupancy = send_times(schedule).occupancy_ps
    for link, start, length in zip(
        schedule.sends["link"], schedule.sends["start_ps"], occupancy, strict=True
    ):
        end = start + length
        first, last = int(start // width), min(bins - 1, int(end // width))
        for piece in range(first, last + 1):
            parts[link, piece] += min(end, (piece + 1) * width) - max(start, piece * width)
    return np.minimum(1.0, parts / width)
