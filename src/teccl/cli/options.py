"""Options that several commands share, and how their text is read and completed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from teccl.cli.errors import UsageError, print_error

SCHEDULE_SUFFIXES = (".json", ".json.gz")
# The library knows these too; they stand here so that help and completion need not load it.
COLLECTIVES = (
    *("allgather", "alltoall", "reducescatter", "allreduce", "broadcast", "reduce"),
    *("scatter", "gather", "scattergather", "alltoallv"),
)
EFFORTS = ("quick", "normal", "thorough")
SWITCHES = ("copy", "no-copy", "hyper-edge")
TRANSITS = ("store-and-forward", "cut-through")

_METHOD = "Method"
_GRID = "Grid of the paper"
_MODEL = "Switches and buffers"
_DEMAND = "Demand"
_CHANGES = "Changes to the topology"


def _complete_topology(incomplete: str) -> list[str]:
    from teccl.topology.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="A topology file, or preset\\[:key=value,...] such as ndv2:chassis=2.",
        show_default=False,
        autocompletion=_complete_topology,
    ),
]
ScheduleArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A schedule file.", show_default=False)
]


def option(name: str, metavar: str, panel: str, help_text: str) -> Any:
    """Return an option whose text and default are the library's matter."""
    return typer.Option(
        name, metavar=metavar, rich_help_panel=panel, help=help_text, show_default=False
    )


def choice(name: str, choices: tuple[str, ...], panel: str, help_text: str) -> Any:
    """Return an option that takes one of some names, which its help lists."""
    return typer.Option(
        name,
        metavar="NAME",
        rich_help_panel=panel,
        help=f"{help_text}: {', '.join(choices)}.",
        show_default=False,
        autocompletion=_completer(choices),
    )


def _completer(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete.lower())]

    return complete


EffortOption = Annotated[
    str | None, choice("--effort", EFFORTS, _METHOD, "How much work auto does (normal)")
]
ChunkToleranceOption = Annotated[
    str | None,
    option(
        "--chunk-tolerance",
        "PART",
        _METHOD,
        "How much later fewer chunks may end (0.1%, with overheads 1%).",
    ),
]
SeedOption = Annotated[str | None, option("--seed", "N", _METHOD, "Seed of random choices (0).")]
CollectiveArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="COLLECTIVE",
        help=f"One of {', '.join(COLLECTIVES)}; omitted with --demand.",
        show_default=False,
        autocompletion=_completer(COLLECTIVES),
    ),
]
SizeOption = Annotated[
    str | None,
    option("--size", "SIZE", _DEMAND, "Bytes as nccl-tests counts them, such as 1MB."),
]
RanksOption = Annotated[
    str | None, option("--ranks", "RANKS", _DEMAND, "Ranks that take part, such as 0-7,12.")
]
RootOption = Annotated[str | None, option("--root", "R", _DEMAND, "Rank of the root.")]
DemandOption = Annotated[
    str | None, option("--demand", "FILE", _DEMAND, "A demand file, in place of COLLECTIVE.")
]
GridOption = Annotated[bool, option("--grid", "", _GRID, "Use the paper's epochs end to end.")]
EpochOption = Annotated[
    str | None,
    option("--epoch", "fastest|slowest|DURATION", _GRID, "Length of an epoch (fastest)."),
]
EpochMultiplierOption = Annotated[
    str | None, option("--epoch-multiplier", "M", _GRID, "Factor on the epoch (1).")
]
SwitchOption = Annotated[
    str | None, choice("--switch", SWITCHES, _MODEL, "What a switch may do (copy)")
]
TransitOption = Annotated[
    str | None,
    choice("--transit", TRANSITS, _MODEL, "How data passes a switch (store-and-forward)"),
]
BufferOption = Annotated[
    str | None,
    option(
        "--buffer",
        "unlimited|none|N",
        _MODEL,
        "Received chunks that may wait at a GPU to be forwarded (unlimited).",
    ),
]
NoCopyOption = Annotated[bool, option("--no-copy", "", _MODEL, "No node copies, GPUs included.")]
WithoutLinkOption = Annotated[
    list[str] | None,
    option("--without-link", "A:B", _CHANGES, "Remove links A:B, A>B or A:*; may repeat."),
]
DegradeOption = Annotated[
    list[str] | None,
    option("--degrade", "A:B=50%", _CHANGES, "Scale links' bandwidth; may repeat."),
]

OverheadOption = Annotated[
    str | None,
    option("--overhead", "DURATION", _CHANGES, "Time a transfer holds a link beside its bytes."),
]


def flag(*names: str, help_text: str) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar="", help=help_text, rich_help_panel="Output")


def output_option(help_text: str) -> Any:
    """Return the option that names the file to write."""
    return typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help=help_text,
        show_default=False,
        rich_help_panel="Output",
    )


JsonOption = Annotated[bool, flag("--json", help_text="Print one JSON object.")]
QuietOption = Annotated[bool, flag("--quiet", "-q", help_text="Print no table and no progress.")]


def refuse_given(context: typer.Context, names: tuple[str, ...], reason: str) -> None:
    """Refuse options that the command line names though they mean nothing beside the others.

    Parameters
    ----------
    names
        Parameters of the command's function.
    reason
        Why there is no use for them, and what to do instead of dropping them.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{max(parameter.opts, key=len)} {reason}; drop it")


def check_outputs(*paths: Path | None) -> None:
    """Refuse to write two things into one file."""
    given = [path.resolve() for path in paths if path is not None]
    twice = next((path for i, path in enumerate(given) if path in given[:i]), None)
    if twice is not None:
        raise UsageError(f"output file {twice.name!r} is named twice; give two files")


def check_output(path: str | None, suffixes: tuple[str, ...] = SCHEDULE_SUFFIXES) -> Path | None:
    """Refuse an output file that could not be written, before any work is done for it."""
    if path is None:
        return None
    target = Path(path)
    if not path.strip() or "\0" in path or not target.name:
        raise UsageError(f"output file {path[:80]!r} is not a file name; give for example out.json")
    if not target.name.lower().endswith(suffixes) or target.name.lower() in suffixes:
        raise UsageError(
            f"output file {path!r}: unknown kind of file; give a name ending in "
            f"{' or '.join(suffixes)}"
        )
    folder = next(place for place in (target.parent, *target.parent.parents) if place.exists())
    if target.is_dir():
        raise UsageError(f"output file {path!r} is a folder; give the name of a file")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"output file {path!r}: folder {str(folder)!r} cannot be written")
    if folder != target.parent:
        _check_new_folder(path, target.parent, folder)
        print_error(f"folder {str(target.parent)!r} is new and will be made", label="note")
    return target


def _check_new_folder(path: str, new: Path, known: Path) -> None:
    """Refuse a folder that cannot be made inside a known one, by making and removing it."""
    try:
        new.mkdir(parents=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"output file {path!r}: folder {str(new)!r} cannot be made: {reason}; give another"
        ) from None
    finally:
        for place in (new, *new.parents):
            if place == known or not place.exists():
                break
            place.rmdir()
