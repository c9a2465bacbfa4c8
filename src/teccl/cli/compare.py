"""`teccl compare`: methods, models of other tools and schedule files, side by side."""

from typing import TYPE_CHECKING, Annotated, Any

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
    path_option,
    save_figure,
    without_schedule,
    workplace,
)
from teccl.keywords import Topic

if TYPE_CHECKING:
    from teccl.result import Result
    from teccl.studies.comparison import Comparison

_METHOD = "Method"
COLUMNS = ("method", ">time (us)", ">x first", ">algbw (GB/s)", ">gap (%)", ">chunks", "note")


@takes(
    *(Topic.DEMAND, "methods", "schedule", "effort", "chunk_tolerance", "model_limit", "seed"),
    *("switch", "transit", Topic.CHANGES),
    **WORK,
)
def compare(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    methods: Annotated[
        str | None, option("--methods", "LIST", _METHOD, "Methods to compare (all).")
    ] = None,
    schedule: Annotated[
        list[str] | None,
        option("--schedule", "FILE", _METHOD, "A schedule file to compare with; may repeat."),
    ] = None,
    model_limit: Annotated[
        str | None,
        option("--model-limit", "DURATION", _METHOD, "Time for each of the paper's models (20s)."),
    ] = None,
    plot: Annotated[
        str | None, path_option("--plot", "FILE", "Draw finish times, .png, .svg or .pdf.")
    ] = None,
    as_json: JsonListOption = False,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Rank methods by the same check and replay.

    sccl-like and taccl-like are small models of those tools, not the tools themselves.
    """
    from teccl.studies.comparison import compare as rank

    figure = check_output(plot, FIGURE_SUFFIXES)
    flags: dict[str, Any] = {"methods": methods, "model_limit": model_limit}
    with workplace(given, quiet=quiet, what="compare") as place:
        found = rank(
            topology,
            collective,
            schedules=schedule or (),
            place=place,
            **given_keywords(given),
            **{name: value for name, value in flags.items() if value is not None},
        )
    if figure is not None and found.results:
        save_figure(figure, lambda: _draw(found))
    _print(found, as_json=as_json, quiet=quiet)
    if not found.results:
        note = next((c.note for c in found.competitors if c.note), "stopped")
        raise without_schedule(place, f"no method has a schedule: {note}")


def _print(found: "Comparison", *, as_json: bool, quiet: bool) -> None:
    from teccl.cli.output import emit, emit_json, table

    if as_json:
        emit_json([result.to_dict() for result in found.results])
    elif not quiet:
        emit(table(COLUMNS, [_cells(found, i) for i in range(len(found.competitors))]))
        lines = [_ratio(found, name) for name in ("ring", "sccl-like", "taccl-like")]
        lines.append(_nccl(found))
        emit("\n".join(line for line in lines if line))


def _cells(found: "Comparison", i: int) -> list[str]:
    competitor = found.competitors[i]
    result = competitor.result
    if result is None:
        return [competitor.name, *["-"] * 5, competitor.note]
    return [
        competitor.name,
        f"{(result.finish_time_s or 0) * 1e6:.3f}",
        f"{found.ratio(competitor.name) or 0:.3f}",
        f"{result.algbw_GBps or 0:.3f}",
        "-" if result.physical_gap is None else f"{100 * result.physical_gap:.2f}",
        str(result.num_chunks),
        ", ".join(filter(None, (competitor.note, _scheme(competitor.name, result)))),
    ]


def _scheme(name: str, result: "Result") -> str:
    """Say which scheme or algorithm serves, where a method chooses among several."""
    chosen = str(result.method)
    return f"by {chosen}" if result.requested_method == name != chosen else ""


def _nccl(found: "Comparison") -> str | None:
    """Say what NCCL's own model takes, where it has something to say."""
    from teccl.nccl import model_of

    model = model_of(found.results[0]) if found.results else None
    if model is None:
        return None
    choice, seconds = model
    return f"NCCL's model takes {seconds * 1e6:.3f} us by {choice.name}; a model, not a measurement"


def _ratio(found: "Comparison", name: str) -> str | None:
    """Say how many times faster the first is than another."""
    ratio = found.ratio(name)
    first = found.competitors[0]
    if ratio is None or first.name == name or first.result is None:
        return None
    named = next(c for c in found.competitors if c.name == name)
    text = f"{first.name} is {ratio:.3f} times as fast as {name}"
    if named.own_time_s is not None and first.result.finish_time_s:
        text += f", {named.own_time_s / first.result.finish_time_s:.3f} times with its barriers"
    return text


def _draw(found: "Comparison") -> Any:
    from matplotlib import pyplot

    done = [c for c in found.competitors if c.result is not None][::-1]
    figure, axes = pyplot.subplots(figsize=(6.4, 0.4 * len(done) + 1))
    times = [(c.result.finish_time_s or 0) * 1e6 for c in done if c.result is not None]
    axes.barh([c.name for c in done], times, color="#3b6fb6")
    bound = found.results[0].physical_bound_s
    if bound:
        axes.axvline(bound * 1e6, color="#555555", linestyle="--", label="bound")
        axes.legend(frameon=False)
    axes.set_xlabel("finish time (us)")
    figure.tight_layout()
    return axes
