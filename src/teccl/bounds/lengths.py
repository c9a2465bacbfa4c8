r"""The length bound for data that each destination wants for itself.

Give every link a length l >= 0. Whatever route b_k bytes take from s_k to t_k, they cross links of
total length at least dist_l(s_k, t_k), so the network must carry

.. math:: \sum_e C_e \, l_e \, (T - w_e)^+ \ge \sum_k b_k \, \mathrm{dist}_l(s_k, t_k),

where w_e is the least time that any byte takes to e plus the least that any takes from the start of
its crossing on, not necessarily the same byte. The inequality holds for every l; the dual solution
of the multi-commodity flow makes it sharp. Lengths are rounded to whole numbers first, so that
distances and the value are exact whatever made them.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from teccl.bounds.model import Bound
from teccl.bounds.network import Network, all_distances
from teccl.bounds.windows import FAR, Gate, IntArray, least_time
from teccl.units import display_time, format_bandwidth

# Lengths are whole multiples of a unit this fine.
RESOLUTION = 10**6
# Columns of the flow model whose dual is used; beyond, simple lengths must do.
MAX_COLUMNS = 8_000


def length_bounds(network: Network) -> list[Bound]:
    """Evaluate the length bound for several choices of lengths; fluid unicasts only."""
    if not network.fluid or not _is_unicast(network) or not network.rate:
        return []
    pairs = _pairs(network)
    if not len(pairs[0]):
        return []
    bounds = [
        _length_bound(network, pairs, name, lengths) for name, lengths in _lengths(network, pairs)
    ]
    return [bound for bound in bounds if bound is not None]


def _is_unicast(network: Network) -> bool:
    classes = network.classes
    single = [len(classes.goals[g]) == 1 for g in np.unique(classes.goal)]
    alone = [len(origin.nodes) == 1 for origin in classes.origins]
    return bool(all(single) and all(alone) and not classes.reduce.any())


def _pairs(network: Network) -> tuple[IntArray, IntArray, list[Fraction], IntArray]:
    """Source, destination, bytes and release time of every class that moves."""
    classes = network.classes
    source = np.array([origin.nodes[0] for origin in classes.origins])[classes.origin]
    ready = np.array([origin.ready[0] for origin in classes.origins])[classes.origin]
    target = np.array([nodes[0] for nodes in classes.goals])[classes.goal]
    moving = np.flatnonzero(source != target)
    amount = [classes.amount[i] for i in moving]
    return source[moving], target[moving], amount, ready[moving]


def _lengths(
    network: Network, pairs: tuple[IntArray, IntArray, list[Fraction], IntArray]
) -> Iterator[tuple[str, IntArray]]:
    """Yield lengths to try: one a hop, one over the bandwidth, and the flow's dual."""
    rates = np.array([float(rate) for rate in network.rate])
    yield "one a hop", np.full(len(rates), RESOLUTION, dtype=np.int64)
    yield "slow links longer", np.round(RESOLUTION * rates.min() / rates).astype(np.int64)
    dual = _flow_dual(network, pairs)
    if dual is not None:
        yield "the flow's prices", dual


def flow_prices(network: Network) -> IntArray | None:
    """Lengths of links that bind unicasts most, None for other demands and for large networks."""
    if not _is_unicast(network) or not network.rate:
        return None
    pairs = _pairs(network)
    return _flow_dual(network, pairs) if len(pairs[0]) else None


def _flow_dual(
    network: Network, pairs: tuple[IntArray, IntArray, list[Fraction], IntArray]
) -> IntArray | None:
    """Prices of the links in the least-congested multi-commodity flow, one commodity a source.

    None where the flow would be too large to compute.
    """
    if len(np.unique(pairs[0])) * len(network.rate) > MAX_COLUMNS:
        return None
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, hstack, kron

    topology = network.problem.topology
    src, dst, amount, _ = pairs
    sources = np.unique(src)
    links, nodes, many = topology.num_links, topology.num_nodes, len(sources)
    e = np.arange(links)
    incidence = coo_array(
        (
            np.repeat([1.0, -1.0], links),
            (np.concatenate([topology.link_src, topology.link_dst]), np.concatenate([e, e])),
        ),
        shape=(nodes, links),
    )
    eye = coo_array((np.ones(many), (np.arange(many), np.arange(many))))
    balance: Any = hstack([kron(eye, incidence), coo_array((many * nodes, 1))])
    supply = np.zeros((many, nodes))
    row = np.searchsorted(sources, src)
    bytes_ = np.array([float(b) for b in amount])
    np.add.at(supply, (row, src), bytes_)
    np.add.at(supply, (row, dst), -bytes_)
    scale = bytes_.max()
    rates = np.array([float(rate) for rate in network.rate])
    capacity: Any = hstack(
        [
            kron(coo_array(np.ones((1, many))), coo_array((np.ones(links), (e, e)))),
            coo_array((-rates / rates.max(), (e, np.zeros(links, dtype=int))), shape=(links, 1)),
        ]
    )
    cost = np.zeros(many * links + 1)
    cost[-1] = 1.0
    result = linprog(
        cost,
        A_ub=capacity.tocsr(),
        b_ub=np.zeros(links),
        A_eq=balance.tocsr(),
        b_eq=supply.ravel() / scale,
        method="highs",
    )
    if result.status != 0:
        return None
    prices = np.maximum(-result.ineqlin.marginals, 0)
    if prices.max() <= 0:
        return None
    return np.round(prices / prices.max() * RESOLUTION).astype(np.int64)


def _length_bound(
    network: Network,
    pairs: tuple[IntArray, IntArray, list[Fraction], IntArray],
    name: str,
    lengths: IntArray,
) -> Bound | None:
    src, dst, amount, _ = pairs
    distance = all_distances(network.problem, lengths)[src, dst]
    if (distance >= FAR).any():
        return None
    work = _summed(amount, distance)
    used = np.flatnonzero(lengths > 0)
    if not len(used) or work <= 0:
        return None
    head, tail = _around(network, pairs, used)
    changes = (
        (moment, change * int(lengths[e]))
        for e, h, q in zip(used.tolist(), head.tolist(), tail.tolist(), strict=True)
        for moment, change in Gate(used, network.steps[e], 0, 1).window(h, q)
    )
    value = least_time(changes, work)
    total = format_bandwidth(round(float(sum(network.rate[e] for e in used)) * 1e12))
    text = (
        f"data must cover its distances, lengths by {name}, on {len(used)} links of {total} "
        f"in all, plus {display_time(int((head + tail).min()) / 1e12)} around them"
    )
    return Bound(kind="lengths", value=value, certificate=text)


def _summed(amount: list[Fraction], distance: IntArray) -> Fraction:
    """Return the sum of amounts times distances; few amounts differ, so fractions are few too."""
    totals: dict[Fraction, int] = {}
    # Equal amounts are mostly one object, which is found much faster than by its value.
    same: dict[int, list[int]] = {}
    for b, d in zip(amount, distance.tolist(), strict=True):
        same.setdefault(id(b), []).append(d)
    known = {id(b): b for b in amount}
    for key, distances in same.items():
        totals[known[key]] = totals.get(known[key], 0) + sum(distances)
    return sum((b * d for b, d in totals.items()), Fraction(0))


def _around(
    network: Network, pairs: tuple[IntArray, IntArray, list[Fraction], IntArray], links: IntArray
) -> tuple[IntArray, IntArray]:
    """Least time before each link, over all pairs, and the least time from its start on.

    The two may come from different pairs: a link is busy from the first that can reach it until
    the last that may still leave it.
    """
    topology = network.problem.topology
    src, dst, _, ready = pairs
    starts = np.unique(np.stack([src, ready]), axis=1)
    before = (network.approach[starts[0]] + starts[1][:, None]).min(axis=0)
    after = network.distance[:, np.unique(dst)].min(axis=1)
    tail = after[topology.link_dst[links]] + network.crossing[links]
    return np.minimum(before[topology.link_src[links]], FAR), np.minimum(tail, FAR)
