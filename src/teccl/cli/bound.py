"""`teccl bound`: what no schedule can beat, and why."""

from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import UsageError
from teccl.cli.options import (
    CollectiveArgument,
    JsonOption,
    QuietOption,
    TopologyArgument,
    given_keywords,
    option,
    takes,
)
from teccl.keywords import Topic

# The topology is the schedule's own where one is given.
OptionalTopology = Annotated[str | None, *TopologyArgument.__metadata__]

if TYPE_CHECKING:
    from teccl.bounds.bound_report import BoundReport, Scope
    from teccl.orbit import Fabric

# Bounds of one scope that a person still reads; --json has all of them.
MAX_ROWS = 12


@takes(Topic.DEMAND, "grid", "epoch", "epoch_multiplier", Topic.MODEL, Topic.CHANGES)
def bound(
    topology: OptionalTopology = None,
    collective: CollectiveArgument = None,
    *,
    chunks: Annotated[
        str | None,
        option("--chunks", "auto|N", "Demand", "Also bound schedules with N whole pieces."),
    ] = None,
    schedule: Annotated[
        str | None,
        option(
            "--schedule",
            "FILE",
            "Demand",
            "Bound what a schedule file solves, and show the gap that each bound leaves.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Prove how fast a collective can be at best, and name what binds.

    Physical bounds hold for any chunking; with --chunks N there are also bounds for N whole pieces
    per block, with --grid bounds in epochs. The one that a schedule must meet to be optimal is
    marked with a star. With --schedule FILE bounds stand beside what the schedule takes.
    """
    given = given_keywords({**given, "chunks": chunks})
    from teccl.cli.output import emit, emit_json
    from teccl.synthesis.bounding import bound as prove
    from teccl.synthesis.bounding import bound_beside

    if (topology is None) == (schedule is None):
        raise UsageError("give a topology, or a schedule with --schedule, which has its own")
    if topology is not None:
        from teccl.cli.orbits import bound_fabric, find_fabric

        fabric = find_fabric(topology, collective, given, asked=False)
        if fabric is not None and collective is not None:
            figures = bound_fabric(fabric, collective, given)
            _print_orbits(fabric, collective, figures, as_json=as_json, quiet=quiet)
            return
        found = prove(topology, collective, **given)
    elif given:
        raise UsageError("--schedule FILE has all of the problem; leave the other options out")
    else:
        found = bound_beside(str(schedule))
    if as_json:
        emit_json(found.to_dict())
    elif not quiet:
        emit(_text(found))


def _print_orbits(
    fabric: "Fabric", collective: str, figures: dict[str, Any], *, as_json: bool, quiet: bool
) -> None:
    """Show bounds that were found without listing all links and chunks."""
    from teccl.cli.output import emit, emit_json, pairs
    from teccl.units import display_time

    if as_json:
        emit_json(figures)
    if as_json or quiet:
        return
    rows = [("topology", f"{fabric.name}, {fabric.num_gpus} GPUs"), ("collective", collective)]
    for key, value in figures.items():
        name = key.removesuffix("_s").replace("_", " ")
        rows.append((name, value if key == "certificate" else display_time(value)))
    emit(pairs(rows))


def _text(found: "BoundReport") -> str:
    from teccl.cli.output import pairs

    tables = [_table(found, scope) for scope in found.bounds]
    return "\n\n".join([pairs(_figures(found)), *tables])


def _figures(found: "BoundReport") -> list[tuple[str, object]]:
    from teccl.units import display_time, format_size

    problem = found.problem
    rows: list[tuple[str, object]] = [
        ("topology", f"{problem.topology.name}, {problem.num_gpus} GPUs"),
        ("collective", f"{problem.demand.title}, {format_size(problem.size_bytes)}"),
    ]
    if len(found.bounds) > 1:
        rows.append(("chunks", f"{problem.num_chunks} of {format_size(problem.chunk_bytes)}"))
    if found.epoch_s is not None:
        rows.append(("epoch", display_time(found.epoch_s)))
    rows.append(("physical bound", display_time(found.physical_bound_s)))
    if found.chunk_bound_s is not None:
        rows.append(("chunk bound", display_time(found.chunk_bound_s)))
    if found.grid_bound_s is not None:
        rows.append(
            ("grid bound", f"{display_time(found.grid_bound_s)} ({found.bound_epochs} epochs)")
        )
    if found.finish_time_s is not None:
        rows.append(("finish time", display_time(found.finish_time_s)))
    return [*rows, ("certificate", found.certificate)]


def _table(found: "BoundReport", scope: "Scope") -> str:
    """Lay out the bounds of one scope, the winner of all marked."""
    from teccl.bounds.bound_report import Scope
    from teccl.cli.output import table
    from teccl.units import display_time

    heading = {
        Scope.PHYSICAL: "for any chunking",
        Scope.CHUNKS: f"for {found.problem.num_chunks} whole chunks",
        Scope.GRID: "on the grid",
    }[scope]
    bounds = found.bounds[scope]
    has_gaps = found.finish_ps is not None and scope is not Scope.GRID
    rows: list[tuple[str, ...]] = []
    columns = ("", "kind", ">bound", *((">gap",) if has_gaps else ()), heading)
    for one in bounds[:MAX_ROWS]:
        value = display_time(found.seconds(scope, one))
        mark = "*" if not rows and scope is found.winner[0] else ""
        shown = f"{one.value} epochs" if scope is Scope.GRID else value
        gap = found.gap(scope, one)
        left = ("" if gap is None else f"{100 * gap:.3g} %",) if has_gaps else ()
        rows.append((mark, one.kind, shown, *left, one.certificate))
    text = table(columns, rows)
    if len(bounds) > MAX_ROWS:
        text += f"\n... and {len(bounds) - MAX_ROWS} more (--json lists them)"
    return text
