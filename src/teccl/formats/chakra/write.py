"""Chakra execution traces: one ``.et`` file a rank, and the lines that make ASTRA-sim use them.

A transfer is a send node on one rank and a receive node on another, matched by their tag. A send
depends on the receives whose data it carries on; a reduction is a receive and a computation that
takes no time.

ASTRA-sim issues whatever is ready, in no order, and serves a link first come, first served. The
end of a send is its arrival, for which the next one on the link should not wait. So between two
sends on a link stands a computation that waits for the same as the first and for which the second
waits: the simulator gives it one tick, and with it the sends an order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from teccl.errors import ExportError, ExportRefused
from teccl.formats.astra_sim.write import KEYS, PICOSECONDS_PER_NANOSECOND, configure, system_key
from teccl.formats.chakra.prove import check_traces
from teccl.formats.shared import chakra_messages as messages
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.formats.shared.gpu_sends import GpuSend, gpu_sends
from teccl.schedule import Schedule
from teccl.schedule.additions import additions, wanted_sums
from teccl.schedule.timing import send_times

# ASTRA-sim takes tags modulo this number.
_MAX_TAG = 500_000_000


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:
    """Make traces and check them.

    `path` is the system file with ASTRA-sim's key; the traces lie beside it, by its name, and with
    `with_config` all other files that ASTRA-sim needs.

    Raises
    ------
    ExportError
        If ASTRA-sim has no such collective, or the schedule reduces in switches.
    """
    traces = make_traces(schedule)
    tenant = schedule.problem.demand.tenants[0]
    prefix = path.with_name(path.name.removesuffix(path.suffix))
    files = trace_files(traces, prefix)
    notes = _notes(schedule)
    facts: dict[str, Any] = {"traces": len(traces), "checked": True}
    if options.with_config:
        made = configure(schedule, path)
        files = [*made.files, *files]
        facts["network"] = made.shape.value if made.shape else "Graph"
        if made.shape is None:
            notes.append(
                "ASTRA-sim reads Ring, FullyConnected and Switch with equal links only; the "
                "network file describes another graph, so that you need a topology class of your "
                "own for it"
            )
        arguments = " ".join(made.arguments)
    else:
        key = system_key(tenant.collective, prefix)
        files = [OutputFile(path=path, content=json.dumps(key, indent=2) + "\n"), *files]
        notes.insert(0, f"merge {path.name} into ASTRA-sim's system file, or use --with-config")
        arguments = (
            f"--workload-configuration=WORKLOAD --system-configuration={path} "
            "--network-configuration=NETWORK --remote-memory-configuration=MEMORY"
        )
    return Export(
        target="chakra",
        files=tuple(files),
        facts=facts,
        notes=tuple(notes),
        command=f"AstraSim_Analytical_Congestion_Aware {arguments}",
    )


def make_traces(schedule: Schedule, parts: int = 1) -> list[bytes]:
    """Return the content of each member's trace, checked.

    Parameters
    ----------
    schedule
        Of a collective that ASTRA-sim lets traces implement.
    parts
        Units of size that a byte has in the traces.

    Raises
    ------
    ExportError
        If ASTRA-sim has no such collective, or GPUs or switches do what traces cannot say.
    ExportRefused
        If tags do not suffice or the traces fail their check.
    """
    demand = schedule.problem.demand
    tenant = demand.tenants[0]
    if len(demand.tenants) > 1 or tenant.collective not in KEYS:
        known = ", ".join(kind.value for kind in KEYS)
        raise ExportError(f"chakra: ASTRA-sim has no custom {demand.title}; it takes {known}")
    sends = gpu_sends(schedule)
    if len(sends) > _MAX_TAG:
        raise ExportRefused(f"chakra: {len(sends)} transfers are more than tags, {_MAX_TAG}")
    members = tenant.members(schedule.problem.topology.num_gpus)
    position = {rank: place for place, rank in enumerate(sorted(members))}
    outside = {rank for send in sends for rank in (send.src, send.dst)} - position.keys()
    if outside:
        raise ExportError(
            f"chakra: rank {min(outside)} passes data on but is not one of the collective's ranks; "
            "ASTRA-sim lets members of the group take part only"
        )
    traces = _Traces(schedule, sends, position, parts).render()
    problem = check_traces(traces, schedule.problem)
    if problem is not None:
        raise ExportRefused(f"chakra: the traces failed their check: {problem}")
    return traces


def trace_files(traces: Sequence[bytes], prefix: Path) -> list[OutputFile]:
    """Return the traces as files that ASTRA-sim finds under a prefix."""
    return [
        OutputFile(path=prefix.with_name(f"{prefix.name}.{place}.et"), content=data)
        for place, data in enumerate(traces)
    ]


class _Traces:
    """Writes the nodes of all ranks, which are numbered by their position in the group."""

    def __init__(
        self,
        schedule: Schedule,
        sends: Sequence[GpuSend],
        position: Mapping[int, int],
        parts: int,
    ) -> None:
        self._schedule = schedule
        self._sends = [
            send._replace(src=position[send.src], dst=position[send.dst]) for send in sends
        ]
        self._parts = parts
        self._nodes: list[list[Any]] = [[] for _ in position]
        # The node of the receiving rank from which on a transfer's data can be used.
        self._usable: dict[int, int] = {}
        # The last computation on a chunk's sum at a rank.
        self._sums: dict[tuple[int, int], int] = {}
        # What the last send on a link waited for.
        self._queue: dict[int, list[int]] = {}
        # The node after which each partial sum is there.
        self._rows: dict[int, int] = {}

    def render(self) -> list[bytes]:
        """Return the content of each rank's file."""
        events = [(send.start_ps, 1, send.number) for send in self._sends]
        events += [(send.arrival_ps, 0, send.number) for send in self._sends]
        for _, is_send, number in sorted(events):
            send = self._sends[number]
            if is_send:
                self._add_send(send)
            else:
                self._add_receive(send)
        self._make_results()
        metadata = messages.GlobalMetadata(version=messages.VERSION)
        return [messages.delimited([metadata, *nodes]) for nodes in self._nodes]

    def _add_send(self, send: GpuSend) -> None:
        name = f"send chunk {send.chunk} to rank {send.dst}"
        deps = sorted({self._usable[feed] for feed in send.feeds})
        if send.carries >= 0:
            made = self._made(send.src, send.carries, send.chunk)
            deps = [] if made is None else [made]
        link = int(self._schedule.sends["link"][send.row])
        order = []
        if link in self._queue:
            gate = self._new(send.src, "order of sends", messages.COMPUTE, (), self._queue[link])
            order = [gate.id]
        node = self._new(send.src, name, messages.SEND, deps, order)
        self._queue[link] = sorted({*deps, *order})
        self._describe(node, send, "comm_dst", send.dst)

    def _add_receive(self, send: GpuSend) -> None:
        name = f"receive chunk {send.chunk} from rank {send.src}"
        node = self._new(send.dst, name, messages.RECEIVE, [])
        self._describe(node, send, "comm_src", send.src)
        self._usable[send.number] = node.id
        if send.becomes >= 0:
            self._rows[send.becomes] = node.id
        if send.reduce:
            key = (send.chunk, send.dst)
            deps = sorted({node.id, *([self._sums[key]] if key in self._sums else [])})
            add = self._new(send.dst, f"reduce chunk {send.chunk}", messages.COMPUTE, deps)
            self._sums[key] = self._usable[send.number] = add.id

    def _made(self, rank: int, row: int, chunk: int) -> int | None:
        """Return the node after which a partial sum is there, None for a rank's own data."""
        for part, sides in additions(self._schedule.sums, row, self._rows):
            deps = sorted({self._rows[side] for side in sides if side in self._rows})
            self._rows[part] = self._new(rank, f"add chunk {chunk}", messages.COMPUTE, deps).id
        return self._rows.get(row)

    def _make_results(self) -> None:
        """Add up what destinations want."""
        for rank, row in wanted_sums(self._schedule):
            assert self._schedule.sums is not None
            self._made(rank, row, int(self._schedule.sums["chunk"][row]))

    def _new(
        self, rank: int, name: str, kind: int, deps: Iterable[int], order: Iterable[int] = ()
    ) -> Any:
        number = len(self._nodes[rank])
        node = messages.Node(id=number, name=name, type=kind, data_deps=deps, ctrl_deps=order)
        self._nodes[rank].append(node)
        return node

    def _describe(self, node: Any, send: GpuSend, key: str, peer: int) -> None:
        size = self._schedule.problem.chunks.size(send.chunk) * self._parts
        node.attr.add(name="comm_type", int64_val=node.type)
        node.attr.add(name="comm_size", int64_val=-(-size.numerator // size.denominator))
        node.attr.add(name=key, int32_val=peer)
        node.attr.add(name="comm_tag", int32_val=send.number)


def _notes(schedule: Schedule) -> list[str]:
    notes = [
        "sizes come from the traces, whatever size the workload's collective has",
        "ASTRA-sim counts whole nanoseconds, one for every reduction, and a GB is 2^30 bytes",
    ]
    if any(size.denominator != 1 for size in schedule.problem.chunks.sizes):
        notes.append("chunks are rounded up to whole bytes")
    shortest = int(send_times(schedule).occupancy_ps.min(initial=PICOSECONDS_PER_NANOSECOND))
    if shortest < PICOSECONDS_PER_NANOSECOND:
        notes.append(
            f"a transfer holds its link for {shortest} ps only, less than the nanosecond that "
            "ASTRA-sim can count; it may stop, so use larger chunks"
        )
    return notes
