"""Passages: ways of one chunk that part in switches and are one transfer."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray
from teccl.construct.plan import Plan
from teccl.construct.tasks import resource_places
from teccl.keywords import SwitchMode, Transit
from teccl.topology import Topology

BoolArray = npt.NDArray[np.bool_]


def may_join(instance: Instance) -> bool:
    """Whether one passage may serve several outputs of a switch.

    A circuit goes at the rate of its slowest link, with the largest overhead; where links differ,
    one that joins could slow down the others, which are booked already.
    """
    problem = instance.problem
    copies = problem.switch is SwitchMode.COPY and problem.copy
    circuits = problem.transit is Transit.CUT_THROUGH
    costs = np.stack([instance.hold, problem.topology.overhead_ps])
    return copies and not (circuits and np.unique(costs, axis=1).shape[1] > 1)


def leads(instance: Instance, *, join: bool) -> tuple[IntArray, IntArray]:
    """Return each route's link into a switch, -1 for none, and where its other resources begin."""
    routes = instance.routes
    begin, end = routes.link_start[:-1], routes.link_start[1:]
    is_passage = (end - begin > 1) & join
    lead = np.where(is_passage, routes.links[begin], -1)
    return lead, resource_places(instance, begin + 1, end)[0]


def with_passages(instance: Instance, plan: Plan) -> Plan:
    """Let copies of a chunk that a GPU sends into one switch be one transfer."""
    is_switch = instance.problem.topology.is_switch
    reduce = np.zeros(len(plan.rows), dtype=bool) if plan.reduce is None else plan.reduce
    first_link = instance.routes.links[instance.routes.link_start[plan.rows[:, 1]]]
    # Contributions to a sum stay apart: each is a group of its own.
    apart = np.where(reduce, np.arange(1, len(reduce) + 1), 0)
    order = np.lexsort((plan.rows[:, 1], first_link, plan.rows[:, 0], apart))
    rows, passages = plan.rows[order], 0
    keys = np.stack([apart[order], rows[:, 0], first_link[order]])
    heads = np.flatnonzero(np.any(np.diff(keys, axis=1, prepend=-1) != 0, axis=0))
    for begin, end in pairwise([*heads.tolist(), len(rows)]):
        if end - begin == 1:
            rows[begin, 3:] = passages, 0
            passages += 1
            continue
        joined = joined_ways(instance, rows[begin:end, 1].tolist(), is_switch)
        rows[begin:end, 1], rows[begin:end, 4] = joined[:, 0], joined[:, 2]
        rows[begin:end, 3] = passages + joined[:, 1]
        passages += 1 + int(joined[-1, 1])
    return replace(plan, rows=rows, reduce=reduce[order])


def joined_ways(instance: Instance, tree: Sequence[int], joints: BoolArray) -> IntArray:
    """Return rows (route, passage, shared): ways that part in a joint are one passage.

    A passage is a tree that runs at one time, so that it enters no node twice and uses no shared
    capacity twice.
    """
    topology, routes = instance.problem.topology, instance.routes
    links, starts = routes.links, routes.link_start
    ways = {route: tuple(links[starts[route] : starts[route + 1]].tolist()) for route in tree}
    ordered = sorted(tree, key=lambda route: ways[route])
    rows: list[tuple[int, int, int]] = []
    taken: set[int | str] = set()
    for before, route in zip([*ordered[:1], *ordered], ordered, strict=False):
        shared = _common(ways[before], ways[route]) if rows else 0
        own = _taken(topology, ways[route][shared:])
        if not shared or own & taken or not joints[topology.link_dst[ways[route][shared - 1]]]:
            shared, taken, own = 0, set(), _taken(topology, ways[route])
        taken |= own
        passage = rows[-1][1] + (shared == 0) if rows else 0
        rows.append((route, passage, shared))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _taken(topology: Topology, links: tuple[int, ...]) -> set[int | str]:
    """Return nodes that links enter and the shared capacities that they use."""
    found: set[int | str] = {int(topology.link_dst[link]) for link in links}
    return found.union(*(topology.links[link].shares for link in links))


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Number of links with which both ways begin."""
    differs = [i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    return differs[0] if differs else min(len(one), len(other))
