"""GOAL text as operations: sends, receives and computations of every rank, and what waits.

The grammar is that of LogGOPSim's ``txt2bin``: ``num_ranks N``, then for every rank
``rank R { ... }`` with one operation or dependency a line. What a message carries is not part of
GOAL; a comment ``// collective NAME, chunks N`` may say which collective the file is. It may go on
with ``, root R``, with ``, whole buffer`` where that many chunks are the whole buffer, and with
``, partial sums`` where computations keep their results apart.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from teccl import _files as files
from teccl.errors import ScheduleError

MAX_LINES = 2_000_000
MAX_RANKS = 2**16
# An index of a network interface or processor is one byte in the binary form.
MAX_INDEX = 255
_NAME = r"[A-Za-z][A-Za-z0-9_]*"
# Label, kind, bytes, direction, peer, tag, processor, interface; or time and processor.
_LINE = re.compile(
    rf"(?:({_NAME})\s*:\s*)?"
    r"(?:(send|recv)\s+(\d{1,18})\s*b\s+(to|from)\s+(-1|\d{1,9})"
    r"(?:\s+tag\s+(-1|\d{1,10}))?(?:\s+cpu\s+(\d{1,9}))?(?:\s+nic\s+(\d{1,9}))?"
    r"|calc\s+(\d{1,18})(?:\s+cpu\s+(\d{1,9}))?)",
    re.ASCII,
)
_REQUIRES = re.compile(rf"({_NAME})\s+(i?requires)\s+({_NAME})", re.ASCII)
_RANK = re.compile(r"rank\s+(\d{1,9})\s*\{", re.ASCII)
_NUM_RANKS = re.compile(r"num_ranks\s+(\d{1,9})", re.ASCII)
_TITLE = re.compile(
    r"collective (?P<name>[a-z]{1,20}), chunks (?P<chunks>\d{1,9})(?:, root (?P<root>\d{1,9}))?"
    r"(?P<whole>, whole buffer)?(?P<sums>, partial sums)?",
    re.ASCII,
)


class GoalKind(StrEnum):
    """What an operation does."""

    SEND = "send"
    RECEIVE = "recv"
    COMPUTE = "calc"


_MESSAGES = {"send": GoalKind.SEND, "recv": GoalKind.RECEIVE}


class Operation(NamedTuple):
    """One operation of a rank.

    Parameters
    ----------
    kind
        Send, receive or compute.
    amount
        Bytes of a message, or time of a computation.
    peer, tag
        The other rank of a message, and what tells it from others between the two.
    cpu, nic
        Processor and network interface that it occupies.
    line
        Where it stands in the file.
    """

    kind: GoalKind
    amount: int
    peer: int
    tag: int
    cpu: int
    nic: int
    line: int


class Dependency(NamedTuple):
    """An operation waits for another of its rank: for its end, or (`on_start`) its start."""

    after: int
    before: int
    on_start: bool


@dataclass(slots=True)
class Rank:
    """Operations of one rank in the order of the file, and what waits for what among them."""

    operations: list[Operation] = field(default_factory=list)
    dependencies: list[Dependency] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """What a comment says about the messages.

    Parameters
    ----------
    collective, root
        Which collective.
    num_chunks
        Chunks of each block, or of a `whole_buffer`.
    has_sums
        Whether computations keep their results apart, else each adds to what its rank holds.
    """

    collective: str
    num_chunks: int
    root: int | None
    whole_buffer: bool
    has_sums: bool

    def __str__(self) -> str:
        root = "" if self.root is None else f", root {self.root}"
        whole = ", whole buffer" if self.whole_buffer else ""
        sums = ", partial sums" if self.has_sums else ""
        return f"collective {self.collective}, chunks {self.num_chunks}{root}{whole}{sums}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalProgram:
    """A GOAL file: the operations of every rank, and the title if it has one."""

    ranks: tuple[Rank, ...]
    title: Title | None


def parse(text: str) -> GoalProgram:
    """Parse GOAL text.

    Raises
    ------
    ScheduleError
        If a line is not GOAL, a label or rank is not there, or the text passes a limit.
    """
    return _Parsing().run(text)


class _Parsing:
    """Goes through the lines of a file."""

    def __init__(self) -> None:
        self._ranks: list[Rank | None] = []
        self._current: Rank | None = None
        self._labels: dict[str, int] = {}
        self._title: Title | None = None

    def run(self, text: str) -> GoalProgram:
        """Parse all lines."""
        if text.count("\n") > MAX_LINES:
            raise ScheduleError(f"has more than {MAX_LINES} lines; give a smaller file")
        in_comment = False
        for number, line in enumerate(text.splitlines(), start=1):
            bare = line.strip()
            if in_comment or bare.startswith("/*"):
                in_comment = "*/" not in bare
            elif bare.startswith("//"):
                self._comment(bare)
            elif bare:
                self._line(bare, number)
        if self._current is not None:
            raise ScheduleError("the last rank is not closed; the file is cut off")
        missing = next((i for i, rank in enumerate(self._ranks) if rank is None), None)
        if missing is not None or not self._ranks:
            raise ScheduleError(f"rank {missing or 0} is not there; the file is no GOAL or cut off")
        return GoalProgram(ranks=tuple(r for r in self._ranks if r is not None), title=self._title)

    def _comment(self, line: str) -> None:
        found = _TITLE.search(line[:200])
        if found is not None and self._title is None:
            root = found["root"]
            self._title = Title(
                collective=found["name"],
                num_chunks=int(found["chunks"]),
                root=None if root is None else int(root),
                whole_buffer=found["whole"] is not None,
                has_sums=found["sums"] is not None,
            )

    def _line(self, line: str, number: int) -> None:
        found = _LINE.fullmatch(line)
        if found is not None:
            self._operation(found, number)
        elif (found := _REQUIRES.fullmatch(line)) is not None:
            self._dependency(found, number)
        elif (found := _RANK.fullmatch(line)) is not None:
            self._open(int(found[1]), number)
        elif line == "}" and self._current is not None:
            self._current = None
        elif (found := _NUM_RANKS.fullmatch(line)) is not None and not self._ranks:
            if not 1 <= int(found[1]) <= MAX_RANKS:
                raise ScheduleError(f"line {number}: num_ranks is {found[1]}; 1 to {MAX_RANKS}")
            self._ranks = [None] * int(found[1])
        else:
            raise ScheduleError(f"line {number} is {files.shown(line)}, which is not GOAL")

    def _open(self, rank: int, number: int) -> None:
        if self._current is not None or rank >= len(self._ranks) or self._ranks[rank] is not None:
            raise ScheduleError(
                f"line {number}: rank {rank} is not one of {len(self._ranks)}, appears twice or "
                "begins within another"
            )
        self._current = self._ranks[rank] = Rank()
        self._labels = {}

    def _operation(self, found: re.Match[str], number: int) -> None:
        if self._current is None:
            raise ScheduleError(f"line {number}: an operation outside of a rank")
        label, kind, *message, time, calc_cpu = found.groups()
        if kind is None:
            cpu = _index(calc_cpu, "cpu", number)
            operation = Operation(GoalKind.COMPUTE, int(time), 0, 0, cpu, 0, number)
        else:
            operation = self._message(_MESSAGES[kind], message, number)
        if label is not None:
            if label in self._labels:
                raise ScheduleError(
                    f"line {number}: label {files.shown(label)} appears twice in its rank"
                )
            self._labels[label] = len(self._current.operations)
        self._current.operations.append(operation)

    def _message(self, kind: GoalKind, parts: Sequence[str | None], number: int) -> Operation:
        size_text, way, peer_text, tag_text, cpu_text, nic_text = parts
        if (kind is GoalKind.SEND) != (way == "to"):
            raise ScheduleError(f"line {number}: write 'send ... to' and 'recv ... from'")
        peer, tag, size = int(peer_text or 0), int(tag_text or 0), int(size_text or 0)
        if peer < 0 or tag < 0:
            raise ScheduleError(f"line {number}: takes any source or tag; name them")
        if peer >= len(self._ranks) or self._ranks[peer] is self._current:
            raise ScheduleError(f"line {number}: rank {peer} is not another of the file's ranks")
        if tag >= 2**32 - 1 or size < 1:
            raise ScheduleError(f"line {number}: a tag has 32 bits and a message at least one byte")
        cpu, nic = _index(cpu_text, "cpu", number), _index(nic_text, "nic", number)
        return Operation(kind, size, peer, tag, cpu, nic, number)

    def _dependency(self, found: re.Match[str], number: int) -> None:
        if self._current is None:
            raise ScheduleError(f"line {number}: a dependency outside of a rank")
        ends = []
        for label in (found[1], found[3]):
            if label not in self._labels:
                raise ScheduleError(
                    f"line {number}: label {files.shown(label)} does not stand before it"
                )
            ends.append(self._labels[label])
        on_start = found[2] == "irequires"
        self._current.dependencies.append(Dependency(ends[0], ends[1], on_start))


def _index(text: str | None, what: str, number: int) -> int:
    value = int(text or 0)
    if value > MAX_INDEX:
        raise ScheduleError(f"line {number}: {what} {value} is more than {MAX_INDEX}")
    return value


class Spot(NamedTuple):
    """An operation: its rank, and its position there."""

    rank: int
    position: int


def match_messages(program: GoalProgram) -> list[tuple[Spot, Spot]]:
    """Return the sends with their receives: the k-th of a tag with the k-th between two ranks.

    Raises
    ------
    ScheduleError
        If one has no counterpart, or the two differ in size.
    """
    sent: dict[tuple[int, int, int], deque[Spot]] = {}
    taken: dict[tuple[int, int, int], deque[Spot]] = {}
    for number, rank in enumerate(program.ranks):
        for position, op in enumerate(rank.operations):
            if op.kind is GoalKind.SEND:
                sent.setdefault((number, op.peer, op.tag), deque()).append(Spot(number, position))
            elif op.kind is GoalKind.RECEIVE:
                taken.setdefault((op.peer, number, op.tag), deque()).append(Spot(number, position))
    pairs = []
    for key in sorted(sent.keys() | taken.keys()):
        sends, receives = sent.get(key, deque()), taken.get(key, deque())
        if len(sends) != len(receives):
            raise ScheduleError(
                f"{len(sends)} sends and {len(receives)} receives of tag {key[2]} from rank "
                f"{key[0]} to rank {key[1]}; every message needs both"
            )
        for send, receive in zip(sends, receives, strict=True):
            one, other = at(program, send), at(program, receive)
            if one.amount != other.amount:
                raise ScheduleError(
                    f"lines {one.line} and {other.line} are one message of {one.amount} and of "
                    f"{other.amount} bytes"
                )
            pairs.append((send, receive))
    return pairs


def at(program: GoalProgram, place: Spot) -> Operation:
    """Return the operation at a place."""
    return program.ranks[place.rank].operations[place.position]
