"""`teccl whatif`: what faults cost, with a new plan for each and with the old one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from teccl.cli.options import (
    CollectiveArgument,
    DegradeOption,
    DemandOption,
    QuietOption,
    RanksOption,
    RootOption,
    SizeOption,
    SwitchOption,
    TopologyArgument,
    TransitOption,
    WithoutLinkOption,
    choice,
    option,
)
from teccl.cli.solve import EFFORTS
from teccl.cli.studying import (
    DaskOption,
    JobsOption,
    JsonListOption,
    MpiOption,
    NoStoreOption,
    SeedOption,
    StoreOption,
    path_option,
    workplace,
)

if TYPE_CHECKING:
    from teccl.studies.contingency import Contingency, WhatIf

_FAULTS = "Faults"
COLUMNS = (
    *("fault", ">like it", ">time (us)", ">loss (%)", ">old plan (us)", ">old plan's loss (%)"),
    "note",
)


def whatif(
    topology: TopologyArgument,
    collective: CollectiveArgument = None,
    *,
    size: SizeOption = None,
    ranks: RanksOption = None,
    root: RootOption = None,
    demand: DemandOption = None,
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
    effort: Annotated[
        str | None, choice("--effort", EFFORTS, "Method", "How much work auto does (normal)")
    ] = None,
    seed: SeedOption = None,
    switch: SwitchOption = None,
    transit: TransitOption = None,
    without_link: WithoutLinkOption = None,
    degrade: DegradeOption = None,
    jobs: JobsOption = None,
    dask: DaskOption = None,
    mpi: MpiOption = False,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    save: Annotated[
        str | None, path_option("--save", "FOLDER", "Save the schedule for each fault there.")
    ] = None,
    as_json: JsonListOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan anew for each fault; tell the loss against the healthy fabric and of the old plan."""
    from teccl.studies.contingency import whatif as study

    flags: dict[str, Any] = {"effort": effort, "seed": seed, "switch": switch, "transit": transit}
    with workplace(
        jobs=jobs, dask=dask, mpi=mpi, store=store, no_store=no_store, quiet=quiet, what="whatif"
    ) as place:
        found = study(
            topology,
            collective,
            size=size,
            demand=demand,
            ranks=ranks,
            root=root,
            faults=[*(fault or ()), *_listed(faults)],
            n_minus_1=n_minus_1 or (),
            without_links=without_link or (),
            degrade=degrade or (),
            place=place,
            **{name: value for name, value in flags.items() if value is not None},
        )
    if save is not None:
        _save(found, Path(save))
    _print(found, as_json=as_json, quiet=quiet)


def _listed(path: str | None) -> list[str]:
    """Return the faults of a file; empty lines and those that begin with # are left out."""
    if path is None:
        return []
    from teccl._files import read_text
    from teccl.errors import InputError

    lines = [line.strip() for line in read_text(Path(path), InputError).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _save(found: "WhatIf", folder: Path) -> None:
    import re

    for contingency in found.contingencies:
        result = contingency.result
        if result is not None and result.schedule is not None:
            name = re.sub(r"[^A-Za-z0-9.+-]+", "-", contingency.fault.name)
            result.schedule.save(folder / f"{name}.json.gz")


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
