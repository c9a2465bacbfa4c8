"""Small networks and schedules written by hand; time is in microseconds, rates in GB/s.

A chunk has 1000 bytes, so that it takes one microsecond on a link of rate 1.
"""

from fractions import Fraction
from typing import NamedTuple

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.schedule.sends import Schedule, send_array
from teccl.timegrid import TimeGrid
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.verification import verify

US = 10**6
CHUNK = 1000


def rate(value) -> Fraction:
    """Bytes per second from GB/s."""
    return Fraction(value) * 10**9


def seconds(value) -> Fraction:
    """Seconds from microseconds."""
    return Fraction(value) / 10**6


def net(names: str, links: str, shared: dict | None = None) -> Topology:
    """Build a topology: ``net("a b | s r+", "a>s, s>b 2 0.5, a-b /nic")``.

    Switches stand behind the bar, ``+`` lets them reduce. A link has its ends (``-`` for both
    directions), then a rate, an alpha, an overhead, and the names of shared capacities behind
    slashes.
    """
    gpus, _, switches = names.partition("|")
    nodes = [Node(name=name) for name in gpus.split()]
    nodes += [
        Node(name=name.rstrip("+"), kind=NodeKind.SWITCH, reduce=name.endswith("+"))
        for name in switches.split()
    ]
    index = {node.name: i for i, node in enumerate(nodes)}
    built = []
    for text in links.split(","):
        ends, *rest = text.split()
        numbers = [word for word in rest if not word.startswith("/")]
        shares = tuple(word[1:] for word in rest if word.startswith("/"))
        bandwidth = rate(numbers[0] if numbers else 1)
        alpha = seconds(numbers[1] if len(numbers) > 1 else 0)
        overhead = seconds(numbers[2] if len(numbers) > 2 else 0)
        pairs = [ends.split(">")] if ">" in ends else [ends.split("-"), ends.split("-")[::-1]]
        built += [
            Link(
                src=index[a],
                dst=index[b],
                bandwidth=bandwidth,
                alpha=alpha,
                overhead=overhead,
                shares=shares,
            )
            for a, b in pairs
        ]
    capacities = {name: rate(value) for name, value in (shared or {}).items()}
    return Topology(name="net", nodes=tuple(nodes), links=tuple(built), shared=capacities)


def with_profile(topology: Topology, link: str, *steps) -> Topology:
    """Give a link a profile of (microseconds, GB/s)."""
    from dataclasses import replace

    links = list(topology.links)
    number = find_link(topology, link)
    profile = tuple((seconds(start), rate(value)) for start, value in steps)
    links[number] = replace(links[number], profile=profile)
    return replace(topology, links=tuple(links))


def wants(*chunks, ready: dict | None = None, name: str = "tenant0") -> Tenant:
    """Explicit demand of one tenant: (sources, destinations[, True for a reduction]) by rank."""
    listed = tuple(
        ExplicitChunk(tuple(sources), tuple(destinations), *flag)
        for sources, destinations, *flag in chunks
    )
    times = {rank: seconds(time) for rank, time in (ready or {}).items()}
    return Tenant(
        collective=Collective.EXPLICIT, size=Fraction(CHUNK), chunks=listed, ready=times, name=name
    )


def task(topology: Topology, *tenants: Tenant, **options) -> Problem:
    """Problem with explicit tenants."""
    return Problem(topology=topology, demand=Demand(tenants=tenants), **options)


def find_link(topology: Topology, name: str) -> int:
    """Index of ``a>b``; ``a>b#1`` is the second of parallel links."""
    ends, _, number = name.partition("#")
    a, b = (topology.find_node(end) for end in ends.split(">"))
    found = [i for i, link in enumerate(topology.links) if (link.src, link.dst) == (a, b)]
    return found[int(number or 0)]


class Hop(NamedTuple):
    """One send in a schedule written by hand."""

    chunk: int
    link: str
    start: float | Fraction | str
    transfer: int | None = None
    op: str = "copy"
    epoch: int = 0


def plan(problem: Problem, *hops, epoch=None, claim=None) -> Schedule:
    """Schedule of hops; each is its own transfer unless it names one."""
    rows = [Hop(*hop) for hop in hops]
    starts = [Fraction(row.start) * US for row in rows]
    assert all(start.denominator == 1 for start in starts)
    transfers = [1000 + i if row.transfer is None else row.transfer for i, row in enumerate(rows)]
    return Schedule(
        problem=problem,
        sends=send_array(
            [row.chunk for row in rows],
            [find_link(problem.topology, row.link) for row in rows],
            [int(start) for start in starts],
            transfer=transfers,
            reduce=[row.op == "reduce" for row in rows],
            epoch=[row.epoch for row in rows],
        ),
        grid=None if epoch is None else TimeGrid(problem=problem, epoch=seconds(epoch)),
        claimed_finish_ps=None if claim is None else int(Fraction(claim) * US),
    )


def kinds(schedule: Schedule) -> set[str]:
    """Kinds of violation that a schedule has."""
    return {violation.kind.value for violation in verify(schedule)}


def ring(gpus: int, *, alpha=0, both_ways: bool = False) -> Topology:
    """GPUs in a circle."""
    names = [f"g{i}" for i in range(gpus)]
    sign = "-" if both_ways else ">"
    links = [f"{a}{sign}{b} 1 {alpha}" for a, b in zip(names, names[1:] + names[:1], strict=True)]
    return net(" ".join(names), ", ".join(links))


def ring_schedule(gpus: int, collective: str, *, alpha=0, slack: int = 0) -> Schedule:
    """Ring AllGather, ReduceScatter or AllReduce in lock step, each step `slack` ps too long."""
    demand = Demand.collective(collective, size=gpus * CHUNK)
    problem = Problem(topology=ring(gpus, alpha=alpha), demand=demand)
    step = US + int(Fraction(alpha) * US) + slack
    reducing = 0 if collective == "allgather" else gpus - 1
    steps = reducing + (0 if collective == "reducescatter" else gpus - 1)
    # In step k link i carries the chunk that set out from its GPU's k-th predecessor; a reduced
    # chunk j has to end at GPU j, so it sets out from the GPU behind it.
    shift = 0 if collective == "allgather" else 1
    rows = [(k, i, (i - k - shift) % gpus) for k in range(steps) for i in range(gpus)]
    return Schedule(
        problem=problem,
        sends=send_array(
            [chunk for _, _, chunk in rows],
            [link for _, link, _ in rows],
            [k * step for k, _, _ in rows],
            reduce=[k < reducing for k, _, _ in rows],
        ),
    )
