"""Plans: the folders that ``teccl sweep --plan`` writes, read for a group of ranks."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl.demand import Collective
from teccl.errors import InputError
from teccl.rounds.executable import Executable
from teccl.schedule import Schedule

PLAN_FILE = "plan.json"
FORMAT, SCHEMA_VERSION = "teccl-plan", 1
# What the calls of torch.distributed can ask for.
COLLECTIVES = (
    *(Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER, Collective.ALLTOALL),
    *(Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER),
)


@dataclass(slots=True, kw_only=True)
class Entry:
    """A schedule and the sizes it serves.

    Parameters
    ----------
    name
        What people call it: the file, or that it was synthesised.
    min_bytes, max_bytes
        Sizes from the first up to, but without, the second.
    schedule
        What to run.
    """

    name: str
    min_bytes: int
    max_bytes: int
    schedule: Schedule
    _executable: Executable | None = field(default=None, repr=False)

    @property
    def collective(self) -> Collective:
        """The collective."""
        return self.schedule.problem.demand.tenants[0].collective

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks of the world that take part, in order."""
        problem = self.schedule.problem
        return problem.demand.tenants[0].members(problem.topology.num_gpus)

    @property
    def root(self) -> int | None:
        """Rank of the world that is the root, None where there is none."""
        tenant = self.schedule.problem.demand.tenants[0]
        if not tenant.collective.has_root:
            return None
        return self.members[0] if tenant.root is None else tenant.root

    @property
    def outsiders(self) -> tuple[int, ...]:
        """Ranks of the world that forward for the members and are none."""
        messages = self.executable.messages
        used = {*messages.src.tolist(), *messages.dst.tolist()}
        return tuple(sorted(used - set(self.members)))

    @property
    def executable(self) -> Executable:
        """The schedule, prepared; made when it is first asked for."""
        if self._executable is None:
            self._executable = Executable.of(self.schedule)
        return self._executable


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """All schedules that some folders hold.

    Parameters
    ----------
    entries
        In the order of the folders.
    digest
        A hash of everything that was read.
    """

    entries: tuple[Entry, ...] = ()
    digest: str = ""


def read_plans(folders: Iterable[Path]) -> Plans:
    """Read folders of plans.

    Raises
    ------
    InputError
        If a folder holds no plan, or a file is damaged, foreign or of another version.
    """
    entries: list[Entry] = []
    total = hashlib.sha256()
    for given in folders:
        for folder in _plan_folders(given):
            read = list(_read_folder(folder, total))
            for entry in read:
                _check_entry(entry, folder)
            entries += read
    return Plans(entries=tuple(entries), digest=total.hexdigest())


def _plan_folders(folder: Path) -> list[Path]:
    if (folder / PLAN_FILE).is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob(f"*/{PLAN_FILE}"))
    if not inside:
        raise InputError(
            f"plan {folder} holds no {PLAN_FILE}; make one with: teccl sweep ... --plan {folder}"
        )
    return inside


def _read_folder(folder: Path, total: "hashlib._Hash") -> Iterator[Entry]:
    path = folder / PLAN_FILE
    document = files.read_document(path, InputError)
    where = f"plan {path}"
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{where} is no plan of teccl; make one with: teccl sweep --plan")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{where} has version {files.shown(document.get('schema_version'))}, this teccl reads "
            f"{SCHEMA_VERSION}; make it again with: teccl sweep --plan"
        )
    total.update(path.read_bytes())
    for i, item in enumerate(files.expect_list(document.get("ranges"), where, InputError)):
        yield _read_range(item, folder, f"{where}: range {i}", total)


def _read_range(item: Any, folder: Path, where: str, total: "hashlib._Hash") -> Entry:
    if not isinstance(item, dict):
        raise InputError(f"{where} is {files.shown(item)}; a range is an object")
    low, high = (
        files.expect_int(item.get(key), f"{where}: {key}", InputError, low=0, high=2**62)
        for key in ("minBytes", "maxBytes")
    )
    name = files.expect_text(item.get("schedule"), f"{where}: schedule", InputError)
    # Only files of the folder itself are opened.
    if Path(name).name != name or name in ("", ".", ".."):
        raise InputError(f"{where}: schedule {name[:60]!r} is no plain file name")
    schedule = Schedule.load(folder / name)
    total.update((folder / name).read_bytes())
    return Entry(name=name, min_bytes=low, max_bytes=high, schedule=schedule)


def _check_entry(entry: Entry, folder: Path) -> None:
    tenants = entry.schedule.problem.demand.tenants
    if len(tenants) > 1:
        raise InputError(
            f"plan {folder}: {entry.name} serves {len(tenants)} collectives at once; "
            "make one plan for each"
        )
    if entry.collective not in COLLECTIVES:
        raise InputError(
            f"plan {folder}: {entry.name} is {entry.collective}, which torch.distributed does not "
            f"have; use {', '.join(COLLECTIVES)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlan:
    """An entry for a call, or why there is none."""

    entry: Entry | None = None
    reason: str = ""


def check_world(plans: Plans, world_size: int) -> None:
    """Refuse plans that are for another number of GPUs than there are ranks.

    Raises
    ------
    InputError
        If one is.
    """
    for entry in plans.entries:
        num_gpus = entry.schedule.problem.topology.num_gpus
        if num_gpus != world_size:
            raise InputError(
                f"plan {entry.name} is for {num_gpus} GPUs and there are {world_size} ranks; "
                f"start {num_gpus}, or make a plan for a topology of {world_size}"
            )


def find_entry(
    entries: Sequence[Entry],
    collective: Collective,
    size: int,
    *,
    ranks: tuple[int, ...],
    root: int | None,
) -> FoundPlan:
    """Return the first entry that serves a call.

    Parameters
    ----------
    size
        Bytes as nccl-tests counts them.
    ranks
        Ranks of the world that the group has, in order.
    root
        Rank of the world.
    """
    known = [entry for entry in entries if entry.collective is collective]
    if not known:
        return FoundPlan(reason=f"no plan for {collective}")
    known = [entry for entry in known if entry.members == ranks]
    if not known:
        return FoundPlan(reason=f"no plan for {collective} among these ranks")
    known = [entry for entry in known if entry.root == root]
    if not known:
        return FoundPlan(reason=f"no plan for {collective} with root {root}")
    for entry in known:
        if entry.min_bytes <= size < entry.max_bytes:
            if entry.outsiders:
                return FoundPlan(reason=f"{entry.name} forwards through rank {entry.outsiders[0]}")
            return FoundPlan(entry=entry)
    low = min(entry.min_bytes for entry in known)
    high = max(entry.max_bytes for entry in known)
    return FoundPlan(reason=f"{size} bytes are outside the plan's {low} to {high - 1}")
