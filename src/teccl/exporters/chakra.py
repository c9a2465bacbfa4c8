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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from teccl.demand import Collective
from teccl.errors import ExportError, ExportRefused
from teccl.exporters import chakra_messages as messages
from teccl.exporters.chakra_check import check_traces
from teccl.exporters.hops import GpuSend, gpu_sends
from teccl.exporters.model import Export, ExportOptions, OutputFile
from teccl.schedule import Schedule

# Keys of ASTRA-sim's system file under which it looks for a custom collective.
_KEYS = {
    Collective.ALLGATHER: "all-gather-implementation-custom",
    Collective.ALLREDUCE: "all-reduce-implementation-custom",
    Collective.REDUCESCATTER: "reduce-scatter-implementation-custom",
    Collective.ALLTOALL: "all-to-all-implementation-custom",
}
_MAX_TAG = 2**31 - 1


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:  # noqa: ARG001
    """Make traces and check them.

    `path` is the system file with ASTRA-sim's key; the traces lie beside it, by its name.

    Raises
    ------
    ExportError
        If ASTRA-sim has no such collective, or the schedule reduces in switches.
    """
    tenant = schedule.problem.demand.tenants[0]
    if len(schedule.problem.demand.tenants) > 1 or tenant.collective not in _KEYS:
        known = ", ".join(kind.value for kind in _KEYS)
        raise ExportError(
            f"chakra: ASTRA-sim has no custom {schedule.problem.demand.title}; it takes {known}"
        )
    sends = gpu_sends(schedule)
    if len(sends) > _MAX_TAG:
        raise ExportRefused(f"chakra: {len(sends)} transfers are more than tags, {_MAX_TAG}")
    traces = _Traces(schedule, sends).render()
    problem = check_traces(traces)
    if problem is not None:
        raise ExportRefused(f"chakra: the traces failed their check: {problem}")
    prefix = path.with_name(path.name.removesuffix(path.suffix))
    files = [
        OutputFile(path=prefix.with_name(f"{prefix.name}.{rank}.et"), content=data)
        for rank, data in enumerate(traces)
    ]
    snippet = json.dumps({_KEYS[tenant.collective]: [str(prefix)]}, indent=2) + "\n"
    return Export(
        target="chakra",
        files=(OutputFile(path=path, content=snippet), *files),
        facts={"traces": len(traces), "transfers": len(sends), "checked": True},
        notes=_notes(schedule, path),
        command=(
            "AstraSim_Analytical_Congestion_Aware --workload-configuration=WORKLOAD "
            f"--system-configuration={path} --network-configuration=NETWORK "
            "--remote-memory-configuration=MEMORY"
        ),
    )


class _Traces:
    """Writes the nodes of all ranks."""

    def __init__(self, schedule: Schedule, sends: list[GpuSend]) -> None:
        self._schedule = schedule
        self._sends = sends
        ranks = schedule.problem.topology.num_gpus
        self._nodes: list[list[Any]] = [[] for _ in range(ranks)]
        # The node of the receiving rank from which on a transfer's data can be used.
        self._usable: dict[int, int] = {}
        # The last computation on a chunk's sum at a rank.
        self._sums: dict[tuple[int, int], int] = {}
        # What the last send on a link waited for.
        self._queue: dict[int, list[int]] = {}

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
        metadata = messages.GlobalMetadata(version="0.0.4")
        return [messages.delimited([metadata, *nodes]) for nodes in self._nodes]

    def _add_send(self, send: GpuSend) -> None:
        name = f"send chunk {send.chunk} to rank {send.dst}"
        deps = sorted({self._usable[feed] for feed in send.feeds})
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
        if send.reduce:
            key = (send.chunk, send.dst)
            deps = sorted({node.id, *([self._sums[key]] if key in self._sums else [])})
            add = self._new(send.dst, f"reduce chunk {send.chunk}", messages.COMPUTE, deps)
            self._sums[key] = self._usable[send.number] = add.id

    def _new(
        self, rank: int, name: str, kind: int, deps: Iterable[int], order: Iterable[int] = ()
    ) -> Any:
        number = len(self._nodes[rank])
        node = messages.Node(id=number, name=name, type=kind, data_deps=deps, ctrl_deps=order)
        self._nodes[rank].append(node)
        return node

    def _describe(self, node: Any, send: GpuSend, key: str, peer: int) -> None:
        size = self._schedule.problem.chunks.size(send.chunk)
        node.attr.add(name="comm_type", int64_val=node.type)
        node.attr.add(name="comm_size", int64_val=-(-size.numerator // size.denominator))
        node.attr.add(name=key, int32_val=peer)
        node.attr.add(name="comm_tag", int32_val=send.number)


def _notes(schedule: Schedule, path: Path) -> tuple[str, ...]:
    notes = [
        f"merge {path.name} into ASTRA-sim's system file",
        "sizes come from the traces, whatever size the workload's collective has",
        "ASTRA-sim queues transfers on a link first come, first served, and a GB is 2^30 bytes",
    ]
    sizes = schedule.problem.chunks.sizes
    if any(size.denominator != 1 for size in sizes):
        notes.append("chunks are rounded up to whole bytes")
    return tuple(notes)
