"""`teccl place`: which rank belongs on which GPU."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import UsageError
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    check_outputs,
    choice,
    option,
)
from teccl.cli.studying import path_option

if TYPE_CHECKING:
    from teccl.placement import Placement

_GROUPS = "Groups"
_FORMATS = ("mpirun", "torchrun", "nccl")


def place(
    topology: TopologyArgument,
    *,
    groups: Annotated[
        str | None,
        option("--groups", "AXES", _GROUPS, "Axes such as tp=8,pp=4,dp=16, the first innermost."),
    ] = None,
    traffic: Annotated[
        str,
        option(
            "--traffic",
            "TEXT",
            _GROUPS,
            "What axes run, such as tp=allreduce:64MB,ep=alltoall:8MB:0.5 (as usual).",
        ),
    ] = "",
    demand: Annotated[
        str | None, option("--demand", "FILE", _GROUPS, "Further traffic between ranks.")
    ] = None,
    work: Annotated[
        str | None, option("--work", "N", _GROUPS, "Work on each measured schedule (100000).")
    ] = None,
    to: Annotated[
        str | None, choice("--to", _FORMATS, "Output", "Format of the rank file (mpirun)")
    ] = None,
    output: Annotated[str | None, path_option("-o", "FILE", "Write the rank file there.")] = None,
    demand_out: Annotated[
        str | None,
        path_option("--demand-out", "FILE", "Write all groups as tenants of one demand there."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Assign ranks to GPUs so that the weighted finish of all groups' collectives is small."""
    from teccl._files import write_atomically
    from teccl._suggest import did_you_mean
    from teccl.cli.output import emit, emit_json, table
    from teccl.demand.demand_files import load_demand, save_demand
    from teccl.errors import DemandError
    from teccl.placement import joint_demand, parse_groups
    from teccl.placement import place as place_ranks
    from teccl.placement.rankfiles import FORMATS
    from teccl.synthesis.request import read_whole
    from teccl.topology import Topology

    if groups is None:
        raise DemandError("no groups given; add for example --groups tp=8,dp=16")
    if to is not None and output is None:
        raise UsageError("--to is the format of a rank file; add -o FILE")
    kind = to or "mpirun"
    if kind not in FORMATS:
        raise DemandError(f"unknown rank file {kind[:40]!r}{did_you_mean(kind, FORMATS)}")
    file = check_output(output, ("",))
    demand_file = check_output(demand_out)
    check_outputs(file, demand_file)
    further = None if demand is None else load_demand(Path(demand))
    found = place_ranks(
        Topology.parse(topology),
        parse_groups(groups, traffic),
        demand=further,
        work=read_whole(work or 100_000, "work", low=0),
    )
    text = None if file is None else FORMATS[kind](found)
    joint = None if demand_file is None else joint_demand(found, demand=further)
    if file is not None and text is not None:
        write_atomically(file, text, DemandError)
    if demand_file is not None and joint is not None:
        save_demand(joint, demand_file)
    if as_json:
        emit_json(_document(found))
    elif not quiet:
        emit(table((), _rows(found)))


def _document(found: "Placement") -> dict[str, Any]:
    """A placement as JSON has it."""
    from teccl.placement.rankfiles import seats

    return {
        "gpus": list(found.gpu),
        "seats": [{"host": host, "device": device} for host, device in seats(found)],
        "model_s": found.model_s,
        "natural_model_s": found.natural_model_s,
        "finish_time_s": found.finish_s,
        "natural_finish_time_s": found.natural_finish_s,
        "gain": found.gain,
    }


def _rows(found: "Placement") -> list[tuple[str, str]]:
    """A placement as people read it: the mapping, what was optimised and what was measured."""
    from teccl.units import display_time

    topology = found.topology
    names = [topology.nodes[topology.gpus[gpu]].name for gpu in found.gpu]
    innermost = found.axes[0].size
    lines = [
        (f"ranks {first}-{first + innermost - 1}", " ".join(names[first : first + innermost]))
        for first in range(0, len(names), innermost)
    ]
    optimised = (display_time(found.model_s), display_time(found.natural_model_s))
    measured = (display_time(found.finish_s), display_time(found.natural_finish_s))
    return [
        *lines,
        ("optimised", f"load of the fullest links {optimised[0]}, natural order {optimised[1]}"),
        ("measured", f"verified schedules {measured[0]}, natural order {measured[1]}"),
        ("gain", f"{found.gain:.3f} times over natural order"),
        ("proven", "not slower than natural order by these schedules; not that it is optimal"),
    ]
