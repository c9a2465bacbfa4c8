"""Logs of nccl-tests: times over sizes of one collective, and what they say about the links."""

import re
from dataclasses import dataclass
from pathlib import Path

from teccl._files import read_text
from teccl.demand import Collective
from teccl.errors import InputError

_PROGRAM = re.compile(
    r"\b(all_gather|all_reduce|alltoall|broadcast|gather|reduce_scatter|reduce|scatter|sendrecv)_perf\b"
)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\b", re.MULTILINE)
_SENDRECV = "sendrecv"
_NAMES = {"all_gather": "allgather", "all_reduce": "allreduce", "reduce_scatter": "reducescatter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """One log.

    Parameters
    ----------
    name
        The file.
    test
        Which collective, or sendrecv.
    ranks
        How many ranks took part.
    sizes, seconds
        What was measured, out of place.
    """

    name: str
    test: str
    ranks: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Latencies that follow each other in a ring algorithm."""
        n = self.ranks
        if self.test in (_SENDRECV, Collective.ALLTOALL, Collective.GATHER, Collective.SCATTER):
            return 1
        return 2 * (n - 1) if self.test == Collective.ALLREDUCE else n - 1

    @property
    def volume(self) -> float:
        """Bytes through one rank's port, per byte of the size."""
        n = self.ranks
        if self.test in (_SENDRECV, Collective.BROADCAST, Collective.REDUCE):
            return 1.0
        return (2 if self.test == Collective.ALLREDUCE else 1) * (n - 1) / n


def read_log(path: Path, *, test: str | None = None, ranks: int | None = None) -> NcclLog:
    """Read the output of an nccl-tests program.

    Parameters
    ----------
    test, ranks
        The collective and its number of ranks, where the log does not say.

    Raises
    ------
    InputError
        If the file is no such log or leaves one of these open.
    """
    text = read_text(path, InputError)
    points = [point for line in text.splitlines() if (point := _point(line)) is not None]
    if not points:
        raise InputError(f"log {path} has no times as nccl-tests prints them; give its output")
    named = _PROGRAM.search(text)
    name = test or (named[1] if named else None)
    if name is None:
        raise InputError(f"log {path} does not name its program; say which with --collective")
    found = ranks or len(set(_RANK.findall(text)))
    if found < 2:
        raise InputError(f"log {path} lists {found} ranks; say how many there were with --ranks")
    return NcclLog(
        name=str(path),
        test=_NAMES.get(name, name),
        ranks=found,
        sizes=tuple(size for size, _ in points),
        seconds=tuple(seconds for _, seconds in points),
    )


def _point(line: str) -> tuple[int, float] | None:
    """Size and seconds of a line: size, count, type, redop, root, time in microseconds, ..."""
    words = line.split()
    if len(words) < 8 or line.lstrip().startswith("#") or not words[0].isdigit():
        return None
    try:
        microseconds = float(words[5])
    except ValueError:
        return None
    return (int(words[0]), microseconds * 1e-6) if microseconds > 0 and int(words[0]) else None
