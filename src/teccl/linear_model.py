"""LinearModel: a linear or mixed-integer program as arrays; it knows nothing of networks.

    minimise    cost x + offset
    subject to  row_lower <= matrix x <= row_upper
                lower <= x <= upper,  x[integer] whole

A model is stated by numbering columns (`Columns`), collecting rows as index arrays (`RowBlock`,
one per family of constraints) and stacking them once with `stack`:

>>> flow = Columns.number(np.ones((2, 3), dtype=bool), first=0)  # columns 0 to 5
>>> rows = RowBlock.sums(flow.index, lower=-np.inf, upper=1.0)  # the sum of each line is <= 1
>>> model = stack([rows], cost=-np.ones(6), lower=0.0, upper=1.0, integer=True)
>>> model
LinearModel(6 columns, 6 integer, 2 rows, 6 non-zeros)
>>> model.objective(np.ones(6)), model.violation(np.ones(6))
(-6.0, 2.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from teccl.errors import SolverError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

# Row and column numbers of back ends are 32-bit.
MAX_ENTRIES = 2**31 - 1
# What stands in `Columns.index` for a variable that does not exist.
ABSENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModel:
    """A program to be minimised.

    Parameters
    ----------
    cost, lower, upper, integer
        One entry per column; bounds may be infinite.
    matrix
        Rows by columns, compressed by columns (CSC), without duplicates.
    row_lower, row_upper
        Two-sided rows: equal for an equation, infinite where a side is open.
    offset
        Constant of the objective.
    """

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    matrix: sparse.csc_array[Any]
    row_lower: FloatArray
    row_upper: FloatArray
    offset: float = 0.0

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        sizes = {name: len(getattr(self, name)) for name in _COLUMN_FIELDS}
        wrong = [name for name, size in sizes.items() if size != columns]
        wrong += [name for name in _ROW_FIELDS if len(getattr(self, name)) != rows]
        if wrong:
            raise SolverError(f"{wrong[0]} does not fit a matrix of {rows} x {columns}")
        if max(rows, columns, self.matrix.nnz) > MAX_ENTRIES:
            raise SolverError(f"a matrix of {self.matrix.nnz} entries is too large for a solver")
        for name in (*_COLUMN_FIELDS, *_ROW_FIELDS):
            array = getattr(self, name)
            if np.isnan(array).any():
                raise SolverError(f"{name} has an entry that is no number")
            array.setflags(write=False)

    def __repr__(self) -> str:
        return (
            f"LinearModel({self.num_columns} columns, {int(self.integer.sum())} integer, "
            f"{self.num_rows} rows, {self.matrix.nnz} non-zeros)"
        )

    @property
    def num_columns(self) -> int:
        """Number of variables."""
        return int(self.matrix.shape[1])

    @property
    def num_rows(self) -> int:
        """Number of constraints."""
        return int(self.matrix.shape[0])

    @property
    def num_bytes(self) -> int:
        """Memory the arrays take."""
        arrays = [getattr(self, name) for name in (*_COLUMN_FIELDS, *_ROW_FIELDS)]
        arrays += [self.matrix.data, self.matrix.indices, self.matrix.indptr]
        return sum(int(array.nbytes) for array in arrays)

    @property
    def is_feasible_trivially(self) -> bool:
        """Whether no bound or row contradicts itself, be it that it has no column at all."""
        if not ((self.lower <= self.upper).all() and (self.row_lower <= self.row_upper).all()):
            return False
        empty = np.bincount(self.matrix.indices, minlength=self.num_rows) == 0
        return bool(((self.row_lower[empty] <= 0) & (self.row_upper[empty] >= 0)).all())

    def objective(self, values: FloatArray) -> float:
        """Return the objective of some values of the columns."""
        return float(self.cost @ values) + self.offset

    def violation(self, values: FloatArray) -> float:
        """Return by how much values break the worst bound, row or integrality."""
        activity = self.matrix @ values
        parts = (
            self.lower - values,
            values - self.upper,
            self.row_lower - activity,
            activity - self.row_upper,
            np.abs(values - np.round(values))[self.integer],
        )
        return max((float(part.max()) for part in parts if part.size), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Column numbers of a block of variables, in any shape.

    Parameters
    ----------
    index
        The column of each variable, `ABSENT` where there is none.
    first, count
        The block's columns are ``first`` to ``first + count - 1``, in the order of `index`.
    """

    index: IntArray
    first: int
    count: int

    @staticmethod
    def number(exists: BoolArray, *, first: int) -> "Columns":
        """Give consecutive columns to the variables that exist."""
        count = int(np.count_nonzero(exists))
        index = np.full(exists.shape, ABSENT, dtype=np.int64)
        index[exists] = np.arange(first, first + count)
        return Columns(index=index, first=first, count=count)

    @property
    def end(self) -> int:
        """The first column after the block."""
        return self.first + self.count

    @property
    def exists(self) -> BoolArray:
        """Which variables there are."""
        return self.index != ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows of one family of constraints: entries as triples, and both sides of each row.

    Parameters
    ----------
    row, column, value
        One entry of the matrix each; rows count from zero within the block, and entries of
        `ABSENT` columns are dropped. Entries at the same place add up.
    lower, upper
        Sides of each row.
    """

    row: IntArray
    column: IntArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray

    @staticmethod
    def of(
        num_rows: int,
        terms: Sequence[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]],
        *,
        lower: npt.ArrayLike,
        upper: npt.ArrayLike,
    ) -> "RowBlock":
        """Collect terms ``(rows, columns, values)``, each broadcast to one shape."""
        parts = []
        for rows, columns, values in terms:
            row, column, value = np.broadcast_arrays(rows, columns, values)
            present = column != ABSENT
            parts.append((row[present], column[present], value[present]))
        row, column, value = (
            np.concatenate([part[i] for part in parts] or [np.empty(0)]) for i in range(3)
        )
        return RowBlock(
            row=row.astype(np.int64),
            column=column.astype(np.int64),
            value=value.astype(np.float64),
            lower=np.broadcast_to(np.asarray(lower, dtype=np.float64), num_rows),
            upper=np.broadcast_to(np.asarray(upper, dtype=np.float64), num_rows),
        )

    @staticmethod
    def sums(index: IntArray, *, lower: npt.ArrayLike, upper: npt.ArrayLike) -> "RowBlock":
        """Bound the sum of each line of a two-dimensional array of columns."""
        rows = np.arange(len(index))[:, None]
        return RowBlock.of(len(index), [(rows, index, 1.0)], lower=lower, upper=upper)

    def __len__(self) -> int:
        return len(self.lower)


def stack(
    blocks: Sequence[RowBlock],
    *,
    cost: FloatArray,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    integer: npt.ArrayLike,
    offset: float = 0.0,
) -> LinearModel:
    """Make a model of blocks of rows; `cost` sets the number of columns."""
    columns = len(cost)
    starts = np.cumsum([0, *(len(block) for block in blocks)])
    num_rows = int(starts[-1])
    entries = sum(len(block.row) for block in blocks)
    row = np.empty(entries, dtype=np.int32)
    column = np.empty(entries, dtype=np.int32)
    value = np.empty(entries)
    at = 0
    for block, start in zip(blocks, starts, strict=False):
        part = slice(at, at + len(block.row))
        row[part] = block.row + start
        column[part] = block.column
        value[part] = block.value
        at = part.stop
    matrix = sparse.coo_array((value, (row, column)), shape=(num_rows, columns)).tocsc()

    def sides(name: str) -> FloatArray:
        return np.concatenate([np.empty(0), *(getattr(block, name) for block in blocks)])

    def full(given: npt.ArrayLike, kind: type) -> Any:
        return np.broadcast_to(np.asarray(given, dtype=kind), columns).copy()

    return LinearModel(
        cost=np.asarray(cost, dtype=np.float64).copy(),
        lower=full(lower, np.float64),
        upper=full(upper, np.float64),
        integer=full(integer, np.bool_),
        matrix=matrix,
        row_lower=sides("lower"),
        row_upper=sides("upper"),
        offset=offset,
    )


_COLUMN_FIELDS = ("cost", "lower", "upper", "integer")
_ROW_FIELDS = ("row_lower", "row_upper")
