"""Finding: one thing wrong with a program, and where."""

from dataclasses import dataclass
from enum import StrEnum

# A broken file may break a rule in every step; this many of a kind name the trouble well enough.
MAX_PER_KIND = 20


class FindingKind(StrEnum):
    """What is wrong with a program."""

    SYNTAX = "syntax"
    ATTRIBUTE = "attribute"
    LIMIT = "limit"
    PEER = "peer"
    BOUNDS = "bounds"
    DEPENDENCY = "dependency"
    UNMATCHED = "unmatched"
    COUNT_MISMATCH = "count-mismatch"
    DEADLOCK = "deadlock"
    RACE = "race"
    INPUT_OVERWRITTEN = "input-overwritten"
    WRONG_RESULT = "wrong-result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong.

    Parameters
    ----------
    kind
        Which rule is broken.
    detail
        A sentence with the values and, for limits, the limit.
    gpu, block, step
        Where: the rank, the id of the thread block, the number of the step; None where the rule
        is not about one.
    """

    kind: FindingKind
    detail: str
    gpu: int | None = None
    block: int | None = None
    step: int | None = None

    @property
    def where(self) -> str:
        """The place in words, empty for the whole file."""
        parts = [("gpu", self.gpu), ("tb", self.block), ("step", self.step)]
        return ", ".join(f"{name} {value}" for name, value in parts if value is not None)

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.kind.value}{place}: {self.detail}"


class Findings:
    """Collects findings, a limited number of each kind."""

    def __init__(self) -> None:
        self._found: dict[FindingKind, list[Finding]] = {}

    def add(
        self,
        kind: FindingKind,
        detail: str,
        *,
        gpu: int | None = None,
        block: int | None = None,
        step: int | None = None,
    ) -> None:
        """Note one thing, unless enough of its kind are known."""
        if not self.is_full(kind):
            finding = Finding(kind=kind, detail=detail, gpu=gpu, block=block, step=step)
            self._found.setdefault(kind, []).append(finding)

    def is_full(self, kind: FindingKind) -> bool:
        """Whether more of a kind would say nothing new."""
        return len(self._found.get(kind, ())) >= MAX_PER_KIND

    def all(self) -> tuple[Finding, ...]:
        """Return everything found, in the order of the kinds."""
        return tuple(f for kind in FindingKind for f in self._found.get(kind, ()))

    def __bool__(self) -> bool:
        return bool(self._found)
