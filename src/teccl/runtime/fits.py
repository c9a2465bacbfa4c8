"""Fits: alpha, overhead and beta of a link from measured times, by robust regression."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """What messages cost, from times over sizes and numbers of messages.

    Parameters
    ----------
    alpha_s, beta_s_per_byte
        Latency and seconds per byte; of a line its intercept and slope.
    alpha_error, beta_error, overhead_error
        Half widths of the 95 % confidence intervals.
    samples
        How many times were fitted.
    typical_residual
        Median of the relative residuals.
    overhead_s
        Seconds that each message takes beside its bytes, None where it was not measured.
    """

    alpha_s: float
    beta_s_per_byte: float
    alpha_error: float
    beta_error: float
    samples: int
    typical_residual: float
    overhead_s: float | None = None
    overhead_error: float = 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return 1.0 / max(self.beta_s_per_byte, _SMALLEST)

    @property
    def has_bandwidth(self) -> bool:
        """Whether bytes were seen to cost anything, rather than less than the times vary."""
        return self.beta_error < self.beta_s_per_byte

    def scaled(self, alpha: float, beta: float, overhead: float = 1.0) -> "Fit":
        """Return the fit with latency, slope and overhead multiplied by factors."""
        return replace(
            self,
            alpha_s=self.alpha_s * alpha,
            beta_s_per_byte=self.beta_s_per_byte * beta,
            alpha_error=self.alpha_error * alpha,
            beta_error=self.beta_error * beta,
            overhead_s=None if self.overhead_s is None else self.overhead_s * overhead,
            overhead_error=self.overhead_error * overhead,
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
    x = np.asarray(sizes, dtype=float)
    return _regress(np.stack([np.ones_like(x), x], axis=1), x, seconds)


def fit_trains(
    counts: Sequence[float] | Array,
    sizes: Sequence[float] | Array,
    seconds: Sequence[float] | Array,
) -> Fit:
    """Fit trains of messages that one small message answers.

    A train of m messages of b bytes takes m (o + b beta) and alpha to come, its answer o and
    alpha: ``seconds = 2 alpha + (m + 1) o + m b beta``, all at least zero.

    Raises
    ------
    InputError
        If there are fewer than two different sizes or a time is not positive.

    Examples
    --------
    >>> fit = fit_trains([1, 1, 9], [0, 1000, 0], [14e-6, 15e-6, 30e-6])
    >>> microseconds = (fit.alpha_s * 1e6, (fit.overhead_s or 0) * 1e6)
    >>> *(round(value, 3) for value in microseconds), round(fit.bandwidth / 1e9, 3)
    (5.0, 2.0, 1.0)
    """
    m, x = np.asarray(counts, dtype=float), np.asarray(sizes, dtype=float)
    columns = np.stack([np.full_like(x, 2.0), m + 1.0, m * x], axis=1)
    return _regress(columns, x, seconds)


def _regress(columns: Array, sizes: Array, seconds: Sequence[float] | Array) -> Fit:
    """Fit unknowns that are at least zero: alpha first, beta last, an overhead between if any."""
    y = np.asarray(seconds, dtype=float)
    if len(np.unique(sizes)) < 2:
        raise InputError("a fit needs times at two sizes or more; give more sizes")
    if (y <= 0).any() or not np.isfinite(y).all():
        raise InputError("a fit needs positive, finite times; measure again")
    # Unknowns of the order of one, whatever the units: fixed costs and costs of bytes.
    unit = np.full(columns.shape[1], float(y.min()))
    unit[-1] = float(y.max()) / max(float(columns[:, -1].max()), 1.0)
    design = columns * unit / y[:, None]
    answer = _solve(design, "soft_l1", _FIRST_SCALE, np.ones(len(unit)))
    spread = max(_MAD * float(np.median(np.abs(design @ answer - 1.0))), 1e-9)
    answer = _solve(design, "huber", _HUBER * spread, np.maximum(answer, 1e-6))
    errors = _Z95 * spread * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
    found, error = (answer * unit).tolist(), (errors * unit).tolist()
    has_overhead = len(found) > 2
    return Fit(
        alpha_s=found[0],
        beta_s_per_byte=found[-1],
        alpha_error=error[0],
        beta_error=error[-1],
        samples=len(y),
        typical_residual=float(np.median(np.abs(design @ answer - 1.0))),
        overhead_s=found[1] if has_overhead else None,
        overhead_error=error[1] if has_overhead else 0.0,
    )


def faster_half(kinds: Sequence[object], seconds: Sequence[float]) -> list[int]:
    """Places of the faster half of the times of each kind of exchange.

    A machine that does something else makes messages late, never early.
    """
    places: dict[object, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    kept = []
    for here in places.values():
        order = sorted(here, key=lambda place: seconds[place])
        kept += order[: (len(order) + 1) // 2]
    return sorted(kept)


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
