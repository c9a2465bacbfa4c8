"""A schedule as the page's script reads it: columns of numbers beside a small document.

Everything is compressed together. A send takes 41 bytes before that, so that even data that does
not compress stays below 60 bytes a send in the page.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from teccl.problem import Problem
from teccl.report.figures import Figures, short_size
from teccl.report.views import views_of
from teccl.schedule import Schedule
from teccl.schedule.contributions import carried_by
from teccl.schedule.timing import send_times
from teccl.topology import Topology
from teccl.topology.overview import rates_text
from teccl.units import format_duration

CRITICAL, REDUCE, FINAL = 1, 2, 4
_CODES = {"int32": "i4", "float64": "f8", "uint8": "u1"}

Columns = dict[str, npt.NDArray[Any]]


def pack(document: Mapping[str, Any], columns: Columns) -> str:
    """Return a document and its columns, compressed, as text for a script element."""
    body, index = bytearray(), {}
    for name, column in columns.items():
        body += bytes(-len(body) % 8)
        kind = column.dtype.name
        index[name] = [kind, len(body), len(column)]
        body += np.ascontiguousarray(column, dtype=f"<{_CODES[kind]}").tobytes()
    head = json.dumps({**document, "columns": index}, ensure_ascii=False).encode()
    head += b" " * (-(len(head) + 8) % 8)
    packed = zlib.compress(len(head).to_bytes(8, "little") + head + bytes(body), level=9)
    return base64.b64encode(packed).decode("ascii")


def topology_document(topology: Topology) -> tuple[dict[str, Any], Columns]:
    """Return nodes, kinds of links and views, and the ends and kind of every link."""
    kinds: dict[str, int] = {}
    kind = [
        kinds.setdefault(_link_kind(topology, i), len(kinds)) for i in range(topology.num_links)
    ]
    document = {
        "name": topology.name,
        "nodes": [
            {"name": node.name, "kind": node.kind.value, "group": node.group}
            for node in topology.nodes
        ],
        "linkKinds": list(kinds),
        "views": views_of(topology),
    }
    columns = {
        "linkSrc": topology.link_src.astype(np.int32),
        "linkDst": topology.link_dst.astype(np.int32),
        "linkKind": np.array(kind, dtype=np.int32),
    }
    return document, columns


def schedule_document(schedule: Schedule, figures: Figures) -> tuple[dict[str, Any], Columns]:
    """Return the names and sizes of a schedule's chunks, and its chunks and sends as columns."""
    problem, table = schedule.problem, schedule.problem.chunks
    hues, names, by = _hues(problem)
    sums, carried = carried_by(schedule)
    document = {
        "label": figures.label,
        "finish": figures.finish_ps,
        "bound": figures.bound_ps,
        "sizes": [short_size(size) for size in table.sizes],
        "sets": [nodes.tolist() for nodes in table.sets],
        "hues": names,
        "huesBy": by,
        "critical": list(figures.critical),
        "tenants": [tenant.name for tenant in problem.demand.tenants],
        "sums": sums,
    }
    columns: Columns = {
        "chunkHue": hues.astype(np.int32),
        "chunkSize": table.size_index.astype(np.int32),
        "chunkSources": table.source_set.astype(np.int32),
        "chunkWants": table.destination_set.astype(np.int32),
        "chunkPiece": table.piece.astype(np.int32),
        "chunkReduce": table.reduce.astype(np.uint8),
        "chunkTenant": table.tenant.astype(np.int32),
        "carried": carried,
        **_send_columns(schedule, figures),
    }
    return document, columns


def _send_columns(schedule: Schedule, figures: Figures) -> Columns:
    sends, times = schedule.sends, send_times(schedule)
    flags = np.zeros(len(sends), dtype=np.uint8)
    flags[list(figures.critical)] |= CRITICAL
    flags[sends["reduce"]] |= REDUCE
    flags[final_rows(schedule)] |= FINAL
    return {
        "chunk": sends["chunk"].astype(np.int32),
        "link": sends["link"].astype(np.int32),
        "transfer": sends["transfer"].astype(np.int32),
        "start": sends["start_ps"].astype(np.float64),
        "busy": times.occupancy_ps.astype(np.float64),
        "arrival": times.arrival_ps.astype(np.float64),
        "flags": flags,
    }


def final_rows(schedule: Schedule) -> npt.NDArray[np.int64]:
    """Return the sends that complete a delivery.

    Data that is copied is there with the first arrival, a sum with the last.
    """
    problem, sends = schedule.problem, schedule.sends
    table, nodes = problem.chunks, problem.topology.num_nodes
    destination = problem.topology.link_dst[sends["link"]]
    chunk = sends["chunk"].astype(np.int64)
    wants = np.zeros((len(table.sets), nodes), dtype=bool)
    for number, members in enumerate(table.sets):
        wants[number, members] = True
    holds = wants[table.source_set[chunk], destination] & ~table.reduce[chunk]
    rows = np.flatnonzero(wants[table.destination_set[chunk], destination] & ~holds)
    arrival = send_times(schedule).arrival_ps[rows]
    key = chunk[rows] * nodes + destination[rows]
    rank = np.where(table.reduce[chunk[rows]], -arrival, arrival)
    order = np.lexsort((rank, key))
    first = np.ones(len(order), dtype=bool)
    first[1:] = key[order][1:] != key[order][:-1]
    found: npt.NDArray[np.int64] = np.sort(rows[order[first]])
    return found


def _hues(problem: Problem) -> tuple[npt.NDArray[np.int64], list[str], str]:
    """Return the colour number of each chunk, the colours' names and what they stand for.

    Chunks have the colour of their source. A sum has many; it has that of its only destination,
    or else of its block.
    """
    table, nodes = problem.chunks, problem.topology.nodes
    sizes = np.array([len(members) for members in table.sets])
    for column, what in ((table.source_set, "source"), (table.destination_set, "destination")):
        if np.all(sizes[column] == 1):
            places = np.array([members[0] for members in table.sets])[column]
            used, hues = np.unique(places, return_inverse=True)
            return hues, [nodes[i].name for i in used], what
    keys = np.stack([table.tenant, table.block], axis=1)
    blocks, hues = np.unique(keys, axis=0, return_inverse=True)
    several = len(problem.demand.tenants) > 1
    names = [
        f"{problem.demand.tenants[t].name} block {b}" if several else f"block {b}"
        for t, b in blocks.tolist()
    ]
    return hues.ravel(), names, "block"


def _link_kind(topology: Topology, i: int) -> str:
    link = topology.links[i]
    text = f"{rates_text(link.bandwidth, link.profile)}, alpha {format_duration(link.alpha)}"
    if link.overhead:
        text += f", overhead {format_duration(link.overhead)}"
    return text + (f", shares {', '.join(link.shares)}" if link.shares else "")
