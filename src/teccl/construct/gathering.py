"""AllReduce in switches that reduce (SHARP, NVLS): up and down a shortest tree for every chunk.

Contributions that come together in a switch leave it as one, and a result that fans out enters it
as one. So on its way to the owner a chunk leaves every GPU once and enters the owner once, and on
its way back the other way round: links carry each byte once in either direction, where a
ReduceScatter followed by an AllGather between GPUs would carry it almost twice.
"""

from functools import partial

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Tables
from teccl.construct.params import PASS_WORK
from teccl.construct.passages import joined_ways
from teccl.construct.plan import Plan
from teccl.construct.reversal import reducing_switches, reversed_plan

BoolArray = npt.NDArray[np.bool_]


def gathered_allreduce(scatter: Instance, gather: Instance) -> Plan | None:
    """Return both halves as one plan without times; None where that cannot be or takes too long.

    Parameters
    ----------
    scatter, gather
        The ReduceScatter and the AllGather that make up the AllReduce, on the same routes.
    """
    if len(gather.routes) * gather.problem.num_gpus > PASS_WORK:
        return None
    is_switch = gather.problem.topology.is_switch
    reduces = np.zeros(len(is_switch), dtype=bool)
    reduces[reducing_switches(scatter)] = True
    up = reversed_plan(scatter, partial(_shortest_trees, joints=reduces), gathers=True)
    down = _shortest_trees(gather, joints=is_switch)
    if up is None or down is None:
        return None
    rows = np.concatenate([up.rows, down.rows])
    rows[:, 2] = 0
    rows[len(up.rows) :, 3] += 1 + int(up.rows[:, 3].max(initial=-1))
    return Plan(rows=rows, reduce=np.arange(len(rows)) < len(up.rows))


def _shortest_trees(
    instance: Instance, _: Tables | None = None, *, joints: BoolArray
) -> Plan | None:
    """Send every chunk along shortest ways from its source to all that want it, without times.

    `joints` says in which nodes ways of one passage may part.
    """
    table, routes = instance.problem.chunks, instance.routes
    trees: dict[tuple[int, int], IntArray] = {}
    parts, passages = [], 0
    for chunk in range(len(table)):
        source, goal = int(table.sources(chunk)[0]), int(table.destination_set[chunk])
        if (source, goal) not in trees:
            used = _branches(instance, source, table.sets[goal])
            if used is None:
                return None
            trees[source, goal] = joined_ways(instance, used.tolist(), joints)
        tree = trees[source, goal]
        rows = np.zeros((len(tree), 5), dtype=np.int64)
        rows[:, 0], rows[:, 1], rows[:, 4] = chunk, tree[:, 0], tree[:, 2]
        rows[:, 3] = passages + tree[:, 1]
        passages += 1 + int(tree[:, 1].max(initial=-1))
        parts.append(rows)
    rows = np.concatenate(parts)
    return Plan(rows=rows, finish=int(routes.length[rows[:, 1]].max(initial=0)))


def _branches(instance: Instance, source: int, goals: IntArray) -> IntArray | None:
    """Return the routes of a shortest tree from a source to goals; None if one is out of reach."""
    via = _entries(instance, source)
    used: set[int] = set()
    waiting = goals.tolist()
    while waiting:
        node = waiting.pop()
        if node == source or int(via[node]) in used:
            continue
        if via[node] < 0:
            return None
        used.add(int(via[node]))
        waiting.append(int(instance.routes.src[via[node]]))
    return np.array(sorted(used), dtype=np.int64)


def _entries(instance: Instance, source: int) -> IntArray:
    """Return the route by which a shortest tree from a source enters each node, -1 for none."""
    routes = instance.routes
    far = np.iinfo(np.int64).max // 2
    distance = np.full(instance.problem.topology.num_nodes, far)
    distance[source] = 0
    while True:
        found = distance.copy()
        np.minimum.at(found, routes.dst, distance[routes.src] + routes.length)
        if np.array_equal(found, distance):
            break
        distance = found
    via = np.full(len(distance), -1)
    is_tight = distance[routes.src] + routes.length == distance[routes.dst]
    tight = np.flatnonzero(is_tight & (distance[routes.dst] < far) & (routes.dst != source))
    # The first of equals: later ones are overwritten by it.
    via[routes.dst[tight[::-1]]] = tight[::-1]
    return via
