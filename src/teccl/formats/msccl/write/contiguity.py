"""Contiguity: the order of a block's pieces in memory that lets most transfers be joined.

Pieces of a block are alike, so any of them may lie anywhere in it. Two that travel together, over
the same connections in the same levels, save an operation at each of them if they are neighbours.
The order is a tour from piece to piece, greedy and then improved.
"""

import numpy as np

from teccl.formats.msccl.write.gpu_transfers import GpuTransfers, Integers

_NEIGHBOURS = 12
_PASSES = 20
_EMPHASIS = 4
# Gains below it are rounding.
_TINY = 1e-3


def order_pieces(
    transfers: GpuTransfers, level: Integers, block: Integers, piece: Integers, pieces: int
) -> Integers:
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
    from teccl.formats.msccl.write.compiled import block_positions

    if pieces == 1:
        return piece
    src, dst = transfers.src, transfers.dst
    # The busiest GPU decides whether a program fits.
    load = np.bincount(np.concatenate([src, dst]))
    importance = (load / load.max()) ** _EMPHASIS
    ranks, levels = len(load), int(level.max()) + 1
    names, group = np.unique((src * ranks + dst) * levels + level, return_inverse=True)
    sender, receiver = np.divmod(names // levels, ranks)
    of_block = block[transfers.chunk]
    order = np.lexsort((piece[transfers.chunk], group, of_block))
    first = np.searchsorted(of_block[order], np.arange(int(block.max()) + 2))
    position = block_positions(
        first,
        piece[transfers.chunk][order],
        group[order],
        importance[sender] + importance[receiver],
        pieces,
        _NEIGHBOURS,
        _PASSES,
        _TINY,
    )
    return position[block, piece]
