"""Switch rounds: transfers through switches that take equally long, for ports to be matched."""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from teccl.construct.instance import IntArray, Routes
from teccl.construct.params import CHUNK_TOLERANCE, JUSTIFICATIONS
from teccl.construct.tasks import (
    Precedence,
    Tasks,
    arcs_of,
    finish_time,
    mirror,
    resource_columns,
    task_lengths,
)


class Ports(NamedTuple):
    """What routes hold: a link, or one port into a switch and one out of it.

    Links that are always held together, as in a chain of switches, are one port. `group` numbers
    the switches whose rounds routes keep to, -1 for direct links.
    """

    first: IntArray
    second: IntArray
    hold: IntArray
    group: IntArray
    num_ports: int

    @staticmethod
    def of(routes: Routes, num_resources: int) -> "Ports | None":
        """Return the ports of routes; None where some hold more, or not for equally long.

        Parameters
        ----------
        routes
            Ways that transfers take, each by itself.
        num_resources
            Links and shared capacities.
        """
        held = [slice(a, b) for a, b in pairwise(routes.res_start.tolist())]
        name = _same_ports(routes, held)
        first, second, hold, gap = [], [], [], []
        for own in held:
            port: dict[int, int] = {}
            resources, offsets = routes.res[own].tolist(), routes.res_offset[own].tolist()
            for resource, offset in zip(resources, offsets, strict=True):
                port.setdefault(name[resource], offset)
            if len(port) > 2 or len(set(routes.res_hold[own].tolist())) > 1:
                return None
            ordered = sorted(port, key=lambda each: port[each])
            first.append(ordered[0])
            second.append(ordered[1] if len(port) > 1 else -1)
            gap.append(port[ordered[-1]] - port[ordered[0]])
            hold.append(int(routes.res_hold[own.start]))
        return _grouped(first, second, hold, gap, num_resources)

    @staticmethod
    def at_ends(tasks: Tasks, num_resources: int) -> "tuple[Ports, IntArray] | None":
        """Return the first and the last port of tasks, as if there were nothing between.

        With them comes which of these each task holds. None where ports are not held equally long,
        so that there are no rounds.
        """
        first, last = tasks.res_start[:-1], tasks.res_start[1:] - 1
        held = tasks.res_hold[np.concatenate([first, last])]
        if not len(held) or (held.max() - held.min()) * CHUNK_TOLERANCE > held.max():
            return None
        pairs = np.stack([tasks.res[first], tasks.res[last]])
        (near, far), kind = np.unique(pairs, axis=1, return_inverse=True)
        ports = Ports(
            first=near,
            second=far,
            hold=np.full_like(near, held.max()),
            group=np.zeros_like(near),
            num_ports=num_resources,
        )
        return ports, kind.reshape(-1)


def _same_ports(routes: Routes, held: list[slice]) -> dict[int, int]:
    """Name each resource by the first of those that the same routes hold, equally much later."""
    users: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for route, own in enumerate(held):
        for resource, offset in zip(routes.res[own], routes.res_offset[own], strict=True):
            users[int(resource)].append((route, int(offset)))
    names: dict[tuple[tuple[int, int], ...], int] = {}
    return {
        resource: names.setdefault(
            tuple((route, offset - each[0][1]) for route, offset in each), resource
        )
        for resource, each in users.items()
    }


def _grouped(
    first: list[int], second: list[int], hold: list[int], gap: list[int], num_resources: int
) -> Ports | None:
    """Number switches: ports that passages join, all of which must take equally long."""
    root = list(range(num_resources))

    def find(port: int) -> int:
        while root[port] != port:
            root[port] = root[root[port]]
            port = root[port]
        return port

    for one, other in zip(first, second, strict=True):
        if other >= 0:
            root[find(one)] = find(other)
    joined = {find(one) for one, other in zip(first, second, strict=True) if other >= 0}
    number = {port: index for index, port in enumerate(sorted(joined))}
    group = [number.get(find(one), -1) for one in first]
    times = {
        (at, time, lag)
        for at, time, lag, other in zip(group, hold, gap, second, strict=True)
        if other >= 0
    }
    alone = {
        (at, time) for at, time, other in zip(group, hold, second, strict=True) if at >= 0 > other
    }
    if len(times) > len(number) or not alone <= {each[:2] for each in times}:
        return None
    # A way of its own that shares a port with passages has nothing else to be matched with.
    count = num_resources
    for route, at in enumerate(group):
        if at >= 0 > second[route]:
            second[route] = count
            count += 1
    return Ports(
        first=np.array(first),
        second=np.array(second),
        hold=np.array(hold),
        group=np.array(group),
        num_ports=count,
    )


def justify_in_rounds(
    tasks: Tasks, ports: Ports, route: IntArray, *, key: IntArray, order: Precedence
) -> IntArray:
    """Schedule tasks by a key, then backwards and forwards again while that is better.

    `route` says which ports each task holds. Returns the best starts.
    """
    from teccl.construct.matched import matched_schedule

    length = task_lengths(tasks)
    arcs = arcs_of(order)
    _, backwards = mirror(length, resource_columns(tasks), arcs)
    # For columns of tables the kernel would be compiled again.
    columns = [
        np.ascontiguousarray(each)
        for each in (route, ports.first, ports.second, ports.hold, ports.group)
    ]
    best: IntArray = matched_schedule(*columns, *arcs, order.release, key, ports.num_ports)
    for _ in range(JUSTIFICATIONS):
        none = np.zeros_like(order.release)
        back = matched_schedule(*columns, *backwards, none, -(best + length), ports.num_ports)
        start = matched_schedule(*columns, *arcs, order.release, -(back + length), ports.num_ports)
        if finish_time(tasks, start) >= finish_time(tasks, best):
            break
        best = start
    return best
