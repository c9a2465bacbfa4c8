"""What every exporter takes and returns: options, the files it makes, what it has to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What a user may ask of an export; None leaves the choice to the target.

    Parameters
    ----------
    in_place
        Whether the file serves calls whose output lies in their input (or the reverse).
    dtype
        Element type that chunks must be whole numbers of, as nccl-tests names it.
    channels
        Most channels that may be used.
    instances
        Copies of the program that run side by side, each on its share of every chunk.
    protocol
        Protocol of the target's runtime.
    min_bytes, max_bytes
        Sizes for which the runtime may choose the file.
    with_config
        Whether to write, beside traces, all files that a simulator needs to run them.
    """

    in_place: bool | None = None
    dtype: str | None = None
    channels: int | None = None
    instances: int | None = None
    protocol: str | None = None
    min_bytes: Fraction | None = None
    max_bytes: Fraction | None = None
    with_config: bool | None = None

    def given(self) -> tuple[str, ...]:
        """Names of the options that were given."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One file of an export, not yet written."""

    path: Path
    content: str | bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The outcome of an export.

    Parameters
    ----------
    target
        Name of the target.
    files
        What is to be written, proven where the target has a checker.
    facts
        Figures about the files, by name, as tables and JSON show them.
    notes
        Sentences that a user should read before running the files.
    environment
        Variables under which the runtime finds and uses the files.
    command
        A command that runs them.
    """

    target: str
    files: tuple[OutputFile, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
