"""Bounds on every cut and partition of a small network, not only on those worth a look."""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from teccl.bounds import Bound, all_bounds
from teccl.bounds.allreduce import partition_bound, passes_on_once
from teccl.bounds.circuit_rates import at_circuit_rates
from teccl.bounds.coverage import Side, _Crowd, _evaluate, _Port, _port
from teccl.bounds.cuts import Cut, cut_bound, cut_estimate
from teccl.bounds.departures import departure_bounds
from teccl.bounds.entries import entry_bounds
from teccl.bounds.first_passages import first_passage_bound, is_served
from teccl.bounds.handed_on import handed_on_bound
from teccl.bounds.joint_coverage import LeastTimes, Set, estimate, evaluate, inflow_of, serves
from teccl.bounds.lengths import _are_pairs, _length_bound, _Load
from teccl.bounds.network import Network
from teccl.bounds.partitions import Partition
from teccl.bounds.quickest import quickest_bound
from teccl.bounds.served import served_bounds
from teccl.bounds.sized_cuts import sized_cut_bounds
from teccl.bounds.summary import separate_copies
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

# Choices of partitions.
RANDOM_PARTITIONS = 40
# Choices of lengths.
RANDOM_LENGTHS = 12
# Of all cuts, those that may move with time.
MOST_MOVING = 6


def _network(problem: Problem, *, grid: TimeGrid | None = None, fluid: bool = True) -> Network:
    """The network as bounds see it."""
    seen = separate_copies(problem, whole=fluid)
    return Network.build(seen if grid else at_circuit_rates(seen), grid=grid, fluid=fluid)


def best_bound(problem: Problem, *, grid: TimeGrid | None = None, fluid: bool = True) -> Bound:
    """The largest bound of all that the theorems give, for any set of nodes."""
    network = _network(problem, grid=grid, fluid=fluid and grid is None)
    found = all_bounds(problem, grid=grid, fluid=fluid)
    estimates = []
    for inside in product([False, True], repeat=problem.topology.num_nodes):
        if any(inside) and not all(inside):
            estimate = cut_estimate(network, Cut(np.array(inside), str(inside)))
            if estimate is not None:
                found.append(cut_bound(network, estimate))
                estimates.append(estimate)
    estimates.sort(key=lambda estimate: -estimate.value)
    moving = [quickest_bound(network, estimate) for estimate in estimates[:MOST_MOVING]]
    found += [bound for bound in moving if bound is not None]
    found += sized_cut_bounds(network, estimates, None)
    found += [bound for each in estimates for bound in served_bounds(network, [each])]
    found += [bound for each in estimates for bound in entry_bounds(network, [each.cut])]
    found += departure_bounds(network, 0)
    return max(found, key=lambda bound: bound.value)


def best_partition_bound(problem: Problem) -> int:
    """The largest partition bound in picoseconds, whatever the partition."""
    network = _network(problem)
    best = 0
    for labels in _labels(problem.topology.num_nodes):
        for departing in (False, True)[: 1 + passes_on_once(network)]:
            partition = Partition(np.array(labels), "each part")
            bound = partition_bound(network, partition, departing=departing)
            best = max(best, 0 if bound is None else bound.value)
    return best


def best_handed_on_bound(problem: Problem, seed: int) -> int:
    """The largest bound in picoseconds of data handed on inside the parts of random partitions."""
    network, rng = _network(problem), np.random.default_rng(seed)
    nodes = problem.topology.num_nodes
    is_served = network.classes.reduce.all() or not network.classes.reduce.any()
    best = 0
    for _ in range(RANDOM_PARTITIONS if is_served and not network.has_circuits else 0):
        drawn = rng.integers(-1, rng.integers(1, nodes), nodes)
        bounds = handed_on_bound(network, Partition(drawn, "each part"))
        best = max(best, *(bound.value for bound in bounds), 0)
    return best


def best_first_passage_bound(problem: Problem, seed: int) -> int:
    """The largest bound in picoseconds of passages out of random sets of nodes, or into them."""
    network, rng = _network(problem), np.random.default_rng(seed)
    best = 0
    for _ in range(RANDOM_PARTITIONS if is_served(network) else 0):
        inside = rng.random(problem.topology.num_nodes) < rng.choice([0.3, 0.5, 0.8])
        bound = first_passage_bound(network, inside, "some nodes")
        best = max(best, 0 if bound is None else bound.value)
    return best


def best_length_bound(problem: Problem, seed: int) -> int:
    """The largest length bound in picoseconds of some random lengths, many of them zero."""
    network, rng = _network(problem), np.random.default_rng(seed)
    load = _Load.build(network, _are_pairs(network))
    best = 0
    for _ in range(RANDOM_LENGTHS if load.has_work else 0):
        drawn = rng.choice([0, 0, 1, 1, 2, 3], problem.topology.num_links)
        bound = _length_bound(network, load, "chance", drawn)
        best = max(best, 0 if bound is None else bound.value)
    return best


def best_coverage_bound(problem: Problem) -> int:
    """The largest coverage bound in picoseconds, of any one or two GPUs, or all, and any others."""
    network = _network(problem)
    best, gpus = 0, problem.topology.gpus.tolist()
    for side in (Side.build(network, inward=inward) for inward in (True, False)):
        pieces = side.pieces(network)
        for nodes in [*combinations(gpus, 1), *combinations(gpus, 2), gpus]:
            port = _port(network, side, list(nodes))
            kinds = (None,) if pieces is None or len(nodes) > 1 else (None, pieces)
            for chosen in () if port is None else _chosen_of(port):
                for kind in kinds:
                    crowd = _Crowd(0.0, port, chosen, kind)
                    best = max(best, _evaluate(network, crowd, inward=side.inward).value)
    return best


def _chosen_of(port: _Port) -> Iterator[np.ndarray]:
    """Every choice of others for each of two GPUs; of more GPUs all others."""
    wanted = np.array([[amount > 0 for amount in row] for row in port.amount])
    if len(port.nodes) > 2:
        yield wanted
        return
    for choice in product([False, True], repeat=wanted.size):
        chosen = np.array(choice).reshape(wanted.shape)
        if chosen.any() and not (chosen & ~wanted).any():
            yield chosen


def best_joint_bound(problem: Problem) -> int:
    """The largest joint coverage in picoseconds, of any set of nodes, sources and goals."""
    network = Network.build(problem, fluid=True)
    if not serves(network):
        return 0
    ways, best = LeastTimes(network), 0
    for inside in product([False, True], repeat=problem.topology.num_nodes):
        whole = Set.build(ways, Cut(np.array(inside), str(inside)))
        for sources in _subsets(whole.sources):
            for goals in _subsets(whole.goals):
                found = inflow_of(ways, whole._replace(sources=sources, goals=goals))
                if found is not None:
                    best = max(best, evaluate(found, estimate(found)).value)
    return best


def _subsets(nodes: np.ndarray) -> Iterator[np.ndarray]:
    for count in range(1, len(nodes) + 1):
        for chosen in combinations(nodes.tolist(), count):
            yield np.array(chosen)


def _labels(count: int, used: int = 0) -> Iterator[tuple[int, ...]]:
    """Every way to put nodes into numbered parts or, with -1, outside of all."""
    if count == 0:
        yield ()
        return
    for label in range(-1, used + 1):
        for rest in _labels(count - 1, max(used, label + 1)):
            yield (label, *rest)
