"""TACCL's topology JSON: costs of links for one size of chunk, without the machine's wiring.

Costs are times of an alpha-beta model, alpha + beta, for chunks of a size that the file does not
state. Matrices of a `custom` file are indexed [destination][source].
"""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl._foreign import expect_matrix, expect_number, read_json
from teccl.errors import TopologyError
from teccl.formats.shared.cluster import Host, Nic, Wire, compose
from teccl.formats.shared.imports import Imported, ImportOptions
from teccl.topology.presets.paper import NVLINK_DOUBLE, NVLINK_SINGLE
from teccl.units import format_duration, format_size

MAX_GPUS = 1024
_KEYS = (
    *("name", "gpus_per_node", "nics_per_node", "alpha", "node_betas_list", "node_invbws_list"),
    *("remote_alpha", "remote_beta", "remote_invbw", "links", "betas", "invbws"),
)
_REQUIRED = ("name", "gpus_per_node", "alpha")
_DEFAULT_UNIT = Fraction(1, 10**6)


def read_topology(path: Path, options: ImportOptions) -> Imported:
    """Read a topology file.

    Raises
    ------
    TopologyError
        If the file is damaged, or the size its costs are for is not given.
    """
    document = files.expect_mapping(
        read_json(path, TopologyError), str(path), TopologyError, known=_KEYS, required=_REQUIRED
    )
    if options.chunk_size is None:
        raise TopologyError(
            f"{path}: costs are for chunks of a size the file does not state; give --chunk-size, "
            "for example 1MiB for a file of TACCL's called ...-1MB.json"
        )
    costs = _Costs(document, options, path)
    n = files.expect_int(
        document["gpus_per_node"], f"{path}: gpus_per_node", TopologyError, low=1, high=MAX_GPUS
    )
    unit, size = format_duration(costs.unit), format_size(options.chunk_size)
    notes = [
        f"a cost of 1 is {unit} (--cost-unit) for chunks of {size}; bandwidth is size over beta"
    ]
    wires, switches = _wires(document, costs, n, options, notes)
    machine = Host(
        name="taccl",
        num_gpus=n,
        switches=switches,
        wires=wires,
        nics=_nics(document, costs, n, notes) if (options.nodes or 1) > 1 else (),
    )
    return compose(machine, costs.options(), notes)


class _Costs:
    """Costs of a file as rates and latencies."""

    def __init__(self, document: dict[str, Any], options: ImportOptions, path: Path) -> None:
        assert options.chunk_size is not None
        self._document = document
        self._options = options
        self._path = path
        self._chunk_size = options.chunk_size
        self.unit = options.cost_unit or _DEFAULT_UNIT

    def cost(self, value: Any, what: str) -> Fraction:
        """Return a cost in seconds."""
        number = expect_number(value, f"{self._path}: {what}", TopologyError)
        return Fraction(repr(number)) * self.unit

    def rate(self, value: Any, what: str) -> Fraction:
        """Return bytes per second of a link by its beta."""
        beta = self.cost(value, what)
        if beta == 0:
            raise TopologyError(f"{self._path}: {what} is 0; give a positive cost")
        return self._chunk_size / beta

    def where(self, key: str) -> str:
        """Name a key of the file."""
        return f"{self._path}: {key}"

    def options(self) -> ImportOptions:
        """Return the options with latencies and name filled in from the file."""
        from dataclasses import replace

        document, options = self._document, self._options
        name = files.expect_text(document["name"], self.where("name"), TopologyError)
        remote = document.get("remote_alpha")
        nic_alpha = options.nic_alpha
        if nic_alpha is None and remote is not None and (options.nodes or 1) > 1:
            nic_alpha = self.cost(remote, "remote_alpha") / 2
        return replace(
            options,
            name=options.name or name,
            alpha=self.cost(document["alpha"], "alpha") if options.alpha is None else options.alpha,
            nic_alpha=nic_alpha,
        )


def _wires(
    document: dict[str, Any], costs: _Costs, n: int, options: ImportOptions, notes: list[str]
) -> tuple[tuple[Wire, ...], tuple[str, ...]]:
    """Return links from matrices, or from classes of links and what TACCL's code wires."""
    if "links" in document:
        return _matrix_wires(document, costs, n), ()
    betas = files.expect_list(
        document.get("node_betas_list"), costs.where("node_betas_list"), TopologyError
    )
    if len(betas) == 2 and n == 8:
        notes.append("two classes of links and 8 GPUs: wired like TACCL's NDv2")
        rates = [costs.rate(beta, f"node_betas_list[{i}]") for i, beta in enumerate(betas)]
        return _cube_mesh(rates), ()
    if len(betas) != 1:
        raise TopologyError(
            f"{costs.where('node_betas_list')} has {len(betas)} entries for {n} GPUs; the wiring "
            "is in TACCL's code for 1 entry, or 2 entries and 8 GPUs; else give links and betas"
        )
    rate = costs.rate(betas[0], "node_betas_list[0]")
    if options.links == "direct":
        notes.append("one class of links: every pair of GPUs has its own link (given)")
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        return tuple(Wire(src=i, dst=j, bandwidth=rate) for i, j in pairs), ()
    notes.append("one class of links: all GPUs on one switch, as on a DGX-2 (--links)")
    ports = [Wire(src=s, dst=d, bandwidth=rate) for i in range(n) for s, d in ((i, n), (n, i))]
    return tuple(ports), ("nvswitch",)


def _matrix_wires(document: dict[str, Any], costs: _Costs, n: int) -> tuple[Wire, ...]:
    links, betas = (
        expect_matrix(document.get(key), costs.where(key), TopologyError, size=n, max_size=MAX_GPUS)
        for key in ("links", "betas")
    )
    return tuple(
        Wire(src=src, dst=dst, bandwidth=costs.rate(betas[dst][src], f"betas[{dst}][{src}]"))
        for src in range(n)
        for dst in range(n)
        if links[dst][src] and src != dst
    )


def _cube_mesh(rates: Sequence[Fraction]) -> tuple[Wire, ...]:
    classes = ((NVLINK_DOUBLE, rates[0]), (NVLINK_SINGLE, rates[1]))
    return tuple(
        Wire(src=s, dst=d, bandwidth=rate)
        for pairs, rate in classes
        for a, b in pairs
        for s, d in ((a, b), (b, a))
    )


def _nics(document: dict[str, Any], costs: _Costs, n: int, notes: list[str]) -> tuple[Nic, ...]:
    """Return NICs of the remote cost, shared by neighbouring GPUs."""
    if "nics_per_node" not in document:
        return ()
    count = files.expect_int(
        document["nics_per_node"], costs.where("nics_per_node"), TopologyError, low=1, high=n
    )
    rate = costs.rate(document.get("remote_beta"), "remote_beta")
    notes.append(
        "which GPUs use a NIC is in a sketch, not in this file: neighbouring GPUs share one; "
        "half of remote_alpha is paid on each side of the fabric"
    )
    members = [[g for g in range(n) if g * count // n == nic] for nic in range(count)]
    return tuple(Nic(gpus=tuple(gpus), bandwidth=rate) for gpus in members)
