"""`teccl expect` and `teccl diagnose`: what a collective should take, and why it takes longer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import UsageError
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    keyword,
    option,
    output_option,
)

if TYPE_CHECKING:
    from teccl.nccl.constants import Generation
    from teccl.nccl.diagnose import Diagnosis, MeasuredCase
    from teccl.nccl.expect import Expectation
    from teccl.topology import Topology

_NCCL = "NCCL's model"
PAGE_SUFFIXES = (".html", ".htm")
GpuOption = Annotated[
    str | None,
    option("--gpu", "NAME", _NCCL, "volta, ampere, hopper or blackwell (from the links)."),
]
ChannelsOption = Annotated[str, option("--channels", "N", _NCCL, "Channels that NCCL uses (16).")]


def expect(
    topology: TopologyArgument,
    collective: Annotated[str, typer.Argument(metavar="COLLECTIVE", show_default=False)],
    *,
    sizes: Annotated[
        str, option("--sizes", "A:B|LIST", "Demand", "Sizes, as for sweep (1KB:1GB).")
    ] = "1KB:1GB",
    factor: Annotated[
        str | None, option("--factor", "F", "Demand", "Multiply from A to B by F.")
    ] = None,
    effort: Annotated[str | None, keyword("effort")] = None,
    no_schedule: Annotated[
        bool, option("--no-schedule", "", "Method", "Bounds and NCCL's model only.")
    ] = False,
    overhead: Annotated[str | None, keyword("overhead")] = None,
    gpu: GpuOption = None,
    channels: ChannelsOption = "16",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say what each size should take: the bound, our schedule, NCCL's own model, what binds."""
    from teccl.cli.output import emit, emit_json
    from teccl.nccl.expect import expect as find
    from teccl.studies.sizes import read_sizes
    from teccl.synthesis.request import read_topology, read_whole

    if no_schedule and effort is not None:
        raise UsageError("--effort is for schedules, which --no-schedule leaves out; drop one")
    network = read_topology(topology, (), (), overhead)
    found = find(
        network,
        collective,
        read_sizes(sizes, factor),
        generation=_generation(gpu),
        channels=read_whole(channels, "channels", low=1, high=1024),
        solve=not no_schedule,
        **({} if effort is None else {"effort": effort}),
    )
    if as_json:
        emit_json({"topology": network.name, "sizes": [each.to_dict() for each in found]})
    elif not quiet:
        emit(_expected_text(network, found))


def _generation(name: str | None) -> "Generation | None":
    from teccl.nccl.constants import Generation

    if name is None:
        return None
    if name.strip().lower() not in tuple(Generation):
        raise UsageError(f"gpu {name[:40]!r} is unknown; give {', '.join(Generation)}")
    return Generation(name.strip().lower())


def _expected_text(network: "Topology", found: "list[Expectation]") -> str:
    from teccl.cli.output import table
    from teccl.units import display_time, format_size

    rows = []
    for each in found:
        bus = each.busbw(each.schedule_s or each.bound_s) or 0.0
        nccl = each.busbw(each.nccl_s)
        rows.append(
            (
                format_size(each.size_bytes),
                display_time(each.bound_s),
                "-" if each.schedule_s is None else display_time(each.schedule_s),
                f"{bus / each.bus_factor:.4g}",
                f"{bus:.4g}",
                "-" if each.nccl_s is None else display_time(each.nccl_s),
                "-" if nccl is None else f"{nccl:.4g}",
                each.nccl_choice or "-",
            )
        )
    heads = (
        *("size", ">bound", ">schedule", ">algbw", ">busbw"),
        *(">NCCL model", ">busbw", "algorithm"),
    )
    lines = [repr(network), "", table(heads, rows), ""]
    lines += [f"{format_size(each.size_bytes)}: {each.binds}" for each in found]
    lines += ["", "NCCL model: its published constants for this topology, not a measurement"]
    return "\n".join(lines)


def diagnose(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Logs of tests.", show_default=False)
    ],
    *,
    topology: Annotated[
        str, option("--topology", "TOPOLOGY", "Demand", "Where the tests ran; a file or preset.")
    ],
    collective: Annotated[
        str | None,
        option("--collective", "NAME", "Demand", "The collective of a log that does not say it."),
    ] = None,
    overhead: Annotated[str | None, keyword("overhead")] = None,
    gpu: GpuOption = None,
    channels: ChannelsOption = "16",
    output: Annotated[str | None, output_option("Save a page with the curves, .html.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Set logs of nccl-tests or rccl-tests beside what is expected and say what may be wrong."""
    from teccl._files import write_atomically
    from teccl.cli.output import emit, emit_json
    from teccl.errors import InputError
    from teccl.nccl.bandwidth_page import diagnosis_page
    from teccl.nccl.diagnose import findings
    from teccl.synthesis.request import read_topology, read_whole

    path = check_output(output, PAGE_SUFFIXES)
    network = read_topology(topology, (), (), overhead)
    count = read_whole(channels, "channels", low=1, high=1024)
    kind = _generation(gpu)
    cases = [_case(Path(log), network, collective, kind, count) for log in logs]
    found = [(case, findings(case)) for case in cases]
    if path is not None:
        write_atomically(path, diagnosis_page(found, network.name), InputError)
    if as_json:
        emit_json({"topology": network.name, "logs": [_document(*each) for each in found]})
    elif not quiet:
        emit("\n\n".join(_diagnosis_text(*each) for each in found))
        if path is not None:
            emit(f"\npage saved to {path}")


def _case(
    path: Path,
    network: "Topology",
    collective: str | None,
    generation: "Generation | None",
    channels: int,
) -> "MeasuredCase":
    from fractions import Fraction

    from teccl.demand import parse_collective
    from teccl.errors import InputError
    from teccl.nccl.diagnose import compared
    from teccl.nccl.expect import expect as find
    from teccl.nccl.logs import read_test_log
    from teccl.nccl.shape import shape_of

    log = read_test_log(path)
    name = collective or log.collective
    if log.rows and name is None:
        raise UsageError(f"log {path} does not name its program; say which with --collective")
    if log.ranks and log.ranks != network.num_gpus:
        raise UsageError(
            f"log {path} has {log.ranks} ranks and {network!r} has {network.num_gpus}; give the "
            "topology that the test ran on"
        )
    try:
        shape = shape_of(network, generation=generation, channels=channels)
    except InputError:
        shape = None
    sizes = [Fraction(row.size_bytes) for row in log.rows]
    known = parse_collective(name).value if name is not None else "allreduce"
    options: dict[str, Any] = {"generation": generation, "channels": channels, "solve": False}
    return compared(log, find(network, known, sizes, **options), shape)


def _document(case: "MeasuredCase", found: "list[Diagnosis]") -> dict[str, Any]:
    return {
        "log": case.log.name,
        "complete": case.log.complete,
        "findings": [each.to_dict() for each in found],
        "sizes": [each.to_dict() for each in case.sizes],
    }


def _diagnosis_text(case: "MeasuredCase", found: "list[Diagnosis]") -> str:
    from teccl.cli.output import table
    from teccl.units import display_time, format_size

    rows = [
        (
            format_size(each.row.size_bytes),
            display_time(each.row.seconds),
            display_time(each.expected_s),
            f"{each.row.busbw:.4g}",
            f"{each.expected.busbw(each.expected_s) or 0:.4g}",
            f"{each.ratio:.2f}",
            "far off" if each.is_far_off else "",
        )
        for each in case.sizes
    ]
    heads = ("size", ">measured", ">expected", ">busbw", ">expected", ">ratio", "")
    lines = [case.log.name, ""] + ([table(heads, rows), ""] if rows else [])
    for number, each in enumerate(found, start=1):
        lines += [f"{number}. {each.kind}: {each.text}", f"   {each.evidence}"]
    return "\n".join(lines)
