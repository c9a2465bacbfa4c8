"""Groups of commands: what they answer to a wrong name and to none."""

import inspect
from typing import Any

import typer
from typer.core import TyperGroup

from teccl._suggest import did_you_mean
from teccl.cli.errors import UsageError

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


class CommandGroup(TyperGroup):
    """A group of commands whose unknown names are answered with the nearest known one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for command in self.commands.values():
            command.help = _flowing(command.help or "")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command the first argument names."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            raise UsageError(f"unknown command {name[:80]!r}{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)


def _flowing(text: str) -> str:
    """Return paragraphs without line breaks, which a terminal of another width sets anew."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def new_group(help_text: str) -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(
        cls=CommandGroup,
        help=help_text,
        invoke_without_command=True,
        callback=require_command,
        context_settings=CONTEXT_SETTINGS,
    )


def require_command(context: typer.Context) -> None:
    """Show the help of a group that was called without a command, and say that one is missing."""
    if context.invoked_subcommand is None:
        from teccl.cli.output import emit

        emit(context.get_help())
        raise UsageError(f"no command given; choose one from '{context.command_path} --help'")
