"""`teccl whatif`: what faults cost, with a new plan for each and with the old one."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.options import (
    CollectiveArgument,
    QuietOption,
    TopologyArgument,
    choice,
    given_keywords,
    option,
    takes,
)
from teccl.cli.studying import WORK, JsonListOption, path_option, workplace
from teccl.keywords import Topic

if TYPE_CHECKING:
    from teccl.studies.contingency import Contingency, WhatIf

_FAULTS = "Faults"
COLUMNS = (
    *("fault", ">like it", ">new plan (us)", ">to healthy (%)", ">old plan (us)", ">to new (%)"),
    "note",
)


@takes(
    *(Topic.DEMAND, "fault", "faults", "n_minus_1", "effort", "seed", "switch", "transit"),
    Topic.CHANGES,
    **WORK,
)
def whatif(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    fault: Annotated[
        list[str] | None,
        option(
            "--fault",
            "FAULT",
            _FAULTS,
            "'link A:B', 'slow A:B=50%', 'load A:B=30%', 'gpu G', 'switch S' or 'late G=20us'; "
            "joined by ' + ' they happen together; may repeat.",
        ),
    ] = None,
    faults: Annotated[
        str | None, option("--faults", "FILE", _FAULTS, "A file with a fault on each line.")
    ] = None,
    n_minus_1: Annotated[
        list[str] | None,
        choice("--n-minus-1", ("links", "gpus", "switches"), _FAULTS, "Every single one of these"),
    ] = None,
    save: Annotated[
        str | None, path_option("--save", "FOLDER", "Save the schedule for each fault there.")
    ] = None,
    as_json: JsonListOption = False,
    quiet: QuietOption = False,
    **given: Any,
) -> None:
    """Plan anew for each fault, and tell what that costs and what keeping the old plan would.

    "to healthy" compares the new plan with the fabric before the fault, "to new" the old plan
    with the new one; "like it" counts the faults that symmetry makes the same.
    """
    from teccl.studies.contingency import whatif as study

    with workplace(given, quiet=quiet, what="whatif") as place:
        found = study(
            topology,
            collective,
            faults=[*(fault or ()), *_listed(faults)],
            n_minus_1=n_minus_1 or (),
            place=place,
            **given_keywords(given),
        )
    _print(found, as_json=as_json, quiet=quiet)
    if save is not None:
        saved = _save(found, Path(save))
        if not (as_json or quiet):
            from teccl.cli.output import emit

            emit(f"{saved} schedules saved to {save}")


def _listed(path: str | None) -> list[str]:
    """Return the faults of a file; empty lines and those that begin with # are left out."""
    if path is None:
        return []
    from teccl._files import read_text
    from teccl.errors import InputError

    lines = [line.strip() for line in read_text(Path(path), InputError).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _save(found: "WhatIf", folder: Path) -> int:
    """Save a schedule for each fault under its name, and return how many there are."""
    taken: set[str] = set()
    for contingency in found.contingencies:
        result = contingency.result
        if result is not None and result.schedule is not None:
            name = _file_name(contingency.fault.name, taken)
            taken.add(name.lower())
            result.schedule.save(folder / f"{name}.json.gz")
    return len(taken)


def _file_name(fault: str, taken: set[str]) -> str:
    """Return a name for a fault's file that every system takes and no other fault has."""
    import re

    plain = re.sub(r"[^A-Za-z0-9.+]+", "-", fault.replace(">", " to ")).strip("-")[:100] or "fault"
    names = (plain if number == 1 else f"{plain}-{number}" for number in itertools.count(1))
    return next(name for name in names if name.lower() not in taken)


def _print(found: "WhatIf", *, as_json: bool, quiet: bool) -> None:
    from teccl.cli.output import emit, emit_json, table

    if as_json:
        emit_json(found.to_dict())
    elif not quiet:
        healthy = f"{(found.healthy.finish_time_s or 0) * 1e6:.3f}"
        rows = [["none", "", healthy, "0.00", healthy, "0.00", str(found.healthy.method)]]
        rows += [_cells(contingency) for contingency in found.contingencies]
        emit(table(COLUMNS, rows))
        fatal = [c for c in found.contingencies if c.is_fatal]
        if fatal:
            count = sum(c.fault.count for c in fatal)
            names = [name for c in fatal for name in c.fault.alike or (c.fault.name,)]
            emit(f"{count} fatal: {', '.join(names)}")


def _cells(contingency: "Contingency") -> list[str]:
    fault, result = contingency.fault, contingency.result
    head = [fault.name, str(fault.count)]
    if contingency.is_fatal:
        return [*head, "-", "-", "-", "-", f"FATAL: {contingency.reason}"]
    if result is None or result.finish_time_s is None or contingency.loss is None:
        return [*head, "-", "-", "-", "-", "stopped"]
    stale = contingency.stale_time_s
    return [
        *head,
        f"{result.finish_time_s * 1e6:.3f}",
        f"{100 * contingency.loss:.2f}",
        "fails" if stale is None else f"{stale * 1e6:.3f}",
        "-" if contingency.stale_loss is None else f"{100 * contingency.stale_loss:.2f}",
        str(result.method),
    ]
