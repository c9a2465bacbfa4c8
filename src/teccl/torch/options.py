"""Options of the process group, from arguments and the environment."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from teccl.errors import InputError
from teccl.keywords import Effort
from teccl.topology import Topology

PLAN_VARIABLE = "TECCL_PLAN"
TOPOLOGY_VARIABLE = "TECCL_TOPOLOGY"
STRICT_VARIABLE = "TECCL_STRICT"
LOWERINGS = ("messages", "rounds")
_TRUE, _FALSE = ("1", "true", "yes"), ("", "0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What schedules a process group has; `pg_options` of ``init_process_group`` takes them.

    Parameters
    ----------
    plan
        Folders that ``teccl sweep --plan`` wrote, or folders of such folders.
    topology
        Topology of the ranks of the world, rank i at GPU i: sizes that no plan covers are
        synthesised when they are first used.
    effort
        How much work a synthesis does.
    strict
        Refuse collectives that no schedule covers instead of leaving them to the inner group.
    lowering
        ``"messages"``, each as soon as its data is there, or ``"rounds"`` of grouped calls; None
        takes messages on CPUs and rounds elsewhere.
    """

    plan: str | Path | Sequence[str | Path] | None = None
    topology: str | Path | Topology | None = None
    effort: str = "quick"
    strict: bool = False
    lowering: str | None = None

    def __post_init__(self) -> None:
        if self.lowering is not None and self.lowering not in LOWERINGS:
            raise InputError(
                f"lowering {str(self.lowering)[:40]!r} is unknown; use {' or '.join(LOWERINGS)}"
            )
        if self.effort not in tuple(Effort):
            raise InputError(
                f"effort {str(self.effort)[:40]!r} is unknown; use {', '.join(Effort)}"
            )

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of plans."""
        if self.plan is None:
            return ()
        given = [self.plan] if isinstance(self.plan, str | Path) else self.plan
        return tuple(Path(folder) for folder in given)


def options_from(environment: Mapping[str, str] | None = None) -> Options:
    """Read the options that the environment has.

    ``TECCL_PLAN`` lists folders as ``PATH`` does, ``TECCL_TOPOLOGY`` is a preset or a file, and
    ``TECCL_STRICT`` is 1 or 0.
    """
    given = os.environ if environment is None else environment
    strict = given.get(STRICT_VARIABLE, "").strip().lower()
    if strict not in (*_TRUE, *_FALSE):
        raise InputError(f"{STRICT_VARIABLE} {strict[:40]!r} is neither 1 nor 0")
    return Options(
        plan=[part for part in given.get(PLAN_VARIABLE, "").split(os.pathsep) if part] or None,
        topology=given.get(TOPOLOGY_VARIABLE) or None,
        strict=strict in _TRUE,
    )
