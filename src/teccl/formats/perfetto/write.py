"""Timelines for Perfetto and chrome://tracing: the Trace Event format as JSON.

Every GPU and switch is a process. Its first track shows how many transfers it has under way, then
each link that leaves it has a track with one slice a send. Arrows lead from the send that brought a
chunk to those that carry it on, and a counter follows the chunks that each GPU holds.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from teccl import __version__
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.schedule import Schedule
from teccl.schedule.contributions import carried_by
from teccl.schedule.timing import SendTimes, send_times
from teccl.units import display_time

# The viewers keep whole nanoseconds. Starts and ends are cut to them alike, so that slices which
# touch still touch and never overlap.
_PS_PER_NS = 1000
_NS_PER_US = 1000

_Event = dict[str, Any]


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:  # noqa: ARG001
    """Make a trace."""
    times = send_times(schedule)
    lanes = _lanes(schedule, times)
    events = [
        *_names(schedule, lanes),
        *_slices(schedule, times, lanes),
        *_activity(schedule, times),
        *_holdings(schedule, times),
    ]
    arrows = list(_arrows(schedule, times, lanes))
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "tool": f"teccl {__version__}",
            "topology": schedule.problem.topology.name,
            "collective": schedule.problem.demand.title,
            "method": schedule.method,
            "finish_ps": str(schedule.finish_ps),
        },
        "traceEvents": events + arrows,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    return Export(
        target="perfetto",
        files=(OutputFile(path=path, content=text.replace('{"name"', '\n{"name"') + "\n"),),
        facts={
            "tracks": len(tracks),
            "sends": len(schedule),
            "arrows": len(arrows) // 2,
            "finish": display_time(schedule.finish_time_s),
        },
        notes=("open it at ui.perfetto.dev or chrome://tracing; nothing leaves your machine",),
    )


def _ns(picoseconds: int) -> int:
    return int(picoseconds) // _PS_PER_NS


def _us(nanoseconds: int) -> float:
    return nanoseconds / _NS_PER_US


def _lanes(schedule: Schedule, times: SendTimes) -> list[int]:
    """Return a lane for each send: circuits that share a link at one time lie on several."""
    free: dict[int, list[int]] = {}
    lanes = []
    sends = schedule.sends
    ends = sends["start_ps"] + times.occupancy_ps
    for row, link in enumerate(sends["link"].tolist()):
        start, end = int(sends["start_ps"][row]), int(ends[row])
        ready = free.setdefault(link, [])
        lane = next((i for i, until in enumerate(ready) if until <= start), len(ready))
        if lane == len(ready):
            ready.append(end)
        ready[lane] = end
        lanes.append(lane)
    return lanes


class _Tracks:
    """Numbers of processes and threads: nodes, and on each the links that leave it."""

    def __init__(self, schedule: Schedule) -> None:
        topology = schedule.problem.topology
        self.pid = topology.link_src.tolist()
        self._num_links = topology.num_links

    def of(self, link: int, lane: int) -> tuple[int, int]:
        """Return process and thread of a lane of a link."""
        return self.pid[link] + 1, 1 + link + lane * self._num_links


def _names(schedule: Schedule, lanes: Sequence[int]) -> Iterator[_Event]:
    """Yield what processes and threads are called, and their order."""
    topology, tracks = schedule.problem.topology, _Tracks(schedule)

    def named(kind: str, pid: int, tid: int, **values: object) -> _Event:
        return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": values}

    for node, entry in enumerate(topology.nodes):
        yield named("process_name", node + 1, 0, name=f"{entry.kind.value} {entry.name}")
        yield named("process_sort_index", node + 1, 0, sort_index=node)
        yield named("thread_name", node + 1, 0, name="transfers under way")
        yield named("thread_sort_index", node + 1, 0, sort_index=0)
    used = sorted(set(zip(schedule.sends["link"].tolist(), lanes, strict=True)))
    for link, lane in used:
        pid, tid = tracks.of(link, lane)
        name = f"to {topology.nodes[topology.links[link].dst].name}"
        yield named("thread_name", pid, tid, name=f"{name} ({lane + 1})" if lane else name)
        yield named("thread_sort_index", pid, tid, sort_index=tid)


def _slices(schedule: Schedule, times: SendTimes, lanes: Sequence[int]) -> Iterator[_Event]:
    """Yield one slice a send, as long as it holds its link."""
    tracks = _Tracks(schedule)
    names, carried = carried_by(schedule)
    for row, send in enumerate(schedule):
        pid, tid = tracks.of(send.link, lanes[row])
        start, end = _span(schedule, times, row)
        args: dict[str, object] = {
            "chunk": schedule.problem.chunk_name(send.chunk),
            "op": send.op,
            "transfer": send.transfer,
            "start_ps": send.start_ps,
            "arrival_ps": int(times.arrival_ps[row]),
        }
        if send.epoch is not None:
            args["epoch"] = send.epoch
        if carried[row] >= 0:
            args["carries"] = names[carried[row]]
        yield {
            "name": f"chunk {send.chunk}" + (" +" if send.op == "reduce" else ""),
            "cat": send.op,
            "ph": "X",
            "ts": _us(start),
            "dur": _us(end - start),
            "pid": pid,
            "tid": tid,
            "args": args,
        }


def _span(schedule: Schedule, times: SendTimes, row: int) -> tuple[int, int]:
    """Return start and end of a send in nanoseconds."""
    start = int(schedule.sends["start_ps"][row])
    return _ns(start), _ns(start + int(times.occupancy_ps[row]))


def _activity(schedule: Schedule, times: SendTimes) -> Iterator[_Event]:
    """Yield for each node slices that count the transfers it sends and receives."""
    topology, sends = schedule.problem.topology, schedule.sends
    changes: dict[int, dict[int, list[int]]] = {}
    for row, link in enumerate(sends["link"].tolist()):
        start, end = _span(schedule, times, row)
        ends = topology.links[link]
        for node, way in ((ends.src, 0), (ends.dst, 1)):
            moments = changes.setdefault(node, {})
            moments.setdefault(start, [0, 0])[way] += 1
            moments.setdefault(end, [0, 0])[way] -= 1
    for node in sorted(changes):
        out = into = 0
        times_of_change = sorted(changes[node])
        for moment, following in pairwise(times_of_change):
            out += changes[node][moment][0]
            into += changes[node][moment][1]
            if (out or into) and following > moment:
                yield {
                    "name": f"{out} out, {into} in",
                    "cat": "node",
                    "ph": "X",
                    "ts": _us(moment),
                    "dur": _us(following - moment),
                    "pid": node + 1,
                    "tid": 0,
                }


def _holdings(schedule: Schedule, times: SendTimes) -> Iterator[_Event]:
    """Yield for each GPU how many chunks it holds, its own and what has arrived."""
    topology, table = schedule.problem.topology, schedule.problem.chunks
    held = np.zeros(topology.num_nodes, dtype=np.int64)
    for nodes, count in zip(
        table.sets, np.bincount(table.source_set, minlength=len(table.sets)), strict=True
    ):
        held[nodes] += count
    known: dict[int, set[int]] = {}
    counts = held.tolist()
    for node in topology.gpus.tolist():
        yield _counter(node, 0, counts[node])
    for row in np.argsort(times.arrival_ps, kind="stable").tolist():
        chunk, link = int(schedule.sends["chunk"][row]), int(schedule.sends["link"][row])
        node = topology.links[link].dst
        if topology.nodes[node].is_switch or chunk in known.setdefault(node, set()):
            continue
        known[node].add(chunk)
        if node not in table.sources(chunk):
            counts[node] += 1
            yield _counter(node, _ns(int(times.arrival_ps[row])), counts[node])


def _counter(node: int, nanoseconds: int, count: int) -> _Event:
    return {
        "name": "chunks held",
        "ph": "C",
        "ts": _us(nanoseconds),
        "pid": node + 1,
        "tid": 0,
        "args": {"chunks": count},
    }


def _arrows(schedule: Schedule, times: SendTimes, lanes: Sequence[int]) -> Iterator[_Event]:
    """Yield pairs of events that draw an arrow from a send to one that carries its chunk on."""
    tracks = _Tracks(schedule)
    for number, (before, after) in enumerate(_causes(schedule, times)):
        for row, phase in ((before, "s"), (after, "f")):
            pid, tid = tracks.of(int(schedule.sends["link"][row]), lanes[row])
            start, end = _span(schedule, times, row)
            event: _Event = {
                "name": "carries on",
                "cat": "chunk",
                "ph": phase,
                "id": number + 1,
                # An end binds to the slice around it; the middle lies in no other slice.
                "ts": _us((start + end) // 2),
                "pid": pid,
                "tid": tid,
            }
            if phase == "f":
                event["bp"] = "e"
            yield event


def _causes(schedule: Schedule, times: SendTimes) -> Iterator[tuple[int, int]]:
    """Yield pairs of sends where the second carries on what the first brought.

    Through a switch that is the hop before in the same transfer. At a GPU it is the first arrival
    of a copied chunk, and of a reduction every arrival that the send's sum may contain.
    """
    topology, sends = schedule.problem.topology, schedule.sends
    table = schedule.problem.chunks
    arrived: dict[tuple[int, int], list[int]] = {}
    entered: dict[tuple[int, int], list[int]] = {}
    for row in np.argsort(times.arrival_ps, kind="stable").tolist():
        dst = int(topology.link_dst[sends["link"][row]])
        if topology.nodes[dst].is_switch:
            entered.setdefault((int(sends["transfer"][row]), dst), []).append(row)
        else:
            arrived.setdefault((int(sends["chunk"][row]), dst), []).append(row)
    for row in range(len(sends)):
        src, chunk = int(topology.link_src[sends["link"][row]]), int(sends["chunk"][row])
        if topology.nodes[src].is_switch:
            for before in entered.get((int(sends["transfer"][row]), src), ()):
                yield before, row
            continue
        start = sends["start_ps"][row]
        feeds = [r for r in arrived.get((chunk, src), ()) if times.arrival_ps[r] <= start]
        if not table.reduce[chunk]:
            feeds = [] if src in table.sources(chunk) else feeds[:1]
        for before in feeds:
            yield before, row
