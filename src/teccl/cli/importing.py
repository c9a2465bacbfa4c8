"""`teccl topology import` and `teccl import`: topologies and schedules of other tools."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import CommandFailed, ExitCode, UsageError
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    check_output,
    choice,
    keyword,
    option,
    output_option,
)
from teccl.formats.registry import formats_that

TOPOLOGY_FORMATS = tuple(formats_that("reads_topology"))
SCHEDULE_FORMATS = tuple(formats_that("reads"))
TOPOLOGY_SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")

if TYPE_CHECKING:
    from teccl.formats.reading import ImportedSchedule
    from teccl.verification import Violation

_INSIDE = "Inside a machine"
_CLUSTER = "Between machines"
_COSTS = "Costs in the file"


def import_topology(  # noqa: PLR0917, the command line gives names
    source: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT", help=f"One of {', '.join(TOPOLOGY_FORMATS)}.", show_default=False
        ),
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to read.", show_default=False)
    ],
    link_bandwidth: Annotated[
        str | None,
        option("--link-bandwidth", "RATE", _INSIDE, "One NVLink, xGMI link or unit of a matrix."),
    ] = None,
    links: Annotated[
        str | None,
        choice("--links", ("direct", "switch"), _INSIDE, "What links between all pairs are"),
    ] = None,
    pcie_bandwidth: Annotated[
        str | None, option("--pcie-bandwidth", "RATE", _INSIDE, "A GPU's PCIe link.")
    ] = None,
    socket_bandwidth: Annotated[
        str | None, option("--socket-bandwidth", "RATE", _INSIDE, "Between two processors.")
    ] = None,
    alpha: Annotated[
        str | None,
        option("--alpha", "DURATION", _INSIDE, "Latency between two GPUs of a machine."),
    ] = None,
    nodes: Annotated[
        str | None, option("--nodes", "N", _CLUSTER, "Machines like the one in the file (1).")
    ] = None,
    fabric: Annotated[
        str | None, choice("--fabric", ("rail", "flat"), _CLUSTER, "What joins them (rail)")
    ] = None,
    nic_bandwidth: Annotated[
        str | None, option("--nic-bandwidth", "RATE", _CLUSTER, "A network card, as 400Gb/s.")
    ] = None,
    nic_alpha: Annotated[
        str | None,
        option("--nic-alpha", "DURATION", _CLUSTER, "Latency from a GPU to the fabric (0.65us)."),
    ] = None,
    chunk_size: Annotated[
        str | None, option("--chunk-size", "SIZE", _COSTS, "The chunks that costs are for.")
    ] = None,
    cost_unit: Annotated[
        str | None, option("--cost-unit", "DURATION", _COSTS, "What a cost of 1 means (1us).")
    ] = None,
    name: Annotated[str | None, option("--name", "NAME", "Output", "Name of the topology.")] = None,
    output: Annotated[
        str | None, output_option("Save the topology file: .yaml, .yml or .json, also .gz.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a topology from another tool's file, and say what was assumed."""
    from teccl.cli.output import emit, emit_json
    from teccl.formats.reading import import_topology as read_topology
    from teccl.topology.topology_files import topology_to_dict

    path = check_output(output, TOPOLOGY_SUFFIXES)
    imported = read_topology(
        file,
        source,
        name=name,
        nodes=nodes,
        fabric=fabric,
        nic_bandwidth=nic_bandwidth,
        nic_alpha=nic_alpha,
        link_bandwidth=link_bandwidth,
        links=links,
        pcie_bandwidth=pcie_bandwidth,
        socket_bandwidth=socket_bandwidth,
        alpha=alpha,
        chunk_size=chunk_size,
        cost_unit=cost_unit,
    )
    if path is not None:
        imported.topology.save(path)
    if as_json:
        document = topology_to_dict(imported.topology)
        emit_json({"topology": document, "assumptions": list(imported.assumptions)})
    elif not quiet:
        emit(repr(imported.topology))
        emit("\n".join(f"assumed: {note}" for note in imported.assumptions))
        if path is not None:
            emit(f"saved to {path}")


def import_schedule(  # noqa: PLR0917, the command line gives names
    source: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT", help=f"One of {', '.join(SCHEDULE_FORMATS)}.", show_default=False
        ),
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to read.", show_default=False)
    ],
    topology: Annotated[
        str | None,
        option("--topology", "TOPOLOGY", "Demand", "The topology that the file was made for."),
    ] = None,
    size: Annotated[str | None, keyword("size")] = None,
    output: Annotated[str | None, output_option("Save the schedule, .json or .json.gz.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a schedule from another tool's file, to verify, simulate and view it."""
    from teccl.cli.output import emit, emit_json
    from teccl.formats.reading import import_schedule as read_schedule
    from teccl.verification import verify

    path = check_output(output)
    for name, value in (("--topology", topology), ("--size", size)):
        if value is None:
            raise UsageError(f"missing {name}; files of other tools do not hold it")
    imported = read_schedule(file, source, topology=str(topology), size=str(size))
    violations = verify(imported.schedule)
    if path is not None:
        imported.schedule.save(path)
    if as_json:
        emit_json(_document(imported, violations))
    elif not quiet:
        emit(repr(imported.schedule))
        emit("\n".join(f"note: {note}" for note in imported.notes))
        if path is not None:
            emit(f"saved to {path}")
    if violations:
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION, f"the schedule of {file} is wrong: {violations[0]}"
        )


def _document(imported: "ImportedSchedule", violations: "tuple[Violation, ...]") -> dict[str, Any]:
    schedule = imported.schedule
    return {
        "collective": schedule.problem.demand.title,
        "num_gpus": schedule.problem.num_gpus,
        "num_chunks": schedule.problem.num_chunks,
        "num_sends": len(schedule),
        "finish_time_s": schedule.finish_time_s,
        "verified": not violations,
        "violations": [str(violation) for violation in violations],
        "notes": list(imported.notes),
    }
