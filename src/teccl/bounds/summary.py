"""All bounds of a problem, and the summary that results carry."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from teccl.bounds.allreduce import partition_bounds
from teccl.bounds.candidates import candidate_cuts
from teccl.bounds.chunkings import any_number_of_chunks
from teccl.bounds.circuit_rates import at_circuit_rates
from teccl.bounds.coverage import coverage_bounds
from teccl.bounds.cuts import Estimate, cut_bound, cut_estimate
from teccl.bounds.departures import departure_bounds
from teccl.bounds.entries import entry_bounds
from teccl.bounds.first_departures import first_departure_bounds
from teccl.bounds.first_passages import first_passage_bounds
from teccl.bounds.handed_on import handed_on_bounds
from teccl.bounds.joint_coverage import joint_bounds
from teccl.bounds.lengths import length_bounds
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.patience import is_over
from teccl.bounds.pieces import overheads
from teccl.bounds.quickest import quickest_bound
from teccl.bounds.served import served_bounds
from teccl.bounds.sized_cuts import sized_cut_bounds
from teccl.bounds.timed_lengths import timed_length_bounds
from teccl.bounds.transshipment import transshipment_bounds
from teccl.bounds.windows import FAR
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.schedule import BoundSummary
from teccl.timegrid import TimeGrid
from teccl.units import display_time

# Tenants beyond which none is looked at by itself.
MOST_ALONE = 8
# Cuts that a summary evaluates exactly, and that may move with time.
MOST_CUTS = 4


class Evidence(NamedTuple):
    """What bounds are computed from.

    Parameters
    ----------
    problem, network
        What is to be bounded, and the network as bounds see it, with the demand of each pair.
    cuts
        Cuts with what floating point makes of them, tightest first.
    most_cuts
        Cuts to evaluate exactly; None for all.
    narrow
        Whether computing flows is worth the time.
    whole
        Whether the problem is all that is asked for, not one of several tenants.
    best
        Best of the bounds that were evaluated before.
    """

    problem: Problem
    network: Network
    cuts: list[Estimate]
    most_cuts: int | None
    narrow: bool
    whole: bool = True
    best: int = 0


def all_bounds(
    problem: Problem,
    *,
    grid: TimeGrid | None = None,
    fluid: bool = True,
    most_cuts: int | None = None,
    narrow: bool = True,
    whole: bool = True,
) -> list[Bound]:
    """Evaluate every bound, best first; where time is limited, those that there is time for.

    Parameters
    ----------
    problem
        What is to be bounded.
    grid
        Count in epochs of this grid with whole chunks.
    fluid
        Any chunking; otherwise the problem's own whole chunks.
    most_cuts
        Cuts to evaluate exactly, those that floating point finds tightest; None for all.
    narrow
        Whether to search for narrow cuts by maximum flow too, and to let the best cuts move.
    whole
        Whether the problem is all that is asked for. The chunks of one of several tenants follow
        from the largest block of all, so that its own are not of equal size.
    """
    fluid = fluid and grid is None
    narrow = narrow and not is_over()
    seen = separate_copies(problem, whole=fluid)
    # On the grid every link counts starts at its own rate, whatever else a hyper-edge holds.
    network = Network.build(seen if grid else at_circuit_rates(seen), grid=grid, fluid=fluid)
    estimates = [cut_estimate(network, cut) for cut in candidate_cuts(network, narrow=narrow)]
    found = sorted((e for e in estimates if e is not None), key=lambda e: -e.value)
    evidence = Evidence(problem, network, found, most_cuts, narrow, whole)
    bounds: list[Bound] = []
    for family in FAMILIES.values():
        bounds += family(evidence)
        evidence = evidence._replace(best=max((bound.value for bound in bounds), default=0))
        if bounds and is_over():
            break
    return sorted(bounds, key=lambda b: -b.value)


def _cuts(evidence: Evidence) -> list[Bound]:
    chosen = evidence.cuts[: evidence.most_cuts]
    return [cut_bound(evidence.network, estimate) for estimate in chosen]


def _moving_cuts(evidence: Evidence) -> list[Bound]:
    chosen = evidence.cuts[:MOST_CUTS] if evidence.narrow else []
    moving = (
        None if is_over() else quickest_bound(evidence.network, estimate) for estimate in chosen
    )
    return [bound for bound in moving if bound is not None]


def _alone(evidence: Evidence) -> list[Bound]:
    """Return the best bound of each of several tenants by itself: company makes none faster."""
    if not evidence.network.fluid or not evidence.narrow:
        return []
    return [
        replace(best, certificate=f"{name} alone: {best.certificate}")
        for name, best in _each_alone(evidence.problem)
        if best is not None
    ]


def _each_alone(problem: Problem) -> list[tuple[str, Bound | None]]:
    """Return the best bound of each of several tenants, none at all where they are too many.

    A tenant that wants nothing from others has None.
    """
    tenants = problem.demand.tenants
    if not 1 < len(tenants) <= MOST_ALONE:
        return []
    served = set(problem.chunks.tenant.tolist())
    return [
        (tenant.name, _bound_alone(problem, tenant) if number in served else None)
        for number, tenant in enumerate(tenants)
    ]


def _bound_alone(problem: Problem, tenant: Tenant) -> Bound:
    part = replace(problem, demand=Demand(tenants=(tenant,)))
    return all_bounds(part, most_cuts=MOST_CUTS, whole=False)[0]


def tenant_bounds(problem: Problem) -> tuple[int, ...]:
    """Return picoseconds that each of several tenants takes at least, even without the others."""
    return tuple(0 if bound is None else bound.value for _, bound in _each_alone(problem))


def _any_number(evidence: Evidence) -> list[Bound]:
    """Return what holds for any number of chunks, where each of them costs."""
    network = evidence.network
    if not (network.fluid and evidence.whole) or network.has_circuits:
        return []
    if not overheads(network).any():
        return []
    exactly = partial(all_bounds, fluid=False, most_cuts=MOST_CUTS, narrow=evidence.narrow)
    return any_number_of_chunks(
        evidence.problem, evidence.best, lambda cut: exactly(cut)[0], _at_least
    )


def _at_least(problem: Problem) -> Bound:
    """Return the best bound for as many chunks as the problem has, or more of them."""
    seen = at_circuit_rates(separate_copies(problem, whole=True))
    fluid, chunks = Network.build(seen, fluid=True), Network.build(seen)
    # Of larger numbers no more is known than that their chunks have some bytes.
    around = replace(
        chunks, distance=fluid.distance, approach=fluid.approach, crossing=fluid.crossing
    )
    estimates = [cut_estimate(around, cut) for cut in candidate_cuts(around, narrow=False)]
    found = sorted((e for e in estimates if e is not None), key=lambda e: -e.value)
    bounds = [cut_bound(around, estimate, or_more=True) for estimate in found[:MOST_CUTS]]
    # Each chunk is at least one transfer, and a finer cut makes none of them superfluous.
    fluid = replace(fluid, classes=replace(fluid.classes, blocks=fluid.classes.count))
    bounds += partition_bounds(fluid, [estimate.cut.inside for estimate in found])
    return max(bounds, key=lambda bound: bound.value, default=_pair_bound(fluid))


def summarise(
    problem: Problem,
    *,
    grid: TimeGrid | None = None,
    given_chunks: bool = False,
    narrow: bool = True,
) -> BoundSummary:
    """Return the best bounds: for any chunking, for these chunks, and on the grid."""
    best = partial(all_bounds, problem, most_cuts=MOST_CUTS, narrow=narrow)
    physical = best()[0]
    whole = best(fluid=False)[0] if given_chunks and grid is None else None
    epochs = best(grid=grid)[0] if grid is not None else None
    chunk_ps = None if whole is None else max(whole.value, physical.value)
    winner = epochs or (whole if whole is not None and whole.value > physical.value else physical)
    return BoundSummary(
        physical_ps=physical.value,
        chunk_ps=chunk_ps,
        epochs=None if epochs is None else epochs.value,
        certificate=winner.certificate,
    )


# Every theorem; adding one is adding its entry. Of equal bounds the first of this order is named.
FAMILIES: dict[str, Callable[[Evidence], Iterable[Bound]]] = {
    "pair": lambda evidence: [_pair_bound(evidence.network)],
    "partition": lambda evidence: partition_bounds(
        evidence.network, [estimate.cut.inside for estimate in evidence.cuts]
    ),
    "cut": _cuts,
    "sized cut": lambda evidence: sized_cut_bounds(
        evidence.network, evidence.cuts, evidence.most_cuts
    ),
    "served": lambda evidence: served_bounds(evidence.network, evidence.cuts),
    "departures": lambda evidence: departure_bounds(
        evidence.network, int(evidence.cuts[0].value) if evidence.cuts else 0
    ),
    "first departures": lambda evidence: first_departure_bounds(evidence.network),
    "entries": lambda evidence: entry_bounds(
        evidence.network, [estimate.cut for estimate in evidence.cuts]
    ),
    "quickest": _moving_cuts,
    "transshipment": lambda evidence: (
        transshipment_bounds(evidence.network, evidence.cuts, evidence.best)
        if evidence.narrow
        else []
    ),
    "lengths": lambda evidence: length_bounds(evidence.network, narrow=evidence.narrow),
    "coverage": lambda evidence: coverage_bounds(evidence.network),
    "joint coverage": lambda evidence: joint_bounds(
        evidence.network, [estimate.cut for estimate in evidence.cuts]
    ),
    "handed on": lambda evidence: (
        handed_on_bounds(evidence.network, [estimate.cut.inside for estimate in evidence.cuts])
        if evidence.narrow
        else []
    ),
    "first passages": lambda evidence: (
        first_passage_bounds(evidence.network, [estimate.cut.inside for estimate in evidence.cuts])
        if evidence.narrow
        else []
    ),
    "alone": _alone,
    "timed lengths": lambda evidence: (
        timed_length_bounds(evidence.network, evidence.best) if evidence.narrow else []
    ),
    "any number": _any_number,
}


def separate_copies(problem: Problem, *, whole: bool = False) -> Problem:
    """Return the demand as bounds see it: without copying every destination has its own data.

    So has every destination of a sum: what a GPU received goes into one result only. `whole` makes
    the buffer of an AllReduce one block.
    """
    if problem.copy:
        return problem
    tenants = tuple(_apart(tenant, problem, whole=whole) for tenant in problem.demand.tenants)
    return replace(problem, demand=Demand(tenants=tenants))


def _apart(tenant: Tenant, problem: Problem, *, whole: bool) -> Tenant:
    """Return a tenant with a chunk for each destination that something has to come to."""
    blocks = list(tenant.blocks(problem.topology.num_gpus, whole=whole or problem.whole_buffer))
    chunks = tuple(
        ExplicitChunk(block.sources, (rank,), reduce=block.reduce, size=block.size)
        for block in blocks
        for rank in block.destinations
        if (block.sources != (rank,) if block.reduce else rank not in block.sources)
    )
    if not chunks:
        return tenant
    return replace(
        tenant,
        collective=Collective.EXPLICIT,
        chunks=chunks,
        size=blocks[0].size,
        root=None,
        matrix=None,
    )


def _pair_bound(network: Network) -> Bound:
    """The farthest that some chunk has to go."""
    classes, names = network.classes, [node.name for node in network.problem.topology.nodes]
    best = Bound(kind="pair", value=0, certificate="nothing has to move")
    # All goals of one origin at once: there are many pairs and few origins.
    key = classes.origin * 2 + classes.reduce
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    targets_of = cache(lambda goals: np.unique(np.concatenate([classes.goals[g] for g in goals])))
    for members in np.split(order, cuts):
        if len(members):
            nodes, ready = classes.origins[classes.origin[members[0]]]
            reduce = bool(classes.reduce[members[0]])
            targets = targets_of(tuple(np.unique(classes.goal[members]).tolist()))
            times = network.distance[np.ix_(nodes, targets)] + ready[:, None]
            times = np.where(nodes[:, None] == targets[None, :], 0, times)
            worst = times.max(axis=0) if reduce else times.min(axis=0)
            t = int(worst.argmax())
            value = int(min(worst[t], FAR))
            if value > best.value:
                s = int(np.flatnonzero(times[:, t] == worst[t])[0])
                unit = f"{value} epochs" if network.on_grid else display_time(value / 1e12)
                ends = f"{names[nodes[s]]} to {names[targets[t]]}"
                best = Bound(kind="pair", value=value, certificate=f"{unit} of way from {ends}")
    return best
