"""Pattern: test data whose reductions are exact in every type, and what must come out of it.

An element's value depends on its rank, its block and its place, so that data that goes astray or is
added twice shows. Values are small whole numbers; sums and products of sixteen ranks stay exact
even in float16.
"""

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.runtime.engine import REDUCTIONS
from teccl.runtime.layout import TenantLayout

Array = npt.NDArray[Any]

_CLASSES = 16
# Odd constants whose multiples spread over 32 bits (Knuth, and two large primes).
_SPREAD, _BLOCK, _TENANT = 2654435761, 2246822519, 3266489917
# Blocks that a rank sends to itself have no number in the demand.
_SELF = 1_000_003


def fill_send(layout: TenantLayout, tenant: int, array: Array, op: str) -> None:
    """Write a rank's own data into its send buffer."""
    for number, begin in layout.send.items():
        length = layout.block_elements[number]
        block = layout.blocks[number]
        # Sources of a copied block all hold the same data.
        owner = layout.rank if block.reduce else block.sources[0]
        array[begin : begin + length] = _values(owner, op, array.dtype)[
            _classes(tenant, number, length)
        ]
    for send, _ in layout.self_copies:
        array[send.start : send.stop] = _own(layout, tenant, op, array.dtype, send.length)


def expected_recv(layout: TenantLayout, tenant: int, dtype: np.dtype[Any], op: str) -> Array:
    """Return what a rank's recv buffer must hold in the end."""
    array = np.zeros(layout.recv_count, dtype=dtype)
    combine = REDUCTIONS[op]
    for number, begin in layout.recv.items():
        length, block = layout.block_elements[number], layout.blocks[number]
        sources = block.sources if block.reduce else block.sources[:1]
        values = reduce(combine, [_values(source, op, dtype) for source in sources])
        array[begin : begin + length] = values[_classes(tenant, number, length)]
    for send, recv in layout.self_copies:
        array[recv.start : recv.stop] = _own(layout, tenant, op, dtype, send.length)
    return array


def poison(array: Array) -> None:
    """Overwrite a recv buffer with what no run produces."""
    array.fill(np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max)


def count_wrong(found: Array, expected: Array) -> int:
    """Number of elements that are not exactly as expected."""
    return int(np.count_nonzero(found != expected))


def _own(layout: TenantLayout, tenant: int, op: str, dtype: np.dtype[Any], length: int) -> Array:
    return _values(layout.rank, op, dtype)[_classes(tenant, _SELF, length)]


def _classes(tenant: int, number: int, length: int) -> npt.NDArray[np.uint8]:
    """Class of each element of a block."""
    offset = (number * _BLOCK + tenant * _TENANT + 1) % 2**32
    mixed = np.arange(length, dtype=np.uint32)
    mixed *= np.uint32(_SPREAD)
    mixed += np.uint32(offset)
    mixed >>= np.uint32(28)
    return mixed.astype(np.uint8)


def _values(rank: int, op: str, dtype: np.dtype[Any]) -> Array:
    """Value of each class on one rank."""
    classes = np.arange(_CLASSES)
    if op == "prod":
        return np.where((classes + 3 * rank) % 5 == 0, 2, 1).astype(dtype)
    return (1 + (7 * classes + 5 * rank + classes * rank) % 13).astype(dtype)
