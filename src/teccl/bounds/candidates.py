"""Which cuts to evaluate: ports, clusters and the narrowest cuts that flows find."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.cuts import Cut
from teccl.bounds.lengths import flow_prices, unicast_load
from teccl.bounds.network import Network, all_distances
from teccl.bounds.windows import FAR, carried
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.clusters import partings

FloatArray = npt.NDArray[np.float64]

# GPUs for which the narrowest cut is searched, those with the fullest ports first.
MAX_FLOW_GPUS = 80
# Prices this many times below the largest are taken for zero.
NEGLIGIBLE_PRICE = 1_000
# Whole numbers of a flow that the fastest link carries.
_UNIT = 2.0**24
# GPUs looked at among those whose ports are alike, and clusters likewise.
MAX_ALIKE = 4


def candidate_cuts(network: Network, *, narrow: bool = True) -> Iterator[Cut]:
    """Yield cuts without repeats, cheap and usually binding ones first.

    With `narrow` false only ports and clusters as they are: no flow is computed.
    """
    seen = set()
    chosen = representatives(network)
    problem = network.problem
    cuts = [*_ports(problem, chosen), *_clusters(network, narrow=narrow)]
    if narrow:
        cuts += [*_narrow(network, chosen), *_priced(network), *_nearer(network, chosen)]
    for cut in cuts:
        key = cut.inside.tobytes()
        if key not in seen and cut.inside.any() and not cut.inside.all():
            seen.add(key)
            yield cut


def representatives(network: Network) -> list[int]:
    """GPUs whose ports are worth a look: of those alike, the ones farthest from the rest.

    Two GPUs are alike when their ports have the same rates and the same amounts are to enter and
    to leave; their bounds differ by the distances around them only.
    """
    topology = network.problem.topology
    near = np.where(network.distance < FAR, network.distance, 0)
    far = near.max(axis=0) + near.max(axis=1)
    enters, leaves = _amounts(network)
    rates = _speeds(network)
    inward = np.bincount(topology.link_dst, rates, minlength=topology.num_nodes)
    outward = np.bincount(topology.link_src, rates, minlength=topology.num_nodes)
    alike: dict[tuple[float, ...], list[int]] = {}
    for node in topology.gpus.tolist():
        key = _rounded(x[node] for x in (enters, leaves, inward, outward))
        alike.setdefault(key, []).append(node)
    kept = [sorted(nodes, key=lambda v: -far[v])[:MAX_ALIKE] for nodes in alike.values()]
    return sorted(node for nodes in kept for node in nodes)


def _amounts(network: Network) -> tuple[FloatArray, FloatArray]:
    """Return what is to enter and to leave each node."""
    classes = network.classes
    amounts = np.array([float(amount) for amount in classes.amount])
    enters, leaves = np.zeros((2, network.problem.topology.num_nodes))
    per_goal = np.bincount(classes.goal, amounts, minlength=len(classes.goals))
    per_origin = np.bincount(classes.origin, amounts, minlength=len(classes.origins))
    for nodes, amount in zip(classes.goals, per_goal, strict=True):
        enters[nodes] += amount
    for origin, amount in zip(classes.origins, per_origin, strict=True):
        leaves[origin.nodes] += amount
    return enters, leaves


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Return values so that rounding does not tell them apart."""
    return tuple(float(f"{value:.9g}") for value in values)


def _ports(problem: Problem, nodes: list[int]) -> Iterator[Cut]:
    """Into and out of single GPUs."""
    topology = problem.topology
    for node in nodes:
        alone = np.zeros(topology.num_nodes, dtype=bool)
        alone[node] = True
        yield Cut(alone, topology.nodes[node].name)
        yield Cut(~alone, f"the nodes beside {topology.nodes[node].name}")


def _clusters(network: Network, *, narrow: bool) -> Iterator[Cut]:
    """Into and out of every cluster, other switches placed where the cut is narrowest."""
    topology = network.problem.topology
    pipes, amounts = _pipes(network), _amounts(network)
    speeds = pipes.speed
    alike: Counter[tuple[float, ...]] = Counter()
    for label in partings(topology):
        for number in np.unique(label[topology.gpus][label[topology.gpus] >= 0]).tolist():
            members = label == number
            src, dst = members[topology.link_src], members[topology.link_dst]
            crossing = [speeds[~src & dst].sum(), speeds[src & ~dst].sum()]
            key = _rounded([members.sum(), *crossing, *(each[members].sum() for each in amounts)])
            alike[key] += 1
            if alike[key] > MAX_ALIKE:
                continue
            name = _cluster_name(topology, members)
            yield Cut(members, name)
            yield Cut(~members, f"the nodes beside {name}")
            if not narrow or not topology.num_switches:
                continue
            into = _narrowest(pipes, sources=~members, sinks=members)
            yield Cut(into, f"{name} and its switches")
            away = _narrowest(pipes, sources=members, sinks=~members)
            yield Cut(away, f"the nodes beside {name}")


def _cluster_name(topology: Topology, members: npt.NDArray[np.bool_]) -> str:
    """Return what to call a cluster: by its group, or by its first GPU."""
    inside = topology.gpus[members[topology.gpus]]
    groups = {topology.nodes[i].group for i in inside.tolist()}
    named = next(iter(groups)) if len(groups) == 1 else None
    if named is not None and sum(node.group == named for node in topology.nodes) == members.sum():
        return named
    return f"the {len(inside)} gpus around {topology.nodes[int(inside[0])].name}"


def _speeds(network: Network) -> FloatArray:
    """Bytes per picosecond of each link, on average for as long as ports take at their best.

    To this comes the longest way, since what avoids a link that falls is on its way for longer.
    """
    topology = network.problem.topology
    best = np.array([float(rate) for rate in network.rate])
    if not topology.has_profiles:
        return best
    times = [0.0]
    for amount, end in zip(_amounts(network), (topology.link_dst, topology.link_src), strict=True):
        port = np.bincount(end, best, minlength=topology.num_nodes)
        times += (amount[port > 0] / port[port > 0]).tolist()
    ways = network.distance[np.ix_(topology.gpus, topology.gpus)]
    until = 1 + int(max(times)) + int(ways[ways < FAR].max(initial=0))
    return np.array([float(carried(steps, 0, until)) / until for steps in network.steps])


def _narrow(network: Network, nodes: list[int]) -> Iterator[Cut]:
    """The narrowest cut between all sources and each single GPU, and the reverse."""
    topology = network.problem.topology
    if not topology.links:
        return
    pipes = _pipes(network)
    for node in _fullest(network, nodes, pipes.speed):
        for inward, where in ((True, "around"), (False, "away from")):
            inside = _ratio_cut(pipes, node, inward=inward)
            if inside is not None:
                count = int(inside[topology.gpus].sum())
                yield Cut(inside, f"the {count} gpus {where} {topology.nodes[node].name}")


def _fullest(network: Network, nodes: list[int], speed: FloatArray) -> list[int]:
    """Return the GPUs whose ports take longest for what enters and leaves them, in order."""
    topology = network.problem.topology
    times = np.zeros(topology.num_nodes)
    for amount, end in zip(_amounts(network), (topology.link_dst, topology.link_src), strict=True):
        port = np.bincount(end, speed, minlength=topology.num_nodes)
        times = np.maximum(times, amount / np.maximum(port, speed.min()))
    return sorted(sorted(nodes, key=lambda node: -times[node])[:MAX_FLOW_GPUS])


def _priced(network: Network) -> Iterator[Cut]:
    """Where the prices of the least-congested flow part the nodes, for unicasts on a grid.

    Off the grid the prices make a bound by themselves.
    """
    prices = flow_prices(network) if network.on_grid else None
    if prices is None:
        return
    topology = network.problem.topology
    # Prices of links that do not bind are rounding.
    lengths = np.where(prices * NEGLIGIBLE_PRICE > prices.max(), prices, 0)
    distance = all_distances(network.problem, lengths)
    for gpu in topology.gpus.tolist():
        inside = distance[gpu] > 0
        members = topology.gpus[inside[topology.gpus]]
        if len(members):
            first = topology.nodes[int(members[0])].name
            yield Cut(inside, f"the {len(members)} gpus around {first}")


def _nearer(network: Network, nodes: list[int]) -> Iterator[Cut]:
    """What is fewer hops from one GPU than from another, where unicasts have most to cross.

    Flows to a single GPU find no cut through the middle of a mesh, which is narrow only for what
    all GPUs on one side have for all on the other.
    """
    load, topology = unicast_load(network), network.problem.topology
    if load is None:
        return
    hops = all_distances(network.problem, np.ones(topology.num_links, dtype=np.int64))
    speeds, amounts = _speeds(network), np.zeros((topology.num_nodes, topology.num_nodes))
    np.add.at(amounts, load.pairs[:2], [float(amount) for amount in load.pairs.amount])
    found: dict[bytes, tuple[float, npt.NDArray[np.bool_]]] = {}
    for node in _fullest(network, nodes, speeds):
        apart = hops[topology.gpus] - hops[node]
        for nearer in (apart < 0, apart > 0, apart <= 0, apart >= 0):
            crossing = ~nearer[:, topology.link_src] & nearer[:, topology.link_dst]
            needs = ((~nearer @ amounts) * nearer).sum(axis=1)
            times = needs / np.maximum(crossing @ speeds, speeds.min())
            for k in np.argsort(-times, kind="stable")[:MAX_ALIKE].tolist():
                found[nearer[k].tobytes()] = float(times[k]), nearer[k]
    for _, inside in sorted(found.values(), key=lambda each: -each[0])[: 2 * MAX_ALIKE]:
        members = topology.gpus[inside[topology.gpus]].tolist()
        for first in members[:1]:
            yield Cut(inside, f"the {len(members)} gpus around {topology.nodes[first].name}")


class _Pipes(NamedTuple):
    """Links with their speeds, and arcs of a flow through them and through what they share.

    Parameters
    ----------
    topology
        Whose links these are.
    speed
        Bytes per picosecond of each link.
    arcs
        Links, those that begin or end together and share a capacity through a node of their own.
    size
        Number of nodes, with those.
    """

    topology: Topology
    speed: FloatArray
    arcs: "LimitedArcs"
    size: int


def _pipes(network: Network) -> _Pipes:
    """Return the links as arcs of a flow; links that share a capacity otherwise have their own."""
    topology = network.problem.topology
    speed = _speeds(network)
    src, dst, size = topology.link_src.copy(), topology.link_dst.copy(), topology.num_nodes
    more: list[tuple[int, int, float]] = []
    for pool in network.pools:
        first, last = np.unique(src[pool.links]), np.unique(dst[pool.links])
        if len(first) == 1:
            more.append((int(first[0]), size, float(pool.rate)))
            src[pool.links] = size
        elif len(last) == 1:
            more.append((size, int(last[0]), float(pool.rate)))
            dst[pool.links] = size
        else:
            continue
        size += 1
    ends = np.array([arc[:2] for arc in more], dtype=np.int64).reshape(-1, 2)
    arcs = LimitedArcs(
        np.concatenate([src, ends[:, 0]]),
        np.concatenate([dst, ends[:, 1]]),
        np.concatenate([speed, [rate for *_, rate in more]]),
    )
    return _Pipes(topology, speed, arcs, size)


def _ratio_cut(pipes: _Pipes, node: int, *, inward: bool) -> npt.NDArray[np.bool_] | None:
    """The set around a GPU with the most data to exchange per capacity (Dinkelbach's method).

    Every other GPU supplies one unit; the cut that limits the common rate at which all of it can
    reach `node` (or leave from it) is found by repeated maximum flow.
    """
    gpus, arcs = pipes.topology.gpus, pipes.arcs
    supply = pipes.speed.sum() / max(1, len(gpus) - 1)
    inside = None
    for _ in range(8):
        found = _supply_cut(pipes, node, supply, inward=inward)
        if found is None:
            break
        inside = found
        outside_gpus = int((~found)[gpus].sum()) if inward else int(found[gpus].sum())
        if outside_gpus == 0:
            return None
        crossing = ~found[arcs.src] & found[arcs.dst]
        tighter = arcs.weight[crossing].sum() / outside_gpus
        if tighter >= supply * (1 - 1e-9):
            break
        supply = tighter
    return None if inside is None else inside[: pipes.topology.num_nodes]


def _supply_cut(
    pipes: _Pipes, node: int, supply: float, *, inward: bool
) -> npt.NDArray[np.bool_] | None:
    """Mask of B for the narrowest cut when every other GPU supplies (or wants) some rate."""
    topology, arcs, n = pipes.topology, pipes.arcs, pipes.size
    others = topology.gpus[topology.gpus != node]
    beside = np.full(len(others), n)
    src = np.concatenate([arcs.src, beside if inward else others])
    dst = np.concatenate([arcs.dst, others if inward else beside])
    weight = np.concatenate([arcs.weight, np.full(len(others), supply)])
    origin, sink = (n, node) if inward else (node, n)
    whole = LimitedArcs(src, dst, weight * (_UNIT / pipes.speed.max()))
    inside = ~residual_reach(whole, n + 1, origin, sink)[:n]
    gpus_inside = inside[topology.gpus]
    if gpus_inside.all() or not gpus_inside.any():
        return None
    return inside


def _narrowest(
    pipes: _Pipes, *, sources: npt.NDArray[np.bool_], sinks: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Mask of B for the narrowest cut between the GPUs of two masks; switches may move."""
    topology, arcs, n = pipes.topology, pipes.arcs, pipes.size
    capacity = arcs.weight * (_UNIT / pipes.speed.max())
    gpus = np.zeros(topology.num_nodes, dtype=bool)
    gpus[topology.gpus] = True
    starts, ends = np.flatnonzero(sources & gpus), np.flatnonzero(sinks & gpus)
    huge = capacity.sum() * 2
    src = np.concatenate([arcs.src, np.full(len(starts), n), ends])
    dst = np.concatenate([arcs.dst, starts, np.full(len(ends), n + 1)])
    weight = np.concatenate([capacity, np.full(len(starts) + len(ends), huge)])
    reached = residual_reach(LimitedArcs(src, dst, weight), n + 2, n, n + 1)
    return ~reached[: topology.num_nodes]


class LimitedArcs(NamedTuple):
    """LimitedArcs of a graph with their capacities."""

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]


def residual_reach(arcs: LimitedArcs, size: int, origin: int, sink: int) -> npt.NDArray[np.bool_]:
    """Nodes reachable from the origin in the residual graph of a maximum flow."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    whole = np.minimum(np.maximum(np.round(arcs.weight), 1), 2**30).astype(np.int32)
    graph = coo_array((whole, (arcs.src, arcs.dst)), shape=(size, size)).tocsr()
    flow = csr_array(maximum_flow(graph, origin, sink).flow)
    residual = csr_array(graph - flow)
    residual.data = (residual.data > 0).astype(np.int32)
    residual.eliminate_zeros()
    order = breadth_first_order(residual, origin, return_predecessors=False)
    reached = np.zeros(size, dtype=bool)
    reached[order] = True
    return reached
