"""Choice: which schedule serves a call, decided alike on every rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from teccl.demand import Collective
from teccl.errors import RunError
from teccl.torch.calls import combiner
from teccl.torch.first_use import Synthesis
from teccl.torch.plans import Entry, FoundPlan, Plans, find_entry
from teccl.torch.records import Line

# Choices that are remembered; a program of ever new sizes must not fill the memory with them.
_KEPT = 4096


class WantedPlan(NamedTuple):
    """What a call is about; the same on all ranks of a correct program.

    Parameters
    ----------
    elements
        How many there are, as nccl-tests counts them.
    root
        Rank in the group, None where there is none.
    op
        How reductions combine, None where there are none.
    is_even
        Whether all ranks' parts have the same size.
    """

    collective: Collective
    elements: int
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    root: int | None
    op: object | None
    is_even: bool

    @property
    def size_bytes(self) -> int:
        """Bytes as nccl-tests counts them."""
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A schedule and how it combines, or why there is none.

    Parameters
    ----------
    line
        What the book of the group says about such calls.
    refusal
        Why a strict group refuses the call, empty where it does not.
    """

    entry: Entry | None = None
    combine: Callable[..., Tensor] | None = None
    line: Line
    refusal: str = ""


class Choice:
    """All schedules of a group.

    Parameters
    ----------
    plans
        What was planned.
    synthesis
        What makes schedules for sizes that no plan covers, None for nothing.
    ranks
        Ranks of the world that the group has, in order.
    devices
        Types of devices that schedules run on.
    strict
        Refuse calls that no schedule covers.
    """

    def __init__(
        self,
        plans: Plans,
        synthesis: Synthesis | None,
        *,
        ranks: tuple[int, ...],
        devices: Sequence[str],
        strict: bool,
    ) -> None:
        self._plans, self._synthesis, self._ranks = plans, synthesis, ranks
        self._devices, self._strict = tuple(devices), strict
        self._known: dict[tuple[Any, ...], Chosen] = {}

    def find(
        self,
        collective: Collective,
        part: Tensor,
        times: int = 1,
        *,
        root: int | None = None,
        op: object | None = None,
        is_even: bool = True,
    ) -> Chosen:
        """Return the schedule for a call, described by one of its tensors.

        Every call comes by here, so that what was found before takes one look-up.

        Parameters
        ----------
        times
            How many parts like this one there are.

        Raises
        ------
        RunError
            If none covers it and the group is strict.
        """
        count = part.numel() * times
        key = (collective, count, part.dtype, part.device, part.layout, root, op, is_even)
        chosen = self._known.get(key)
        if chosen is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            chosen = self._known[key] = self._decided(WantedPlan(*key))
        if chosen.refusal:
            raise RunError(chosen.refusal)
        return chosen

    def _decided(self, wanted: WantedPlan) -> Chosen:
        combine, refusal = self._combination(wanted)
        found = FoundPlan(reason=refusal) if refusal else self._entry(wanted)
        name, size = str(wanted.collective), wanted.size_bytes
        if found.entry is not None:
            line = (name, size, "schedule", found.entry.name)
            return Chosen(entry=found.entry, combine=combine, line=line)
        # What moves no data between ranks needs no schedule.
        is_refused = self._strict and wanted.elements and len(self._ranks) > 1
        return Chosen(
            line=(name, size, "inner", found.reason),
            refusal=f"{name} of {size} bytes is left to the inner group, which a strict group "
            f"refuses: {found.reason}"
            if is_refused
            else "",
        )

    def _combination(self, wanted: WantedPlan) -> tuple[Callable[..., Tensor] | None, str]:
        """Return how a call combines, and what no schedule could do about it."""
        if not wanted.elements:
            return None, "no data"
        if len(self._ranks) == 1:
            return None, "one rank"
        if not wanted.is_even:
            return None, "parts of different sizes"
        if wanted.layout != torch.strided or wanted.device.type not in self._devices:
            return None, f"tensors on {wanted.device.type} that are not plain"
        if wanted.op is None:
            return None, ""
        combine = combiner(wanted.op, wanted.dtype)
        if combine is None:
            kind = str(wanted.dtype).removeprefix("torch.")
            return None, f"{_op_name(wanted.op)} of {kind} is the inner group's own"
        return combine, ""

    def _entry(self, wanted: WantedPlan) -> FoundPlan:
        root = None if wanted.root is None else self._ranks[wanted.root]
        found = find_entry(
            self._plans.entries,
            wanted.collective,
            wanted.size_bytes,
            ranks=self._ranks,
            root=root,
        )
        if found.entry is None and self._synthesis is not None:
            found = self._synthesis.find(wanted.collective, wanted.size_bytes, wanted.root)
        entry = found.entry
        if entry is None or not wanted.dtype.is_floating_point or wanted.op is None:
            return found
        if not entry.executable.is_same:
            return FoundPlan(reason=f"{entry.name} sums in another order on each rank")
        return found

    def knows(self, collective: Collective) -> bool:
        """Whether there may be schedules for a collective."""
        is_planned = any(entry.collective is collective for entry in self._plans.entries)
        return is_planned or self._synthesis is not None


def _op_name(op: object) -> str:
    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM"):
        if op == getattr(dist.ReduceOp, name, None):
            return name
    return "this operation"
