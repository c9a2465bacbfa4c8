"""Synthesis on first use: one rank makes a schedule, all others get it through the store."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from teccl.demand import Collective, Demand
from teccl.errors import InputError, RunError, TecclError
from teccl.schedule import Schedule
from teccl.schedule.schedule_files import schedule_from_dict, schedule_to_dict
from teccl.studies.hashed_tasks import Task, carry_out
from teccl.studies.store import Store
from teccl.topology import Topology
from teccl.torch.plans import Entry, FoundPlan

# A value of the store may have some megabytes; larger ones go in parts.
_PART_BYTES = 4_000_000


class Synthesis:
    """Schedules of a group on a topology, made when a size is first used.

    Sizes from one power of two up to the next share a schedule, made for the larger.

    Parameters
    ----------
    topology
        That of the world, rank i at GPU i.
    ranks
        Ranks of the world that the group has, in order.
    rank
        This rank in the group.
    store
        A store that all ranks of the group reach.
    """

    def __init__(
        self,
        topology: Topology,
        ranks: tuple[int, ...],
        rank: int,
        store: Any,
        *,
        effort: str,
        timeout: timedelta,
    ) -> None:
        self._topology = among(topology, ranks)
        self._ranks, self._rank, self._store = ranks, rank, store
        self._effort, self._timeout = effort, timeout
        self._found: dict[tuple[Collective, int, int | None], FoundPlan] = {}

    def find(self, collective: Collective, size: int, root: int | None) -> FoundPlan:
        """Return the schedule for a call, made now if it is the first of its size.

        Parameters
        ----------
        size
            Bytes as nccl-tests counts them.
        root
            Rank in the group.
        """
        bucket = 1 << max(0, size - 1).bit_length()
        key = (collective, bucket, root)
        if key not in self._found:
            self._found[key] = self._shared(collective, bucket, root)
        return self._found[key]

    def _shared(self, collective: Collective, bucket: int, root: int | None) -> FoundPlan:
        name = f"made/{collective.value}/{bucket}/{root}"
        if self._rank == 0:
            self._publish(name, self._made(collective, bucket, root))
        document = self._received(name)
        if document["schedule"] is None:
            return FoundPlan(reason=document["reason"])
        schedule = schedule_from_dict(document["schedule"], where="the schedule from the store")
        title = f"{schedule.method} for {bucket}B, synthesised"
        return FoundPlan(
            entry=Entry(
                name=title, min_bytes=bucket // 2 + 1, max_bytes=bucket + 1, schedule=schedule
            )
        )

    def _made(self, collective: Collective, bucket: int, root: int | None) -> dict[str, Any]:
        """Make a schedule or take it from the store on disk; never raises."""
        try:
            demand = Demand.collective(collective, size=bucket, root=root)
            task = Task(topology=self._topology, demand=demand, options={"effort": self._effort})
            with Store() as disk:
                result = disk.load(task)
                if result is None:
                    outcome = carry_out(task)
                    result = outcome.result
                    if result is None:
                        return {"schedule": None, "reason": str(outcome.reason)}
                    disk.save(task, result)
        except TecclError as problem:
            return {"schedule": None, "reason": str(problem)}
        except Exception as problem:  # noqa: BLE001, the other ranks wait for an answer
            kind = type(problem).__name__
            return {"schedule": None, "reason": f"the synthesis failed ({kind}: {problem})"}
        schedule = result.schedule
        if schedule is None or not _is_plain(schedule, collective):
            return {"schedule": None, "reason": result.message or "no schedule was found"}
        return {"schedule": schedule_to_dict(schedule), "reason": ""}

    def _publish(self, name: str, document: dict[str, Any]) -> None:
        data = gzip.compress(json.dumps(document).encode(), mtime=0)
        parts = range(0, len(data), _PART_BYTES)
        for i, begin in enumerate(parts):
            self._store.set(f"{name}/{i}", data[begin : begin + _PART_BYTES])
        self._store.set(name, str(len(parts)))

    def _received(self, name: str) -> dict[str, Any]:
        try:
            self._store.wait([name], self._timeout)
        except RuntimeError:
            raise RunError(
                f"rank {self._ranks[0]} made no schedule within "
                f"{self._timeout.total_seconds():g} s; look whether it died, or give a plan"
            ) from None
        count = int(self._store.get(name))
        data = b"".join(self._store.get(f"{name}/{i}") for i in range(count))
        document: dict[str, Any] = json.loads(gzip.decompress(data))
        return document


def _is_plain(schedule: Schedule, collective: Collective) -> bool:
    """Whether a schedule is for the collective itself, not for chunks that were split."""
    return [tenant.collective for tenant in schedule.problem.demand.tenants] == [collective]


def among(topology: Topology, ranks: Sequence[int]) -> Topology:
    """Return the part of a topology that some GPUs and all switches make, GPUs in that order.

    Raises
    ------
    InputError
        If the topology has no GPU for some rank.
    """
    missing = [rank for rank in ranks if rank >= topology.num_gpus]
    if missing:
        raise InputError(
            f"{topology!r} has no GPU for rank {missing[0]}; give one with as many as ranks"
        )
    if tuple(ranks) == tuple(range(topology.num_gpus)):
        return topology
    kept = [int(topology.gpus[rank]) for rank in ranks]
    kept += [i for i, node in enumerate(topology.nodes) if node.is_switch]
    place = {node: i for i, node in enumerate(kept)}
    links = tuple(
        replace(link, src=place[link.src], dst=place[link.dst])
        for link in topology.links
        if link.src in place and link.dst in place
    )
    used = {name for link in links for name in link.shares}
    return Topology(
        name=f"{topology.name} of {len(ranks)}",
        nodes=tuple(topology.nodes[i] for i in kept),
        links=links,
        shared={name: rate for name, rate in topology.shared.items() if name in used},
    )
