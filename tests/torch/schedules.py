"""Schedules and plans for tests: by methods, one-shot, and of random networks."""

import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np

import teccl
from teccl.demand import Collective, Demand
from teccl.errors import MethodError
from teccl.problem import Problem
from teccl.reachability import find_unreachable
from teccl.schedule import Schedule, send_array
from teccl.synthesis.request import OBEYED_BY

COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "alltoall"),
    *("broadcast", "reduce", "gather", "scatter"),
)
METHODS = ("auto", "construct", "ring", "binomial-tree", "shortest-path", "recursive-doubling")


def one_shot(gpus: int, collective: str, size: int = 4096, root: int | None = None) -> Schedule:
    """Every block goes straight to all who want it; sums are formed where they are wanted."""
    topology = teccl.Topology.parse(f"fully-connected:gpus={gpus}")
    demand = Demand.collective(collective, size=size, root=root)
    problem = Problem(topology=topology, demand=demand)
    links = {(link.src, link.dst): i for i, link in enumerate(topology.links)}
    table, chunk, link, reduce = problem.chunks, [], [], []
    for c in range(len(table)):
        for src in table.sources(c).tolist():
            for dst in table.destinations(c).tolist():
                if src != dst and (table.reduce[c] or dst not in table.sources(c)):
                    chunk.append(c)
                    link.append(links[src, dst])
                    reduce.append(bool(table.reduce[c]))
    held = problem.transmission_ps[np.array(link), table.size_index[np.array(chunk)]]
    # Late enough that the own data of all is sent before any sum is formed, in turn on each link.
    start, free = [], {}
    for row, each in enumerate(link):
        start.append(free.get(each, 0))
        free[each] = start[-1] + int(held[row])
    return Schedule(
        problem=problem,
        sends=send_array(chunk, link, start, reduce=reduce),
        method="one-shot",
    )


def solved(topology, collective: str, *, size=4096, root=None, **options) -> Schedule:
    """A schedule of some method; only AllReduces have others than constructions that matter."""
    method = "auto" if collective == "allreduce" else "construct"
    options = {"method": method, **options}
    options |= {"effort": "quick"} if options["method"] in OBEYED_BY["effort"] else {}
    found = teccl.solve(topology, collective, size=size, root=root, **options).schedule
    assert found is not None
    return found


def random_network(rng: random.Random, gpus: int) -> teccl.Topology:
    """A connected network of so many GPUs and perhaps switches, links of different rates."""
    from teccl.topology import Link, Node, NodeKind

    switches = rng.choice([0, 0, 1])
    kinds = [NodeKind.GPU] * gpus + [NodeKind.SWITCH] * switches
    reduces = rng.random() < 0.3
    nodes = tuple(
        Node(name=f"n{i}", kind=kind, reduce=reduces and kind is NodeKind.SWITCH)
        for i, kind in enumerate(kinds)
    )
    order = rng.sample(range(len(nodes)), len(nodes))
    pairs = {frozenset(pair) for pair in zip(order, order[1:] + order[:1], strict=True)}
    pairs |= {frozenset(rng.sample(range(len(nodes)), 2)) for _ in nodes}
    links = []
    for pair in sorted(tuple(sorted(p)) for p in pairs if len(p) == 2):
        rate = Fraction(rng.choice([10, 25, 50]) * 10**9)
        alpha = Fraction(rng.choice([0, 7]), 10**7)
        links += [Link(src=a, dst=b, bandwidth=rate, alpha=alpha) for a, b in (pair, pair[::-1])]
    return teccl.Topology(name="random", nodes=nodes, links=tuple(links))


def random_schedule(rng: random.Random, gpus: int, collective: str, root: int | None) -> Schedule:
    """A schedule of a random method on a random network, or a one-shot one."""
    while True:
        if rng.random() < 0.15:
            return one_shot(gpus, collective, rng.choice([64, 4096]), root)
        topology = random_network(rng, gpus)
        demand = Demand.collective(collective, size=rng.choice([1, 77, 4096, 10**6]), root=root)
        if find_unreachable(Problem(topology=topology, demand=demand)) is not None:
            continue
        options = {"chunks": rng.choice([1, 2, 3, 5]), "method": rng.choice(METHODS)}
        options |= {"effort": "quick"} if options["method"] in OBEYED_BY["effort"] else {}
        try:
            found = teccl.solve(topology, demand=demand, **options)
        except MethodError:
            continue
        if found.schedule is not None:
            return found.schedule


def has_root(collective: str) -> bool:
    """Whether a collective has a root."""
    return Collective(collective).has_root


def write_plan(folder: Path, ranges: list[tuple[int, int, Schedule]]) -> Path:
    """Write a plan as ``teccl sweep --plan`` does, of schedules for one collective."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for i, (low, high, schedule) in enumerate(ranges):
        schedule.save(folder / f"schedule{i}.json.gz")
        entries.append({"minBytes": low, "maxBytes": high, "schedule": f"schedule{i}.json.gz"})
    problem = ranges[0][2].problem
    document = {
        "format": "teccl-plan",
        "schema_version": 1,
        "tool_version": teccl.__version__,
        "topology": problem.topology.name,
        "num_gpus": problem.topology.num_gpus,
        "collective": problem.demand.title,
        "ranges": entries,
    }
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
