"""Actions: all real steps of a program as arrays, for compiled code to walk over."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from teccl.formats.msccl.prove.machine import Machine
from teccl.formats.msccl.prove.program_tree import StepType

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LETTERS = "ios"
_LETTER = {letter: index for index, letter in enumerate(LETTERS)}
_KINDS = tuple(StepType)
_KIND = {kind: index for index, kind in enumerate(_KINDS)}
# More than any number of a step; pairs of block and number become one number with it.
_BEYOND = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Actions of all blocks, numbered through.

    Parameters
    ----------
    first
        Number of each block's first, and the end of the last.
    block, place
        Of every action.
    kind
        Index among the types of steps.
    count
        Chunks that it moves.
    buffer, offset
        Letter and place of source and target, one row each.
    sends_on, receives_on
        The connections that it uses, -1 for none.
    published
        The number that it publishes, -1 for none.
    first_wait, wait_block, wait_number
        Where its waits stand, and blocks and numbers that they are for.
    num_connections
        Of the whole program.
    """

    first: Integers
    block: Integers
    place: Integers
    kind: Integers
    count: Integers
    buffer: Integers
    offset: Integers
    sends_on: Integers
    receives_on: Integers
    published: Integers
    first_wait: Integers
    wait_block: Integers
    wait_number: Integers
    num_connections: int

    def __len__(self) -> int:
        return len(self.block)

    def has(self, quality: str) -> Flags:
        """Whether each action's type is of a kind, as `StepType` names it."""
        return _has(self.kind, quality)

    def is_a(self, kind: StepType) -> Flags:
        """Whether each action is of a type."""
        return self.kind == _KIND[kind]

    def sources(self, *, messages: bool) -> tuple[Integers, Integers]:
        """What each action comes after: a list, and where in it the action's own stand.

        These are, as published numbers only grow, the first publication that ends each of its
        waits and, where messages count, the send whose data it receives.
        """
        receives = (self.receives_on >= 0) & messages
        count = np.diff(self.first_wait) + receives
        first = np.concatenate([[0], np.cumsum(count)])
        source = np.empty(first[-1], dtype=np.int64)
        is_arrival = np.zeros(len(source), dtype=bool)
        is_arrival[first[1:][receives] - 1] = True
        source[~is_arrival] = self._publishers()
        if messages:
            source[is_arrival] = self._senders()
        return first, source

    def _publishers(self) -> Integers:
        """The action that ends each wait."""
        publishing = np.flatnonzero(self.published >= 0)
        names = self.block[publishing] * _BEYOND + self.published[publishing]
        return publishing[np.searchsorted(names, self.wait_block * _BEYOND + self.wait_number)]

    def _senders(self) -> Integers:
        """The action whose data each receiving action takes."""
        sends, receives = (
            np.flatnonzero(used >= 0)[np.argsort(used[used >= 0], kind="stable")]
            for used in (self.sends_on, self.receives_on)
        )
        sender = np.full(len(self), -1)
        sender[receives] = sends
        return sender[self.receives_on >= 0]


def actions_of(machine: Machine) -> Actions:
    """Number the actions of a machine through."""
    length = np.array([len(actions) for actions in machine.actions], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(length)])
    block = np.repeat(np.arange(len(length)), length)
    flat = list(chain.from_iterable(machine.actions))
    rows = (
        (
            *(_KIND[step.type], step.cnt, _LETTER[step.srcbuf], _LETTER[step.dstbuf]),
            *(step.srcoff, step.dstoff, step.number if step.hasdep else -1, len(waits)),
        )
        for step, waits, _, _ in flat
    )
    table = np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 8).T.copy()
    waits = np.array([wait for action in flat for wait in action.waits], dtype=np.int64)
    wait_block, wait_number = waits.reshape(-1, 2).T
    sends_on, receives_on = (
        np.where(_has(table[0], quality), np.array(connections, dtype=np.int64)[block], -1)
        for quality, connections in (
            ("sends", machine.sends_on),
            ("receives", machine.receives_on),
        )
    )
    return Actions(
        first=first,
        block=block,
        place=np.arange(len(block)) - first[block],
        kind=table[0],
        count=table[1],
        buffer=table[2:4],
        offset=table[4:6],
        sends_on=sends_on,
        receives_on=receives_on,
        published=table[6],
        first_wait=np.concatenate([[0], np.cumsum(table[7])]),
        wait_block=wait_block.copy(),
        wait_number=wait_number.copy(),
        num_connections=machine.num_connections,
    )


def _has(kind: Integers, quality: str) -> Flags:
    return np.array([getattr(one, quality) for one in _KINDS])[kind]
