"""Random small fabrics and schedules on them, made without any code of the planner."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from teccl.demand import Collective
from teccl.errors import ProblemError
from teccl.orbit.fabric import CapacityOrbit, Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.groups import Groups
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, orbit_array
from teccl.problem import SwitchMode
from teccl.topology import NodeKind

COLLECTIVES = (
    *(Collective.ALLGATHER, Collective.ALLTOALL),
    *(Collective.REDUCESCATTER, Collective.ALLREDUCE),
)


def draw_fabric(rng: random.Random) -> Fabric:
    """A connected fabric of a few GPUs, with or without switches and shared capacities."""
    moduli = rng.choice([(2,), (3,), (5,), (6,), (2, 2), (3, 2), (2, 4), (3, 3), (2, 3, 2)])
    nodes = [NodeOrbit(name=f"gpu{i}-{{n}}", moduli=moduli) for i in range(rng.choice([1, 1, 2]))]
    links: list[LinkOrbit] = []
    shared: list[CapacityOrbit] = []

    def wire(a: int, b: int, offset: tuple[int, ...]) -> None:
        """Add a link orbit and the one that leads back."""
        rate, alpha = (
            Fraction(rng.choice([1, 2, 3]) * 10**9),
            Fraction(rng.choice([0, 1, 3]), 10**6),
        )
        cost = Fraction(rng.choice([0, 0, 1]), 10**7)
        for src, dst, sign in ((a, b, 1), (b, a, -1)):
            step = tuple(sign * x % m for x, m in zip(offset, nodes[dst].moduli, strict=True))
            orbit = LinkOrbit(
                src=src, dst=dst, offset=step, bandwidth=rate, alpha=alpha, overhead=cost
            )
            links.append(orbit)

    for axis, size in enumerate(moduli):
        if size > 1:
            wire(0, 0, tuple(int(i == axis) for i in range(len(moduli))))
    for other in range(1, len(nodes)):
        wire(0, other, tuple(rng.randrange(m) for m in moduli))
    for number in range(rng.choice([0, 1, 1, 2])):
        own = tuple(rng.choice([d for d in range(1, m + 1) if m % d == 0]) for m in moduli)
        nodes.append(NodeOrbit(name=f"switch{number}-{{n}}", moduli=own, kind=NodeKind.SWITCH))
        for other in range(len(nodes) - 1):
            if nodes[other].kind is NodeKind.GPU or rng.random() < 0.8:
                wire(other, len(nodes) - 1, tuple(rng.randrange(m) for m in own))
    if rng.random() < 0.3:
        shared.append(CapacityOrbit(name="bus{n}", moduli=moduli, bandwidth=Fraction(2 * 10**9)))
        free = [i for i, x in enumerate(links) if nodes[x.src].moduli == moduli]
        for i in rng.sample(free, min(2, len(free))):
            links[i] = replace(links[i], shares=(0,))
    return Fabric(
        name="drawn", moduli=moduli, nodes=tuple(nodes), links=tuple(links), shared=tuple(shared)
    )


def draw_problem(rng: random.Random) -> FabricProblem:
    """A problem of a drawn fabric, of all ranks or of groups that the symmetry keeps."""
    whole = FabricProblem(
        fabric=draw_fabric(rng),
        collective=rng.choice(COLLECTIVES),
        size=Fraction(rng.choice([10, 1000, 10**6])),
        num_chunks=rng.choice([1, 1, 2]),
        switch=rng.choice([SwitchMode.COPY, SwitchMode.NO_COPY]),
    )
    # Of its own, so that what is drawn after it does not depend on how many groups there are.
    own = random.Random(rng.getstate()[1][0])
    return replace(whole, groups=own.choice([None, None, *kept_groups(whole.fabric)]))


def kept_groups(fabric: Fabric) -> list[Groups]:
    """All groups of ranks that every shift of a fabric takes to groups."""
    count, found = fabric.num_gpus, []
    for size, stride in product(range(2, count), range(1, count)):
        try:
            Groups(size, stride).check(fabric)
        except ProblemError:
            continue
        found.append(Groups(size, stride))
    return found


class Booker:
    """Books sends on orbits of links, earliest first."""

    def __init__(self, problem: FabricProblem, *, careless: bool) -> None:
        fabric = problem.fabric
        self.problem, self.fabric, self.careless = problem, fabric, careless
        self.src, self.dst = (x.tolist() for x in fabric.link_ends(np.arange(fabric.num_links)))
        self.orbit = fabric.link_orbit(np.arange(fabric.num_links)).tolist()
        self.out: dict[int, list[int]] = {}
        for link, node in enumerate(self.src):
            self.out.setdefault(node, []).append(link)
        self.busy: dict[Any, list[tuple[int, int]]] = {}
        self.rows: list[tuple[int, int, int, int, bool]] = []
        self.transfers = 0

    def held(self, link: int) -> int:
        """Picoseconds for which a send holds a link."""
        orbit = self.fabric.links[self.orbit[link]]
        size = self.problem.chunk_bytes / self.fabric.rate(orbit)
        return math.ceil(orbit.overhead * 10**12) + math.ceil(size * 10**12)

    def alpha(self, link: int) -> int:
        """Latency of a link in picoseconds."""
        return math.ceil(self.fabric.links[self.orbit[link]].alpha * 10**12)

    def resources(self, link: int) -> list[Any]:
        """What a send on a link has for itself."""
        orbit = self.orbit[link]
        return [orbit, *(("shared", s) for s in self.fabric.links[orbit].shares)]

    def usable(self, link: int) -> bool:
        """Whether no element of the group leaves the link in place."""
        order = self.fabric.link_lattices[self.orbit[link]].order
        return self.careless or order == self.fabric.group.order

    def ways(self, node: int) -> list[list[int]]:
        """Links of every way from a GPU to another through at most two switches."""
        num_gpus, found = self.fabric.num_gpus, []
        open_ways = [[link] for link in self.out.get(node, []) if self.usable(link)]
        for _ in range(3):
            longer = []
            for way in open_ways:
                end = self.dst[way[-1]]
                if end < num_gpus:
                    found.append(way)
                    continue
                longer += [[*way, x] for x in self.out.get(end, []) if self.usable(x)]
            open_ways = longer
        return [way for way in found if len({self.orbit[x] for x in way}) == len(way)]

    def book(self, chunk: int, way: list[int], ready: int, *, reduce: bool = False) -> int:
        """Book a way as early as it fits and return when its end is reached."""
        start = ready
        while True:
            moment, wait = start, 0
            for link in way:
                end = moment + self.held(link)
                for resource in self.resources(link):
                    for a, b in self.busy.get(resource, []):
                        if a < end and moment < b:
                            wait = max(wait, b - moment)
                moment = end + self.alpha(link)
            if not wait:
                break
            start += wait
        moment = start
        for link in way:
            for resource in self.resources(link):
                self.busy.setdefault(resource, []).append((moment, moment + self.held(link)))
            self.rows.append((chunk, link, moment, self.transfers, reduce))
            moment += self.held(link) + self.alpha(link)
        self.transfers += 1
        return moment

    def schedule(self) -> OrbitSchedule:
        """Return what was booked, with its finish."""
        columns = [np.array(column) for column in zip(*self.rows, strict=True)]
        chunk, link, start, transfer, reduce = columns
        sends = orbit_array(chunk, link, start, transfer=transfer, reduce=reduce)
        made = OrbitSchedule(problem=self.problem, sends=sends, method="drawn")
        return replace(made, claimed_finish_ps=made.finish_ps)


def draw_schedule(rng: random.Random, problem: FabricProblem) -> OrbitSchedule:
    """A schedule that solves a problem, but for links that stay in place, which some use."""
    booker = Booker(problem, careless=rng.random() < 0.2)
    for chunk in range(problem.num_chunk_orbits):
        one = np.array([chunk])
        if not problem.is_moved(one)[0]:
            continue
        owner, target = int(problem.owner(one)[0]), int(problem.target(one)[0])
        ready = 0
        if problem.reduces:
            ready = _collect(rng, booker, chunk, owner)
        if problem.collective is Collective.ALLTOALL:
            _flood(rng, booker, chunk, owner, until=target)
        elif problem.collective is not Collective.REDUCESCATTER:
            _flood(rng, booker, chunk, owner, ready=ready)
    return booker.schedule()


def _flood(
    rng: random.Random,
    booker: Booker,
    chunk: int,
    owner: int,
    *,
    ready: int = 0,
    until: int | None = None,
) -> None:
    """Copy a chunk from GPU to GPU until one, or all, have it."""
    held = {owner: ready}
    while len(held) < booker.fabric.num_gpus and until not in held:
        node = rng.choice(sorted(held))
        ways = [w for w in booker.ways(node) if booker.dst[w[-1]] not in held]
        if ways:
            way = rng.choice(ways)
            held[booker.dst[way[-1]]] = booker.book(chunk, way, held[node])


def _collect(rng: random.Random, booker: Booker, chunk: int, owner: int) -> int:
    """Sum a chunk up along a random tree to its owner and return when it is complete."""
    parent: dict[int, list[int]] = {}
    order = [owner]
    while len(order) < booker.fabric.num_gpus:
        node = rng.choice([x for x in range(booker.fabric.num_gpus) if x not in order])
        ways = [w for w in booker.ways(node) if booker.dst[w[-1]] in order]
        if ways:
            parent[node] = rng.choice(ways)
            order.append(node)
    complete = dict.fromkeys(order, 0)
    adds = set(booker.problem.members(owner).tolist())
    for node in reversed(order[1:]):
        # A rank of another group has nothing to send unless something came to it.
        if node not in adds:
            continue
        way = parent[node]
        adds.add(booker.dst[way[-1]])
        there = booker.book(chunk, way, complete[node], reduce=True)
        complete[booker.dst[way[-1]]] = max(complete[booker.dst[way[-1]]], there)
    return complete[owner]
