"""Bandwidth over size, beside what the bounds allow."""

from collections.abc import Iterable, Mapping
from typing import Any

from teccl.plotting._axes import COLOURS, PlottingError, axes, tidy
from teccl.result import Result
from teccl.units import format_size


def plot_sweep(
    results: Iterable[Result],
    *,
    ax: Any = None,
    bound: bool = True,
    beside: Mapping[str, Mapping[float, float]] | None = None,
) -> Any:
    """Draw algorithm bandwidth over size, a line for each requested method.

    Parameters
    ----------
    results
        Results of one collective on one topology; those without a schedule are left out.
    ax
        Axes to draw into, None for a new figure.
    bound
        Whether to draw the bandwidth that no schedule can exceed.
    beside
        Further curves by name: seconds over sizes, for example of another's cost model.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per method, and one for the bound.

    Raises
    ------
    PlottingError
        If no result has a schedule.
    """
    found = sorted((r for r in results if r.schedule is not None), key=lambda r: r.size_bytes)
    if not found:
        raise PlottingError("no result has a schedule; there is nothing to draw")
    ax = axes(ax, 6.4, 4.2)
    methods = list(dict.fromkeys(result.requested_method for result in found))
    for i, method in enumerate(methods):
        points = [r for r in found if r.requested_method == method]
        ax.plot(
            [float(r.size_bytes) for r in points],
            [r.algbw_GBps for r in points],
            marker="o",
            markersize=4,
            color=COLOURS[i % len(COLOURS)],
            label=method,
        )
    if bound:
        best = {
            float(r.size_bytes): float(r.size_bytes) / r.physical_bound_s / 1e9
            for r in found
            if r.physical_bound_s
        }
        ax.plot(list(best), list(best.values()), color="#555555", linestyle="--", label="bound")
    for name, curve in (beside or {}).items():
        rates = [size / seconds / 1e9 for size, seconds in curve.items()]
        ax.plot(list(curve), rates, color="#999999", linestyle=":", label=name)
    ax.set_xscale("log")
    ax.set_xlabel("size")
    ax.xaxis.set_major_formatter(lambda value, _: format_size(round(value)) if value >= 1 else "")
    ax.set_ylabel("algbw (GB/s)")
    ax.set_ylim(bottom=0)
    ax.grid(visible=True, alpha=0.3)
    ax.legend(frameon=False)
    tidy(ax)
    return ax
