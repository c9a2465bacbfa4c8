"""Expansion: a small fabric, problem or orbit schedule with every image listed."""

import numpy as np

from teccl._arrays import ints
from teccl.demand import Collective, Demand
from teccl.errors import ScheduleError
from teccl.orbit.fabric import Fabric
from teccl.orbit.lattice import Lattice
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.schedule.orbits import MAX_SENDS
from teccl.topology import Link, Node, Topology


def expanded_topology(fabric: Fabric) -> Topology:
    """List every node and link; nodes and links keep their numbers."""
    nodes = [_node(fabric, number) for number in range(fabric.num_nodes)]
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
            for a, b, names in zip(src.tolist(), dst.tolist(), shares, strict=True)
        ]
    shared = {
        fabric.named(each.name, each.moduli, place): each.bandwidth
        for each in fabric.shared
        for place in range(int(np.prod(each.moduli)))
    }
    return Topology(name=fabric.name, nodes=tuple(nodes), links=tuple(links), shared=shared)


def _node(fabric: Fabric, number: int) -> Node:
    orbit, place = fabric.locate(number)
    entry = fabric.nodes[orbit]
    group = entry.group
    return Node(
        name=fabric.named(entry.name, entry.moduli, place),
        kind=entry.kind,
        group=None if group is None else fabric.named(group, entry.moduli, place),
    )


def _capacities(fabric: Fabric, orbit: int, place: int) -> tuple[str, ...]:
    """Names of the capacities that one link of an orbit shares."""
    column = fabric.link_lattices[orbit].digits(ints([place]))
    shared = [fabric.shared[i] for i in fabric.links[orbit].shares]
    return tuple(
        fabric.named(each.name, each.moduli, int(Lattice(each.moduli).number(column)[0]))
        for each in shared
    )


def expanded_problem(problem: FabricProblem) -> Problem:
    """Return the same problem with every node, link and chunk listed."""
    return Problem(
        topology=expanded_topology(problem.fabric),
        demand=Demand.collective(problem.collective, size=problem.size),
        num_chunks=problem.num_chunks,
        switch=problem.switch,
    )


def expand(schedule: OrbitSchedule) -> Schedule:
    """List all images of all sends.

    Raises
    ------
    ScheduleError
        If they are too many.
    """
    problem, fabric, sends = schedule.problem, schedule.fabric, schedule.sends
    if schedule.num_sends > MAX_SENDS:
        raise ScheduleError(
            f"{schedule.num_sends} sends are too many to list ({MAX_SENDS}); keep the orbits"
        )
    order, count = fabric.group.order, len(sends)
    element = np.repeat(np.arange(order), count)
    rows = np.tile(np.arange(count), order)
    chunk = sends["chunk"][rows]
    owner = fabric.moved_nodes(problem.owner(chunk), element)
    block = owner
    if problem.collective is Collective.ALLTOALL:
        target = fabric.moved_nodes(problem.target(chunk), element)
        # Nothing goes from a rank to itself, which leaves out one target of each.
        block = owner * (fabric.num_gpus - 1) + target - (target > owner)
    names, transfer = np.unique(sends["transfer"], return_inverse=True)
    whole = send_array(
        chunk=block * problem.num_chunks + chunk % problem.num_chunks,
        link=fabric.moved_links(sends["link"][rows], element),
        start_ps=sends["start_ps"][rows],
        transfer=transfer[rows] + element * len(names),
        reduce=sends["reduce"][rows],
    )
    return Schedule(
        problem=expanded_problem(problem),
        sends=whole,
        method=schedule.method,
        bound=schedule.bound,
        claimed_finish_ps=schedule.claimed_finish_ps,
    )
