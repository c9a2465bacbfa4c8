"""Schedules as transfers from GPU to GPU: ways through switches are one transfer to each end."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from teccl.errors import ExportError
from teccl.schedule import Schedule
from teccl.schedule.additions import Needs
from teccl.schedule.timing import send_times


class GpuSend(NamedTuple):
    """One chunk on its way from one GPU to another.

    Parameters
    ----------
    chunk
        Which chunk.
    src, dst
        Ranks in the topology.
    start_ps, arrival_ps
        When the chunk leaves `src` and is at `dst`.
    reduce
        Whether `dst` adds it to what it holds.
    row, end
        The sends of the schedule that leave `src` and reach `dst`; one without switches.
    number
        Its place in the list.
    feeds
        Places of the earlier transfers whose data this one carries on.
    carries, becomes
        Rows of the schedule's partial sums, -1 where it has none.
    """

    chunk: int
    src: int
    dst: int
    start_ps: int
    arrival_ps: int
    reduce: bool
    row: int
    end: int
    number: int = -1
    feeds: tuple[int, ...] = ()
    carries: int = -1
    becomes: int = -1


def gpu_sends(schedule: Schedule) -> list[GpuSend]:
    """Return the transfers between GPUs in order of start, without those that bring nothing new.

    Raises
    ------
    ExportError
        If a switch adds up what arrives, which a transfer between two GPUs cannot express.
    """
    found = _end_to_end(schedule)
    apart = [send for send in found if send.carries >= 0]
    plain = _drop_repeated(schedule, [send for send in found if send.carries < 0])
    return _with_feeds(schedule, [*_drop_idle(schedule, plain), *apart])


def not_expressed(schedule: Schedule, sends: Sequence[GpuSend]) -> Iterator[str]:
    """Say what of a schedule transfers from GPU to GPU do not express, a sentence each."""
    problem = schedule.problem
    if len({send.row for send in sends}) < len(sends):
        yield "a switch that copies becomes one transfer for each copy, one after the other"
    transfers = schedule.sends["transfer"]
    if len({int(transfers[send.row]) for send in sends}) < len(set(transfers.tolist())):
        yield "sends that bring nothing new are left out"
    if _number_held_back(schedule):
        yield (
            "some transfers start later than their data and their first link allow, to find a "
            "free way behind a switch or a free slot, or not to be added twice; here they start at "
            "once and wait in line"
        )
    if problem.demand.has_ready_times:
        yield "ready times are left out"
    if problem.topology.has_profiles:
        yield "bandwidth profiles are left out"
    if problem.buffer is not None:
        yield "the limit on buffers is left out"


def _number_held_back(schedule: Schedule) -> int:
    """Count transfers that a replay starts later than their data and their first link allow."""
    from teccl.replay import simulate

    replayed = simulate(schedule).schedule
    sends, held = gpu_sends(replayed), send_times(replayed).occupancy_ps
    free: dict[int, int] = {}
    count = 0
    for send in sends:
        link = int(replayed.sends["link"][send.row])
        ready = max((sends[feed].arrival_ps for feed in send.feeds), default=0)
        count += send.start_ps > max(ready, free.get(link, 0))
        free[link] = send.start_ps + int(held[send.row])
    return count


def _end_to_end(schedule: Schedule) -> list[GpuSend]:
    topology, sends = schedule.problem.topology, schedule.sends
    arrival = send_times(schedule).arrival_ps.tolist()
    rank = {int(node): i for i, node in enumerate(topology.gpus)}
    src = topology.link_src[sends["link"]].tolist()
    dst = topology.link_dst[sends["link"]].tolist()
    roots: dict[int, int] = {}
    for row, (transfer, node) in enumerate(zip(sends["transfer"].tolist(), src, strict=True)):
        if node in rank and roots.setdefault(transfer, row) != row:
            name = topology.nodes[dst[row]].name
            raise ExportError(
                f"switch {name} adds up chunk {sends['chunk'][row]}; GPUs must do that here, so "
                "solve on a topology whose switches do not reduce"
            )
    found, has_sums = [], schedule.sums is not None
    for row, (transfer, node) in enumerate(zip(sends["transfer"].tolist(), dst, strict=True)):
        if node in rank:
            root = roots[transfer]
            found.append(
                GpuSend(
                    chunk=int(sends["chunk"][row]),
                    src=rank[src[root]],
                    dst=rank[node],
                    start_ps=int(sends["start_ps"][root]),
                    arrival_ps=arrival[row],
                    reduce=bool(sends["reduce"][row]),
                    row=root,
                    end=row,
                    carries=int(sends["carries"][root]) if has_sums else -1,
                    becomes=int(sends["becomes"][row]) if has_sums else -1,
                )
            )
    return sorted(found, key=_in_time)


def _drop_repeated(schedule: Schedule, found: Sequence[GpuSend]) -> list[GpuSend]:
    """Drop copies of data that the receiver holds already by then."""
    table, gpus = schedule.problem.chunks, schedule.problem.topology.gpus
    first: dict[tuple[int, int], int] = {}
    for i, send in enumerate(found):
        if not send.reduce:
            key = (send.chunk, send.dst)
            if key not in first or send.arrival_ps < found[first[key]].arrival_ps:
                first[key] = i
    kept = []
    for i, send in enumerate(found):
        is_own = not table.reduce[send.chunk] and gpus[send.dst] in table.sources(send.chunk)
        if send.reduce or (first[send.chunk, send.dst] == i and not is_own):
            kept.append(send)
    return kept


def _drop_idle(schedule: Schedule, found: Sequence[GpuSend]) -> list[GpuSend]:
    """Drop transfers to GPUs that neither want the chunk nor send it on."""
    table, gpus = schedule.problem.chunks, schedule.problem.topology.gpus
    last_use: dict[tuple[int, int], int] = {}
    kept = []
    for send in sorted(found, key=lambda send: -send.start_ps):
        wanted = gpus[send.dst] in table.destinations(send.chunk)
        if wanted or last_use.get((send.chunk, send.dst), -1) >= send.arrival_ps:
            kept.append(send)
            key = (send.chunk, send.src)
            last_use[key] = max(send.start_ps, last_use.get(key, -1))
    return kept[::-1]


def _with_feeds(schedule: Schedule, found: Sequence[GpuSend]) -> list[GpuSend]:
    """Sort transfers by start and say which earlier ones each carries on.

    Of a chunk with one accumulator these are all that came before; a partial sum names its own.
    """
    ordered = sorted(found, key=_in_time)
    needs = None if schedule.sums is None else Needs(schedule.sends, schedule.sums)
    arrived: dict[tuple[int, int], list[int]] = {}
    by_end = {send.end: i for i, send in enumerate(ordered)}
    for i, send in enumerate(ordered):
        arrived.setdefault((send.chunk, send.dst), []).append(i)

    def feeds(send: GpuSend) -> tuple[int, ...]:
        if needs is not None and send.carries >= 0:
            return tuple(sorted(by_end[row] for row in needs.of_sum(send.carries)))
        before = arrived.get((send.chunk, send.src), ())
        return tuple(i for i in before if ordered[i].arrival_ps <= send.start_ps)

    return [send._replace(number=i, feeds=feeds(send)) for i, send in enumerate(ordered)]


def _in_time(send: GpuSend) -> tuple[int, ...]:
    return send.start_ps, send.arrival_ps, send.src, send.dst, send.chunk
