"""`teccl sweep`: the best schedule for each of many sizes, and a plan made of them."""

from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.errors import UsageError
from teccl.cli.export import TARGET_NAMES
from teccl.cli.options import (
    CollectiveArgument,
    QuietOption,
    TopologyArgument,
    check_output,
    given_keywords,
    option,
    takes,
)
from teccl.cli.studying import (
    FIGURE_SUFFIXES,
    WORK,
    JsonListOption,
    TimeLimitOption,
    path_option,
    save_figure,
    without_schedule,
    workplace,
)
from teccl.keywords import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from teccl.result import Result
    from teccl.studies.sweeping import Sweep

_METHOD = "Method"
COLUMNS = (
    *(">size (B)", ">time (us)", ">algbw (GB/s)", ">busbw (GB/s)", ">gap (%)"),
    *(">NCCL model (us)", "method", ">chunks", ">synthesis (s)"),
)


@takes(
    *("sizes", "factor", "ranks", "root", "chunks", "chunk_tolerance", "methods", "effort"),
    *("time_limit", "seed", Topic.MODEL, Topic.CHANGES),
    **WORK,
)
def sweep(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    sizes: Annotated[
        str,
        option("--sizes", "A:B|LIST", "Demand", "Sizes to walk, or a list with commas (1KB:1GB)."),
    ] = "1KB:1GB",
    factor: Annotated[
        str | None,
        option("--factor", "F", "Demand", "Multiply by F instead of 1, 4, 16, 64, 256 per unit."),
    ] = None,
    chunks: Annotated[
        str | None,
        option("--chunks", "LIST", _METHOD, "Numbers of chunks to try, such as auto or 1,4,16."),
    ] = None,
    methods: Annotated[
        str, option("--methods", "LIST", _METHOD, "Methods to try, the best wins (auto).")
    ] = "auto",
    time_limit: TimeLimitOption = None,
    plan: Annotated[
        str | None,
        path_option("--plan", "FOLDER", "Write ranges of sizes, schedules and exports there."),
    ] = None,
    to: Annotated[
        str | None,
        path_option("--to", "LIST", f"Exports of the plan (msccl): {', '.join(TARGET_NAMES)}."),
    ] = None,
    csv: Annotated[str | None, path_option("--csv", "FILE", "Save the table as CSV.")] = None,
    plot: Annotated[
        str | None, path_option("--plot", "FILE", "Draw bandwidth over size, .png, .svg or .pdf.")
    ] = None,
    as_json: JsonListOption = False,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Find the best schedule for each size; finished sizes are kept and never solved again."""
    from teccl.cli.output import emit
    from teccl.studies.planning import write_plan
    from teccl.studies.sweeping import sweep as find

    table, figure = check_output(csv, (".csv",)), check_output(plot, FIGURE_SUFFIXES)
    if collective is None:
        raise UsageError("missing COLLECTIVE; name one, for example allgather")
    if to is not None and plan is None:
        raise UsageError("--to names the exports of a plan; add --plan FOLDER")
    with workplace(given, quiet=quiet, what="sweep") as place:
        found = find(
            topology,
            collective,
            sizes=sizes,
            factor=factor,
            methods=methods,
            place=place,
            **given_keywords({**given, "chunks": chunks, "time_limit": time_limit}),
        )
        planned = None
        if plan is not None:
            planned = write_plan(found, plan, targets=(to or "msccl").split(","), place=place)
    _save(found, table, figure)
    _print(found, as_json=as_json, quiet=quiet)
    if planned is not None and not (as_json or quiet):
        emit(f"plan of {len(planned['ranges'])} ranges written to {plan}")
    if not any(result.schedule for result in found.results):
        reason = next((row.reason for row in found.rows if row.reason), "stopped")
        raise without_schedule(place, f"no schedule for any size: {reason}")


def _save(found: "Sweep", table: Any, figure: Any) -> None:
    from teccl._files import write_atomically
    from teccl.errors import InputError

    if table is not None:
        write_atomically(table, found.to_csv(), InputError)
    if figure is not None:
        from teccl.plotting import plot_sweep

        results = [o.result for row in found.rows for o in row.outcomes if o.result is not None]
        save_figure(figure, lambda: plot_sweep(results, beside=_nccl_curve(results)))


def _nccl_curve(results: "Sequence[Result]") -> dict[str, dict[float, float]]:
    """Seconds of NCCL's model over sizes, where it has something to say."""
    from teccl.nccl import model_of

    curve = {float(r.size_bytes): model[1] for r in results if (model := model_of(r)) is not None}
    return {"NCCL's model": curve} if curve else {}


def _print(found: "Sweep", *, as_json: bool, quiet: bool) -> None:
    from teccl.cli.output import emit, emit_json, table

    if as_json:
        emit_json([result.to_dict() for result in found.results])
    elif not quiet:
        rows = []
        for row in found.rows:
            best = row.best
            if best is None or best.schedule is None:
                cells = [*["-"] * 5, row.reason or "-", "", ""]
                rows.append([f"{float(row.size_bytes):.0f}", *cells])
            else:
                rows.append(_cells(best))
        emit(table(COLUMNS, rows))
        solved = found.num_tasks - found.num_stored
        emit(f"{solved} solved, {found.num_stored} from the store {found.store}")


def _cells(result: "Result") -> list[str]:
    """Return a row as nccl-tests would print it, NCCL's model beside it."""
    from teccl.nccl import model_of

    model = model_of(result)
    return [
        f"{float(result.size_bytes):.0f}",
        f"{(result.finish_time_s or 0) * 1e6:.3f}",
        f"{result.algbw_GBps or 0:.3f}",
        f"{result.busbw_GBps or 0:.3f}",
        "-" if result.physical_gap is None else f"{100 * result.physical_gap:.2f}",
        "-" if model is None else f"{model[1] * 1e6:.3f}",
        str(result.method),
        str(result.num_chunks),
        f"{result.solve_seconds:.2f}",
    ]
