"""Routing: which experts each token goes to, read or drawn."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.errors import DemandError

IntArray = npt.NDArray[np.int64]

MAX_EXPERTS = 100_000
# Choices that fit into memory, a few gigabytes with all that is made of them.
MAX_CHOICES = 100_000_000
# Random numbers that are drawn at a time.
_BLOCK = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Expert choices of tokens.

    Parameters
    ----------
    experts
        The experts of each token, a row each, all different.
    num_experts
        How many experts there are.
    """

    experts: IntArray
    num_experts: int

    def __post_init__(self) -> None:
        experts = np.asarray(self.experts)
        if experts.ndim != 2 or not experts.size:
            raise DemandError("the trace names no expert; give at least one token")
        if not np.issubdtype(experts.dtype, np.integer):
            raise DemandError(f"experts have type {experts.dtype}; give whole numbers")
        if experts.shape[1] > self.num_experts:
            raise DemandError(
                f"{experts.shape[1]} experts a token are more than the {self.num_experts} there are"
            )
        outside = np.argwhere((experts < 0) | (experts >= self.num_experts))
        if len(outside):
            token, place = outside[0]
            raise DemandError(
                f"token {token} goes to expert {experts[token, place]}; experts are 0 to "
                f"{self.num_experts - 1}, check --experts"
            )
        ordered = np.sort(experts.astype(np.int64), axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if len(twice):
            raise DemandError(f"token {twice[0]} goes to one expert twice; name each once")
        ordered.setflags(write=False)
        object.__setattr__(self, "experts", ordered)

    def __len__(self) -> int:
        return len(self.experts)

    def loads(self) -> IntArray:
        """Tokens of each expert."""
        return np.bincount(self.experts.ravel(), minlength=self.num_experts)


def draw_zipf(
    *, tokens: int, experts: int, top_k: int, exponent: float = 1.0, seed: int = 0
) -> Routing:
    """Draw choices in which the i-th most liked expert is liked as much as i to the -exponent.

    Which expert is liked how much is random too.
    """
    random = np.random.default_rng(seed)
    _check_draw(tokens, experts, top_k)
    liking = random.permutation(-exponent * np.log(1.0 + np.arange(experts)))
    return _drawn(random, liking, tokens, top_k)


def draw_hot(
    *, tokens: int, experts: int, top_k: int, hot: int = 1, skew: float = 3.0, seed: int = 0
) -> Routing:
    """Draw choices in which the first experts get several times as many tokens as the mean."""
    _check_draw(tokens, experts, top_k)
    if not 0 < hot < experts or not 1 <= skew < experts / max(hot, top_k):
        raise DemandError(
            f"{hot} hot experts of {experts} with top {top_k} cannot have a skew of {skew:g}; give "
            "fewer hot experts, at least one, and a skew from 1 to less than experts over hot or "
            "top-k, whichever is more"
        )
    random = np.random.default_rng(seed)
    likings = np.ones(experts)
    # Without replacement the share of what is chosen often is less than its weight: find it.
    low, high = 1.0, 1e6
    for _ in range(60):
        weight = (low * high) ** 0.5
        likings[:hot] = weight
        low, high = (low, weight) if _skew(likings, hot, top_k) > skew else (weight, high)
    return _drawn(random, np.log(likings), tokens, top_k)


def _skew(liking: npt.NDArray[np.float64], hot: int, top_k: int) -> float:
    """Return how often the first is chosen beside the mean, draw by draw, about."""
    share, others = hot * liking[0], float(len(liking) - hot)
    chosen = 0.0
    for _ in range(top_k):
        part = share / (share + others)
        chosen += part
        share -= part * liking[0]
        others -= 1.0 - part
    return chosen / hot * len(liking) / top_k


def _check_draw(tokens: int, experts: int, top_k: int) -> None:
    """Refuse numbers of which nothing can be drawn, or more than fits."""
    if not 0 < experts <= MAX_EXPERTS or not 0 < top_k <= experts:
        raise DemandError(
            f"top {top_k} of {experts} experts cannot be drawn; give positive numbers, and no more "
            "choices than experts"
        )
    if not 0 < tokens <= MAX_CHOICES // top_k:
        raise DemandError(
            f"{tokens} tokens cannot be drawn; with top {top_k} give 1 to {MAX_CHOICES // top_k}"
        )


def _drawn(
    random: np.random.Generator, liking: npt.NDArray[np.float64], tokens: int, top_k: int
) -> Routing:
    """Draw experts without replacement, by logarithms of weights: the largest with noise."""
    experts = len(liking)
    rows = max(1, _BLOCK // experts)
    parts = []
    for first in range(0, tokens, rows):
        noise = random.gumbel(size=(min(rows, tokens - first), experts)) + liking
        parts.append(np.argpartition(-noise, top_k - 1, axis=1)[:, :top_k])
    return Routing(experts=np.concatenate(parts), num_experts=experts)
