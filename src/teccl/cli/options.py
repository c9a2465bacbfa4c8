"""Options that several commands share, and how their text is read and completed."""

import inspect
import os
from collections.abc import Callable, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from teccl.cli.errors import UsageError, print_error
from teccl.keywords import KEYWORDS, NAMED_COLLECTIVES, Topic

SCHEDULE_SUFFIXES = (".json", ".json.gz")
Command = TypeVar("Command", bound=Callable[..., None])


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


def keyword(name: str) -> Any:
    """Return the option for a keyword of `solve`, as the table describes it."""
    entry = KEYWORDS[name]
    return typer.Option(
        entry.flag,
        metavar="NAME" if entry.choices else entry.value,
        rich_help_panel=entry.topic.value,
        help=entry.help,
        show_default=False,
        autocompletion=_completer(entry.choices) if entry.choices else None,
    )


def takes(*order: str, **others: Any) -> Callable[[Command], Command]:
    """Let a command take keywords of `solve`, as the table describes them, as its ``**given``.

    Parameters
    ----------
    order
        Names of keywords, topics for all of their keywords, and where help shall show the command's
        own parameters among them, the names of those. What it declares itself is its own.
    others
        Options beside them by name. Help has them next, and then what else the command declares.
    """
    names = [name for each in order for name in (_on(each) if isinstance(each, Topic) else (each,))]

    def dress(command: Command) -> Command:
        signature = inspect.signature(command)
        own = dict(signature.parameters)
        del own["given"]
        found = [own.pop(name) if name in own else _keyword_parameter(name) for name in names]
        found += [_parameter(name, each) for name, each in others.items()]
        # Arguments come first, as Python wants it; the rest keeps its order.
        every = sorted((*found, *own.values()), key=lambda each: each.kind)
        command.__dict__["__signature__"] = signature.replace(parameters=every)
        command.__annotations__ = {each.name: each.annotation for each in every} | {"return": None}
        return command

    return dress


def _on(topic: Topic) -> list[str]:
    return [name for name, entry in KEYWORDS.items() if entry.topic is topic]


def _keyword_parameter(name: str) -> inspect.Parameter:
    return _parameter(_parameter_name(name), keyword(name), repeats=KEYWORDS[name].repeats)


def _parameter_name(name: str) -> str:
    """A parameter has the name of the flag, unless Python keeps that for itself."""
    named = KEYWORDS[name].flag.strip("-").replace("-", "_")
    return name if iskeyword(named) else named


def _parameter(name: str, shown: Any, *, repeats: bool = False) -> inspect.Parameter:
    """Return the parameter of an option; one that shows no value is a flag."""
    kind: Any = (list[str] if repeats else str) | None if shown.metavar else bool
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if shown.metavar else False,
        annotation=Annotated[kind, shown],
    )


def given_keywords(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `solve` that a command was given, of its parameters by name."""
    found = {}
    for name, entry in KEYWORDS.items():
        value = values.get(_parameter_name(name))
        if value is not None and value is not False and value != []:
            found[name] = value if entry.sets is None else entry.sets
    return found


def _completer(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete.lower())]

    return complete


CollectiveArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="COLLECTIVE",
        help=f"One of {', '.join(NAMED_COLLECTIVES)}; omitted with --demand.",
        show_default=False,
        autocompletion=_completer(NAMED_COLLECTIVES),
    ),
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
