"""Fits: alpha and beta of a link from measured times, by robust regression."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.errors import InputError

Array = npt.NDArray[np.float64]

# Residuals beyond this many times the typical one count by their size, not by its square (Huber).
_HUBER = 1.345
# The median of absolute residuals, as a standard deviation of normal noise.
_MAD = 1.4826
# Two-sided 95 % of a normal distribution.
_Z95 = 1.96
_SMALLEST = 1e-15
# Relative residual that the first of two fits takes for typical.
_FIRST_SCALE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A line through times over sizes.

    Parameters
    ----------
    alpha_s, beta_s_per_byte
        Intercept and slope.
    alpha_error, beta_error
        Half widths of the 95 % confidence intervals.
    samples
        How many times were fitted.
    typical_residual
        Median of the relative residuals.
    """

    alpha_s: float
    beta_s_per_byte: float
    alpha_error: float
    beta_error: float
    samples: int
    typical_residual: float

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return 1.0 / max(self.beta_s_per_byte, _SMALLEST)

    def scaled(self, alpha: float, beta: float) -> "Fit":
        """Return the fit with intercept and slope multiplied by two factors."""
        return Fit(
            alpha_s=self.alpha_s * alpha,
            beta_s_per_byte=self.beta_s_per_byte * beta,
            alpha_error=self.alpha_error * alpha,
            beta_error=self.beta_error * beta,
            samples=self.samples,
            typical_residual=self.typical_residual,
        )


def fit_line(sizes: Sequence[float] | Array, seconds: Sequence[float] | Array) -> Fit:
    """Fit ``seconds = alpha + beta * size``, both at least zero.

    Errors of measurement grow with the time measured, so residuals are relative to it; outliers
    count little (Huber's loss, its scale from the median residual).

    Raises
    ------
    InputError
        If there are fewer than two different sizes or a time is not positive.

    Examples
    --------
    >>> fit = fit_line([0, 1000, 2000, 4000], [1e-6, 2e-6, 3e-6, 5e-6])
    >>> round(fit.alpha_s * 1e6, 3), round(fit.bandwidth)
    (1.0, 1000000000)
    """
    x, y = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if len(np.unique(x)) < 2:
        raise InputError("a fit needs times at two sizes or more; give more sizes")
    if (y <= 0).any() or not np.isfinite(y).all():
        raise InputError("a fit needs positive, finite times; measure again")
    # Unknowns of the order of one, whatever the units.
    unit = np.array([float(y.min()), float(y.max()) / max(float(x.max()), 1.0)])
    design = np.stack([np.ones_like(x), x], axis=1) * unit / y[:, None]

    answer = _solve(design, "soft_l1", _FIRST_SCALE, np.array([1.0, 1.0]))
    spread = max(_MAD * float(np.median(np.abs(design @ answer - 1.0))), 1e-9)
    answer = _solve(design, "huber", _HUBER * spread, np.maximum(answer, 1e-6))
    errors = _Z95 * spread * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
    return Fit(
        alpha_s=float(answer[0] * unit[0]),
        beta_s_per_byte=float(answer[1] * unit[1]),
        alpha_error=float(errors[0] * unit[0]),
        beta_error=float(errors[1] * unit[1]),
        samples=len(x),
        typical_residual=float(np.median(np.abs(design @ answer - 1.0))),
    )


def faster_half(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[Array, Array]:
    """Keep the faster half of the times at each size.

    A machine that does something else makes messages late, never early.
    """
    x, y = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    kept = np.zeros(len(x), dtype=bool)
    for size in np.unique(x):
        here = np.flatnonzero(x == size)
        order = here[np.argsort(y[here], kind="stable")]
        kept[order[: (len(order) + 1) // 2]] = True
    return x[kept], y[kept]


def _solve(design: Array, loss: str, scale: float, start: Array) -> Array:
    """Minimise the loss of ``design @ p - 1`` over p >= 0."""
    from scipy import optimize

    least_squares: Any = optimize.least_squares
    found = least_squares(
        lambda p: design @ p - 1.0,
        start,
        jac=lambda _: design,
        bounds=(0.0, np.inf),
        loss=loss,
        f_scale=scale,
        x_scale="jac",
    )
    return np.asarray(found.x)
