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
from teccl.torch.plans import Entry, Found, Plans, find_entry
from teccl.torch.synthesis import Synthesis

# Choices that are remembered; a program of ever new sizes must not fill the memory with them.
_KEPT = 4096


class Wanted(NamedTuple):
    """What a call is about; the same on all ranks of a correct program.

    One is made and looked up for every call, which a plain tuple does quickest.

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
    size_bytes: int
    root: int | None = None
    op: object | None = None
    is_even: bool = True
    is_dense: bool = True

    @staticmethod
    def of(
        collective: Collective,
        tensor: Tensor,
        *,
        times: int = 1,
        root: int | None = None,
        op: object | None = None,
        is_even: bool = True,
    ) -> "Wanted":
        """Describe a call by one of its tensors and how many of that size there are."""
        count = tensor.numel() * times
        return Wanted(
            collective=collective,
            elements=count,
            dtype=tensor.dtype,
            device=tensor.device,
            size_bytes=count * tensor.element_size(),
            root=root,
            op=op,
            is_even=is_even,
            is_dense=tensor.layout == torch.strided,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A schedule and how it combines, or why there is none."""

    entry: Entry | None = None
    combine: Callable[..., Tensor] | None = None
    reason: str = ""


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
    inner
        The inner group, over which ranks agree where one cannot tell by itself.
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
        inner: Any,
        devices: Sequence[str],
        strict: bool,
    ) -> None:
        self._plans, self._synthesis, self._ranks = plans, synthesis, ranks
        self._inner, self._devices, self._strict = inner, tuple(devices), strict
        self._known: dict[Wanted, Chosen] = {}

    def find(self, wanted: Wanted) -> Chosen:
        """Return the schedule for a call.

        Raises
        ------
        RunError
            If none covers it and the group is strict.
        """
        if wanted not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            combine, refusal = self._combination(wanted)
            found = Found(reason=refusal) if refusal else self._entry(wanted)
            self._known[wanted] = Chosen(entry=found.entry, combine=combine, reason=found.reason)
        chosen = self._known[wanted]
        if chosen.entry is None and self._strict and wanted.elements:
            raise RunError(
                f"{wanted.collective} of {wanted.size_bytes} bytes is left to the inner group, "
                f"which a strict group refuses: {chosen.reason}"
            )
        return chosen

    def _combination(self, wanted: Wanted) -> tuple[Callable[..., Tensor] | None, str]:
        """Return how a call combines, and what no schedule could do about it."""
        if not wanted.elements:
            return None, "no data"
        if len(self._ranks) == 1:
            return None, "one rank"
        if not wanted.is_even:
            return None, "parts of different sizes"
        if not wanted.is_dense or wanted.device.type not in self._devices:
            return None, f"tensors on {wanted.device.type} that are not plain"
        if wanted.op is None:
            return None, ""
        combine = combiner(wanted.op, wanted.dtype)
        if combine is None:
            kind = str(wanted.dtype).removeprefix("torch.")
            return None, f"{_op_name(wanted.op)} of {kind} is the inner group's own"
        return combine, ""

    def _entry(self, wanted: Wanted) -> Found:
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
            return Found(reason=f"{entry.name} sums in another order on each rank")
        return found

    def is_even_everywhere(self, sizes: Sequence[int], tensor: Tensor) -> bool:
        """Whether all parts of an all_to_all have one size on all ranks.

        A rank sees its own parts only, so the ranks compare, unless none could use a schedule.
        """
        known = any(entry.collective is Collective.ALLTOALL for entry in self._plans.entries)
        if not (known or self._synthesis is not None) or tensor.device.type != "cpu":
            return False
        size = sizes[0] if len(set(sizes)) == 1 else -1
        seen = torch.tensor([size, -size], dtype=torch.int64)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MIN
        self._inner.allreduce([seen], options).wait()
        return bool(seen[0] == size and -seen[1] == size and size > 0)


def _op_name(op: object) -> str:
    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM"):
        if op == getattr(dist.ReduceOp, name, None):
            return name
    return "this operation"
