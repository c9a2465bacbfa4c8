r"""The length bound: data must cover its distances, and links have only so much length to give.

Give every link a length l >= 0. Whatever route b_k bytes take from s_k to t_k, they cross links of
total length at least dist_l(s_k, t_k), so the network must carry

.. math:: \sum_e C_e \, l_e \, (T - w_e)^+ \ge \sum_k b_k \, \mathrm{dist}_l(s_k, t_k),

where w_e is the least time that any byte takes to e plus the least that any takes from the start of
its crossing on, not necessarily the same byte. What several want, and sums, cost at least what
`shares` says. The inequality holds for every l; the dual solution of the multi-commodity flow makes
it sharp. Lengths are rounded to whole numbers first, so that distances and the value are exact
whatever made them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.balanced import balanced_prices
from teccl.bounds.linear_programs import least_cost
from teccl.bounds.model import Bound
from teccl.bounds.network import Network, all_distances
from teccl.bounds.shares import Shares
from teccl.bounds.windows import FAR, Gate, IntArray, least_time
from teccl.units import display_time, format_bandwidth

Mask = npt.NDArray[np.bool_]

# Lengths are whole multiples of a unit this fine.
RESOLUTION = 10**6
# Columns of the flow model whose dual is used; beyond, prices come from rounds.
MAX_COLUMNS = 8_000
# Kinds of chunks that several want, or that are summed, whose costs are counted.
MOST_SHARED = 200


class Pairs(NamedTuple):
    """Source, destination, bytes and release time of every class that moves from one to one."""

    source: IntArray
    target: IntArray
    amount: list[Fraction]
    ready: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What has to move: pairs, and what several want or contribute to."""

    pairs: Pairs
    shares: Shares

    @staticmethod
    def build(network: Network, is_pair: Mask) -> "_Load":
        classes = network.classes
        source = np.array([origin.nodes[0] for origin in classes.origins])[classes.origin]
        ready = np.array([origin.ready[0] for origin in classes.origins])[classes.origin]
        target = np.array([nodes[0] for nodes in classes.goals])[classes.goal]
        moving = np.flatnonzero(is_pair & (source != target))
        amount = [classes.amount[i] for i in moving]
        pairs = Pairs(source[moving], target[moving], amount, ready[moving])
        return _Load(pairs=pairs, shares=Shares(network, np.flatnonzero(~is_pair)))

    @property
    def has_work(self) -> bool:
        """Whether anything has to move."""
        return bool(len(self.pairs.source) or len(self.shares))


def length_bounds(network: Network, *, narrow: bool = True) -> list[Bound]:
    """Evaluate the length bound for several choices of lengths, for fluid data.

    What is wanted from one by one is always served, and several tenants together, with the flow's
    prices only if `narrow`; a single tenant's sums only then, and its copies have better bounds.
    """
    is_pair = _are_pairs(network)
    has_others = not is_pair.all()
    is_sum = narrow and bool(network.classes.reduce.any())
    is_joint = is_sum or len(network.problem.demand.tenants) > 1
    is_served = not has_others or (is_joint and (~is_pair).sum() <= MOST_SHARED)
    if not network.fluid or not network.rate or not is_served:
        return []
    load = _Load.build(network, is_pair)
    if not load.has_work:
        return []
    bounds = [
        _length_bound(network, load, name, lengths)
        for name, lengths in _lengths(network, load, priced=narrow or not has_others)
    ]
    return [bound for bound in bounds if bound is not None]


def _are_pairs(network: Network) -> Mask:
    """Which classes go from one GPU to one other, as they are."""
    classes = network.classes
    lone = np.array([len(origin.nodes) == 1 for origin in classes.origins])[classes.origin]
    single = np.array([len(nodes) == 1 for nodes in classes.goals])[classes.goal]
    pairs: Mask = lone & single & ~classes.reduce
    return pairs


def _lengths(network: Network, load: _Load, *, priced: bool) -> Iterator[tuple[str, IntArray]]:
    """Yield lengths to try: one a hop, one over the bandwidth, and the flow's dual."""
    rates = np.array([float(rate) for rate in network.rate])
    yield "one a hop", np.full(len(rates), RESOLUTION, dtype=np.int64)
    yield "slow links longer", np.round(RESOLUTION * rates.min() / rates).astype(np.int64)
    dual = _flow_dual(network, load) if priced else None
    if priced and dual is None:
        dual = _balanced(network, load)
        if dual is not None:
            yield "the dearest links", np.where(2 * dual > dual.max(), RESOLUTION, 0)
    if dual is not None:
        yield "the flow's prices", dual


def _balanced(network: Network, load: _Load) -> IntArray | None:
    """Prices of the links that pairs on shortest ways fill most, in whole numbers."""
    if not len(load.pairs.source):
        return None
    rates = np.array([float(rate) for rate in network.rate])
    amount = np.array([float(b) for b in load.pairs.amount])
    pairs = (load.pairs.source, load.pairs.target, amount / amount.max())
    prices = balanced_prices(network.problem.topology, rates, *pairs)
    return None if prices is None else np.round(prices / prices.max() * RESOLUTION).astype(np.int64)


def unicast_load(network: Network) -> _Load | None:
    """What has to move where all of it goes from one to one; None for other demands."""
    is_pair = _are_pairs(network)
    if not network.rate or not is_pair.all():
        return None
    load = _Load.build(network, is_pair)
    return load if load.has_work else None


def flow_prices(network: Network) -> IntArray | None:
    """Lengths of links that bind unicasts most, None for other demands and for large networks."""
    load = unicast_load(network)
    return None if load is None else _flow_dual(network, load)


def _flow_dual(network: Network, load: _Load) -> IntArray | None:
    """Prices of the links in the least-congested multi-commodity flow, one commodity a source.

    What several want must enter each of them, in columns of its own. None where the flow would be
    too large to compute.
    """
    topology, pairs = network.problem.topology, load.pairs
    sources = np.unique(pairs.source)
    links, nodes, many = topology.num_links, topology.num_nodes, len(sources)
    demand = load.shares.demand()
    layers = many + (0 if demand is None else demand.layers)
    if layers * links > MAX_COLUMNS:
        return None
    from scipy.sparse import coo_array, hstack, kron, vstack

    e = np.arange(links)
    incidence = coo_array(
        (
            np.repeat([1.0, -1.0], links),
            (np.concatenate([topology.link_src, topology.link_dst]), np.concatenate([e, e])),
        ),
        shape=(nodes, links),
    )
    eye = coo_array((np.ones(many), (np.arange(many), np.arange(many))), shape=(many, many))
    width = (layers - many) * links + 1
    balance: Any = hstack([kron(eye, incidence), coo_array((many * nodes, width))])
    supply = np.zeros((many, nodes))
    row = np.searchsorted(sources, pairs.source)
    bytes_ = np.array([float(b) for b in pairs.amount])
    np.add.at(supply, (row, pairs.source), bytes_)
    np.add.at(supply, (row, pairs.target), -bytes_)
    scale = max([*bytes_, *([] if demand is None else demand.least.tolist())])
    rates = np.array([float(rate) for rate in network.rate])
    capacity: Any = hstack(
        [
            kron(coo_array(np.ones((1, layers))), coo_array((np.ones(links), (e, e)))),
            coo_array((-rates / rates.max(), (e, np.zeros(links, dtype=int))), shape=(links, 1)),
        ]
    )
    high = np.zeros(links)
    if demand is not None:
        blank = coo_array((len(demand.least), many * links))
        last = coo_array((len(demand.least), 1))
        capacity = vstack([capacity, hstack([blank, -demand.rows, last])])
        high = np.concatenate([high, -demand.least / scale])
    cost = np.zeros(layers * links + 1)
    cost[-1] = 1.0
    moved = supply.ravel() / scale
    low = np.concatenate([np.full(len(high), -np.inf), moved])
    found = least_cost(
        cost,
        vstack([capacity, balance]),
        low,
        np.concatenate([high, moved]),
        np.full(len(cost), np.inf),
    )
    if found is None:
        return None
    prices = np.maximum(-found.duals[:links], 0)
    if prices.max() <= 0:
        return None
    return np.round(prices / prices.max() * RESOLUTION).astype(np.int64)


def _length_bound(network: Network, load: _Load, name: str, lengths: IntArray) -> Bound | None:
    pairs = load.pairs
    table = all_distances(network.problem, lengths)
    distance = table[pairs.source, pairs.target]
    if (distance >= FAR).any():
        return None
    work = cost_of(pairs, distance) + load.shares.work(lengths, table)
    used = np.flatnonzero(lengths > 0)
    if not len(used) or work <= 0:
        return None
    head, tail = _around(network, load, used)
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


def cost_of(pairs: Pairs, distance: IntArray) -> Fraction:
    """Return the sum of amounts times distances; few amounts differ, so fractions are few too."""
    totals: dict[Fraction, int] = {}
    # Equal amounts are mostly one object, which is found much faster than by its value.
    same: dict[int, list[int]] = {}
    for b, d in zip(pairs.amount, distance.tolist(), strict=True):
        same.setdefault(id(b), []).append(d)
    known = {id(b): b for b in pairs.amount}
    for key, distances in same.items():
        totals[known[key]] = totals.get(known[key], 0) + sum(distances)
    return sum((b * d for b, d in totals.items()), Fraction(0))


def _around(network: Network, load: _Load, links: IntArray) -> tuple[IntArray, IntArray]:
    """Least time before each link, over all data, and the least time from its start on.

    The two may come from different pairs: a link is busy from the first that can reach it until
    the last that may still leave it.
    """
    topology, (src, dst, _, ready) = network.problem.topology, load.pairs
    sources, since, goals = load.shares.ends()
    nodes, times = np.concatenate([src, sources]), np.concatenate([ready, since])
    starts = np.unique(np.stack([nodes, times]), axis=1)
    before = (network.approach[starts[0]] + starts[1][:, None]).min(axis=0)
    after = network.distance[:, np.unique(np.concatenate([dst, goals]))].min(axis=1)
    tail = after[topology.link_dst[links]] + network.crossing[links]
    return np.minimum(before[topology.link_src[links]], FAR), np.minimum(tail, FAR)
