"""Logs of nccl-tests and rccl-tests with everything that helps to find out what went wrong."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from teccl._files import read_text
from teccl.errors import InputError

_PROGRAM = re.compile(
    r"\b(all_gather|all_reduce|alltoall|broadcast|gather|reduce_scatter|reduce|scatter|sendrecv)_perf\b"
)
_NAMES = {"all_gather": "allgather", "all_reduce": "allreduce", "reduce_scatter": "reducescatter"}
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)", re.MULTILINE)
_NICS = re.compile(r"NET/(?:IB|OFI|Socket)\s*:\s*Using\s+(.*)")
_NIC = re.compile(r"\[\d+\]\s*([\w.:-]+?)(?::\d+)?/(\w+)")
_PATHS = re.compile(r"\btype\s+(\w+)/(\w+)")
_SET = re.compile(r"(NCCL_\w+) set by environment to\s+(\S+)")
# Columns of a row: size, count, type, redop, root, then time, algbw, busbw and errors twice.
_COLUMNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One size, as printed for out of place.

    Parameters
    ----------
    size_bytes, seconds
        What was measured.
    algbw, busbw
        As printed, in GB/s.
    wrong
        Values that were not as they should be, None where they were not checked.
    """

    size_bytes: int
    seconds: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLog:
    """What a log says.

    Parameters
    ----------
    name
        The file.
    collective
        As teccl calls it, None where the log does not say.
    ranks, hosts
        How many took part, 0 where the log does not say.
    rows
        Sizes in the order printed.
    complete
        Whether the last line of a whole log is there.
    nics, paths, settings
        Network cards in use, kinds of paths (NVL, PIX, PXB, PHB, SYS) within and between nodes,
        and environment variables that NCCL's debug output names.
    """

    name: str
    collective: str | None
    ranks: int
    hosts: int
    rows: tuple[LogRow, ...]
    complete: bool
    nics: tuple[str, ...] = ()
    paths: frozenset[tuple[str, str]] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)


def read_test_log(path: Path) -> TestLog:
    """Read the output of nccl-tests or rccl-tests, or NCCL's debug output, or both in one file.

    Raises
    ------
    InputError
        If the file has neither.
    """
    text = read_text(path, InputError)
    rows = tuple(row for line in text.splitlines() if (row := _row(line)) is not None)
    if not rows and "NCCL INFO" not in text:
        raise InputError(
            f"log {path} has no sizes as nccl-tests prints them and no line of NCCL INFO; give the "
            "output of a test, or NCCL's with NCCL_DEBUG=INFO"
        )
    named = _PROGRAM.search(text)
    ranks = dict(_RANK.findall(text))
    return TestLog(
        name=str(path),
        collective=None if named is None else _NAMES.get(named[1], named[1]),
        ranks=len(ranks),
        hosts=len(set(ranks.values())),
        rows=rows,
        complete="Avg bus bandwidth" in text,
        nics=_nics(text),
        paths=frozenset(_PATHS.findall(text)),
        settings=dict(_SET.findall(text)),
    )


def _nics(text: str) -> tuple[str, ...]:
    """Names of the cards that the first rank which lists some uses."""
    listed = _NICS.search(text)
    return tuple(name for name, _ in _NIC.findall(listed[1])) if listed else ()


def _row(line: str) -> LogRow | None:
    words = line.split()
    if len(words) < _COLUMNS or not words[0].isdigit() or not words[1].isdigit():
        return None
    try:
        time, algbw, busbw = (float(word) for word in words[5:8])
    except ValueError:
        return None
    if time <= 0 or not int(words[0]):
        return None
    wrong = words[8] if len(words) > _COLUMNS else ""
    return LogRow(
        size_bytes=int(words[0]),
        seconds=time * 1e-6,
        algbw=algbw,
        busbw=busbw,
        wrong=int(wrong) if wrong.isdigit() else None,
    )
