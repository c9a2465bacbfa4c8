"""Orbits: which links or nodes of a topology are equivalent under its symmetries.

Colours are refined until equal colours mean equal surroundings; two things are called equivalent
only when a permutation of the nodes has been found that maps one onto the other and every link,
role and rate onto an equal one. Where the search takes too long they count as different, which
costs work and never correctness.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from teccl.demand import Collective, Demand
from teccl.topology import Topology

# Choices that a search for one permutation may try.
MAX_CHOICES = 2000
_SYMMETRIC = (
    Collective.ALLGATHER,
    Collective.ALLTOALL,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What the demand makes of each node; equal entries may change places."""

    of_node: tuple[object, ...]

    @staticmethod
    def of(topology: Topology, demand: Demand) -> "Roles":
        """Return the roles of a demand's ranks."""
        roles: list[list[object]] = [[node.kind.value, node.reduce] for node in topology.nodes]
        for tenant in demand.tenants:
            members = tenant.members(topology.num_gpus)
            root = members[0] if tenant.root is None and tenant.collective.has_root else tenant.root
            symmetric = tenant.collective in _SYMMETRIC or tenant.collective.has_root
            for position, rank in enumerate(members):
                place = None if symmetric else position
                role = (rank == root, tenant.ready.get(rank), place)
                roles[int(topology.gpus[rank])].append((tenant.name, *map(str, role)))
        return Roles(of_node=tuple(str(role) for role in roles))


def same_orbit_groups(
    topology: Topology, roles: Roles, things: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Group things that a symmetry maps onto each other, in order of their first member.

    A thing is a tuple of links; ``(-1 - node,)`` stands for a node.
    """
    graph = _Graph(topology, roles)
    groups: list[list[int]] = []
    for i, thing in enumerate(things):
        for group in groups:
            if graph.are_equivalent(things[group[0]], thing):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


class _Graph:
    """A topology as coloured arcs."""

    def __init__(self, topology: Topology, roles: Roles) -> None:
        self.roles = roles.of_node
        self.num = topology.num_nodes
        shared = {name: str(rate) for name, rate in topology.shared.items()}
        self.arcs = [
            (
                link.src,
                link.dst,
                str((link.bandwidth, link.alpha, link.profile, [shared[s] for s in link.shares])),
            )
            for link in topology.links
        ]
        # Which links share a capacity is structure that colours of single links do not show.
        self.is_plain = not topology.shared

    def are_equivalent(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        if not self.is_plain:
            return False
        left, right = self._marked(one), self._marked(other)
        budget = [MAX_CHOICES]
        return self._match(
            left, right, list(self.roles_of(one)), list(self.roles_of(other)), budget
        )

    def roles_of(self, thing: tuple[int, ...]) -> list[str]:
        marked = {-1 - i for i in thing if i < 0}
        return [f"{role}{'*' if n in marked else ''}" for n, role in enumerate(self.roles)]

    def _marked(self, thing: tuple[int, ...]) -> list[tuple[int, int, str]]:
        marked = set(thing)
        return [(a, b, f"{c}*" if i in marked else c) for i, (a, b, c) in enumerate(self.arcs)]

    def _match(
        self,
        left: list[tuple[int, int, str]],
        right: list[tuple[int, int, str]],
        colour_left: Sequence[object],
        colour_right: Sequence[object],
        budget: list[int],
    ) -> bool:
        """Whether some permutation maps one coloured graph onto another."""
        budget[0] -= 1
        if budget[0] < 0:
            return False
        names: dict[object, int] = {}
        a = _refine(self.num, left, colour_left, names)
        b = _refine(self.num, right, colour_right, names)
        if sorted(a) != sorted(b):
            return False
        cells: dict[int, list[int]] = {}
        for node, colour in enumerate(a):
            cells.setdefault(colour, []).append(node)
        split = [nodes for nodes in cells.values() if len(nodes) > 1]
        if not split:
            image = {colour: node for node, colour in enumerate(b)}
            moved = sorted((image[a[s]], image[a[d]], c) for s, d, c in left)
            return moved == sorted(right)
        cell = min(split, key=len)
        chosen = cell[0]
        for target in [node for node, colour in enumerate(b) if colour == a[chosen]]:
            fixed_left = [(c, n == chosen) for n, c in enumerate(a)]
            fixed_right = [(c, n == target) for n, c in enumerate(b)]
            if self._match(left, right, fixed_left, fixed_right, budget):
                return True
        return False


def _refine(
    num: int, arcs: list[tuple[int, int, str]], colours: Sequence[object], names: dict[object, int]
) -> list[int]:
    """Refine colours by those of neighbours until none splits; `names` makes them comparable."""
    current = [names.setdefault(("start", colour), len(names)) for colour in colours]
    while True:
        around: list[list[tuple[int, str, int]]] = [[] for _ in range(num)]
        for src, dst, kind in arcs:
            around[src].append((0, kind, current[dst]))
            around[dst].append((1, kind, current[src]))
        keys = [(current[n], tuple(sorted(around[n]))) for n in range(num)]
        fresh = [names.setdefault(key, len(names)) for key in keys]
        if len(set(fresh)) == len(set(current)):
            return fresh
        current = fresh
