"""What the builders share: collecting nodes and links, and refusing absurd parameters early."""

import math
from collections.abc import Sequence
from fractions import Fraction

from teccl._files import shown
from teccl.errors import TopologyError, UnitError
from teccl.topology.graph import MAX_LINKS, MAX_NODES, Link, Node, NodeKind, Topology
from teccl.units import Quantity, parse_bandwidth, parse_duration

# More dimensions than this only multiply ones or pass the node limit.
_MAX_DIMS = 16


class Wiring:
    """Collects the nodes and links of one preset.

    Parameters
    ----------
    preset
        Name of the preset, which is also the topology's.
    alpha
        Latency of every link, whatever the builder says, or None for the builder's own.
    """

    def __init__(self, preset: str, *, alpha: Quantity | None = None) -> None:
        self._preset = preset
        self._alpha = None if alpha is None else read_alpha(preset, alpha)
        self._nodes: list[Node] = []
        self._links: list[Link] = []
        self._shared: dict[str, Fraction] = {}

    def gpu(self, name: str, *, group: str | None = None) -> int:
        """Add a GPU and return its node index."""
        self._nodes.append(Node(name=name, group=group))
        return len(self._nodes) - 1

    def gpus(self, count: int) -> list[int]:
        """Add ``gpu0``, ``gpu1`` and so on."""
        return [self.gpu(f"gpu{i}") for i in range(count)]

    def chassis_gpus(self, chassis: int, count: int) -> list[int]:
        """Add ``c2/gpu0``, ``c2/gpu1`` and so on to group ``c2`` of chassis 2."""
        group = f"c{chassis}"
        return [self.gpu(f"{group}/gpu{i}", group=group) for i in range(count)]

    def switch(self, name: str, *, group: str | None = None, reduce: bool = False) -> int:
        """Add a switch and return its node index."""
        self._nodes.append(Node(name=name, kind=NodeKind.SWITCH, group=group, reduce=reduce))
        return len(self._nodes) - 1

    def share(self, name: str, bandwidth: Fraction) -> str:
        """Define a capacity that links share and return its name."""
        self._shared[name] = bandwidth
        return name

    def link(
        self,
        src: int,
        dst: int,
        bandwidth: Fraction,
        alpha: Fraction,
        *,
        overhead: Fraction = Fraction(0),
        shares: tuple[str, ...] = (),
    ) -> None:
        """Add a link in one direction."""
        self._links.append(
            Link(
                src=src,
                dst=dst,
                bandwidth=bandwidth,
                alpha=alpha if self._alpha is None else self._alpha,
                overhead=overhead,
                shares=shares,
            )
        )

    def wire(self, a: int, b: int, bandwidth: Fraction, alpha: Fraction) -> None:
        """Add a link in each direction."""
        self.link(a, b, bandwidth, alpha)
        self.link(b, a, bandwidth, alpha)

    def topology(self) -> Topology:
        """Return what was collected."""
        return Topology(
            name=self._preset,
            nodes=tuple(self._nodes),
            links=tuple(self._links),
            shared=self._shared,
        )


def read_alpha(preset: str, value: Quantity) -> Fraction:
    """Read a latency in seconds, zero allowed."""
    return read_latency(preset, "alpha", value)


def read_latency(preset: str, key: str, value: Quantity) -> Fraction:
    """Read a parameter in seconds, zero allowed."""
    try:
        return parse_duration(value, what=f"preset {preset}: {key}")
    except UnitError as problem:
        raise TopologyError(str(problem)) from None


def read_bandwidth(preset: str, value: Quantity) -> Fraction:
    """Read a bandwidth above zero in bytes per second."""
    try:
        bandwidth = parse_bandwidth(value, what=f"preset {preset}: bandwidth")
    except UnitError as problem:
        raise TopologyError(str(problem)) from None
    if bandwidth == 0:
        raise TopologyError(
            f"preset {preset}: bandwidth is {shown(value)}; give a positive one, for example 50GB/s"
        )
    return bandwidth


def read_dims(preset: str, dims: str | Sequence[int]) -> tuple[int, ...]:
    """Read ``"4x4x2"`` or a sequence of sizes, at least two GPUs in all."""
    parts = dims.split("x") if isinstance(dims, str) else list(dims)
    sizes = tuple(_dim(part) for part in parts)
    if not 1 <= len(sizes) <= _MAX_DIMS or not all(1 <= size <= MAX_NODES for size in sizes):
        raise TopologyError(
            f"preset {preset}: dims is {shown(dims)}; "
            f"give up to {_MAX_DIMS} sizes of at least 1, for example 4x4"
        )
    if math.prod(sizes) == 1:
        raise TopologyError(
            f"preset {preset}: dims {shown(dims)} is a single gpu; give more, for example 4x4"
        )
    return sizes


def _dim(part: object) -> int:
    """One size, or 0 for anything that is none."""
    if isinstance(part, str):
        return int(part) if part.isascii() and part.isdigit() and len(part) < 10 else 0
    return part if isinstance(part, int) and not isinstance(part, bool) else 0


def check_count(preset: str, key: str, value: object, *, low: int, high: int = MAX_NODES) -> None:
    """Refuse a parameter that is not a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise TopologyError(
            f"preset {preset}: {key} is {shown(value)}; give a whole number from {low} to {high}"
        )


def check_size(preset: str, *, nodes: int, links: int, lower: str) -> None:
    """Refuse a network that is too large, before anything is built.

    Parameters
    ----------
    preset
        Name for the message.
    nodes, links
        What would be built.
    lower
        The parameters to lower, for the message.
    """
    for count, limit, what in ((nodes, MAX_NODES, "nodes"), (links, MAX_LINKS, "links")):
        if count > limit:
            raise TopologyError(
                f"preset {preset}: {count} {what} are more than teccl handles ({limit}); "
                f"lower {lower}"
            )
