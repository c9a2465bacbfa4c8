"""Random networks of up to 40 nodes, and problems on them in every mode."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem, SwitchMode, Transit
from teccl.reachability import find_unreachable
from teccl.topology import Link, Node, NodeKind, Topology

GB = 10**9
MAX_CHUNKS = 1000
PRESETS = [
    "ring:gpus={n}",
    "line:gpus={n}",
    "star:gpus={n}",
    "fully-connected:gpus={s}",
    "mesh:dims={a}x{b}",
    "torus:dims={a}x{b}",
    "torus:dims=2x2x{a}",
    "hypercube:dimension=3",
    "dgx1",
    "ndv2:chassis=2",
    "dgx2",
    "dgx2:chassis=2",
    "dgx-a100:chassis=2",
    "mi250",
    "internal1:chassis=4",
    "internal2:chassis=4",
    "fat-tree:k=4",
]


def random_network(rng: random.Random) -> Topology:
    """A preset, perhaps damaged, or a network of random links and switches."""
    if rng.random() < 0.35:
        return _damaged_preset(rng)
    gpus, switches = rng.choice([2, 3, 4, 6, 8, 12, 20, 30]), rng.choice([0, 0, 1, 2, 3, 8])
    kinds = [NodeKind.GPU] * gpus + [NodeKind.SWITCH] * switches
    rng.shuffle(kinds)
    reduces = rng.random() < 0.3
    nodes = tuple(
        Node(name=f"n{i}", kind=kind, reduce=reduces and kind is NodeKind.SWITCH)
        for i, kind in enumerate(kinds)
    )
    pairs = _random_pairs(rng, nodes)
    rates = [
        Fraction(rate) * GB for rate in rng.choice([["25"], ["25", "50"], ["10", "12.5", "100/3"]])
    ]
    alphas = rng.choice([[0], [700], [0, 100, 700], [1300, 2600]])
    shares = rng.random() < 0.15
    links = tuple(
        Link(
            src=a,
            dst=b,
            bandwidth=rng.choice(rates),
            alpha=Fraction(rng.choice(alphas), 10**9),
            shares=("nic",) if shares and kinds[a] is NodeKind.GPU and rng.random() < 0.3 else (),
        )
        for a, b in pairs
    )
    shared = {"nic": Fraction(25 * GB)} if shares else {}
    return Topology(name="random", nodes=nodes, links=links, shared=shared)


def _random_pairs(rng: random.Random, nodes: tuple[Node, ...]) -> list[tuple[int, int]]:
    """A closed walk through all nodes, or spokes to switches, and some more links."""
    count = len(nodes)
    order = list(range(count))
    rng.shuffle(order)
    hubs = [i for i in order if nodes[i].is_switch]
    leaves = [i for i in order if not nodes[i].is_switch]
    pairs = []
    if hubs and rng.random() < 0.5:
        for i, leaf in enumerate(leaves):
            pairs += [(leaf, hubs[i % len(hubs)]), (hubs[i % len(hubs)], leaf)]
        for a, b in pairwise(hubs):
            pairs += [(a, b), (b, a)]
    else:
        pairs += zip(order, [*order[1:], order[0]], strict=True)
        if rng.random() < 0.5:
            pairs += [(b, a) for a, b in pairs]
    for _ in range(rng.choice([0, count // 2, count])):
        a, b = rng.sample(range(count), 2)
        pairs += [(a, b)] if rng.random() < 0.5 else [(a, b), (b, a)]
    return pairs


def _damaged_preset(rng: random.Random) -> Topology:
    sizes = {"n": rng.randrange(2, 33), "s": rng.randrange(2, 13)}
    spec = rng.choice(PRESETS).format(a=rng.randrange(2, 6), b=rng.randrange(2, 7), **sizes)
    topology = Topology.parse(spec)
    if rng.random() < 0.3:
        e = rng.randrange(topology.num_links)
        slower = replace(topology.links[e], bandwidth=topology.links[e].bandwidth / 2)
        links = (*topology.links[:e], slower, *topology.links[e + 1 :])
        topology = replace(topology, links=links)
    if rng.random() < 0.2:
        e = rng.randrange(topology.num_links)
        topology = replace(topology, links=topology.links[:e] + topology.links[e + 1 :])
    return topology


def random_problem(seed: int) -> Problem:
    """A problem whose demand the network can meet."""
    rng = random.Random(seed)
    while True:
        topology = random_network(rng)
        mode: dict = {}
        if topology.num_switches:
            mode["switch"] = rng.choice(list(SwitchMode))
            mode["transit"] = rng.choice(list(Transit))
        restriction = rng.random()
        if restriction < 0.06:
            mode["buffer"] = rng.choice([0, 1, 3])
        elif restriction < 0.12:
            mode["copy"] = False
        chunks = rng.choice([1, 1, 2, 3, 5])
        demand = _random_demand(rng, topology.num_gpus)
        problem = Problem(topology=topology, demand=demand, num_chunks=chunks, **mode)
        if len(problem.chunks) <= MAX_CHUNKS and find_unreachable(problem) is None:
            return problem


def _random_demand(rng: random.Random, gpus: int) -> Demand:
    tenants = [_random_tenant(rng, gpus, "one")]
    if rng.random() < 0.1:
        tenants.append(_random_tenant(rng, gpus, "two"))
    return Demand(tenants=tuple(tenants))


def _random_tenant(rng: random.Random, gpus: int, name: str) -> Tenant:
    collective = rng.choice(list(Collective))
    whole = rng.random() < 0.6
    ranks = tuple(sorted(rng.sample(range(gpus), gpus if whole else rng.randrange(2, gpus + 1))))
    matrix = chunks = None
    size = Fraction(rng.choice([1000, 64_000, 10**6, 10**8]))
    if collective is Collective.ALLTOALLV:
        weights = [0, 1, 2, 5]
        matrix = tuple(
            tuple(size * rng.choice(weights) if a != b else Fraction(0) for b in ranks)
            for a in ranks
        )
        if not any(map(any, matrix)):
            collective, matrix = Collective.ALLTOALL, None
    if collective is Collective.EXPLICIT:
        chunks = tuple(_random_chunk(rng, ranks) for _ in range(rng.randrange(1, 6)))
    late = rng.sample(ranks, rng.randrange(1, len(ranks) + 1)) if rng.random() < 0.1 else []
    return Tenant(
        collective=collective,
        size=Fraction(0) if matrix is not None else size,
        ranks=ranks,
        root=rng.choice(ranks) if collective.has_root else None,
        name=name,
        ready={rank: Fraction(rng.randrange(30), 10**7) for rank in late},
        matrix=matrix,
        chunks=chunks,
    )


def _random_chunk(rng: random.Random, ranks: tuple[int, ...]) -> ExplicitChunk:
    sources = rng.sample(ranks, rng.randrange(1, min(len(ranks), 4) + 1))
    wanted = rng.sample(ranks, rng.randrange(1, len(ranks) + 1))
    return ExplicitChunk(tuple(sources), tuple(wanted), rng.random() < 0.3)


def known_gap(problem: Problem) -> str | None:
    """What the constructions cannot do yet, of which a test each says so; None if nothing."""
    table, topology = problem.chunks, problem.topology
    several = any(len(table.destinations(m)) > 1 for m in np.flatnonzero(table.reduce))
    kinds = {tenant.collective for tenant in problem.demand.tenants}
    if several and kinds != {Collective.ALLREDUCE}:
        return "sums that several want beside other demands"
    if table.reduce.any() and (problem.buffer is not None or not problem.copy):
        return "restricted sums"
    if not topology.num_switches:
        return None
    if problem.switch is SwitchMode.HYPER_EDGE or problem.transit is Transit.CUT_THROUGH:
        if topology.shared:
            return "circuits and shared capacities"
        if len(set(topology.rates)) > 1 and problem.switch is SwitchMode.COPY and problem.copy:
            return "circuits of several rates that copy"
    return None
