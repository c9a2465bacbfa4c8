"""Buffers: a rank's arrays checked against its layout, and test data to fill them with.

In test data an element's value depends on its rank, its block and its place, so that data that goes
astray or is added twice shows. Values are small whole numbers; sums and products of sixteen ranks
stay exact even in float16.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.demand import Collective
from teccl.errors import ScheduleError
from teccl.runtime.engine import REDUCTIONS
from teccl.runtime.layout import TenantLayout

Array = npt.NDArray[Any]
Buffers = Array | Sequence[Array | None] | Mapping[str, Array | None] | None

DTYPES = (
    *("float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
# Where the send buffer of a call in place lies in the recv buffer: whole, or the rank's own block.
_WHOLE_IN_PLACE = (Collective.ALLREDUCE, Collective.REDUCE, Collective.BROADCAST)
_BLOCK_IN_PLACE = (Collective.ALLGATHER, Collective.GATHER)
# Test data has so many classes of elements, each with a value of its own.
_CLASSES = 16
# Odd constants whose multiples spread over 32 bits (Knuth, and two large primes).
_SPREAD, _BLOCK, _TENANT = 2654435761, 2246822519, 3266489917
# Blocks that a rank sends to itself have no number in the demand.
_SELF = 1_000_003


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a data type that can be sent and reduced.

    Raises
    ------
    ScheduleError
        If it is another one.
    """
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = None
    if known is None or known.name not in DTYPES or not known.isnative:
        raise ScheduleError(f"data type {str(dtype)[:40]!r} is not supported; use {_join(DTYPES)}")
    return known


def _join(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def per_tenant(given: Buffers, names: Sequence[str], what: str) -> list[Array | None]:
    """Return one array per tenant from what the user gave."""
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ScheduleError(
                f"{what} names tenant {str(unknown[0])[:40]!r}; the schedule has {', '.join(names)}"
            )
        return [given.get(name) for name in names]
    if isinstance(given, list | tuple):
        if len(given) != len(names):
            raise ScheduleError(f"{what} has {len(given)} buffers for {len(names)} tenants")
        return list(given)
    if len(names) > 1 and given is not None:
        raise ScheduleError(
            f"{what} is one buffer for {len(names)} tenants; give one per tenant, by name"
        )
    array: Any = given
    return [array] * len(names)


def identity(array: Array | None) -> tuple[Any, ...] | None:
    """Return what tells one buffer from another."""
    if array is None:
        return None
    if not isinstance(array, np.ndarray):
        raise ScheduleError(f"a buffer is a {type(array).__name__}; give a numpy array")
    flags = array.flags
    return array.ctypes.data, array.size, array.dtype.str, flags.c_contiguous, flags.writeable


def common_dtype(arrays: Sequence[Array | None]) -> np.dtype[Any] | None:
    """Return the one data type of some arrays, None where there is no array."""
    found: np.dtype[Any] | None = None
    for array in arrays:
        if array is None:
            continue
        dtype = check_dtype(array.dtype)
        if found is not None and dtype != found:
            raise ScheduleError(f"buffers have types {found} and {dtype}; give one type")
        found = dtype
    return found


def checked(
    array: Array | None, count: int, layout: TenantLayout, what: str, *, writes: bool
) -> Array | None:
    """Return a buffer as one flat array after checking its size and memory."""
    where = (
        f"rank {layout.rank}: {what} buffer of {layout.tenant.name} ({layout.tenant.collective})"
    )
    if not count:
        return None
    if array is None:
        raise ScheduleError(f"{where} is missing; give an array of {count} elements")
    if array.size != count:
        raise ScheduleError(
            f"{where} has {array.size} elements, the schedule needs {count}; give an array of that "
            "size, or the Collective another count"
        )
    if not array.flags.c_contiguous or (writes and not array.flags.writeable):
        fault = "not contiguous" if not array.flags.c_contiguous else "read-only"
        raise ScheduleError(f"{where} is {fault}; give a contiguous, writable array")
    return array.reshape(-1)


def bound_send(
    layout: TenantLayout, send: Array | None, recv: Array | None, staged: list[tuple[Array, Array]]
) -> Array | None:
    """Return the array that a rank sends its own data from.

    A call in place sends from the recv buffer. A reduction would overwrite there what is still to
    be sent, so its own data is kept aside: the array for it and its source are added to `staged`.

    Raises
    ------
    ScheduleError
        If the buffer is wrong, or missing for a collective that has no form in place on this rank.
    """
    if not layout.send_count:
        return None
    collective = layout.tenant.collective
    if send is not None:
        array = checked(send, layout.send_count, layout, "send", writes=False)
        if array is not None and recv is not None and np.may_share_memory(array, recv):
            if array.ctypes.data != recv.ctypes.data or collective not in _WHOLE_IN_PLACE:
                raise ScheduleError(
                    f"rank {layout.rank}: send and recv buffers of {layout.tenant.name} overlap; "
                    "give separate ones, or no send buffer where the collective works in place"
                )
        else:
            return array
    source = _in_place(layout, recv)
    if not collective.reduces:
        return source
    kept = np.empty_like(source)
    staged.append((kept, source))
    return kept


def _in_place(layout: TenantLayout, recv: Array | None) -> Array:
    """Return where a call in place has its own data."""
    collective = layout.tenant.collective
    if recv is not None and collective in _WHOLE_IN_PLACE:
        return recv
    if recv is not None and collective in _BLOCK_IN_PLACE:
        begin = layout.recv[next(iter(layout.send))] if layout.send else None
        if layout.self_copies:
            begin = layout.self_copies[0].recv.start
        if begin is not None:
            return recv[begin : begin + layout.send_count]
    raise ScheduleError(
        f"rank {layout.rank}: send buffer of {layout.tenant.name} ({collective}) is missing; "
        f"give an array of {layout.send_count} elements"
    )


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
