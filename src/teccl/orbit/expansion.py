"""Expansion: a small fabric, problem or orbit schedule with every image listed."""

from dataclasses import replace

import numpy as np

from teccl._arrays import IntArray, ints
from teccl.demand import Collective, Demand
from teccl.errors import ScheduleError
from teccl.orbit.fabric import Fabric
from teccl.orbit.lattice import Lattice
from teccl.orbit.naming import fill_name
from teccl.orbit.patched import PatchedSchedule
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.schedule.orbits import MAX_SENDS
from teccl.schedule.sends import SendArray
from teccl.topology import Link, Node, Topology


def expanded_topology(fabric: Fabric) -> Topology:
    """List every node and link; links and switches keep their numbers, GPUs have their ranks'."""
    place = np.append(fabric.rank_of, np.arange(fabric.num_gpus, fabric.num_nodes))
    nodes = [_node(fabric, number) for number in np.argsort(place).tolist()]
    links = []
    for orbit, link in enumerate(fabric.links):
        lattice = fabric.link_lattices[orbit]
        numbers = fabric.link_base[orbit] + np.arange(lattice.order)
        src, dst = fabric.link_ends(numbers)
        shares = [_capacities(fabric, orbit, place) for place in range(lattice.order)]
        links += [
            Link(
                src=a,
                dst=b,
                bandwidth=link.bandwidth,
                alpha=link.alpha,
                overhead=link.overhead,
                shares=names,
            )
            for a, b, names in zip(place[src].tolist(), place[dst].tolist(), shares, strict=True)
        ]
    shared = {
        fill_name(each.name, each.moduli, place): each.bandwidth
        for each in fabric.shared
        for place in range(int(np.prod(each.moduli)))
    }
    return Topology(name=fabric.name, nodes=tuple(nodes), links=tuple(links), shared=shared)


def _node(fabric: Fabric, number: int) -> Node:
    orbit, place = fabric.locate(number)
    entry = fabric.nodes[orbit]
    group = entry.group
    return Node(
        name=fabric.node_name(number),
        kind=entry.kind,
        group=None if group is None else fill_name(group, entry.moduli, place),
    )


def _capacities(fabric: Fabric, orbit: int, place: int) -> tuple[str, ...]:
    """Names of the capacities that one link of an orbit shares."""
    column = fabric.link_lattices[orbit].digits(ints([place]))
    shared = [fabric.shared[i] for i in fabric.links[orbit].shares]
    return tuple(
        fill_name(each.name, each.moduli, int(Lattice(each.moduli).number(column)[0]))
        for each in shared
    )


def expanded_problem(problem: FabricProblem) -> Problem:
    """Return the same problem with every node, link and chunk listed."""
    demand = Demand.collective(problem.collective, size=problem.size)
    if problem.groups is not None:
        label, tenant = problem.labels, demand.tenants[0]
        ranks = [tuple(np.flatnonzero(label == i).tolist()) for i in range(label.max() + 1)]
        demand = Demand(
            tenants=tuple(
                replace(tenant, name=f"group{i}", ranks=each) for i, each in enumerate(ranks)
            )
        )
    return Problem(
        topology=expanded_topology(problem.fabric),
        demand=demand,
        num_chunks=problem.num_chunks,
        switch=problem.switch,
    )


def expand(schedule: OrbitSchedule | PatchedSchedule) -> Schedule:
    """List all images of all sends.

    Raises
    ------
    ScheduleError
        If they are too many, or one uses a link that is down.
    """
    if schedule.num_sends > MAX_SENDS:
        raise ScheduleError(
            f"{schedule.num_sends} sends are too many to list ({MAX_SENDS}); keep the orbits"
        )
    if isinstance(schedule, PatchedSchedule):
        return _expanded_patch(schedule)
    return Schedule(
        problem=expanded_problem(schedule.problem),
        sends=_listed(schedule, *_images(schedule)),
        method=schedule.method,
        bound=schedule.bound,
        claimed_finish_ps=schedule.claimed_finish_ps,
    )


def _images(schedule: OrbitSchedule) -> tuple[IntArray, IntArray]:
    """Rows and elements of all images."""
    order, count = schedule.fabric.group.order, len(schedule)
    return np.tile(np.arange(count), order), np.repeat(np.arange(order), count)


def _listed(schedule: OrbitSchedule, rows: IntArray, element: IntArray) -> SendArray:
    """List images of sends."""
    fabric, sends = schedule.fabric, schedule.sends
    names, transfer = np.unique(sends["transfer"], return_inverse=True)
    return send_array(
        chunk=_chunks(schedule.problem, sends["chunk"][rows], element),
        link=fabric.moved_links(sends["link"][rows], element),
        start_ps=sends["start_ps"][rows],
        transfer=transfer[rows] + element * len(names),
        reduce=sends["reduce"][rows],
    )


def _chunks(problem: FabricProblem, chunk: IntArray, element: IntArray) -> IntArray:
    """Numbers, among all chunks of a listed problem, of images of first chunks."""
    fabric = problem.fabric
    owner = fabric.rank_of[fabric.moved_nodes(problem.owner(chunk), element)]
    # Blocks are listed group by group, and by rank inside.
    label, size = problem.labels, problem.group_size
    place = np.empty(fabric.num_gpus, dtype=np.int64)
    place[np.argsort(label, kind="stable")] = np.arange(fabric.num_gpus)
    block = place[owner]
    if problem.collective is Collective.ALLTOALL:
        target = fabric.rank_of[fabric.moved_nodes(problem.target(chunk), element)]
        target = place[target] % size
        # Nothing goes from a rank to itself, which leaves out one target of each.
        block = block * (size - 1) + target - (target > block % size)
    return block * problem.num_chunks + chunk % problem.num_chunks


def _expanded_patch(schedule: PatchedSchedule) -> Schedule:
    """List images that stay and added sends, on the topology with the damage."""
    base, added, order = schedule.base, schedule.added, schedule.fabric.group.order
    rows, element = _images(base)
    removed = schedule.removed["transfer"] * order + schedule.removed["element"]
    stays = ~np.isin(base.sends["transfer"][rows] * order + element, removed)
    kept = _listed(base, rows[stays], element[stays])
    more = send_array(
        chunk=_chunks(schedule.problem, added["chunk"], added["element"]),
        link=added["link"],
        start_ps=added["start_ps"],
        transfer=added["transfer"] + kept["transfer"].max(initial=0) + 1,
        reduce=added["reduce"],
    )
    sends = np.concatenate([kept, more])
    healthy = expanded_problem(schedule.problem)
    rates = schedule.damage.rates
    if np.isin(sends["link"], [link for link, rate in rates.items() if rate is None]).any():
        raise ScheduleError("a send uses a link that is down; the schedule cannot be listed")
    left = np.array([rates.get(i, True) is not None for i in range(schedule.fabric.num_links)])
    sends["link"] = (np.cumsum(left) - 1)[sends["link"]]
    links = tuple(
        replace(link, bandwidth=rates.get(i) or link.bandwidth)
        for i, link in enumerate(healthy.topology.links)
        if left[i]
    )
    return Schedule(
        problem=replace(healthy, topology=replace(healthy.topology, links=links)),
        sends=sends,
        method=schedule.method,
        bound=schedule.bound,
        claimed_finish_ps=schedule.claimed_finish_ps,
    )
