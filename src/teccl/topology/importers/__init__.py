"""Topologies out of other tools' files, one module a format.

Each importer returns the topology and the list of what it assumed, because no foreign format says
all that a topology needs.
"""

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from teccl import _files as files
from teccl._suggest import did_you_mean
from teccl.errors import TopologyError
from teccl.topology.importers.options import (
    Imported,
    option_name,
    parse_options,
)
from teccl.units import Quantity

__all__ = ["FORMATS", "Imported", "import_topology"]

_CLUSTER = ("name", "nodes", "fabric", "nic_bandwidth", "nic_alpha", "alpha")


class _Format(NamedTuple):
    """A foreign format: its module, what it is and the options it takes."""

    module: str
    summary: str
    options: tuple[str, ...]


FORMATS = {
    "nccl": _Format(
        "nccl",
        "NCCL or RCCL topology dump (XML, NCCL_TOPO_DUMP_FILE)",
        (*_CLUSTER, "link_bandwidth", "pcie_bandwidth", "socket_bandwidth"),
    ),
    "nvidia-smi": _Format(
        "nvidia_smi",
        "output of nvidia-smi topo -m",
        (*_CLUSTER, "link_bandwidth", "links", "pcie_bandwidth", "socket_bandwidth"),
    ),
    "te-ccl": _Format("te_ccl", "TE-CCL input JSON", ("name", "alpha")),
    "taccl": _Format(
        "taccl", "TACCL topology JSON", (*_CLUSTER, "links", "chunk_size", "cost_unit")
    ),
    "msccl-tools": _Format(
        "msccl_tools", "msccl-tools topology JSON", ("name", "alpha", "link_bandwidth")
    ),
}


def import_topology(path: str | Path, format: str, **options: Quantity | None) -> Imported:
    """Read another tool's topology file.

    Parameters
    ----------
    path
        The file.
    format
        One of `FORMATS`.
    options
        What the file cannot say, by the names of `ImportOptions`, as texts with units.

    Raises
    ------
    TopologyError
        If the format is unknown or does not take an option, or the file is wrong.
    """
    known = FORMATS.get(format)
    if known is None:
        raise TopologyError(f"unknown format {files.shown(format)}{did_you_mean(format, FORMATS)}")
    read_options = parse_options(options)
    for key in read_options.given():
        if key not in known.options:
            takes = ", ".join(option_name(name) for name in known.options)
            raise TopologyError(
                f"format {format} has no use for {option_name(key)}; it takes {takes}"
            )
    path = Path(path)
    reader = import_module(f"teccl.topology.importers.{known.module}").read
    with files.naming(path, TopologyError):
        imported = reader(path, read_options)
    assert isinstance(imported, Imported)
    return imported
