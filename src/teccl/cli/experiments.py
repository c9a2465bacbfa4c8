"""`teccl experiments`: the paper's evaluation in one command."""

from typing import Annotated, Any

import typer

from teccl.cli.options import QuietOption, flag, takes
from teccl.cli.studying import WORK, path_option, workplace


@takes("fast", "listed", "output", "seed", **WORK)
def experiments(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which ones (all).", show_default=False),
    ] = None,
    *,
    fast: Annotated[bool, flag("--quick", help_text="A few minutes' worth of each.")] = False,
    listed: Annotated[bool, flag("--list", help_text="List the experiments.")] = False,
    output: Annotated[
        str | None, path_option("-o", "FOLDER", "Write Markdown, CSV and figures there.")
    ] = None,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Rebuild the paper's tables and figures; finished work is kept and never done again."""
    from teccl.cli.output import emit, table
    from teccl.studies.experiments import run_experiments
    from teccl.studies.experiments.catalogue import EXPERIMENTS
    from teccl.studies.experiments.writing_up import columns_of
    from teccl.synthesis.request import read_whole

    if listed:
        emit(table(("name", "what"), [(e.name, e.title) for e in EXPERIMENTS.values()]))
        return
    seed = given["seed"]
    with workplace(given, quiet=quiet, what="experiments") as place:
        tables = run_experiments(
            names or (),
            folder=output,
            quick=fast,
            seed=0 if seed is None else read_whole(seed, "seed", low=0, high=2**63 - 1),
            place=place,
        )
    if quiet:
        return
    for found in tables:
        columns = columns_of(found)
        rows = [["" if row.get(c) is None else str(row[c]) for c in columns] for row in found.rows]
        emit(f"{found.experiment.title}: {found.experiment.about}")
        emit(table(columns, rows))
        emit("\n".join(f"note: {note}" for note in found.experiment.notes))
        emit(" ")
