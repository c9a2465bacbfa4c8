"""Random small problems of every kind, such that all lengths are whole multiples of one unit."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem, SwitchMode, Transit
from teccl.reachability import find_unreachable
from teccl.topology import Link, Node, NodeKind, Topology

UNIT = Fraction(1, 10**6)
# Bytes that a link of slowness one carries in a unit.
PIECE = 1200

# Chunks that move times links, in problems whose fluid optimum is computed.
MOST_SENDS = 48

MODES: list[dict] = [
    {},
    {},
    {"switch": SwitchMode.NO_COPY},
    {"transit": Transit.CUT_THROUGH},
    {"transit": Transit.CUT_THROUGH, "switch": SwitchMode.NO_COPY},
    {"switch": SwitchMode.HYPER_EDGE},
]

COPIES = ["allgather", "broadcast", "alltoall", "scatter", "gather", "scattergather", "alltoallv"]
SUMS = ["reducescatter", "reduce", "allreduce"]


@dataclass
class Wire:
    """A link before it is built: slowness and latency in units."""

    src: int
    dst: int
    slow: int
    alpha: int


def random_problem(seed: int) -> Problem:
    """A problem in which every destination can be reached; odd seeds crowd narrow places."""
    rng = random.Random(seed)
    while True:
        if seed % 2:
            problem = _contended_problem(rng)
            if find_unreachable(problem) is None:
                return problem
            continue
        topology = random_topology(rng)
        for _ in range(20):
            problem = _random_problem(rng, topology)
            if problem is not None and find_unreachable(problem) is None:
                return problem


def _contended_problem(rng: random.Random) -> Problem:
    """Data of several GPUs for several others through one or two nodes, far and near ones."""
    sources, sinks = rng.choice([(2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (2, 1)])
    is_switch = rng.choice([[True], [True], [False], [True, True], [False, True], [False, False]])
    gpus, middle = sources + sinks, list(range(sources + sinks, sources + sinks + len(is_switch)))
    into, between, away = (rng.choice([1, 1, 2, 3]) for _ in range(3))
    alphas = rng.choice([[0, 2], [0, 3], [1, 3], [0, 1, 4], [1]])
    pairs = [(i, middle[0], into) for i in range(sources)]
    pairs += [(middle[0], middle[1], between)] if len(middle) > 1 else []
    pairs += [(middle[-1], i, away) for i in range(sources, gpus)]
    pairs += rng.sample(pairs, 1) if rng.random() < 0.3 else []
    if rng.random() < 0.3:
        pairs.append((rng.randrange(sources), rng.randrange(sources, gpus), rng.choice([1, 2, 3])))
    wires = [Wire(a, b, slow, rng.choice(alphas)) for a, b, slow in pairs]
    nodes = [Node(name=f"g{i}") for i in range(gpus)]
    nodes += [
        Node(name=f"m{i}", kind=NodeKind.SWITCH if switch else NodeKind.GPU)
        for i, switch in enumerate(is_switch)
    ]
    chunks = [_contended_chunk(rng, sources, gpus) for _ in range(rng.randrange(2, 5))]
    late = rng.sample(range(sources), rng.randrange(sources + 1)) if rng.random() < 0.5 else []
    pieces = rng.choice([1, 1, 2]) if len(chunks) < 4 else 1
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(PIECE * pieces),
        chunks=tuple(chunks),
        ready={rank: rng.choice([0, 2, 3]) * UNIT for rank in late},
    )
    topology = _build(nodes, wires, rng)
    return _in_some_mode(rng, topology, Demand(tenants=(tenant,)), pieces)


def _in_some_mode(rng: random.Random, topology: Topology, demand: Demand, chunks: int) -> Problem:
    mode = rng.choice(MODES) if topology.num_switches else {}
    if mode.get("transit") or mode.get("switch") is SwitchMode.HYPER_EDGE:
        # No circuit may need a shared capacity twice, so only links that leave GPUs share.
        links = tuple(
            replace(link, shares=()) if topology.nodes[link.src].is_switch else link
            for link in topology.links
        )
        topology = replace(topology, links=links)
    problem = Problem(topology=topology, demand=demand, num_chunks=chunks, **mode)
    if rng.random() < 0.1 and not problem.has_reductions:
        return replace(problem, copy=False)
    return problem


def _contended_chunk(rng: random.Random, sources: int, gpus: int) -> ExplicitChunk:
    kind = rng.random()
    wanted = rng.sample(range(sources, gpus), rng.randrange(1, gpus - sources + 1))
    holders = rng.sample(range(sources), rng.randrange(1, sources + 1))
    if kind < 0.6:
        return ExplicitChunk((holders[0],), (wanted[0],))
    return ExplicitChunk(tuple(holders), tuple(wanted), reduce=kind > 0.9)


def random_topology(rng: random.Random) -> Topology:
    """2 to 6 nodes: rings, lines, stars, two groups or anything, with switches of any balance."""
    gpus = rng.choice([2, 3, 3, 4, 4, 4, 5])
    switches = rng.choice([0, 1, 1, 1, 2]) if gpus < 5 else rng.choice([0, 1])
    slow = rng.choice([[1], [1, 2], [1, 2, 3], [1, 1, 4]])
    alphas = rng.choice([[0], [1], [0, 1], [0, 1, 2], [0, 0, 5], [1, 2, 4]])
    pairs = _pairs(rng, gpus, switches)
    wires = [Wire(a, b, rng.choice(slow), rng.choice(alphas)) for a, b in pairs]
    style = rng.random()
    if style < 0.4:
        _make_symmetric(wires)
    elif style < 0.6:
        _unbalance(rng, wires, gpus, max(slow))
    nodes = [Node(name=f"g{i}") for i in range(gpus)]
    reduces = rng.random() < 0.25
    nodes += [Node(name=f"s{i}", kind=NodeKind.SWITCH, reduce=reduces) for i in range(switches)]
    if rng.random() < 0.3:
        nodes = [replace(node, group=f"c{i % 2}") for i, node in enumerate(nodes)]
    return _build(nodes, wires, rng)


def _pairs(rng: random.Random, gpus: int, switches: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    shape = rng.choice(["ring", "one-way", "line", "star", "any", "groups", "funnel", "funnel"])
    if shape == "funnel":
        return _funnel(rng, gpus, switches)
    if shape in {"ring", "one-way"}:
        pairs += [(i, (i + 1) % gpus) for i in range(gpus)]
    if shape == "ring":
        pairs += [((i + 1) % gpus, i) for i in range(gpus)]
    if shape == "line":
        pairs += [(i, i + 1) for i in range(gpus - 1)] + [(i + 1, i) for i in range(gpus - 1)]
    if shape == "groups":
        half = gpus // 2
        for a in range(gpus):
            pairs += [(a, b) for b in range(gpus) if a != b and (a < half) == (b < half)]
        for _ in range(rng.randrange(1, 4)):
            a, b = rng.randrange(half), rng.randrange(half, gpus)
            pairs += [(a, b), (b, a)]
    for switch in range(gpus, gpus + switches):
        everyone = shape == "star" and switch == gpus
        into = range(gpus) if everyone else rng.sample(range(gpus), rng.randrange(1, gpus + 1))
        away = range(gpus) if everyone else rng.sample(range(gpus), rng.randrange(1, gpus + 1))
        pairs += [(i, switch) for i in into] + [(switch, i) for i in away]
    if switches == 2:
        pairs += rng.choice([[], [(gpus, gpus + 1)], [(gpus, gpus + 1), (gpus + 1, gpus)]])
    extra = rng.choice([0, 0, 1, 2]) if shape != "any" else 2 * gpus
    for _ in range(extra):
        a, b = rng.sample(range(gpus + switches), 2)
        pairs.append((a, b))
    if rng.random() < 0.25 and pairs:
        pairs.append(rng.choice(pairs))
    return pairs


def _funnel(rng: random.Random, gpus: int, switches: int) -> list[tuple[int, int]]:
    """Some GPUs send to others over one node, or over a narrow place between two."""
    nodes = list(range(gpus))
    rng.shuffle(nodes)
    middle = list(range(gpus, gpus + switches)) or [nodes.pop()]
    if len(middle) == 1 and len(nodes) > 2 and rng.random() < 0.5:
        middle.append(nodes.pop())
    rng.shuffle(middle)
    if len(nodes) < 2:
        return [(0, 1), (1, 0)]
    split = rng.randrange(1, len(nodes))
    pairs = [(node, middle[0]) for node in nodes[:split]]
    pairs += [(middle[-1], node) for node in nodes[split:]]
    pairs += [(middle[0], middle[-1])] * (len(middle) > 1) * rng.choice([1, 1, 2])
    # Some go the whole way back, or around the narrow place.
    pairs += [(node, rng.choice(nodes[:split])) for node in nodes[split:] if rng.random() < 0.3]
    pairs += [(node, rng.choice(nodes[split:])) for node in nodes[:split] if rng.random() < 0.2]
    return pairs


def _make_symmetric(wires: list[Wire]) -> None:
    """Give both directions of a pair the same numbers."""
    first: dict[tuple[int, int], Wire] = {}
    for wire in wires:
        twin = first.setdefault((min(wire.src, wire.dst), max(wire.src, wire.dst)), wire)
        wire.slow, wire.alpha = twin.slow, twin.alpha


def _unbalance(rng: random.Random, wires: list[Wire], gpus: int, most: int) -> None:
    """Make the links into switches slower, or faster, than those out of them."""
    into, away = rng.choice([(most, 1), (1, most)])
    for wire in wires:
        if wire.src >= gpus or wire.dst >= gpus:
            wire.slow = away if wire.src >= gpus else into


def _build(nodes: list[Node], wires: list[Wire], rng: random.Random) -> Topology:
    names: list[tuple[str, ...]] = [(), ("nic",)] if rng.random() < 0.3 else [()]
    rate = Fraction(PIECE) / UNIT
    links = tuple(
        Link(
            src=wire.src,
            dst=wire.dst,
            bandwidth=rate / wire.slow,
            alpha=wire.alpha * UNIT,
            shares=rng.choice(names),
        )
        for wire in wires
    )
    shared = {"nic": rate / rng.choice([1, 1, 2])} if len(names) > 1 else {}
    # A shared rate slower than a link's must still divide evenly.
    links = tuple(
        replace(link, bandwidth=rate / 2) if link.shares and rate / link.bandwidth % 2 else link
        for link in links
    )
    return Topology(name="random", nodes=tuple(nodes), links=links, shared=shared)


def _random_problem(rng: random.Random, topology: Topology) -> Problem | None:
    gpus = topology.num_gpus
    chunks = rng.choice([1, 1, 2, 3])
    kind = rng.choice([*COPIES, *SUMS, "allgather", "alltoall", "explicit", "explicit", "tenants"])
    members = gpus if rng.random() < 0.7 else rng.randrange(2, gpus + 1)
    ranks = sorted(rng.sample(range(gpus), members))
    if kind == "explicit":
        tenants = (_explicit(rng, gpus, chunks),)
    elif kind == "tenants":
        tenants = (
            _tenant(rng, rng.choice([*COPIES, *SUMS]), ranks, 1),
            _explicit(rng, gpus, 1, "b"),
        )
        chunks = 1
    else:
        tenants = (_tenant(rng, kind, ranks, chunks),)
    tenants = tuple(_with_ready(rng, tenant, ranks) for tenant in tenants)
    problem = _in_some_mode(rng, topology, Demand(tenants=tenants), chunks)
    # Sums that several want make large programs.
    table = problem.chunks
    has_unions = any(table.reduce[m] and len(table.destinations(m)) > 1 for m in range(len(table)))
    moves = any(_moves(problem, m) for m in range(len(table)))
    return problem if moves and len(table) <= (6 if has_unions else 9) else None


def _moves(problem: Problem, m: int) -> bool:
    sources, wanted = problem.chunks.sources(m).tolist(), problem.chunks.destinations(m).tolist()
    if problem.chunks.reduce[m]:
        return any(s != t for s in sources for t in wanted)
    return any(t not in sources for t in wanted)


def _tenant(rng: random.Random, name: str, ranks: list[int], chunks: int) -> Tenant:
    """A collective whose chunks have one piece each."""
    n = len(ranks)
    matrix = None
    if name == "alltoallv":
        matrix = tuple(
            tuple(
                Fraction(PIECE * chunks * rng.choice([0, 1, 2, 3])) if i != j else Fraction(0)
                for j in range(n)
            )
            for i in range(n)
        )
        if not any(any(row) for row in matrix):
            name, matrix = "alltoall", None
    shares = 1 if name in {"broadcast", "reduce"} else n
    size = Fraction(0) if matrix is not None else Fraction(PIECE * chunks * shares)
    collective = Collective(name)
    root = rng.choice(ranks) if collective.has_root else None
    return Tenant(collective=collective, size=size, ranks=tuple(ranks), root=root, matrix=matrix)


def _explicit(rng: random.Random, gpus: int, pieces: int, name: str = "tenant0") -> Tenant:
    chunks = []
    is_unicast = rng.random() < 0.4
    for _ in range(rng.randrange(1, 5 if is_unicast else 4)):
        sources = rng.sample(range(gpus), 1 if is_unicast else rng.randrange(1, min(gpus, 3) + 1))
        wanted = rng.sample(range(gpus), 1 if is_unicast else rng.randrange(1, gpus + 1))
        reduce = not is_unicast and rng.random() < 0.3
        chunks.append(ExplicitChunk(tuple(sources), tuple(wanted), reduce))
    size = Fraction(PIECE * pieces)
    return Tenant(collective=Collective.EXPLICIT, size=size, chunks=tuple(chunks), name=name)


def _with_ready(rng: random.Random, tenant: Tenant, ranks: list[int]) -> Tenant:
    if rng.random() < 0.75:
        return tenant
    late = rng.sample(ranks, rng.randrange(1, len(ranks) + 1))
    return replace(tenant, ready={rank: rng.randrange(5) * UNIT for rank in late})


def with_overheads(problem: Problem, rng: random.Random) -> Problem:
    """The same with overheads of whole units: one for all links, or some of each."""
    overheads = rng.choice([[1], [2], [0, 1], [0, 2], [1, 2, 3], [0, 0, 4]])
    links = tuple(
        replace(link, overhead=rng.choice(overheads) * UNIT) for link in problem.topology.links
    )
    return replace(problem, topology=replace(problem.topology, links=links))


def random_epoch(seed: int, problem: Problem) -> Fraction:
    """An epoch that fits badly: chunks take fractions of it, latencies vanish or grow."""
    rng = random.Random(seed)
    factor = rng.choice(["1", "1", "1", "2/5", "2/3", "3/2", "2", "3", "5", "7/3", "10"])
    return Fraction(factor) * UNIT * problem.chunk_bytes / PIECE


def random_allreduce(seed: int) -> Problem:
    """An AllReduce without latency on at most four GPUs, perhaps around relays."""
    rng = random.Random(seed)
    while True:
        topology = random_topology(rng)
        if topology.num_gpus > 4 or topology.num_links > 14:
            continue
        links = tuple(replace(link, alpha=Fraction(0)) for link in topology.links)
        members = rng.randrange(2, topology.num_gpus + 1)
        ranks = sorted(rng.sample(range(topology.num_gpus), members))
        demand = Demand(tenants=(_tenant(rng, "allreduce", ranks, 1),))
        problem = _in_some_mode(rng, replace(topology, links=links), demand, 1)
        if find_unreachable(problem) is None:
            return problem


def random_buffer(seed: int, pieces: int) -> Problem:
    """An AllReduce whose buffer is cut as a whole, where transfers have overheads."""
    rng = random.Random(seed)
    while True:
        topology = random_topology(rng)
        if topology.num_gpus > 4 or topology.num_links > 14:
            continue
        count = rng.randrange(2, topology.num_gpus + 1)
        ranks = tuple(sorted(rng.sample(range(topology.num_gpus), count)))
        size = Fraction(PIECE * rng.choice([2, 4]))
        demand = Demand(tenants=(Tenant(collective=Collective.ALLREDUCE, size=size, ranks=ranks),))
        mode = rng.choice(MODES[:3]) if topology.num_switches else {}
        problem = Problem(
            topology=topology, demand=demand, num_chunks=pieces, whole_buffer=True, **mode
        )
        if find_unreachable(problem) is None:
            return with_overheads(problem, rng)


def random_star(seed: int, pieces: int) -> Problem:
    """A sum of GPUs around a switch whose messages cost, up to the switch at least."""
    rng = random.Random(seed)
    gpus, alpha = rng.choice([3, 3, 4]), rng.choice([0, 0, 1]) * UNIT
    up, down = rng.choice([1, 2, 3, 5]) * UNIT, rng.choice([0, 0, 0, 1]) * UNIT
    rate = Fraction(PIECE) / UNIT
    hub = Node(name="hub", kind=NodeKind.SWITCH, reduce=rng.random() < 0.2)
    ends = [(g, gpus, up) for g in range(gpus)] + [(gpus, g, down) for g in range(gpus)]
    links = tuple(
        Link(src=src, dst=dst, bandwidth=rate, alpha=alpha, overhead=cost)
        for src, dst, cost in ends
    )
    nodes = (*(Node(name=f"gpu{i}") for i in range(gpus)), hub)
    kind = rng.choice([Collective.ALLREDUCE, Collective.ALLREDUCE, Collective.REDUCESCATTER])
    parts = pieces if kind is Collective.ALLREDUCE else gpus
    size = Fraction(PIECE * parts * rng.choice([1, 2, 3]))
    return Problem(
        topology=Topology(name="star", nodes=nodes, links=links),
        demand=Demand(tenants=(Tenant(collective=kind, size=size, ranks=tuple(range(gpus))),)),
        num_chunks=pieces if kind is Collective.ALLREDUCE else 1,
        whole_buffer=kind is Collective.ALLREDUCE,
    )


def random_sum(seed: int, gpus: int = 3) -> Problem:
    """A sum among some of at most so many GPUs and a relay, in every mode and with options."""
    rng = random.Random(seed)

    def demand(topology: Topology) -> Demand:
        count = rng.randrange(2, min(gpus, topology.num_gpus) + 1)
        ranks = sorted(rng.sample(range(topology.num_gpus), count))
        name = rng.choice(["allreduce", "allreduce", "allreduce", *SUMS])
        return Demand(tenants=(_with_ready(rng, _tenant(rng, name, ranks, 1), ranks),))

    return fluid_problem(rng, gpus, demand)


def random_leaves(seed: int, name: str = "allreduce") -> Problem:
    """Sums of two groups of two GPUs each, near to each other and far from the others.

    Groups lie around a switch, or their GPUs are joined directly; in every mode and with options.
    """
    rng = random.Random(seed)
    near, far = 1, rng.choice([1, 1, 2])
    inside, between = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3])
    if rng.random() < 0.7:
        up = [(gpu, 4 + gpu // 2) for gpu in range(4)]
        pairs = [*up, *((b, a) for a, b in up), (4, 5), (5, 4)]
        wires = [
            Wire(a, b, inside if min(a, b) < 4 else between, near if min(a, b) < 4 else far)
            for a, b in pairs
        ]
        reduces = rng.random() < 0.25
        switches = [
            Node(name=f"s{i}", kind=NodeKind.SWITCH, reduce=reduces and rng.random() < 0.7)
            for i in range(2)
        ]
    else:
        across = rng.sample([(0, 2), (0, 3), (1, 2), (1, 3)], rng.choice([1, 2, 2, 3]))
        wires = [Wire(a, b, inside, near) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))]
        wires += [Wire(*pair, between, far) for a, b in across for pair in ((a, b), (b, a))]
        switches = []
    if rng.random() < 0.3:
        wires[rng.randrange(len(wires))].slow = 4
    topology = _build([*(Node(name=f"g{i}") for i in range(4)), *switches], wires, rng)
    tenant = _tenant(rng, name, list(range(4)), 1)
    demand = Demand(tenants=(_with_ready(rng, tenant, list(range(4))),))
    problem = _in_some_mode(rng, topology, demand, 1)
    return with_profiles(problem, rng) if rng.random() < 0.2 else problem


def random_mixture(seed: int, gpus: int = 3) -> Problem:
    """Two tenants, or one with anything, among at most so many GPUs and a relay."""
    rng = random.Random(seed)

    def demand(topology: Topology) -> Demand:
        first = sorted(
            rng.sample(range(topology.num_gpus), rng.randrange(2, topology.num_gpus + 1))
        )
        second = sorted(
            rng.sample(range(topology.num_gpus), rng.randrange(2, topology.num_gpus + 1))
        )
        tenants = [_tenant(rng, rng.choice([*COPIES, *SUMS]), first, 1)]
        if rng.random() < 0.4:
            tenants.append(_explicit(rng, topology.num_gpus, rng.choice([1, 2]), "b"))
        elif rng.random() < 0.8:
            other = _tenant(rng, rng.choice([*COPIES, *SUMS]), second, rng.choice([1, 2]))
            tenants.append(replace(other, name="b"))
        tenants[0] = _with_ready(rng, tenants[0], first)
        return Demand(tenants=tuple(tenants))

    return fluid_problem(rng, gpus, demand)


def fluid_problem(
    rng: random.Random, gpus: int, make_demand: Callable[[Topology], Demand]
) -> Problem:
    """A small network with a demand, in some mode, perhaps with rates that change.

    Links that leave GPUs or lead from switch to switch have a latency, so that nothing comes back
    to where it was within the same unit of time.
    """
    while True:
        topology = random_topology(rng)
        if topology.num_gpus > gpus + (rng.random() < 0.2) or topology.num_links > 16:
            continue
        links = tuple(
            replace(link, alpha=max(link.alpha, UNIT))
            if not topology.is_switch[link.src] or topology.is_switch[link.dst]
            else link
            for link in topology.links
        )
        demand = make_demand(topology)
        problem = _in_some_mode(rng, replace(topology, links=links), demand, 1)
        if rng.random() < 0.3:
            problem = with_profiles(problem, rng)
        moving = sum(_moves(problem, m) for m in range(len(problem.chunks)))
        # Beyond, the exact optimum takes long.
        is_small = topology.num_links * moving <= MOST_SENDS
        if moving and is_small and find_unreachable(problem) is None:
            return problem


def scaled(problem: Problem, factor: Fraction) -> Problem:
    """The problem with a multiple of its data."""
    tenants = tuple(
        replace(
            tenant,
            size=tenant.size * factor,
            matrix=tenant.matrix
            and tuple(tuple(size * factor for size in row) for row in tenant.matrix),
        )
        for tenant in problem.demand.tenants
    )
    return replace(problem, demand=Demand(tenants=tenants))


def with_profiles(problem: Problem, rng: random.Random) -> Problem:
    """The problem with bandwidths that change over time, where its mode allows that."""
    circuits = problem.transit is Transit.CUT_THROUGH or problem.switch is SwitchMode.HYPER_EDGE
    if circuits and problem.topology.num_switches:
        return problem
    links = tuple(
        replace(
            link,
            profile=tuple(
                (moment * UNIT, link.bandwidth * rng.choice([Fraction(1, 2), 1, 3]))
                for moment in sorted(rng.sample(range(8), rng.randrange(3)))
            ),
        )
        for link in problem.topology.links
    )
    return replace(problem, topology=replace(problem.topology, links=links))
