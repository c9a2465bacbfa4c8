"""Faults: what may go wrong, read from text and applied to a topology and a demand."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from teccl._fractions import read_fraction
from teccl._suggest import did_you_mean
from teccl.demand import Collective, Demand, Tenant
from teccl.errors import InputError
from teccl.topology import Topology
from teccl.units import parse_duration

KINDS = ("link", "slow", "load", "gpu", "switch", "late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing, or several at once, that goes wrong.

    Parameters
    ----------
    name
        What tables print.
    parts
        Pairs (kind, target) of text; kinds are `KINDS`.
    links
        Further links that are down, by index; used where names cannot tell parallel links apart.
    alike
        Names of the faults that this one stands for, its own first; empty for itself alone.
    """

    name: str
    parts: tuple[tuple[str, str], ...] = ()
    links: tuple[int, ...] = ()
    alike: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Faults that this one stands for, itself included."""
        return max(1, len(self.alike))

    def apply(self, topology: Topology, demand: Demand) -> tuple[Topology, Demand]:
        """Return topology and demand with the fault.

        Raises
        ------
        InputError
            If it names something that does not exist, or leaves no collective.
        """
        if self.links:
            gone = set(self.links)
            kept = tuple(link for i, link in enumerate(topology.links) if i not in gone)
            topology = replace(topology, links=kept)
        # Nodes go last, because that changes the ranks that other parts name.
        for kind, target in sorted(self.parts, key=lambda part: part[0] in ("gpu", "switch")):
            topology, demand = _apply(kind, target, topology, demand)
        return topology, demand


def read_fault(text: str) -> Fault:
    """Read a fault such as ``link 0:1``, ``slow 0:1=50%``, ``gpu 3`` or ``late 3=20us``.

    ``load A:B=30%`` is other traffic that takes 30 % of the bandwidth, ``switch NAME`` a switch
    that is gone. Several, joined by `` + ``, happen together.

    Examples
    --------
    >>> read_fault("link 0:1 + late 3=20us").parts
    (('link', '0:1'), ('late', '3=20us'))
    """
    parts = []
    for part in str(text).split(" + "):
        kind, _, target = part.strip().partition(" ")
        if kind not in KINDS:
            raise InputError(f"fault {part[:40]!r}: unknown kind{did_you_mean(kind, KINDS)}")
        if not target.strip():
            raise InputError(f"fault {part[:40]!r} names nothing; write for example link 0:1")
        parts.append((kind, target.strip()))
    return Fault(name=str(text).strip(), parts=tuple(parts))


def _apply(kind: str, target: str, topology: Topology, demand: Demand) -> tuple[Topology, Demand]:
    if kind == "link":
        return topology.without_links([target]), demand
    if kind in ("gpu", "switch"):
        return _without_node(topology, demand, target, kind)
    spec, separator, value = target.rpartition("=")
    if not separator:
        raise InputError(f"fault '{kind} {target[:40]}' lacks a value; write A:B=50% or 3=20us")
    if kind == "late":
        return topology, _late(topology, demand, spec, value)
    share = read_fraction(value, f"{kind} {spec}")
    factor = share if kind == "slow" else 1 - share
    if not 0 < factor <= 1:
        raise InputError(
            f"fault '{kind} {target[:40]}' leaves {float(factor):.3g} of a link's "
            "bandwidth; give more than none and at most all"
        )
    return topology.degraded({spec: factor}), demand


def _late(topology: Topology, demand: Demand, who: str, value: str) -> Demand:
    rank = _rank(topology, topology.find_node(who))
    time = parse_duration(value, what="late")
    tenants = []
    for tenant in demand.tenants:
        if rank in tenant.members(topology.num_gpus):
            ready = {**tenant.ready, rank: max(time, tenant.ready.get(rank, Fraction(0)))}
            tenant = replace(tenant, ready=ready)  # noqa: PLW2901
        tenants.append(tenant)
    return Demand(tenants=tuple(tenants))


def _rank(topology: Topology, node: int) -> int:
    ranks = {int(gpu): rank for rank, gpu in enumerate(topology.gpus)}
    if node not in ranks:
        raise InputError(f"{topology.nodes[node].name} is a switch and is never late; name a gpu")
    return ranks[node]


def _without_node(
    topology: Topology, demand: Demand, name: str, kind: str
) -> tuple[Topology, Demand]:
    node = topology.find_node(name)
    if topology.nodes[node].is_switch != (kind == "switch"):
        raise InputError(f"{topology.nodes[node].name} is not a {kind}; see teccl topology show")
    moved = {old: new for new, old in enumerate(i for i in range(topology.num_nodes) if i != node)}
    links = tuple(
        replace(link, src=moved[link.src], dst=moved[link.dst])
        for link in topology.links
        if node not in (link.src, link.dst)
    )
    nodes = tuple(n for i, n in enumerate(topology.nodes) if i != node)
    smaller = replace(topology, nodes=nodes, links=links)
    if kind == "switch":
        return smaller, demand
    gone = _rank(topology, node)
    tenants = tuple(_without_rank(t, gone, topology.num_gpus) for t in demand.tenants)
    return smaller, Demand(tenants=tenants)


def _without_rank(tenant: Tenant, gone: int, num_gpus: int) -> Tenant:
    """Return a collective among the ranks that are left, numbered anew."""
    if tenant.collective in (Collective.ALLTOALLV, Collective.EXPLICIT):
        raise InputError(f"{tenant.name}: a gpu cannot be taken out of {tenant.collective}")
    members = tenant.members(num_gpus)
    root = tenant.root if tenant.root is not None or not tenant.collective.has_root else members[0]
    if root == gone:
        raise InputError(f"{tenant.name}: gpu {gone} is the root; name another --root")
    new = {old: i for i, old in enumerate(r for r in range(num_gpus) if r != gone)}
    return replace(
        tenant,
        ranks=None if tenant.ranks is None else tuple(new[r] for r in members if r != gone),
        root=None if root is None else new[root],
        ready={new[r]: t for r, t in tenant.ready.items() if r != gone},
    )


def single_faults(topology: Topology, demand: Demand, what: str) -> list[Fault]:
    """Return every failure of one link, gpu or switch, equivalent ones once.

    The two directions of a cable fail together; a link without an opposite is its own.
    """
    from teccl.studies.equivalence import Roles, same_orbit_groups

    roles = Roles.of(topology, demand)
    if what == "links":
        cables = _cables(topology)
        names = [_cable_name(topology, cables, i) for i in range(len(cables))]
        return [
            Fault(
                name=names[group[0]],
                links=cables[group[0]],
                alike=tuple(names[i] for i in group),
            )
            for group in same_orbit_groups(topology, roles, cables)
        ]
    if what not in ("gpus", "switches"):
        raise InputError(f"n-minus-1 {what[:40]!r} is unknown; give links, gpus or switches")
    kind = "switch" if what == "switches" else "gpu"
    nodes = [i for i, n in enumerate(topology.nodes) if n.is_switch == (kind == "switch")]
    if not nodes:
        raise InputError(f"{topology!r} has no {what}; give links, gpus or switches")
    groups = same_orbit_groups(topology, roles, [(-1 - node,) for node in nodes])
    found = [topology.nodes[node].name for node in nodes]
    return [
        Fault(
            name=f"{kind} {found[group[0]]}",
            parts=((kind, found[group[0]]),),
            alike=tuple(f"{kind} {found[i]}" for i in group),
        )
        for group in groups
    ]


def _cables(topology: Topology) -> list[tuple[int, ...]]:
    """Return pairs of opposite links of the same kind, and links that have no opposite."""
    between: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(topology.links):
        between.setdefault((link.src, link.dst), []).append(i)
    cables: list[tuple[int, ...]] = []
    for (src, dst), forward in between.items():
        backward = between.get((dst, src), [])
        if src > dst and backward:
            continue
        there, back = _by_rate(topology, forward), _by_rate(topology, backward)
        paired = min(len(there), len(back))
        cables += zip(there[:paired], back[:paired], strict=True)
        cables += [(e,) for e in (*there[paired:], *back[paired:])]
    return cables


def _by_rate(topology: Topology, links: Iterable[int]) -> list[int]:
    return sorted(links, key=lambda e: (topology.links[e].bandwidth, topology.links[e].alpha, e))


def _cable_name(topology: Topology, cables: list[tuple[int, ...]], which: int) -> str:
    cable = cables[which]
    link = topology.links[cable[0]]
    ends = topology.nodes[link.src].name, topology.nodes[link.dst].name
    name = (":" if len(cable) == 2 else ">").join(ends)
    same = [
        c
        for c in cables
        if {topology.links[c[0]].src, topology.links[c[0]].dst} == {link.src, link.dst}
        and len(c) == len(cable)
    ]
    number = f" #{same.index(cable) + 1}" if len(same) > 1 else ""
    return f"link {name}{number}"
