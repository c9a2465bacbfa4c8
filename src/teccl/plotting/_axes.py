"""What all figures share: axes to draw into, colours and units of time."""

from typing import Any

from teccl.errors import InputError

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#56b4e9", "#e69f00", "#7f7f00", "#666666"),
)
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


class PlottingError(InputError):
    """Something cannot be drawn."""


def axes(ax: Any, width: float, height: float) -> Any:
    """Return the given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt
    except ModuleNotFoundError:
        raise PlottingError(
            "figures need matplotlib; install it with: pip install 'teccl[plot]'"
        ) from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its length in seconds."""
    return next(((name, scale) for name, scale in _UNITS if seconds >= scale), _UNITS[-1])


def hue_colours(count: int) -> list[Any]:
    """Return colours that differ, for any number of things."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    import matplotlib as mpl

    wheel = mpl.colormaps["hsv"]
    return [wheel(0.92 * i / count) for i in range(count)]


def tidy(ax: Any) -> None:
    """Remove the lines around a figure that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
