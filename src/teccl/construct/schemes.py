"""Schemes: which ways to stage an AllReduce suit a network, and what each takes at least."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.network import all_distances
from teccl.construct.factors import (
    Graph,
    coarsenings,
    components,
    neighbours,
    product_coordinates,
    quotient,
)
from teccl.construct.instance import IntArray
from teccl.construct.meetings import Meetings
from teccl.construct.rooted import grouped_for, owned_for, straight
from teccl.construct.shallow_trees import can_branch
from teccl.construct.staged import (
    HELPS,
    Level,
    Scheme,
    everybody,
    has_direct_links,
    stage_items,
)
from teccl.demand import Collective
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.clusters import partings
from teccl.units import PICOSECONDS

FloatArray = npt.NDArray[np.float64]


def one_shot(count: int) -> Scheme:
    """Everybody sends its whole buffer to everybody, who add at home."""
    return Scheme(name="one-shot", shares=((everybody(count),),))


def exchanged(count: int) -> Scheme:
    """One-shot in which nothing is copied on its way: everybody sends to each other by itself."""
    return replace(one_shot(count), is_apart=True)


def owned(count: int, owners: int | None = None) -> Scheme:
    """Every piece is summed by one GPU and sent back: a ReduceScatter and an AllGather.

    Fewer owners than GPUs, which all are unless given, take in more bytes each, and everybody sends
    fewer transfers.
    """
    number_of = owners or count
    return _owned_by(count, [number * count // number_of for number in range(number_of)])


def _owned_by(count: int, owners: Sequence[int]) -> Scheme:
    shares = []
    for owner in owners:
        holds = tuple(member == owner for member in range(count))
        shares.append((Level((0,) * count, holds), everybody(count)))
    return Scheme(name="owners", shares=tuple(shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a scheme takes on a network, before it is tried.

    Parameters
    ----------
    floor_ps
        It takes no less.
    expected_ps
        It takes about that where all links are used well.
    latency_ps
        That much of it is latency.
    deliveries
        Sums brought to GPUs, for one piece of each share.
    """

    floor_ps: int
    expected_ps: int
    latency_ps: int
    deliveries: int


def outlook(problem: Problem, scheme: Scheme) -> Outlook:
    """Return what a scheme takes at least, and about."""
    topology = problem.topology
    tenant = problem.demand.tenants[0]
    ranks = tenant.members(topology.num_gpus)
    members = topology.gpus[[*ranks, *scheme.helpers]]
    distance = all_distances(problem, _least_latencies(topology))[np.ix_(members, members)]
    rate = np.zeros(topology.num_nodes)
    fastest = topology.each_link(lambda link: max(r for _, r in topology.rate_steps(link)))
    np.add.at(rate, topology.link_dst, np.array(fastest, dtype=float))
    ready = problem.ready_ps()[0][members].astype(float)
    parts = _Parts.of(topology, members)
    numbers = range(len(scheme.shares))
    shares = [_share_outlook(scheme, share, distance, ready, parts) for share in numbers]
    volume, sends, latest, crossing, brought = map(np.array, zip(*shares, strict=True))
    into = crossing.mean(axis=0) * float(tenant.size) * PICOSECONDS / parts.rate
    # Bytes enter at the rate of all links, once the nearest member's may be there; a GPU that
    # nothing reaches can but contribute.
    whole, speed = float(tenant.size) * PICOSECONDS, rate[members]
    per_sum = np.divide(whole, speed, out=np.zeros_like(speed), where=speed > 0)
    nearest = (distance + np.where(np.eye(len(members)), np.inf, 0)).min(axis=0)
    fewest = volume.min(axis=0)
    least = np.maximum(np.where(fewest > 0, nearest, 0) + fewest * per_sum, latest.min(axis=0))
    enters = latest.max(axis=0) + volume.mean(axis=0) * per_sum
    enters += sends.sum(axis=0) * _least_overheads(topology)[members]
    return Outlook(
        floor_ps=int(least.max()),
        expected_ps=int(max(enters.max(), latest.max() + into.max(initial=0.0))),
        latency_ps=int(latest.max()),
        deliveries=int(brought.sum()),
    )


def _least_latencies(topology: Topology) -> IntArray:
    """Picoseconds that each link adds to any way; behind a switch a circuit's overhead is paid."""
    leaves_switch = topology.is_switch[topology.link_src]
    return topology.alpha_ps + np.where(leaves_switch, 0, topology.overhead_ps)


def _least_overheads(topology: Topology) -> IntArray:
    """Picoseconds that a transfer costs each node beside its bytes, on the cheapest link out."""
    least = np.full(topology.num_nodes, np.iinfo(np.int64).max)
    np.minimum.at(least, topology.link_src, topology.overhead_ps)
    return np.where(least < np.iinfo(np.int64).max, least, 0)


class _Parts(NamedTuple):
    """Clusters of members, by rows, with the rates and the numbers of links into each of them.

    `links` is about members, and 0 unless GPUs are joined: as many sums as have been added up on
    their ways come to whoever alone wants them.
    """

    inside: npt.NDArray[np.bool_]
    rate: FloatArray
    links: IntArray

    @staticmethod
    def of(topology: Topology, members: IntArray) -> "_Parts":
        """Take every cluster of every way to part a topology."""
        rates = np.array([float(rate) for rate in topology.rates])
        inside, rate = [np.zeros(len(members), dtype=bool)], [1.0]
        for label in partings(topology):
            for number in np.unique(label[members]).tolist():
                is_in = label == number
                entering = ~is_in[topology.link_src] & is_in[topology.link_dst]
                if number >= 0 and entering.any():
                    inside.append(is_in[members])
                    rate.append(rates[entering].sum())
        links = np.bincount(topology.link_dst, minlength=topology.num_nodes)[members]
        joins = has_direct_links(topology)
        return _Parts(np.array(inside), np.array(rate), links if joins else 0 * links)


def _share_outlook(
    scheme: Scheme, share: int, distance: IntArray, ready: FloatArray, parts: _Parts
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """Return what members receive and send of a share, when they have it, what enters clusters.

    Counted are sums; one that goes to several is one, as it is where switches copy. The last number
    is what is brought to anybody, before it is added up.
    """
    volume, sends = np.zeros((2, len(distance)))
    crossing, brought = np.zeros(len(parts.rate)), 0.0
    for stage, level in enumerate(scheme.shares[share]):
        before = scheme.before(share, stage)
        received, sent, ready, crossed = _stage_outlook(before, level, distance, ready, parts)
        brought += float(received.sum())
        alone = sum(level.holds) == len(set(level.classes))
        if stage in scheme.meets:
            received = np.minimum(received, 1)
        elif alone and parts.links.any():
            received = np.minimum(received, parts.links)
        volume += received
        sends += sent
        crossing += crossed
    return volume, sends, ready, crossing, brought


def _stage_outlook(
    before: Level, after: Level, distance: IntArray, ready: FloatArray, parts: _Parts
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the same of one stage; members that hold nothing after it are there at once."""
    part, whole = np.array(before.classes), np.array(after.classes)
    had, holds = np.array(before.holds), np.array(after.holds)
    latest, sent = np.where(holds & had, ready, 0.0), np.zeros(len(part))
    # Sources by the part that they hold, and of each part who wants it.
    sources = np.flatnonzero(had & (part >= 0))
    sources = sources[np.argsort(part[sources], kind="stable")]
    first = np.flatnonzero(np.diff(part[sources], prepend=HELPS))
    owns = np.zeros((len(first), len(part)), dtype=bool)
    owns[np.repeat(np.arange(len(first)), np.diff(first, append=len(sources))), sources] = True
    goals = holds & (whole == whole[sources[first], None]) & ~owns
    there = np.minimum.reduceat(ready[sources, None] + distance[sources], first, axis=0)
    latest = np.maximum(latest, np.where(goals, there, 0.0).max(axis=0))
    # Holders of the same sum take turns.
    sent += (owns * (goals.any(axis=1) / owns.sum(axis=1))[:, None]).sum(axis=0)
    comes, stays = (parts.inside.astype(float) @ each.T > 0 for each in (goals, owns))
    return goals.sum(axis=0).astype(float), sent, latest, (comes & ~stays).sum(axis=1).astype(float)


def usual(problem: Problem) -> Scheme:
    """Return the scheme that others must be better than: owners of all pieces."""
    if problem.demand.tenants[0].collective is Collective.REDUCE:
        return owned_for(problem.num_gpus, _root(problem))
    return owned(problem.num_gpus)


def _root(problem: Problem) -> int:
    """Return the place of a Reduce's root among the members."""
    tenant = problem.demand.tenants[0]
    ranks = tenant.members(problem.topology.num_gpus)
    return 0 if tenant.root is None else list(ranks).index(tenant.root)


def _rooted(problem: Problem, members: IntArray) -> Iterator[Scheme]:
    """Yield schemes that may suit a Reduce."""
    count, root = len(members), _root(problem)
    distance = all_distances(problem, _least_latencies(problem.topology))[np.ix_(members, members)]
    yield straight(count, root)
    # The only other one has nobody's contributions to wait for.
    if count <= 2:
        return
    yield owned_for(count, root)
    for groups in _groupings(problem.topology, members, distance):
        yield from grouped_for(groups, root)


def schemes(problem: Problem) -> Iterator[Scheme]:
    """Yield schemes that may suit an AllReduce, or a Reduce, of one tenant."""
    topology, tenant = problem.topology, problem.demand.tenants[0]
    members = topology.gpus[list(tenant.members(topology.num_gpus))]
    if tenant.collective is Collective.REDUCE:
        yield from _rooted(problem, members)
        return
    yield one_shot(len(members))
    if problem.topology.has_profiles:
        return
    yield from _exchanges(_links_between(problem, members))
    distance = all_distances(problem, _least_latencies(topology))[np.ix_(members, members)]
    near = list(_hierarchies(topology, members, distance))
    if can_branch(problem) and any(node.reduce for node in topology.nodes):
        yield from _met(problem, members, [one_shot(len(members)), *near, owned(len(members))])
    yield from near
    # Without an overhead owners take no more hops and fewer bytes.
    apart = np.unique(distance[~np.eye(len(members), dtype=bool)])
    if topology.has_overheads and len(apart) == 1:
        yield from _numbered(len(members))
    yield from _helped(problem, members)
    for owners in _owner_counts(problem, members):
        yield owned(len(members), owners)
    if has_direct_links(topology):
        yield from _central(distance)
    else:
        yield from _fast(problem, members, distance)


def _central(distance: IntArray) -> Iterator[Scheme]:
    """Yield owners that are nearest to all others, more and more of them.

    Sums that come over other GPUs are added up there, so that few owners take in little.
    """
    far = distance.max(axis=0) + distance.max(axis=1)
    by_distance = np.argsort(far, kind="stable").tolist()
    number = 1
    while number < len(far):
        yield _owned_by(len(far), sorted(by_distance[:number]))
        number *= 2


def _fast(problem: Problem, members: IntArray, distance: IntArray) -> Iterator[Scheme]:
    """Yield owners whom a buffer reaches and leaves soonest, each time at least twice as many."""
    topology, whole = problem.topology, float(problem.demand.tenants[0].size) * PICOSECONDS
    far = (distance.max(axis=0) + distance.max(axis=1)).astype(float)
    for end in (topology.link_src, topology.link_dst):
        rate = np.zeros(topology.num_nodes)
        np.add.at(rate, end, np.array(topology.rates, dtype=float))
        far += whole / rate[members]
    known = 0
    for late in np.unique(np.rint(far))[:-1]:
        owners = np.flatnonzero(far < late + 1).tolist()
        if 2 * known <= len(owners):
            known = len(owners)
            yield _owned_by(len(far), owners)


def _met(problem: Problem, members: IntArray, known: Iterable[Scheme]) -> Iterator[Scheme]:
    """Yield schemes some of whose stages may add up in switches."""
    latency = problem.topology.alpha_ps
    meetings = Meetings(problem.topology, np.zeros_like(latency), latency)
    for scheme in known:
        meets = set()
        for stage in range(scheme.num_stages):
            classes = [each for each in stage_items(scheme, 1, stage) if len(each) > 1]
            ends = [
                (members[[item.sources[0] for item in parts]], members[[*parts[0].destinations]])
                for parts in classes
            ]
            if ends and all(meetings.passage(up.tolist(), down.tolist()) for up, down in ends):
                meets.add(stage)
        if meets:
            yield replace(scheme, name="in-network", meets=frozenset(meets))


def _owner_counts(problem: Problem, members: IntArray) -> list[int]:
    """Numbers of owners to try: all and, where messages cost, halves of that and near the balance.

    Everybody sends as many messages as there are owners, and each owner takes in so many parts of
    the others' data; with k of them that is k overheads and (n - 1) / k buffers.
    """
    topology, counts = problem.topology, [len(members)]
    if not topology.has_overheads:
        return counts
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // 2))
    inward = np.zeros(topology.num_nodes)
    np.add.at(inward, topology.link_dst, np.array(topology.rates, dtype=float))
    whole = float(problem.demand.tenants[0].size) * PICOSECONDS / inward[members].max()
    overhead = max(1, int(_least_overheads(topology)[members].max()))
    balance = round(math.sqrt((len(members) - 1) * whole / overhead))
    near = (min(max(number, 1), len(members)) for number in range(balance - 1, balance + 2))
    return list(dict.fromkeys([*counts, *near]))


def _helped(problem: Problem, members: IntArray) -> Iterator[Scheme]:
    """Yield owners among all GPUs no farther away than members are from each other."""
    topology = problem.topology
    distance = all_distances(problem, _least_latencies(topology))
    widest = distance[np.ix_(members, members)].max()
    others = np.setdiff1d(topology.gpus, members)
    reach = np.maximum(
        distance[members][:, others].max(axis=0), distance[others][:, members].max(axis=1)
    )
    near = others[reach <= widest]
    rank = {node: number for number, node in enumerate(topology.gpus.tolist())}
    helpers = tuple(rank[node] for node in near.tolist())
    if not helpers:
        return
    count, total = len(members), len(members) + len(helpers)
    last = Level((0,) * total, (True,) * count + (False,) * len(helpers))
    for first in (0, count) if len(helpers) >= count else (0,):
        shares = tuple(
            (Level((0,) * total, tuple(m == owner for m in range(total))), last)
            for owner in range(first, total)
        )
        yield Scheme(name="owners", shares=shares, helpers=helpers)


def _links_between(problem: Problem, members: IntArray) -> Graph:
    topology = problem.topology
    position = np.full(topology.num_nodes, -1)
    position[members] = np.arange(len(members))
    src, dst = position[topology.link_src], position[topology.link_dst]
    inside = (src >= 0) & (dst >= 0)
    return neighbours(len(members), src[inside].tolist(), dst[inside].tolist())


def _exchanges(graph: Graph) -> Iterator[Scheme]:
    """Yield exchanges along the factors of a network, each share in another order of them.

    Inside a factor neighbours pair off first, not at all, or again and again. Sums of the first
    factors may have one holder for each share, as in recursive halving.
    """
    if len(set(components(graph))) > 1:
        return
    coordinates = product_coordinates(graph)
    factors = [quotient(graph, column) for column in coordinates]
    seen = set()
    for depth in (0, 1, len(graph)):
        turns = (0, 1) if depth and any(len(factor) > 2 for factor in factors) else (0,)
        shares = tuple(
            tuple(_share(coordinates, factors, first, turn=turn, depth=depth))
            for first in range(len(factors))
            for turn in turns
        )
        if len(shares[0]) > 1 and shares not in seen and len({len(s) for s in shares}) == 1:
            seen.add(shares)
            yield Scheme(name="exchange", shares=shares)
    yield from _halvings(coordinates)


def _halvings(coordinates: list[list[int]]) -> Iterator[Scheme]:
    """Yield schemes in which the first factors halve what is exchanged along the others.

    Every share takes the factors in another order, and has other holders.
    """
    columns = [np.array(column) for column in coordinates]
    turns = [columns[first:] + columns[:first] for first in range(len(columns))]
    for halved in range(1, len(columns)):
        holders = [
            (turn, place)
            for turn in turns
            for place in product(*(range(column.max() + 1) for column in turn[:halved]))
        ]
        # With more shares than that each has so little that owners serve it as well.
        if len(holders) > 2 * len(columns[0]):
            return
        levels = tuple(tuple(_digit_levels(turn, place)) for turn, place in holders)
        yield Scheme(name="halving", shares=levels)


def _share(
    coordinates: list[list[int]], factors: list[Graph], first: int, *, turn: int, depth: int
) -> Iterator[Level]:
    """Yield the levels of a share that takes the factors in turn from some first one on."""
    rows = [list(column) for column in coordinates]
    for step in range(len(factors)):
        number = (first + step) % len(factors)
        for part in coarsenings(factors[number], turn=turn, depth=depth):
            rows[number] = [part[place] for place in coordinates[number]]
            classes = np.unique(np.array(rows).T, axis=0, return_inverse=True)[1]
            yield _held_by_all(classes.reshape(-1).tolist())


def _held_by_all(classes: Sequence[int]) -> Level:
    return Level(tuple(classes), (True,) * len(classes))


def _hierarchies(topology: Topology, members: IntArray, distance: IntArray) -> Iterator[Scheme]:
    """Yield schemes that add up among near GPUs before far ones, for each way to tell them apart.

    In some everybody holds the sum of its group; in others each share has one holder in every
    group: these bring their sums to all, or to each other first, or sum up what all contribute.
    """
    everyone = everybody(len(distance))
    for groups in _groupings(topology, members, distance):
        led = list(_led_shares(groups))
        yield Scheme(name="hierarchy", shares=((_held_by_all(groups), everyone),))
        yield Scheme(name="hierarchy", shares=tuple(led))
        yield Scheme(name="hierarchy", shares=tuple((near, last) for near, _, last in led))
        yield Scheme(name="owners", shares=tuple((far, last) for _, far, last in led))


def _groupings(topology: Topology, members: IntArray, distance: IntArray) -> Iterator[list[int]]:
    """Yield groups of members, by number: clusters, what hangs together, what is near a center."""
    count = len(distance)
    together = np.maximum(distance, distance.T)
    radii = np.unique(together)[:-1]
    # Where GPUs lie at many distances, so many radii that groups may double from one to the next.
    chosen = radii[np.linspace(0, len(radii) - 1, min(len(radii), count.bit_length())).astype(int)]
    around = (_around_centers(together <= radius) for radius in chosen.tolist())
    clusters = (_numbers_of(label[members].tolist()) for label in partings(topology))
    known = set()
    for groups in chain(_hanging_together(together, radii), around, clusters):
        if tuple(groups) not in known and 1 < len(set(groups)) < count:
            known.add(tuple(groups))
            yield groups


def _numbers_of(labels: list[int]) -> list[int]:
    """Number groups in the order of their first members; whoever has no label is alone."""
    number: dict[tuple[int, int], int] = {}
    keys = ((label, -1 if label >= 0 else member) for member, label in enumerate(labels))
    return [number.setdefault(key, len(number)) for key in keys]


def _hanging_together(together: IntArray, radii: IntArray) -> Iterator[list[int]]:
    """Yield members by the component that neighbours within a radius form, while there are some."""
    for radius in radii.tolist():
        near = {
            m: set(np.flatnonzero(row <= radius).tolist()) - {m} for m, row in enumerate(together)
        }
        groups = components(near)
        yield groups
        if len(set(groups)) == 1:
            return


def _around_centers(near: npt.NDArray[np.bool_]) -> list[int]:
    """Number members by center: first whoever is near most others, then most of the rest."""
    group = np.full(len(near), -1)
    number = 0
    while (group < 0).any():
        center = int((near & (group < 0)).sum(axis=1).argmax())
        group[near[center] & (group < 0)] = number
        number += 1
    found: list[int] = group.tolist()
    return found


def _numbered(count: int) -> Iterator[Scheme]:
    """Yield exchanges along the digits of ranks, for GPUs that are all equally far apart.

    Sums of the first digits may have one holder for each share, as in recursive halving; the rest
    is exchanged among holders, and the first digits take the sums back.
    """
    radices = _primes(count)
    for halved in range(len(radices)):
        first, rest = radices[:halved], radices[halved:]
        # With more shares than that each has so little that owners serve it as well.
        if math.prod(first) ** 2 > count:
            return
        for tail in dict.fromkeys((rest, (math.prod(rest),))):
            shares = product(*(range(radix) for radix in first))
            ranks = np.unravel_index(np.arange(count), (*first, *tail))
            levels = tuple(tuple(_digit_levels(ranks, share)) for share in shares)
            if len(levels[0]) > 1:
                yield Scheme(name="digits", shares=levels)


def _digit_levels(digits: Sequence[IntArray], share: Sequence[int]) -> Iterator[Level]:
    """Yield the levels of a share whose holders have its first digits.

    `digits` has for each place the digits of all members there.
    """
    ranks = np.array(digits).T
    holds = np.ones(len(ranks), dtype=bool)
    for place in range(len(digits)):
        if place < len(share):
            holds = holds & (ranks[:, place] == share[place])
        beyond = np.unique(ranks[:, place + 1 :], axis=0, return_inverse=True)[1].reshape(-1)
        yield Level(tuple(beyond.tolist()), tuple(holds.tolist()))
    for place in reversed(range(len(share))):
        holds = (ranks[:, :place] == share[:place]).all(axis=1)
        yield Level((0,) * len(ranks), tuple(holds.tolist()))


def _primes(number: int) -> tuple[int, ...]:
    """Return the prime factors of a number, the least first.

    Examples
    --------
    >>> _primes(72)
    (2, 2, 2, 3, 3)
    """
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return tuple(found)


def _led_shares(groups: list[int]) -> Iterator[tuple[Level, Level, Level]]:
    """Yield for each share levels in which one member of each group holds its sum."""
    inside = [[m for m, group in enumerate(groups) if group == g] for g in range(max(groups) + 1)]
    count = len(groups)
    for share in range(max(len(group) for group in inside)):
        leaders = {group[share % len(group)] for group in inside}
        holds = tuple(member in leaders for member in range(count))
        near = Level(tuple(groups), holds)
        yield near, Level((0,) * count, holds), everybody(count)
