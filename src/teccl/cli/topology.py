"""`teccl topology`: list, show, check, draw, import and export."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from teccl.cli import importing
from teccl.cli.errors import UsageError
from teccl.cli.groups import new_group
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    TopologyArgument,
    check_output,
    choice,
    flag,
    output_option,
)
from teccl.formats.registry import formats_that

if TYPE_CHECKING:
    from teccl.topology import Topology
    from teccl.topology.overview import LinkClass, TopologySummary

TOPOLOGY_SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
TARGET_NAMES = tuple(formats_that("writes_topology"))
DRAWING_SUFFIXES = (".svg", ".dot")
# Rows of a table that a person still reads; --all shows the rest.
MAX_ROWS = 40


def build_group() -> typer.Typer:
    """Assemble the commands about topologies."""
    group = new_group("List, show, check, draw, import and export topologies.")
    group.command("list")(list_presets)
    group.command("show")(show)
    group.command("check")(check)
    group.command("draw")(draw)
    group.command("import")(importing.import_topology)
    group.command("export")(export)
    return group


def list_presets(as_json: JsonOption = False) -> None:
    """List the presets and their parameters with defaults."""
    from teccl.cli.output import emit, emit_json, table
    from teccl.topology.presets import list_presets as presets

    known = presets().values()
    if as_json:
        emit_json({"presets": [asdict(preset) for preset in known]})
        return
    rows = [
        (p.name, " ".join(f"{k}={v}" for k, v in p.parameters.items()), p.summary) for p in known
    ]
    emit(table(("preset", "parameters", "what it is"), rows))
    emit("\nUse: preset:key=value,key=value, for example ndv2:chassis=2 or torus:dims=4x4,alpha=0")


def show(
    topology: TopologyArgument,
    *,
    every: Annotated[bool, flag("--all", help_text="Show every node and link.")] = False,
    as_json: Annotated[bool, flag("--json", help_text="Print the topology file as JSON.")] = False,
    as_yaml: Annotated[bool, flag("--yaml", help_text="Print the topology file as YAML.")] = False,
    output: Annotated[
        str | None, output_option("Save the topology file: .yaml, .yml or .json, also .gz.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Show the nodes and links of a topology."""
    from teccl.topology import Topology

    if as_json and as_yaml:
        raise UsageError("--json and --yaml exclude each other; give one of them")
    path = check_output(output, TOPOLOGY_SUFFIXES)
    network = Topology.parse(topology)
    if path is not None:
        network.save(path)
    if as_json or as_yaml:
        _emit_document(network, as_yaml=as_yaml)
    elif not quiet:
        _emit_tables(network, None if every else MAX_ROWS)


def check(
    topology: TopologyArgument, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Check a topology file or preset and count what is in it."""
    from teccl.cli.output import emit, emit_json, pairs
    from teccl.topology import Topology
    from teccl.topology.overview import summarise

    network = Topology.parse(topology)
    summary = summarise(network)
    if as_json:
        emit_json({"valid": True, "topology": network.name, **_summary_document(summary)})
    elif not quiet:
        emit(f"ok: {network.name}")
        emit(pairs(_summary_rows(summary)))


def draw(
    topology: TopologyArgument,
    output: Annotated[str, output_option("Where to save the drawing: .svg, or .dot for Graphviz.")],
    quiet: QuietOption = False,
) -> None:
    """Draw a topology as a picture."""
    from teccl.cli.output import emit
    from teccl.drawing import save_drawing
    from teccl.topology import Topology

    path = check_output(output, DRAWING_SUFFIXES)
    assert path is not None
    save_drawing(Topology.parse(topology), path)
    if not quiet:
        emit(f"drawing saved to {path}")


def export(
    topology: TopologyArgument,
    to: Annotated[
        str | None,
        choice("--to", TARGET_NAMES, "Target", "Which simulator, required"),
    ] = None,
    output: Annotated[
        str | None, output_option("The file to write; without it nothing is written.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a topology into a file of a simulator."""
    from teccl.cli.export import export_document, export_text
    from teccl.cli.output import emit, emit_json
    from teccl.formats.writing import export_topology, find_topology_target
    from teccl.topology import Topology

    if to is None:
        raise UsageError(f"missing --to; give one of {', '.join(TARGET_NAMES)}")
    path = check_output(output, find_topology_target(to).suffixes)
    made = export_topology(Topology.parse(topology), to=to, path=path)
    if as_json:
        emit_json(export_document(made, written=path is not None))
    elif not quiet:
        emit(export_text(made, written=path is not None))


def _emit_document(network: "Topology", *, as_yaml: bool) -> None:
    from teccl.cli.output import emit, emit_json
    from teccl.topology.topology_files import topology_to_dict

    document = topology_to_dict(network)
    if not as_yaml:
        emit_json(document)
        return
    import yaml

    emit(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))


def _emit_tables(network: "Topology", limit: int | None) -> None:
    from teccl.cli.output import emit, table
    from teccl.topology.overview import rates_text, summarise
    from teccl.units import format_duration

    emit(repr(network))
    classes = [
        (
            c.count,
            rates_text(c.bandwidth, c.profile),
            format_duration(c.alpha),
            format_duration(c.overhead),
        )
        for c in summarise(network).link_classes
    ]
    emit("\n" + table((">links", ">bandwidth", ">alpha", ">overhead"), classes))
    ranks = {int(node): rank for rank, node in enumerate(network.gpus)}
    nodes = [
        (node.name, node.kind.value, ranks.get(i, "-"), node.group or "-")
        for i, node in enumerate(network.nodes)
    ]
    emit("\n" + _limited(("node", "kind", ">rank", "group"), nodes, limit))
    links = [
        (
            network.link_name(i),
            rates_text(link.bandwidth, link.profile),
            format_duration(link.alpha),
            ", ".join(link.shares) or "-",
        )
        for i, link in enumerate(network.links)
    ]
    emit("\n" + _limited(("link", ">bandwidth", ">alpha", "shares"), links, limit))


def _limited(columns: Sequence[str], rows: Sequence[Sequence[object]], limit: int | None) -> str:
    from teccl.cli.output import table

    text = table(columns, rows[:limit])
    if limit is None or len(rows) <= limit:
        return text
    return f"{text}\n... and {len(rows) - limit} more (--all shows them)"


def _summary_document(summary: "TopologySummary") -> dict[str, object]:
    from teccl.units import format_bandwidth, format_duration

    return {
        "num_gpus": summary.num_gpus,
        "num_switches": summary.num_switches,
        "num_links": summary.num_links,
        "num_groups": summary.num_groups,
        "num_shared": summary.num_shared,
        "num_profiles": summary.num_profiles,
        "num_parallel_links": summary.num_parallel_links,
        "num_gpu_components": summary.num_gpu_components,
        "strongly_connected": summary.is_strongly_connected,
        "link_classes": [
            {
                "count": c.count,
                "bandwidth": format_bandwidth(c.bandwidth),
                "alpha": format_duration(c.alpha),
                "overhead": format_duration(c.overhead),
                "profile": [
                    [format_duration(at), format_bandwidth(rate)] for at, rate in c.profile
                ],
            }
            for c in summary.link_classes
        ],
    }


def _class_text(kind: "LinkClass") -> str:
    from teccl.topology.overview import rates_text
    from teccl.units import format_duration

    rates = rates_text(kind.bandwidth, kind.profile)
    text = f"{kind.count} of {rates}, alpha {format_duration(kind.alpha)}"
    return text + (f", overhead {format_duration(kind.overhead)}" if kind.overhead else "")


def _summary_rows(summary: "TopologySummary") -> list[tuple[str, object]]:
    reach = (
        "yes"
        if summary.is_strongly_connected
        else (f"no, they fall into {summary.num_gpu_components} sets")
    )
    rows: list[tuple[str, object]] = [
        ("gpus", summary.num_gpus),
        ("switches", summary.num_switches),
        ("links", summary.num_links),
        *(("", _class_text(c)) for c in summary.link_classes[:MAX_ROWS]),
        ("groups", summary.num_groups),
        ("shared capacities", summary.num_shared),
        ("parallel links", summary.num_parallel_links),
        ("links with a profile", summary.num_profiles),
        ("every gpu reaches every other", reach),
    ]
    return rows
