"""Random problems on networks of two to eight nodes, solved by random methods."""

import random
from fractions import Fraction

import teccl
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.schedule import Schedule
from teccl.synthesis.request import OBEYED_BY
from teccl.topology import Link, Node, NodeKind, Topology

METHODS = (
    *("auto", "construct", "ring", "recursive-doubling", "binomial-tree"),
    *("double-binary-tree", "shortest-path", "lp", "milp"),
)
SIZES = (1, 7, 100, 999, 4096, 65_537, 1_000_000)


def random_topology(rng: random.Random) -> Topology:
    """A connected network of GPUs and perhaps switches, links of different rates."""
    gpus = rng.randrange(2, 9)
    switches = rng.choice([0, 0, 0, 1, 2]) if gpus < 7 else 0
    kinds = [NodeKind.GPU] * gpus + [NodeKind.SWITCH] * switches
    rng.shuffle(kinds)
    reduces = rng.random() < 0.3
    nodes = tuple(
        Node(name=f"n{i}", kind=kind, reduce=reduces and kind is NodeKind.SWITCH)
        for i, kind in enumerate(kinds)
    )
    order = rng.sample(range(len(nodes)), len(nodes))
    pairs = {frozenset(pair) for pair in zip(order, order[1:] + order[:1], strict=True)}
    for _ in range(rng.randrange(len(nodes))):
        pairs.add(frozenset(rng.sample(range(len(nodes)), 2)))
    links = []
    for pair in sorted(tuple(sorted(p)) for p in pairs if len(p) == 2):
        rate, alpha = (
            Fraction(rng.choice([10, 25, 50]) * 10**9),
            Fraction(rng.choice([0, 7]), 10**7),
        )
        links += [Link(src=a, dst=b, bandwidth=rate, alpha=alpha) for a, b in (pair, pair[::-1])]
    return Topology(name="random", nodes=nodes, links=tuple(links))


def random_tenant(rng: random.Random, gpus: int, name: str) -> Tenant:
    """Any collective among all ranks or some, of any size."""
    collective = rng.choice(list(Collective))
    ranks = tuple(rng.sample(range(gpus), rng.randrange(2, gpus + 1)))
    size = Fraction(rng.choice(SIZES))
    matrix = chunks = None
    if collective is Collective.ALLTOALLV:
        matrix = tuple(tuple(size * rng.choice([0, 1, 2]) for _ in ranks) for _ in ranks)
        if not any(matrix[i][j] for i in range(len(ranks)) for j in range(len(ranks)) if i != j):
            collective, matrix = Collective.ALLTOALL, None
    if collective is Collective.EXPLICIT:
        chunks = tuple(
            ExplicitChunk(
                tuple(rng.sample(ranks, rng.randrange(1, len(ranks) + 1))),
                tuple(rng.sample(ranks, 1)),
                rng.random() < 0.5,
            )
            for _ in range(rng.randrange(1, 5))
        )
    return Tenant(
        collective=collective,
        size=Fraction(0) if matrix is not None else size,
        ranks=ranks,
        root=rng.choice(ranks) if collective.has_root else None,
        name=name,
        matrix=matrix,
        chunks=chunks,
    )


def random_case(seed: int) -> Schedule:
    """A schedule that some method makes for some problem."""
    rng = random.Random(seed)
    while True:
        topology = random_topology(rng)
        tenants = [random_tenant(rng, topology.num_gpus, "one")]
        if rng.random() < 0.15:
            tenants.append(random_tenant(rng, topology.num_gpus, "two"))
        demand = Demand(tenants=tuple(tenants))
        if find_unreachable(Problem(topology=topology, demand=demand)) is not None:
            continue
        options = {"chunks": rng.choice([1, 2, 3]), "time_limit": "2s"}
        method = rng.choice(METHODS)
        options |= {"effort": "quick"} if method in OBEYED_BY["effort"] else {}
        try:
            result = teccl.solve(topology, demand=demand, method=method, **options)
        except MethodError:
            continue
        if result.schedule is not None:
            return result.schedule
