"""TE-CCL's output JSON: flows in sentences, by epoch, over nodes by number."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from teccl import _files as files
from teccl._foreign import read_json
from teccl.demand import Demand
from teccl.errors import ScheduleError
from teccl.formats.shared.placing import FilePassage, FileWays, place
from teccl.problem import Problem
from teccl.schedule import Schedule
from teccl.topology import Topology

# Parts into which a chunk with fractional flows is split at most.
MAX_PARTS = 64
MAX_BYTES = 32 * 2**20
_NUMBER = r"(\d{1,7})"
_HOP = re.compile(
    rf"{_NUMBER}->{_NUMBER}(?: with volume (\d{{1,7}}(?:\.\d{{1,25}})?(?:e-\d{{1,2}})?))?"
    rf" in epoch {_NUMBER}(?: via switches (\d{{1,7}}(?: -> \d{{1,7}})*))?",
    re.ASCII,
)
_FLOW = re.compile(rf"Chunk {_NUMBER} from {_NUMBER} traveled over (.*)", re.ASCII)
_DEMAND = re.compile(
    rf"Demand at {_NUMBER} for chunk {_NUMBER} from {_NUMBER} met by epoch {_NUMBER}", re.ASCII
)


class _Hop(NamedTuple):
    """What a sentence says: from one node over switches to another, in an epoch."""

    nodes: tuple[int, ...]
    epoch: int
    volume: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """A chunk of a source on one hop."""

    source: int
    chunk: int
    hop: _Hop


def read_schedule(path: Path, topology: Topology, size: Fraction, notes: list[str]) -> Schedule:
    """Read an output file.

    Raises
    ------
    ScheduleError
        If the file is damaged or does not fit the topology.
    """
    document = read_json(path, ScheduleError, max_bytes=MAX_BYTES)
    flows = _read_flows(_section(document, "Flows", path), path)
    _check_nodes({node for flow in flows for node in flow.hop.nodes}, topology, path)
    _note_epochs(document, notes)
    if any(flow.hop.volume is not None for flow in flows):
        paths = _section(document, "Chunk paths", path)
        return _alltoall(paths, topology, size, path, notes)
    return _allgather(flows, topology, size, path, notes)


def _section(document: Mapping[str, Any], name: str, path: Path) -> Any:
    """Return a part of the file; its key has a number before the name, which varies."""
    for key, value in document.items():
        if re.fullmatch(rf"(\d-)?{re.escape(name)}", key):
            return value
    raise ScheduleError(f"{path}: has no key '...-{name}'; give an output file of TE-CCL")


def _note_epochs(document: Mapping[str, Any], notes: list[str]) -> None:
    for key, value in document.items():
        if key.endswith("Collective_Finish_Time") and isinstance(value, int | float):
            notes.append(
                f"TE-CCL states a finish of {value:g} s in whole epochs; here the order of the "
                "sends is kept and times are exact"
            )


def _read_hop(text: str, where: str) -> _Hop:
    match = _HOP.fullmatch(text)
    if match is None:
        raise ScheduleError(f"{where} is {files.shown(text)}; it must read like 'A->B in epoch K'")
    first, last, volume, epoch, switches = match.groups()
    between = [int(node) for node in switches.split(" -> ")] if switches else []
    return _Hop(
        nodes=(int(first), *between, int(last)),
        epoch=int(epoch),
        volume=None if volume is None else Fraction(volume),
    )


def _read_flows(value: Any, path: Path) -> list[_Flow]:
    flows = []
    for i, text in enumerate(files.expect_list(value, f"{path}: Flows", ScheduleError)):
        where = f"{path}: Flows[{i}]"
        match = _FLOW.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ScheduleError(
                f"{where} is {files.shown(text)}; it must read like "
                "'Chunk C from S traveled over A->B in epoch K'"
            )
        hop = _read_hop(match[3], where)
        flows.append(_Flow(source=int(match[2]), chunk=int(match[1]), hop=hop))
    if not flows:
        raise ScheduleError(f"{path}: has no flows; there is nothing to import")
    return flows


def _check_nodes(nodes: Iterable[int], topology: Topology, path: Path) -> None:
    largest = max(nodes)
    if largest >= topology.num_nodes:
        raise ScheduleError(
            f"{path}: names node {largest}, but {topology!r} ends at {topology.num_nodes - 1}; "
            "import the topology from TE-CCL's input file, which keeps its numbers"
        )


def _ranks(nodes: Iterable[int], topology: Topology, path: Path) -> dict[int, int]:
    """Return the rank of each node that takes part."""
    rank = {int(node): i for i, node in enumerate(topology.gpus)}
    for node in nodes:
        if node not in rank:
            raise ScheduleError(
                f"{path}: node {node} has data of its own, but is the switch "
                f"{topology.nodes[node].name} in {topology.name}; import the topology from "
                "TE-CCL's input file, which keeps its numbers"
            )
    return {node: rank[node] for node in sorted(nodes)}


def _problem(
    collective: str,
    topology: Topology,
    size: Fraction,
    *,
    members: Mapping[int, int],
    num_chunks: int,
    notes: list[str],
) -> tuple[Problem, dict[tuple[int, int], int]]:
    """Return the problem, and the number of each chunk by block and piece."""
    ranks = None if len(members) == topology.num_gpus else tuple(members.values())
    if ranks is not None:
        notes.append(f"{len(members)} of {topology.num_gpus} GPUs have data; the others only relay")
    demand = Demand.collective(collective, size=size, ranks=ranks)
    problem = Problem(topology=topology, demand=demand, num_chunks=num_chunks)
    table = problem.chunks
    pairs = zip(table.block.tolist(), table.piece.tolist(), strict=True)
    return problem, {pair: chunk for chunk, pair in enumerate(pairs)}


def _allgather(
    flows: list[_Flow], topology: Topology, size: Fraction, path: Path, notes: list[str]
) -> Schedule:
    members = _ranks({flow.source for flow in flows}, topology, path)
    if len(members) < 2:
        raise ScheduleError(f"{path}: only one node has data; an AllGather needs two")
    num_chunks = max(flow.chunk for flow in flows) + 1
    _check_chunks(num_chunks * len(members), len(flows), path)
    problem, numbers = _problem(
        "allgather", topology, size, members=members, num_chunks=num_chunks, notes=notes
    )
    block = {node: i for i, node in enumerate(members)}
    hops = [(numbers[block[f.source], f.chunk], f.hop) for f in flows]
    return place(problem, _passages(topology, _whole_ways(topology, hops)), "te-ccl")


def _check_chunks(wanted: int, flows: int, path: Path) -> None:
    """Refuse numbers of chunks that the flows of the file cannot serve."""
    if wanted > flows:
        raise ScheduleError(
            f"{path}: {wanted} chunks are named by {flows} flows only; the file is incomplete"
        )


def _whole_ways(topology: Topology, hops: list[tuple[int, _Hop]]) -> list[tuple[int, _Hop]]:
    """Join hops that enter a switch with those that leave it, where a file lists them apart."""
    is_switch = topology.is_switch
    entering: dict[tuple[int, int], list[_Hop]] = {}
    for chunk, hop in hops:
        if is_switch[hop.nodes[-1]]:
            entering.setdefault((chunk, hop.nodes[-1]), []).append(hop)
    if not entering:
        return hops
    whole = [
        (chunk, hop)
        for chunk, hop in hops
        if not is_switch[hop.nodes[0]] and not is_switch[hop.nodes[-1]]
    ]
    pending = [(chunk, hop) for chunk, hop in hops if is_switch[hop.nodes[0]]]
    for chunk, hop in sorted(pending, key=lambda entry: entry[1].epoch):
        before = [h for h in entering.get((chunk, hop.nodes[0]), ()) if h.epoch < hop.epoch]
        if not before:
            name = topology.nodes[hop.nodes[0]].name
            raise ScheduleError(f"chunk {chunk} leaves switch {name}, which it never enters")
        last = max(before, key=lambda h: h.epoch)
        joined = _Hop((*last.nodes, *hop.nodes[1:]), last.epoch, hop.volume)
        if is_switch[joined.nodes[-1]]:
            entering.setdefault((chunk, joined.nodes[-1]), []).append(
                joined._replace(epoch=hop.epoch)
            )
        else:
            whole.append((chunk, joined))
    return whole


def _passages(topology: Topology, hops: list[tuple[int, _Hop]]) -> list[FilePassage]:
    """Return passages in order of epoch; hops that share their first link and epoch are a tree."""
    ways = FileWays(topology)
    is_switch = topology.is_switch.tolist()
    trees: dict[tuple[int, ...], dict[tuple[int, int], int]] = {}
    order: dict[tuple[int, ...], None] = {}
    for seen, (chunk, hop) in enumerate(sorted(hops, key=lambda entry: entry[1].epoch)):
        legs = _legs(hop, is_switch)
        for leg in legs:
            alone = len(leg) == 2
            key = (hop.epoch, chunk, *leg[:2], seen if alone else -1)
            tree = trees.setdefault(key, {})
            order.setdefault(key)
            for a, b in pairwise(leg):
                if (a, b) not in tree:
                    tree[a, b] = ways.hop(a, b)
    return [
        FilePassage(
            chunk=key[1],
            root=key[2],
            hops=tuple(trees[key].values()),
            reduce=False,
            rank=(key[0], number),
            queues=tuple(trees[key].values()),
        )
        for number, key in enumerate(order)
    ]


def _legs(hop: _Hop, is_switch: list[bool]) -> list[tuple[int, ...]]:
    """Cut a way at nodes that the file takes for switches and the topology for GPUs."""
    legs = []
    leg = [hop.nodes[0]]
    for node in hop.nodes[1:]:
        leg.append(node)
        if not is_switch[node]:
            legs.append(tuple(leg))
            leg = [node]
    return legs


def _alltoall(
    value: Any, topology: Topology, size: Fraction, path: Path, notes: list[str]
) -> Schedule:
    """Split chunks into equal parts, so that each path of a chunk carries whole parts."""
    paths = _read_paths(value, path)
    nodes = {node for demand in paths for node in (demand[0], demand[2])}
    members = _ranks(nodes, topology, path)
    num_chunks = (max(chunk for _, chunk, _ in paths) + 1) // len(members)
    parts = math.lcm(*{volume.denominator for ways in paths.values() for volume, _ in ways})
    if num_chunks < 1 or parts > MAX_PARTS:
        raise ScheduleError(
            f"{path}: flows split chunks into {parts} parts of {num_chunks} chunks; up to "
            f"{MAX_PARTS} parts can be imported"
        )
    if parts > 1:
        notes.append(f"fractions of chunks travel on their own, so each is cut into {parts}")
    problem, numbers = _problem(
        "alltoall", topology, size, members=members, num_chunks=num_chunks * parts, notes=notes
    )
    place_of = {node: i for i, node in enumerate(members)}
    hops: list[tuple[int, _Hop]] = []
    for (dst, chunk, src), ways in paths.items():
        block = place_of[src] * len(members) + place_of[dst]
        first = (chunk - place_of[dst] * num_chunks) * parts
        for volume, way in ways:
            for _ in range(int(volume * parts)):
                if (block, first) not in numbers:
                    raise ScheduleError(
                        f"{path}: chunk {chunk} from {src} is not one that {dst} wants; "
                        "the file does not fit the topology"
                    )
                hops += [(numbers[block, first], hop) for hop in way]
                first += 1
    return place(problem, _passages(topology, hops), "te-ccl")


def _read_paths(
    value: Any, path: Path
) -> dict[tuple[int, int, int], list[tuple[Fraction, list[_Hop]]]]:
    """Return, by destination, chunk and source, the paths with their share of the chunk."""
    if not isinstance(value, dict) or not value:
        raise ScheduleError(f"{path}: Chunk paths is {files.shown(value)}; give an object")
    found: dict[tuple[int, int, int], list[tuple[Fraction, list[_Hop]]]] = {}
    for key, ways in value.items():
        match = _DEMAND.fullmatch(key)
        where = f"{path}: Chunk paths"
        if match is None:
            raise ScheduleError(
                f"{where}: key {files.shown(key)} must read like "
                "'Demand at D for chunk C from S met by epoch K'"
            )
        where = f"{where} of {key}"
        entries = [_read_path(way, where) for way in files.expect_list(ways, where, ScheduleError)]
        total = sum((volume for volume, _ in entries), Fraction(0))
        if abs(total - 1) > Fraction(1, 1000):
            raise ScheduleError(f"{where}: volumes add to {float(total):g}; they must add to 1")
        exact = [(volume.limit_denominator(MAX_PARTS), way) for volume, way in entries]
        if sum(volume for volume, _ in exact) != 1:
            raise ScheduleError(f"{where}: volumes are no fractions of up to {MAX_PARTS} parts")
        found[int(match[1]), int(match[2]), int(match[3])] = exact
    return found


def _read_path(value: Any, where: str) -> tuple[Fraction, list[_Hop]]:
    hops = []
    for entry in files.expect_list(value, where, ScheduleError):
        text = entry[1] if isinstance(entry, list) and len(entry) == 2 else entry
        if not isinstance(text, str):
            raise ScheduleError(f"{where}: {files.shown(entry)} is no hop; give [epoch, text]")
        hops.append(_read_hop(text, where))
    if not hops or hops[-1].volume is None:
        raise ScheduleError(f"{where}: a path has no hops or no volume; the file is damaged")
    return hops[-1].volume, hops
