"""All bounds of a problem, and the summary that results carry."""

from teccl.bounds.allreduce import partition_bounds
from teccl.bounds.candidates import candidate_cuts
from teccl.bounds.cuts import cut_bound
from teccl.bounds.model import Bound
from teccl.bounds.network import FAR, Network
from teccl.problem import Problem
from teccl.schedule import BoundSummary
from teccl.timegrid import TimeGrid
from teccl.units import display_time


def all_bounds(
    problem: Problem, *, grid: TimeGrid | None = None, fluid: bool = True
) -> list[Bound]:
    """Evaluate every bound, best first.

    Parameters
    ----------
    problem
        What is to be bounded.
    grid
        Count in epochs of this grid with whole chunks.
    fluid
        Any chunking; otherwise the problem's own whole chunks.
    """
    network = Network.build(problem, grid=grid, fluid=fluid and grid is None)
    bounds = [_pair_bound(network), *partition_bounds(network)]
    bounds += [b for cut in candidate_cuts(network) if (b := cut_bound(network, cut)) is not None]
    if problem.buffer is not None or not problem.copy:
        bounds = [*bounds]
    return sorted(bounds, key=lambda b: -b.value)


def summarise(
    problem: Problem, *, grid: TimeGrid | None = None, given_chunks: bool = False
) -> BoundSummary:
    """Return the best bounds: for any chunking, for these chunks, and on the grid."""
    physical = all_bounds(problem)[0]
    whole = all_bounds(problem, fluid=False)[0] if given_chunks and grid is None else None
    epochs = all_bounds(problem, grid=grid)[0] if grid is not None else None
    chunk_ps = None if whole is None else max(whole.value, physical.value)
    winner = epochs or (whole if whole is not None and whole.value > physical.value else physical)
    return BoundSummary(
        physical_ps=physical.value,
        chunk_ps=chunk_ps,
        epochs=None if epochs is None else epochs.value,
        certificate=winner.certificate,
    )


def _pair_bound(network: Network) -> Bound:
    """The farthest that some chunk has to go."""
    nodes = network.problem.topology.nodes
    best = Bound(kind="pair", value=0, certificate="nothing has to move")
    for group in network.classes:
        for t in group.destinations:
            if not group.reduce and t in group.sources:
                continue
            times = network.distance[group.sources, t] + group.ready
            times[group.sources == t] = 0
            pick = int(times.argmax() if group.reduce else times.argmin())
            value = int(min(times[pick], FAR))
            if value > best.value:
                unit = f"{value} epochs" if network.on_grid else display_time(value / 1e12)
                ends = f"{nodes[group.sources[pick]].name} to {nodes[t].name}"
                best = Bound(kind="pair", value=value, certificate=f"{unit} of way from {ends}")
    return best
