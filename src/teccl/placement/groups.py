"""Groups: axes of parallelism, who exchanges what along each, as bytes between ranks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import numpy as np
import numpy.typing as npt

from teccl._suggest import did_you_mean
from teccl.errors import DemandError
from teccl.units import parse_size

# Loads are counted in floats, which are exact up to here.
MAX_BYTES = 2**53
# What priorities of tenants may be.
MIN_WEIGHT, MAX_WEIGHT = 1e-9, 1e9

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# What runs along an axis of a known name unless the user says otherwise.
USUAL = {
    "tp": "allreduce:64MB",
    "sp": "allgather:64MB",
    "cp": "allgather:64MB",
    "pp": "sendrecv:64MB",
    "dp": "allreduce:256MB",
    "fsdp": "allgather:256MB",
    "ep": "alltoall:64MB",
}


def _everyone(size: int, share: float) -> FloatArray:
    """Every member sends every other the same share of its buffer."""
    pairs = np.full((size, size), share / size)
    np.fill_diagonal(pairs, 0.0)
    return pairs


def _neighbours(size: int) -> FloatArray:
    """Every member exchanges its buffer with the next one."""
    return np.eye(size, k=1) + np.eye(size, k=-1)


# Parts of the buffer that members of a group send each other. Sums go straight to their owners and
# back, so that what counts is who is in a group, not in which order.
PATTERNS: dict[str, Callable[[int], FloatArray]] = {
    "allreduce": lambda size: _everyone(size, 2.0),
    "allgather": lambda size: _everyone(size, 1.0),
    "reducescatter": lambda size: _everyone(size, 1.0),
    "alltoall": lambda size: _everyone(size, 1.0),
    "sendrecv": _neighbours,
}
# Those in which it counts who comes after whom.
IN_ORDER = frozenset({"sendrecv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of parallelism.

    Parameters
    ----------
    name, size
        What it is called, and how many ranks a group along it has.
    pattern, num_bytes
        What its groups run, one of `PATTERNS`, and the size of the buffer.
    weight
        How much its time counts.
    """

    name: str
    size: int
    pattern: str
    num_bytes: Fraction
    weight: float = 1.0


def parse_groups(text: str, traffic: str = "") -> tuple[Axis, ...]:
    """Read axes such as ``tp=8,dp=16``, the first varying fastest with the rank.

    Parameters
    ----------
    traffic
        What runs along axes, such as ``tp=allreduce:64MB,dp=allreduce:1GB:0.5``, where the last
        number is a weight; axes of usual names have usual traffic.

    Examples
    --------
    >>> [axis.pattern for axis in parse_groups("tp=8,pp=2")]
    ['allreduce', 'sendrecv']
    """
    sizes = _pairs(text, "groups", "tp=8,dp=16")
    given = _pairs(traffic, "traffic", "tp=allreduce:64MB") if traffic.strip() else {}
    unknown = next((name for name in given if name not in sizes), None)
    if unknown is not None:
        raise DemandError(f"traffic names {unknown!r}, which is no group; groups are {text}")
    axes = tuple(_axis(name, size, given.get(name)) for name, size in sizes.items())
    _check_names(axes)
    return axes


def group_names(axes: tuple[Axis, ...], axis: int) -> list[str]:
    """What the groups along an axis are called: its name and a number."""
    count = math.prod(each.size for each in axes) // axes[axis].size
    return [f"{axes[axis].name}{i}" for i in range(count)]


def _check_names(axes: tuple[Axis, ...]) -> None:
    """Refuse axes of which groups would have one name: the first of tp1 and the eleventh of tp."""
    ranks = math.prod(axis.size for axis in axes)
    for short, long in permutations([axis for axis in axes if axis.size > 1], 2):
        digits = long.name.removeprefix(short.name)
        is_number = long.name.startswith(short.name) and digits.isascii() and digits.isdecimal()
        if is_number and digits[0] != "0" and int(f"{digits}0") < ranks // short.size:
            raise DemandError(
                f"groups {short.name!r} and {long.name!r} both have one called {long.name}0; "
                "rename one of them"
            )


def _pairs(text: str, what: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not name or not value:
            raise DemandError(f"{what} {text[:60]!r}: {part[:40]!r} is not a pair; write {example}")
        if name in found:
            raise DemandError(f"{what} {text[:60]!r}: {name!r} appears twice; name it once")
        found[name] = value
    return found


def _axis(name: str, size: str, traffic: str | None) -> Axis:
    if not (size.isascii() and size.isdigit() and 0 < int(size[:7]) <= 100_000 and len(size) < 7):
        raise DemandError(f"group {name}: size {size[:20]!r} is not a whole number; give 1 or more")
    text = traffic or USUAL.get(name)
    if text is None:
        raise DemandError(
            f"group {name} has no usual traffic; say what it runs, --traffic {name}=allreduce:64MB"
        )
    pattern, *rest = text.split(":")
    if pattern not in PATTERNS:
        raise DemandError(
            f"group {name}: unknown pattern {pattern[:40]!r}{did_you_mean(pattern, PATTERNS)}"
        )
    if not 1 <= len(rest) <= 2:
        raise DemandError(f"group {name}: write {pattern}:SIZE or {pattern}:SIZE:WEIGHT")
    num_bytes = parse_size(rest[0], what=f"group {name}: size")
    try:
        weight = float(rest[1]) if len(rest) == 2 else 1.0
    except ValueError:
        weight = -1.0
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT or not 0 < num_bytes <= MAX_BYTES:
        raise DemandError(
            f"group {name}: {text[:60]!r} needs a positive size and weight; give at most "
            f"{MAX_BYTES}B, and a weight from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        )
    return Axis(name=name, size=int(size), pattern=pattern, num_bytes=num_bytes, weight=weight)


def members(axes: tuple[Axis, ...], axis: int) -> IntArray:
    """Ranks of each group along an axis, a row each; the first axis varies fastest."""
    shape = [each.size for each in axes][::-1]
    ranks = np.arange(int(np.prod(shape))).reshape(shape)
    return np.moveaxis(ranks, len(axes) - 1 - axis, -1).reshape(-1, axes[axis].size)


def traffic_of(axes: tuple[Axis, ...], axis: int) -> IntArray:
    """Bytes from rank to rank along an axis, rounded up."""
    groups = members(axes, axis)
    one = PATTERNS[axes[axis].pattern](axes[axis].size) * float(axes[axis].num_bytes)
    matrix = np.zeros((groups.size, groups.size), dtype=np.int64)
    for group in groups:
        matrix[np.ix_(group, group)] += np.ceil(one).astype(np.int64)
    return matrix
