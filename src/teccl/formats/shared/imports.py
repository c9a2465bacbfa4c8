"""What an importer is told beside the file, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from teccl._files import shown
from teccl.errors import TopologyError, UnitError
from teccl.topology.graph import MAX_NODES, Topology
from teccl.units import Quantity, parse_bandwidth, parse_duration, parse_size

FABRICS = ("rail", "flat")
LINK_KINDS = ("direct", "switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A topology made from another tool's file.

    Parameters
    ----------
    topology
        The network.
    assumptions
        One sentence for each thing the file does not say and how it was filled in.
    """

    topology: Topology
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What files cannot say; None leaves the format's own default or makes it ask.

    Parameters
    ----------
    name
        Name of the topology.
    nodes
        Machines like the one in the file, joined by a fabric.
    fabric
        ``rail``: a leaf switch for each NIC position and a spine; ``flat``: one switch.
    nic_bandwidth, nic_alpha
        Rate of a NIC and latency from a GPU through it to the fabric.
    link_bandwidth
        Rate of one NVLink or xGMI link, or of one unit of a link matrix.
    links
        Whether GPUs that all see each other are joined ``direct`` or by a ``switch``.
    pcie_bandwidth, socket_bandwidth
        Rate of a GPU's PCIe link and of the link between two processors.
    alpha
        Latency between two GPUs of a machine.
    chunk_size, cost_unit
        The size that costs in a file are for, and the time that a cost of one means.
    """

    name: str | None = None
    nodes: int | None = None
    fabric: str | None = None
    nic_bandwidth: Fraction | None = None
    nic_alpha: Fraction | None = None
    link_bandwidth: Fraction | None = None
    links: str | None = None
    pcie_bandwidth: Fraction | None = None
    socket_bandwidth: Fraction | None = None
    alpha: Fraction | None = None
    chunk_size: Fraction | None = None
    cost_unit: Fraction | None = None

    def given(self) -> tuple[str, ...]:
        """Names of the options that are not None."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)


def parse_options(values: dict[str, Quantity | None]) -> ImportOptions:
    """Read options from their texts, as the command line gives them.

    Raises
    ------
    TopologyError
        If a value cannot be read; the message names the option.
    """
    read: dict[str, Any] = {
        key: _READERS[key](key, value) for key, value in values.items() if value is not None
    }
    return ImportOptions(**read)


def option_name(key: str) -> str:
    """An option as it is spelt on the command line."""
    return "--" + key.replace("_", "-")


def _count(key: str, value: Quantity) -> int:
    text = str(value).strip()
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_NODES:
        return int(text)
    raise TopologyError(
        f"{option_name(key)} is {shown(value)}; give a whole number from 1 to {MAX_NODES}"
    )


def _choice(choices: tuple[str, ...]) -> "_Reader":
    def read(key: str, value: Quantity) -> str:
        text = str(value).strip().lower()
        if text not in choices:
            raise TopologyError(
                f"{option_name(key)} is {shown(value)}; give {' or '.join(choices)}"
            )
        return text

    return read


def _quantity(parse: Callable[..., Fraction], *, zero: bool = False) -> "_Reader":
    def read(key: str, value: Quantity) -> Fraction:
        try:
            amount = parse(value, what=option_name(key))
        except UnitError as problem:
            raise TopologyError(str(problem)) from None
        if amount == 0 and not zero:
            raise TopologyError(f"{option_name(key)} is {shown(value)}; give a positive value")
        return amount

    return read


_Reader = Callable[[str, Quantity], str | int | Fraction]
_READERS: dict[str, _Reader] = {
    "name": lambda _, value: str(value),
    "nodes": _count,
    "fabric": _choice(FABRICS),
    "nic_bandwidth": _quantity(parse_bandwidth),
    "nic_alpha": _quantity(parse_duration, zero=True),
    "link_bandwidth": _quantity(parse_bandwidth),
    "links": _choice(LINK_KINDS),
    "pcie_bandwidth": _quantity(parse_bandwidth),
    "socket_bandwidth": _quantity(parse_bandwidth),
    "alpha": _quantity(parse_duration, zero=True),
    "chunk_size": _quantity(parse_size),
    "cost_unit": _quantity(parse_duration),
}
