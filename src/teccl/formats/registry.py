"""The list of formats: what each writes and reads, and what that takes.

Adding a format is adding its entry here: the library, the command line and the app in the browser
take their choices from it. It is small, because help texts and completion load it.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An entry of the list; summaries are what help texts say, None where there is nothing.

    Parameters
    ----------
    package
        Where `write`, `read` and `prove` live; loaded on first use.
    writes, reads
        Files made from a schedule, with ``write.render``, and turned into one, with
        ``read.read_schedule``.
    writes_topology, reads_topology
        The same of a topology: ``write.render_topology`` and ``read.read_topology``.
    suffixes
        What the name of an output file must end in.
    write_options
        Fields of `ExportOptions` that mean something to the writer.
    topology_options
        Fields of `ImportOptions` that mean something to the reader of topologies.
    compiled
        Whether files are made and proven by compiled code.
    """

    package: str
    writes: str | None = None
    reads: str | None = None
    writes_topology: str | None = None
    reads_topology: str | None = None
    suffixes: tuple[str, ...] = ()
    write_options: tuple[str, ...] = ()
    topology_options: tuple[str, ...] = ()
    compiled: bool = False

    def function(self, room: str, name: str) -> Any:
        """A function of one of the package's rooms, `write` or `read`."""
        return getattr(import_module(f"{self.package}.{room}"), name)


_PROGRAM = ("in_place", "dtype", "channels", "instances", "protocol", "min_bytes", "max_bytes")
_CLUSTER = ("name", "nodes", "fabric", "nic_bandwidth", "nic_alpha", "alpha")

FORMATS: dict[str, Format] = {
    "msccl": Format(
        package="teccl.formats.msccl",
        writes="MSCCL XML for the NCCL fork",
        reads="MSCCL or RCCL XML",
        suffixes=(".xml",),
        write_options=_PROGRAM,
        compiled=True,
    ),
    "rccl": Format(
        package="teccl.formats.rccl",
        writes="MSCCL XML for RCCL",
        suffixes=(".xml",),
        write_options=_PROGRAM,
        compiled=True,
    ),
    "mscclpp": Format(
        package="teccl.formats.mscclpp",
        writes="MSCCL++ execution plan",
        suffixes=(".json",),
        write_options=("in_place", "min_bytes", "max_bytes"),
    ),
    "chakra": Format(
        package="teccl.formats.chakra",
        writes="Chakra execution traces for ASTRA-sim",
        suffixes=(".json",),
        write_options=("with_config",),
    ),
    "goal": Format(
        package="teccl.formats.goal",
        writes="GOAL text for LogGOPSim",
        reads="GOAL text",
        suffixes=(".goal",),
    ),
    "perfetto": Format(
        package="teccl.formats.perfetto",
        writes="timeline for Perfetto and chrome://tracing",
        suffixes=(".json", ".json.gz"),
    ),
    "astra-sim": Format(
        package="teccl.formats.astra_sim",
        writes_topology="ASTRA-sim's analytical network",
        suffixes=(".yml", ".yaml"),
    ),
    "ns3": Format(
        package="teccl.formats.ns3",
        writes_topology="ASTRA-sim's ns-3 network",
        suffixes=(".txt",),
    ),
    "simai": Format(
        package="teccl.formats.simai",
        writes_topology="SimAI's ns-3 network",
        suffixes=(".txt",),
    ),
    "htsim": Format(
        package="teccl.formats.htsim",
        writes_topology="htsim's trees",
        suffixes=(".topo",),
    ),
    "nccl": Format(
        package="teccl.formats.nccl",
        reads_topology="NCCL or RCCL topology dump (XML, NCCL_TOPO_DUMP_FILE)",
        topology_options=(*_CLUSTER, "link_bandwidth", "pcie_bandwidth", "socket_bandwidth"),
    ),
    "nvidia-smi": Format(
        package="teccl.formats.nvidia_smi",
        reads_topology="output of nvidia-smi topo -m",
        topology_options=(
            *_CLUSTER,
            *("link_bandwidth", "links", "pcie_bandwidth", "socket_bandwidth"),
        ),
    ),
    "te-ccl": Format(
        package="teccl.formats.te_ccl",
        reads="TE-CCL output JSON",
        reads_topology="TE-CCL input JSON",
        topology_options=("name", "alpha"),
    ),
    "taccl": Format(
        package="teccl.formats.taccl",
        reads_topology="TACCL topology JSON",
        topology_options=(*_CLUSTER, "links", "chunk_size", "cost_unit"),
    ),
    "msccl-tools": Format(
        package="teccl.formats.msccl_tools",
        reads_topology="msccl-tools topology JSON",
        topology_options=("name", "alpha", "link_bandwidth"),
    ),
}


def formats_that(what: str) -> dict[str, Format]:
    """Formats with a summary of one kind: `writes`, `reads`, or one of these for topologies."""
    return {name: known for name, known in FORMATS.items() if getattr(known, what) is not None}
