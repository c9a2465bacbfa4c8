"""OrbitSchedule: the sends of one chunk of each orbit, which the group repeats for all others.

The image of a send under an element g of the group sends the chunk's image under g over the link's
image under g at the same time. All images together are the schedule; they are never listed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl._arrays import IntArray, ints
from teccl.errors import ScheduleError
from teccl.orbit.fabric import Fabric
from teccl.orbit.problem import FabricProblem
from teccl.schedule import BoundSummary
from teccl.units import PICOSECONDS, picoseconds

if TYPE_CHECKING:
    from teccl.orbit.patched import PatchedSchedule

# One row for each send of the first chunk of an orbit; the columns are those of a schedule.
ORBIT_DTYPE = np.dtype(
    [
        ("chunk", np.int64),
        ("link", np.int64),
        ("transfer", np.int64),
        ("start_ps", np.int64),
        ("reduce", np.bool_),
    ]
)
OrbitSends = npt.NDArray[Any]
# Last arrivals from which a critical path is looked for.
_MOST_ENDS = 64


class RankSend(NamedTuple):
    """A send of one rank: owner and piece of its chunk, who is at the far end, and when."""

    owner: int
    target: int | None
    piece: int
    peer: int
    link: int
    start_ps: int
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrbitSchedule:
    """Sends of one chunk of each orbit, in integer picoseconds.

    Parameters
    ----------
    problem
        What the schedule solves.
    sends
        Array of `ORBIT_DTYPE`; kept sorted by start, link, chunk.
    method
        What made the schedule.
    bound
        What was proven about the problem.
    claimed_finish_ps
        The finish time a file states; None computes it.
    """

    problem: FabricProblem
    sends: OrbitSends = field(repr=False)
    method: str = "unknown"
    bound: BoundSummary | None = None
    claimed_finish_ps: int | None = None

    def __post_init__(self) -> None:
        sends = np.asarray(self.sends)
        if sends.dtype != ORBIT_DTYPE:
            raise ScheduleError(f"sends have type {sends.dtype}; use teccl.orbit.ORBIT_DTYPE")
        limits = {
            "chunk": self.problem.num_chunk_orbits,
            "link": self.problem.fabric.num_links,
            "transfer": 2**31 - 1,
            "start_ps": 2**62,
        }
        for column, limit in limits.items():
            bad = np.flatnonzero((sends[column] < 0) | (sends[column] >= limit))
            if len(bad):
                raise ScheduleError(
                    f"send {bad[0]} has {column} {sends[column][bad[0]]}; "
                    f"it must be from 0 to {limit - 1}"
                )
        still = np.flatnonzero(~self.problem.is_moved(sends["chunk"]))
        if len(still):
            raise ScheduleError(
                f"send {still[0]} is of a chunk from a gpu to itself or another group; drop it"
            )
        ordered = sends[np.lexsort((sends["chunk"], sends["link"], sends["start_ps"]))]
        ordered.setflags(write=False)
        object.__setattr__(self, "sends", ordered)

    def __repr__(self) -> str:
        return (
            f"OrbitSchedule({self.method!r}, {self.problem.collective.value} on "
            f"{self.fabric.name!r}, {len(self)} sends of {self.num_sends}, "
            f"{self.finish_time_s * 1e6:.6g} us)"
        )

    def __len__(self) -> int:
        return len(self.sends)

    @property
    def fabric(self) -> Fabric:
        """The network."""
        return self.problem.fabric

    @property
    def num_sends(self) -> int:
        """Sends of the whole schedule: the group acts freely on chunks, hence on sends."""
        return len(self.sends) * self.fabric.group.order

    def _per_send(self, values: list[int]) -> IntArray:
        return ints(values)[self.fabric.link_orbit(self.sends["link"])]

    @property
    def held_ps(self) -> IntArray:
        """Picoseconds for which each send holds its link."""
        size, fabric = self.problem.chunk_bytes, self.fabric
        holds = [
            picoseconds(link.overhead) + picoseconds(size / fabric.rate(link))
            for link in fabric.links
        ]
        return self._per_send(holds)

    @property
    def arrival_ps(self) -> IntArray:
        """When each send is at the far end."""
        alpha = self._per_send([picoseconds(link.alpha) for link in self.fabric.links])
        arrival: IntArray = self.sends["start_ps"] + self.held_ps + alpha
        return arrival

    @property
    def finish_ps(self) -> int:
        """Picoseconds until the last arrival, which is that of an image of some send here."""
        if self.claimed_finish_ps is not None:
            return self.claimed_finish_ps
        return int(self.arrival_ps.max(initial=0))

    @property
    def finish_time_s(self) -> float:
        """Seconds until the last arrival."""
        return self.finish_ps / PICOSECONDS

    def load(self) -> npt.NDArray[np.float64]:
        """Fraction of the finish time that the links of each orbit are busy."""
        fabric = self.fabric
        busy = np.zeros(len(fabric.links))
        np.add.at(busy, fabric.link_orbit(self.sends["link"]), self.held_ps.astype(float))
        images = [fabric.group.order / lattice.order for lattice in fabric.link_lattices]
        return busy * np.array(images) / max(1, self.finish_ps)

    @property
    def bytes_on_wire(self) -> Fraction:
        """Bytes carried by all links together, every hop of every image counted."""
        return self.num_sends * self.problem.chunk_bytes

    def critical_path(self) -> list[int]:
        """Rows of `sends` that lead without slack to the last arrival, in time order.

        What holds a send back is the arrival of its own chunk or an image of some send on its link;
        that image stands for its row. Of several last arrivals that with the longest path counts.
        """
        if not len(self):
            return []
        src, dst = self.fabric.link_ends(self.sends["link"])
        chunk, start, arrival = self.sends["chunk"], self.sends["start_ps"], self.arrival_ps
        orbit = self.fabric.link_orbit(self.sends["link"])
        fed = _rows_by((chunk, dst, arrival), (chunk, src, start))
        after = _rows_by((orbit, start + self.held_ps), (orbit, start))
        before = np.where(fed >= 0, fed, after)
        paths = []
        for last in np.flatnonzero(arrival == arrival.max())[:_MOST_ENDS].tolist():
            path = [last]
            while before[path[-1]] >= 0:
                path.append(int(before[path[-1]]))
            paths.append(path[::-1])
        return max(paths, key=len)

    def rank_sends(self, rank: int) -> Iterator[RankSend]:
        """Yield what one rank sends, in order of time, without listing anybody else's sends."""
        fabric, problem = self.fabric, self.problem
        if not 0 <= rank < fabric.num_gpus:
            raise ScheduleError(f"rank {rank}: give 0 to {fabric.num_gpus - 1}")
        group, per_place, gpu = fabric.group, len(fabric.gpu_orbits), fabric.gpu_of(rank)
        src, dst = fabric.link_ends(self.sends["link"])
        own = np.flatnonzero((src < fabric.num_gpus) & (src % per_place == gpu % per_place))
        # The one element that takes the sender of each row to this rank.
        place = group.digits(ints([gpu // per_place]))
        element = group.number(place - group.digits(src[own] // per_place))
        sends, chunk = self.sends[own], self.sends["chunk"][own]
        to_all = problem.targets_per_owner == 1
        # GPUs as ranks; switches keep their numbers.
        known = np.append(fabric.rank_of, np.arange(fabric.num_gpus, fabric.num_nodes))
        owner, target, peer = (
            known[fabric.moved_nodes(each, element)].tolist()
            for each in (problem.owner(chunk), problem.target(chunk), dst[own])
        )
        columns = zip(
            owner,
            [None] * len(own) if to_all else target,
            (chunk % problem.num_chunks).tolist(),
            peer,
            fabric.moved_links(sends["link"], element).tolist(),
            sends["start_ps"].tolist(),
            ["reduce" if reduce else "copy" for reduce in sends["reduce"].tolist()],
            strict=True,
        )
        yield from (RankSend(*row) for row in columns)

    def save(self, path: str | Path) -> None:
        """Write the schedule file; compressed when the name ends in ``.gz``."""
        from teccl.orbit.files import save_orbit

        save_orbit(self, Path(path))

    @staticmethod
    def load_file(path: str | Path) -> "OrbitSchedule | PatchedSchedule":
        """Read a schedule file, patched or not.

        Raises
        ------
        ScheduleError
            If the file is damaged, foreign or of another version.
        """
        from teccl.orbit.files import load_orbit

        return load_orbit(Path(path))


def _rows_by(keys: tuple[IntArray, ...], wanted: tuple[IntArray, ...]) -> IntArray:
    """A row with each of the wanted keys, -1 where none has it."""
    both = [np.concatenate(pair) for pair in zip(keys, wanted, strict=True)]
    numbers = np.unique(np.stack(both), axis=1, return_inverse=True)[1].reshape(2, -1)
    row = np.full(numbers.max(initial=0) + 1, -1, dtype=np.int64)
    row[numbers[0]] = np.arange(numbers.shape[1])
    found: IntArray = row[numbers[1]]
    return found


def orbit_array(
    chunk: IntArray,
    link: IntArray,
    start_ps: IntArray,
    *,
    transfer: IntArray | None = None,
    reduce: npt.NDArray[np.bool_] | bool = False,
) -> OrbitSends:
    """Build an array of sends from columns; each row its own transfer unless given."""
    array = np.zeros(len(link), dtype=ORBIT_DTYPE)
    array["chunk"], array["link"], array["start_ps"] = chunk, link, start_ps
    array["transfer"] = np.arange(len(link)) if transfer is None else transfer
    array["reduce"] = reduce
    return array
