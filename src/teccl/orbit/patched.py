"""PatchedSchedule: an orbit schedule of a fabric with damage, patched around it.

All images of the orbit schedule's transfers stay but those that are *removed*, which are listed by
transfer and element of the group, and single sends are *added*. What is listed grows with the
damage and with the GPUs, never with all sends.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl._arrays import IntArray, expand, ints, is_among, new_run
from teccl.errors import ScheduleError
from teccl.orbit.damage import Damage
from teccl.orbit.fabric import Fabric
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule
from teccl.schedule import BoundSummary
from teccl.units import MAX_SECONDS, PICOSECONDS, format_bandwidth, format_size, picoseconds

# An added send: the image of a chunk orbit's first chunk under an element, on one link.
ADDED_DTYPE = np.dtype(
    [
        ("chunk", np.int64),
        ("element", np.int64),
        ("link", np.int64),
        ("transfer", np.int64),
        ("start_ps", np.int64),
        ("reduce", np.bool_),
    ]
)
# A removed image of a transfer.
REMOVED_DTYPE = np.dtype([("transfer", np.int64), ("element", np.int64)])
Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedSchedule:
    """An orbit schedule without some images, and with sends of its own.

    Parameters
    ----------
    base
        A correct orbit schedule of the fabric without damage; it claims nothing.
    damage
        Links that are down or slow.
    removed
        Array of `REMOVED_DTYPE`: images of transfers of the base that do not take place; kept
        sorted.
    added
        Array of `ADDED_DTYPE`: sends in their stead, with transfers numbered on their own.
    method, bound, claimed_finish_ps
        As of an `OrbitSchedule`; the bound is that of the damaged fabric.
    """

    base: OrbitSchedule = field(repr=False)
    damage: Damage = field(repr=False)
    removed: Rows = field(repr=False)
    added: Rows = field(repr=False)
    method: str = "unknown"
    bound: BoundSummary | None = None
    claimed_finish_ps: int | None = None

    def __post_init__(self) -> None:
        if self.damage.fabric != self.base.fabric:
            raise ScheduleError("the damage is that of another fabric; give the schedule's own")
        order, problem = self.base.fabric.group.order, self.base.problem
        if problem.groups is not None:
            raise ScheduleError("groups of ranks are not patched around damage; plan them anew")
        check_lengths(problem, self.damage)
        whole = 2**31 - 1
        _check("removed", self.removed, REMOVED_DTYPE, {"transfer": whole, "element": order})
        limits = {"chunk": problem.num_chunk_orbits, "element": order, "transfer": whole}
        limits |= {"link": problem.fabric.num_links, "start_ps": 2**62}
        _check("added", self.added, ADDED_DTYPE, limits)
        number = self.removed["transfer"]
        unknown = number[~is_among(number, self.base.sends["transfer"])]
        if len(unknown):
            raise ScheduleError(
                f"removed: transfer {unknown.min()} is not in the schedule; drop it"
            )
        image = number * order + self.removed["element"]
        sorted_by = np.argsort(image, kind="stable")
        if not new_run(image[sorted_by]).all():
            raise ScheduleError("removed: an image is named twice; name each once")
        still = np.flatnonzero(~problem.is_moved(self.added["chunk"]))
        if len(still):
            raise ScheduleError(f"added {still[0]} is of a chunk from a gpu to itself; drop it")
        ordered = self.added
        if not _is_sorted(ordered):
            columns = ordered["chunk"], ordered["link"], ordered["start_ps"]
            ordered = ordered[np.lexsort(columns)]
        for name, array in (("added", ordered), ("removed", self.removed[sorted_by])):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return (
            f"PatchedSchedule({self.method!r}, {self.problem.collective.value} on "
            f"{self.fabric.name!r}, {len(self.damage.rates)} links damaged, "
            f"{len(self)} sends of {self.num_sends} listed, {self.finish_time_s * 1e6:.6g} us)"
        )

    def __len__(self) -> int:
        return len(self.base) + len(self.added)

    @property
    def problem(self) -> FabricProblem:
        """What is asked for; the damage is beside it."""
        return self.base.problem

    @property
    def fabric(self) -> Fabric:
        """The network without damage."""
        return self.base.fabric

    @property
    def num_sends(self) -> int:
        """Sends of the whole schedule."""
        transfer, hops = np.unique(self.base.sends["transfer"], return_counts=True)
        gone = hops[np.searchsorted(transfer, self.removed["transfer"])]
        return self.base.num_sends - int(gone.sum()) + len(self.added)

    @property
    def added_times(self) -> tuple[IntArray, IntArray]:
        """For how long each added send holds its link, and when it is at the far end."""
        held, alpha = lengths(self.problem, self.damage, self.added["link"])
        return held, self.added["start_ps"] + held + alpha

    @property
    def finish_ps(self) -> int:
        """Picoseconds until the last arrival."""
        if self.claimed_finish_ps is not None:
            return self.claimed_finish_ps
        transfer, count = np.unique(self.removed["transfer"], return_counts=True)
        gone = transfer[count == self.fabric.group.order]
        kept = ~np.isin(self.base.sends["transfer"], gone)
        last = int(self.base.arrival_ps[kept].max(initial=0))
        return max(last, int(self.added_times[1].max(initial=0)))

    @property
    def finish_time_s(self) -> float:
        """Seconds until the last arrival."""
        return self.finish_ps / PICOSECONDS

    def load(self) -> npt.NDArray[np.float64]:
        """Fraction of the finish time for which the busiest link of each orbit is."""
        fabric, sends = self.fabric, self.base.sends
        line = fabric.link_orbit(np.arange(fabric.num_links))
        busy = np.bincount(
            fabric.link_orbit(sends["link"]), weights=self.base.held_ps, minlength=len(fabric.links)
        )[line]
        by = np.argsort(sends["transfer"], kind="stable")
        low, high = (
            np.searchsorted(sends["transfer"][by], self.removed["transfer"], side=side)
            for side in ("left", "right")
        )
        rows = by[expand(low, high - low)]
        gone = fabric.moved_links(
            sends["link"][rows], np.repeat(self.removed["element"], high - low)
        )
        np.subtract.at(busy, gone, self.base.held_ps[rows])
        np.add.at(busy, self.added["link"], self.added_times[0])
        most = np.zeros(len(fabric.links))
        np.maximum.at(most, line, busy)
        return most / max(1, self.finish_ps)

    @property
    def bytes_on_wire(self) -> Fraction:
        """Bytes carried by all links together, every hop of every image counted."""
        return self.num_sends * self.problem.chunk_bytes

    def save(self, path: str | Path) -> None:
        """Write the schedule file; compressed when the name ends in ``.gz``."""
        from teccl.orbit.files import save_orbit

        save_orbit(self, Path(path))


def check_lengths(problem: FabricProblem, damage: Damage) -> None:
    """Refuse what numbers of 64 bits do not tell apart: very late times, very many chunks at ranks.

    Raises
    ------
    ScheduleError
        If a damaged link is too slow, or all chunks at all ranks are too many.
    """
    fabric = problem.fabric
    if problem.num_chunk_orbits * fabric.group.order * fabric.num_gpus >= 2**63:
        raise ScheduleError(
            f"{problem.num_chunks} pieces are too many to patch among {fabric.num_gpus} gpus; "
            "give fewer with --chunks"
        )
    count = problem.fabric.num_nodes * problem.num_chunk_orbits
    for link, rate in damage.rates.items():
        if rate is not None and problem.chunk_bytes / rate * count > MAX_SECONDS:
            raise ScheduleError(
                f"chunks of {format_size(problem.chunk_bytes)} take too long on damaged link "
                f"{link} with {format_bandwidth(rate)}; give a smaller size, or take it down"
            )


def lengths(problem: FabricProblem, damage: Damage, links: IntArray) -> tuple[IntArray, IntArray]:
    """Picoseconds for which a chunk holds each link, damage considered, and the links' latency.

    Links that are down count as they were.
    """
    fabric, size, orbit = problem.fabric, problem.chunk_bytes, problem.fabric.link_orbit(links)
    alpha = ints([picoseconds(link.alpha) for link in fabric.links])
    held = ints(
        [picoseconds(link.overhead) + picoseconds(size / link.bandwidth) for link in fabric.links]
    )[orbit]
    for link, rate in damage.rates.items():
        if rate is not None:
            here = links == link
            held[here] = picoseconds(fabric.link_at(link).overhead) + picoseconds(size / rate)
    return held, alpha[orbit]


def _is_sorted(added: Rows) -> bool:
    """Whether added sends are in order of start, link and chunk."""
    in_order = np.ones(max(0, len(added) - 1), dtype=bool)
    for column in ("chunk", "link", "start_ps"):
        a, b = added[column][:-1], added[column][1:]
        in_order = (a < b) | ((a == b) & in_order)
    return bool(in_order.all())


def _check(what: str, rows: Rows, dtype: np.dtype[Any], limits: dict[str, int]) -> None:
    """Refuse columns of another type or out of range."""
    if rows.dtype != dtype:
        raise ScheduleError(f"{what} has type {rows.dtype}; use {dtype}")
    for column, limit in limits.items():
        bad = np.flatnonzero((rows[column] < 0) | (rows[column] >= limit))
        if len(bad):
            raise ScheduleError(
                f"{what} {bad[0]} has {column} {rows[column][bad[0]]}; "
                f"it must be from 0 to {limit - 1}"
            )
