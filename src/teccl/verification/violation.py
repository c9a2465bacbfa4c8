"""Violation: one thing a schedule does wrong, and the collection of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from teccl.problem import Problem
from teccl.units import display_time

# A broken schedule may break a rule a million times; this many name the trouble well enough.
MAX_PER_KIND = 1000


class ViolationKind(StrEnum):
    """What a schedule does wrong; kinds that begin with ``grid-`` speak of epochs."""

    MIXED_TRANSFER = "mixed-transfer"
    UNPAIRED_HOP = "unpaired-hop"
    LOST_IN_SWITCH = "lost-in-switch"
    SEVERAL_ROOTS = "several-roots"
    ILLEGAL_MERGE = "illegal-merge"
    SWITCH_COPY = "switch-copy"
    CYCLE = "cycle"
    SWITCH_TIMING = "switch-timing"
    OVERLAP = "overlap"
    OVERLOAD = "overload"
    SHARED_OVERLAP = "shared-overlap"
    NOT_HELD = "not-held"
    NOT_READY = "not-ready"
    TOO_EARLY = "too-early"
    GPU_COPY = "gpu-copy"
    WRONG_OP = "wrong-op"
    NOTHING_TO_SEND = "nothing-to-send"
    DOUBLE_REDUCTION = "double-reduction"
    LOST_CONTRIBUTION = "lost-contribution"
    WRONG_SUM = "wrong-sum"
    SLOT_OVERWRITTEN = "slot-overwritten"
    UNEQUAL_ORDER = "unequal-order"
    UNMET_DEMAND = "unmet-demand"
    BUFFER_EXCEEDED = "buffer-exceeded"
    WRONG_FINISH = "wrong-finish"
    WRONG_BOUND = "wrong-bound"

    GRID_CAPACITY = "grid-capacity"
    GRID_SHARED_CAPACITY = "grid-shared-capacity"
    GRID_SWITCH_TIMING = "grid-switch-timing"
    GRID_NOT_READY = "grid-not-ready"
    GRID_TOO_EARLY = "grid-too-early"
    GRID_GPU_COPY = "grid-gpu-copy"
    GRID_NOTHING_TO_SEND = "grid-nothing-to-send"
    GRID_DOUBLE_REDUCTION = "grid-double-reduction"
    GRID_LOST_CONTRIBUTION = "grid-lost-contribution"
    GRID_UNMET_DEMAND = "grid-unmet-demand"
    GRID_BUFFER_EXCEEDED = "grid-buffer-exceeded"

    @property
    def on_grid(self) -> "ViolationKind":
        """The kind that says the same of epochs."""
        if self.value.startswith("grid-"):
            return self
        return ViolationKind(f"grid-{self.value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing a schedule does wrong.

    Parameters
    ----------
    kind
        Which rule is broken.
    chunk, link
        Their indices, None where the rule is not about one.
    time_s
        When, in seconds.
    detail
        A sentence that names chunk, nodes and times.
    """

    kind: ViolationKind
    chunk: int | None
    link: int | None
    time_s: float | None
    detail: str

    def __str__(self) -> str:
        when = "" if self.time_s is None else f" at {display_time(self.time_s)}"
        return f"{self.kind.value}{when}: {self.detail}"


class ViolationList:
    """Violations found so far, at most `MAX_PER_KIND` of each kind."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._found: dict[ViolationKind, list[Violation]] = defaultdict(list)

    def is_full(self, kind: ViolationKind) -> bool:
        """Whether more of a kind would be dropped."""
        return len(self._found[kind]) >= MAX_PER_KIND

    def add(
        self,
        kind: ViolationKind,
        detail: str,
        *,
        chunk: int | None = None,
        link: int | None = None,
        time_s: float | None = None,
    ) -> None:
        """Note one violation; its detail is put behind the names of chunk and link."""
        if self.is_full(kind):
            return
        subject = [] if chunk is None else [self.problem.chunk_name(chunk)]
        if link is not None:
            subject.append(f"on {self.problem.topology.link_name(link)}")
        text = f"{' '.join(subject)}: {detail}" if subject else detail
        found = Violation(kind=kind, chunk=chunk, link=link, time_s=time_s, detail=text)
        self._found[kind].append(found)

    def add_each(
        self, kind: ViolationKind, rows: Iterable[int], note: Callable[[int], None]
    ) -> None:
        """Call `note` for rows until the kind is full."""
        for row in rows:
            if self.is_full(kind):
                return
            note(int(row))

    def take(self, other: "ViolationList") -> None:
        """Add what was found elsewhere."""
        for violation in other.all():
            if not self.is_full(violation.kind):
                self._found[violation.kind].append(violation)

    def all(self) -> tuple[Violation, ...]:
        """Return everything found, kind by kind in the order of `ViolationKind`."""
        return tuple(found for kind in ViolationKind for found in self._found[kind])
