"""Program: what an MSCCL or RCCL file says, element by element."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class StepType(Enum):
    """What a step does; all addresses are those of the executing GPU.

    Each has its name in files and says whether it sends, receives, reads the chunks at `srcbuf`,
    `srcoff` and writes those at `dstbuf`, `dstoff`.
    """

    SEND = ("s", True, False, True, False)
    RECEIVE = ("r", False, True, False, True)
    RECEIVE_COPY_SEND = ("rcs", True, True, False, True)
    RECEIVE_REDUCE_SEND = ("rrs", True, True, True, False)
    RECEIVE_REDUCE_COPY = ("rrc", False, True, True, True)
    RECEIVE_REDUCE_COPY_SEND = ("rrcs", True, True, True, True)
    COPY = ("cpy", False, False, True, True)
    REDUCE = ("re", False, False, True, True)
    NOTHING = ("nop", False, False, False, False)

    def __init__(
        self, code: str, sends: bool, receives: bool, reads_source: bool, writes_target: bool
    ) -> None:
        self.code = code
        self.sends = sends
        self.receives = receives
        self.reads_source = reads_source
        self.writes_target = writes_target


class ProgramStep(NamedTuple):
    """One step of a thread block, as written.

    `order` is no runtime's: by it exporters may say in which order transfers were meant to take
    place that go over several channels, -1 where they do not.
    """

    number: int
    type: StepType
    srcbuf: str
    srcoff: int
    dstbuf: str
    dstoff: int
    cnt: int
    depid: int
    deps: int
    hasdep: int
    order: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBlock:
    """A thread block: at most one peer to send to, one to receive from, steps in order."""

    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[ProgramStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One rank: sizes of its buffers in chunks, by letter, and its thread blocks in file order."""

    id: int
    chunks: dict[str, int]
    blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole file.

    Parameters
    ----------
    attributes
        Those of the root, as written.
    gpus
        In file order.
    remarks
        Where the text departs from what the runtimes' readers accept, though it can be understood.
    """

    attributes: dict[str, str]
    gpus: tuple[Gpu, ...] = field(repr=False)
    remarks: tuple[str, ...] = ()

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return an attribute of the root as a whole number, the default if it is not one."""
        text = self.attributes.get(name, "")
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
            return default
        return int(text)
