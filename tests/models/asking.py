"""Requests for one problem by one method, and small networks to ask about."""

from fractions import Fraction

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.result import Result
from teccl.synthesis import run
from teccl.synthesis.request import Request, Solver
from teccl.topology import Link, Node, NodeKind, Topology

MICROSECOND = Fraction(1, 10**6)
# A chunk of 25 KB takes one microsecond on a link of this rate.
RATE = Fraction(25 * 10**9)
CHUNK = Fraction(25_000)


def network(links, *, switches=(), shared=None) -> Topology:
    """Nodes 0, 1, ... with links (src, dst, rate, alpha in epochs of a microsecond, profile)."""
    count = 1 + max(max(link[:2]) for link in links)
    nodes = tuple(
        Node(name=f"n{i}", kind=NodeKind.SWITCH if i in switches else NodeKind.GPU)
        for i in range(count)
    )
    built = []
    for src, dst, *rest in links:
        rate, alpha, profile = [*rest, *(1, 0, ())[len(rest) :]]
        built.append(
            Link(
                src=src,
                dst=dst,
                bandwidth=RATE * Fraction(rate),
                alpha=MICROSECOND * Fraction(alpha),
                profile=tuple((MICROSECOND * k, RATE * Fraction(r)) for k, r in profile),
            )
        )
    return Topology(name="small", nodes=nodes, links=tuple(built), shared=shared or {})


def chunks(*pairs, **tenant) -> Demand:
    """An explicit demand: (sources, destinations) of each chunk, by rank."""
    explicit = tuple(ExplicitChunk(tuple(s), tuple(d)) for s, d in pairs)
    return Demand(
        tenants=(Tenant(collective=Collective.EXPLICIT, size=CHUNK, chunks=explicit, **tenant),)
    )


def ask(problem: Problem, method: str, *, epoch: Fraction = MICROSECOND, **options) -> Result:
    """Solve a problem by a method on a grid of epochs of some length."""
    options = {"solver": Solver.HIGHS, **options}
    request = Request(
        topology=problem.topology,
        demand=problem.demand,
        chunks=problem.num_chunks,
        method=method,
        grid=True,
        epoch=epoch,
        switch=problem.switch,
        transit=problem.transit,
        buffer=problem.buffer,
        copy=problem.copy,
        **options,
    )
    return run(request)
