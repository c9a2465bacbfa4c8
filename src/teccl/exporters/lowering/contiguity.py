"""Contiguity: the order of a block's pieces in memory that lets most transfers be joined.

Pieces of a block are alike, so any of them may lie anywhere in it. Two that travel together, over
the same connections in the same levels, save an operation at each of them if they are neighbours.
"""

from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from teccl.exporters.lowering.transfers import Transfers

Shared = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float64]

_STARTS = 4
_PASSES = 3
_EMPHASIS = 4
# Gains below it are rounding.
_TINY = 1e-3


def order_pieces(
    transfers: Transfers, level: list[int], block: list[int], piece: list[int], pieces: int
) -> list[int]:
    """Return for each chunk its position in its block.

    Parameters
    ----------
    transfers, level
        What travels, and in which level.
    block, piece
        Of each chunk.
    pieces
        Pieces of a block.
    """
    if pieces == 1:
        return piece
    load = Counter(transfers.src) + Counter(transfers.dst)
    most = max(load.values())
    weight: list[float] = []
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    names: dict[tuple[int, int, int], int] = {}
    for src, dst, chunk, at in zip(
        transfers.src, transfers.dst, transfers.chunk, level, strict=True
    ):
        name = names.setdefault((src, dst, at), len(names))
        if name == len(weight):
            # The busiest GPU decides whether a program fits.
            weight.append((load[src] / most) ** _EMPHASIS + (load[dst] / most) ** _EMPHASIS)
        rows[block[chunk]].append((piece[chunk], name))
    weights = np.array(weight)
    positions = {number: _positions(found, pieces, weights) for number, found in rows.items()}
    return [positions[b][p] if b in positions else p for b, p in zip(block, piece, strict=True)]


def _positions(rows: list[tuple[int, int]], pieces: int, weight: Weights) -> list[int]:
    """Position of each piece of one block."""
    columns = np.array(rows, dtype=np.int64)
    names, feature = np.unique(columns[:, 1], return_inverse=True)
    has = np.zeros((pieces, int(feature.max()) + 1), dtype=np.float64)
    has[columns[:, 0], feature] = 1
    shared = (has * weight[names]) @ has.T
    np.fill_diagonal(shared, -1)
    best = max(
        (_tour(shared, start) for start in range(0, pieces, max(1, pieces // _STARTS))),
        key=lambda tour: _gain(shared, tour),
    )
    position = [0] * pieces
    for place, number in enumerate(_improved(shared, best)):
        position[number] = place
    return position


def _tour(shared: Shared, start: int) -> list[int]:
    """Go from piece to piece, always to the one that shares most."""
    tour, left = [start], np.ones(len(shared), dtype=bool)
    left[start] = False
    for _ in range(len(shared) - 1):
        step = int(np.where(left, shared[tour[-1]], -2).argmax())
        tour.append(step)
        left[step] = False
    return tour


def _gain(shared: Shared, tour: list[int]) -> float:
    return float(shared[tour[:-1], tour[1:]].sum())


def _improved(shared: Shared, tour: list[int]) -> list[int]:
    """Reverse stretches of the tour while that gains (2-opt)."""
    order = np.array(tour)
    size = len(order)
    for _ in range(_PASSES * size):
        # Gain of reversing order[i+1 .. j]: two neighbourhoods end, two begin.
        table = shared[np.ix_(order, order)]
        after = np.append(np.diagonal(table, 1), 0.0)
        new = table + np.pad(table[1:, 1:], ((0, 1), (0, 1)))
        gain = np.triu(new - after[:, None] - after[None, :], 2)
        best = int(gain.argmax())
        i, j = divmod(best, size)
        if gain[i, j] <= _TINY:
            break
        order[i + 1 : j + 1] = order[i + 1 : j + 1][::-1].copy()
    return [int(number) for number in order]
