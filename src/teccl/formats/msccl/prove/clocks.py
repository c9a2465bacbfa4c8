"""Compiled replay of a program with vector clocks; see `races`."""

import numpy as np

from teccl._kernels import kernel


@kernel
def _learn(now, kept, begin):
    # Loops over a slice become vector instructions, those with an offset do not.
    other = kept[begin : begin + len(now)]
    for i in range(len(now)):
        now[i] = max(now[i], other[i])


@kernel
def _grown(array):
    bigger = np.empty(2 * len(array), dtype=array.dtype)
    for i in range(len(array)):
        bigger[i] = array[i]
    return bigger


@kernel
def _note(found, num_found, action, cell, is_write, other, other_is_write):
    """Add a row if there is room; return how many there are."""
    if num_found == len(found):
        return num_found
    row = found[num_found]
    row[0], row[1], row[2], row[3], row[4] = action, cell, is_write, other, other_is_write
    return num_found + 1


@kernel
def unordered(order, block, place, accesses, first, source, column, num_columns, num_cells, most):
    """Return pairs of accesses to one cell, one of them a write, that nothing orders.

    Parameters
    ----------
    order
        Actions in an order in which they can complete.
    block, place
        Of every action.
    accesses
        Per action the first cell and the number of cells, of two places that it reads and one
        that it writes.
    first, source
        First place of each action's own in a list, and that list: actions whose end it waits for,
        by a dependency or because their data arrives.
    column
        Of every block that is looked at, -1 for others; cells are those of the former only.
    num_columns, num_cells
        How many there are.
    most
        Pairs to return at most.

    Returns
    -------
    array
        Rows (action, cell, whether it writes, earlier action, whether that writes).
    """
    uses = np.zeros(len(block), dtype=np.int64)
    for other in source:
        uses[other] += 1
    clock = np.zeros((len(column), num_columns), dtype=np.int16)
    # Clocks that will be asked for again, one after another.
    kept = np.zeros(64 * num_columns, dtype=np.int16)
    row = np.full(len(block), -1)
    free = np.arange(64)
    num_free = 64
    written = np.full(num_cells, -1)
    # Readers of a cell since it was written are a chain.
    reader = np.full(num_cells, -1)
    reader_of = np.empty(16, dtype=np.int64)
    chain = np.empty(len(reader_of), dtype=np.int64)
    num_reads = 0
    found = np.empty((most, 5), dtype=np.int64)
    num_found = 0
    for action in order:
        b = block[action]
        now = clock[b]
        for i in range(first[action], first[action + 1]):
            other = source[i]
            _learn(now, kept, row[other] * num_columns)
            uses[other] -= 1
            if uses[other] == 0:
                free[num_free] = row[other]
                num_free += 1
        if column[b] >= 0:
            for i in range(0, 4, 2):
                begin = accesses[action, i]
                for cell in range(begin, begin + accesses[action, i + 1]):
                    other = written[cell]
                    if other >= 0 and now[column[block[other]]] <= place[other]:
                        num_found = _note(found, num_found, action, cell, 0, other, 1)
                    if num_reads == len(chain):
                        reader_of, chain = _grown(reader_of), _grown(chain)
                    reader_of[num_reads], chain[num_reads] = action, reader[cell]
                    reader[cell] = num_reads
                    num_reads += 1
            begin = accesses[action, 4]
            for cell in range(begin, begin + accesses[action, 5]):
                other = written[cell]
                if other >= 0 and now[column[block[other]]] <= place[other]:
                    num_found = _note(found, num_found, action, cell, 1, other, 1)
                node = reader[cell]
                while node >= 0:
                    other = reader_of[node]
                    if other != action and now[column[block[other]]] <= place[other]:
                        num_found = _note(found, num_found, action, cell, 1, other, 0)
                    node = chain[node]
                reader[cell] = -1
                written[cell] = action
            now[column[b]] = place[action] + 1
        if uses[action]:
            if num_free == 0:
                num_free = len(kept) // num_columns
                free = np.arange(num_free, 3 * num_free)
                kept = _grown(kept)
            num_free -= 1
            row[action] = free[num_free]
            own = kept[row[action] * num_columns : (row[action] + 1) * num_columns]
            for i in range(num_columns):
                own[i] = now[i]
    return found[:num_found]
