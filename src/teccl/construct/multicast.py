"""Multicast scheduling: every free link takes the chunk that helps most, from several starts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl._graphs import strong_components
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import NEVER, SPEEDS
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan

BitArray = npt.NDArray[np.uint64]
# Bits of a word.
WORD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Index tables of an instance that the kernel needs, made once."""

    slot_start: IntArray
    wake_start: IntArray
    wake_offset: IntArray
    wake_route_start: IntArray
    wake_routes: IntArray
    out_start: IntArray
    out_routes: IntArray
    route_level: IntArray
    cluster: IntArray

    @staticmethod
    def build(instance: Instance) -> "Tables":
        """List who waits for each resource and which routes leave each node."""
        routes = instance.routes
        owner = np.repeat(np.arange(len(routes)), np.diff(routes.res_start))
        order = np.lexsort((owner, routes.res_offset, routes.res))
        res, offset = routes.res[order], routes.res_offset[order]
        fresh = np.ones(len(res), dtype=bool)
        fresh[1:] = (res[1:] != res[:-1]) | (offset[1:] != offset[:-1])
        heads = np.flatnonzero(fresh)
        by_src = np.argsort(routes.src, kind="stable")
        route_level, cluster = _clusters(instance)
        return Tables(
            route_level=route_level,
            cluster=cluster,
            slot_start=_starts(instance.slots),
            wake_start=np.searchsorted(res[heads], np.arange(instance.num_resources + 1)),
            wake_offset=offset[heads],
            wake_route_start=np.append(heads, len(res)),
            wake_routes=owner[order],
            out_start=np.searchsorted(
                routes.src[by_src], np.arange(instance.problem.topology.num_nodes + 1)
            ),
            out_routes=by_src,
        )


def greedy(
    instance: Instance,
    tables: Tables,
    *,
    seed: int,
    join: bool,
    deadline: int | None = None,
    thrifty: bool = False,
    longest_first: bool = False,
    relays: bool = False,
) -> Plan | None:
    """Run the greedy scheduler once; None when it misses the deadline."""
    from teccl.construct import kernels

    problem, routes = instance.problem, instance.routes
    num_chunks = len(problem.chunks)
    has, want, releases = _initial_state(instance, relays=relays)
    # Slow routes choose first: what they carry must be rare, fast ones fill up the rest.
    order = -tables.route_level if seed % 2 == 0 else np.zeros(len(routes), dtype=np.int64)
    rows, finish = kernels.greedy_multicast(
        has,
        want,
        releases,
        routes.src,
        routes.dst,
        routes.length,
        order,
        routes.link_start,
        routes.links,
        problem.topology.link_dst,
        routes.res_start,
        routes.res,
        routes.res_offset,
        routes.res_hold,
        tables.slot_start,
        np.zeros(int(tables.slot_start[-1]), dtype=np.int64),
        tables.wake_start,
        tables.wake_offset,
        tables.wake_route_start,
        tables.wake_routes,
        tables.out_start,
        tables.out_routes,
        tables.route_level,
        tables.cluster,
        np.zeros((*tables.cluster.shape, num_chunks), dtype=np.int32),
        join and may_join(instance),
        thrifty,
        longest_first,
        NEVER if deadline is None else deadline,
        seed + 1,
    )
    return None if finish < 0 else Plan(rows=rows, finish=int(finish))


def _clusters(instance: Instance) -> tuple[IntArray, IntArray]:
    """Group nodes by the routes that are faster than each speed.

    Level k holds, for the k-th fastest speed, the strongly connected sets of nodes under strictly
    faster routes; the last level is one cluster of all nodes.
    """
    routes, n = instance.routes, instance.problem.topology.num_nodes
    slowest = np.maximum.reduceat(routes.res_hold, routes.res_start[:-1])
    speeds, level = np.unique(slowest, return_inverse=True)
    # More than a few speeds say little more; lump the slowest together.
    level = np.minimum(level, SPEEDS - 1)
    cluster = np.zeros((min(len(speeds), SPEEDS) + 1, n), dtype=np.int64)
    for k in range(cluster.shape[0] - 1):
        fast = slowest < speeds[k]
        cluster[k] = strong_components(n, routes.src[fast], routes.dst[fast])
    return level, cluster


def _initial_state(instance: Instance, *, relays: bool) -> tuple[BitArray, BitArray, IntArray]:
    """Return what each node holds, what it may receive, and data that comes later."""
    problem = instance.problem
    table, nodes = problem.chunks, problem.topology.num_nodes
    late: list[tuple[int, int, int]] = []
    is_member = np.zeros((nodes, len(table.sets)), dtype=bool)
    for number, members in enumerate(table.sets):
        is_member[members, number] = True
    held, want = is_member[:, table.source_set], is_member[:, table.destination_set]
    if relays:
        want[problem.topology.gpus] = True
    want &= ~held
    if instance.ready.any():
        when = instance.ready[table.tenant].T
        for node, chunk in zip(*np.nonzero(held & (when > 0)), strict=True):
            late.append((int(when[node, chunk]), int(node), int(chunk)))
            held[node, chunk] = False
    releases = np.array(late, dtype=np.int64).reshape(-1, 3)
    return _pack(held), _pack(want), releases


def _pack(bits: npt.NDArray[np.bool_]) -> BitArray:
    """Pack rows of booleans into 64-bit words, lowest bit first."""
    words = -(-bits.shape[1] // WORD)
    padded = np.zeros((bits.shape[0], words * WORD), dtype=bool)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _starts(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
