r"""Joint coverage: few contributions share a byte early on, and few GPUs are served by it late.

Let B be a set of nodes, U contributors outside of it and V destinations inside. Each byte position
has a way from every u to every v, which enters B for a first time over some link e. A byte that
enters e at time t is that first entry for no more of U than can have met before, on ways outside of
B, and for no more of V than can still be served, and so

.. math:: \sum_e \sum_{k \le |U|} \sum_{j \le |V|} \int_{\rho_{e,k}}^{T - \sigma_{e,j}} C_e \, dt
   \ge |U| \, |V| \, b ,

with the moments of `coverage`: from :math:`\rho_{e,k}` on a byte may carry k contributions, and one
that enters e later than :math:`\sigma_{e,j}` before the end serves fewer than j. With one
destination, or one contributor, this is coverage itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.bounds.candidates import representatives
from teccl.bounds.coverage import Side, least_ways
from teccl.bounds.cuts import Cut
from teccl.bounds.model import Bound
from teccl.bounds.network import Network, all_distances
from teccl.bounds.windows import FAR, Gate, IntArray, Steps, carried, least_estimate
from teccl.keywords import SwitchMode
from teccl.units import display_time, format_bandwidth, format_size

Mask = npt.NDArray[np.bool_]

# Times that are looked at in all, which bounds the work on large networks.
MOST_WORK = 1_000_000
# Distances at which far contributors are told from near ones, and remote destinations likewise.
MOST_THRESHOLDS = 4
# Radii of the sets around a GPU, and sets that are looked at more closely.
MOST_RADII = 8
MOST_REFINED = 4


class Set(NamedTuple):
    """A set of nodes with contributors outside and destinations inside.

    Parameters
    ----------
    cut
        The nodes.
    before
        Least times to nodes (rows) from others (columns) on ways outside of the set.
    sources, goals
        Contributors and destinations.
    """

    cut: Cut
    before: IntArray
    sources: IntArray
    goals: IntArray

    @staticmethod
    def build(ways: "LeastTimes", cut: Cut) -> "Set":
        """Take all contributors and destinations of any sum."""
        sources = np.flatnonzero((ways.ready < FAR) & ~cut.inside)
        goals = np.flatnonzero(ways.wanted & cut.inside)
        return Set(cut, ways.before(cut.inside), sources, goals)


class Inflow(NamedTuple):
    """What must cross into a set of nodes, and the gates.

    Parameters
    ----------
    chosen
        The set with contributors and destinations.
    gates
        Links into it.
    heads
        For each gate, how early a byte may carry one, two, ... of the contributions.
    tails
        For each gate, how long before the end a byte must enter to serve one, two, ... of the GPUs.
    need
        Bytes that must cross, each as often as there are contributors and destinations of it.
    """

    chosen: Set
    gates: list[Gate]
    heads: list[IntArray]
    tails: list[IntArray]
    need: Fraction


def joint_bounds(network: Network, cuts: Iterable[Cut]) -> list[Bound]:
    """Evaluate the best joint coverage of some set of nodes: of cuts, their GPUs, or around a GPU.

    Far contributors and remote destinations are told apart for the sets that seem to bind most.
    """
    if not serves(network):
        return []
    ways, work = LeastTimes(network), MOST_WORK
    found: list[tuple[float, Inflow]] = []
    for cut in _sets(network, cuts):
        crossing = inflow_of(ways, Set.build(ways, cut))
        if crossing is None:
            continue
        found.append((estimate(crossing), crossing))
        work -= network.distance.size + sum(map(len, (*crossing.heads, *crossing.tails)))
        if work < 0:
            break
    found.sort(key=lambda entry: -entry[0])
    for _, crossing in found[:MOST_REFINED]:
        found += [(estimate(part), part) for part in _parts(ways, crossing)]
    value, best = max(found, key=lambda entry: entry[0], default=(0.0, None))
    return [] if best is None else [evaluate(best, value)]


def serves(network: Network) -> bool:
    """Whether anybody wants a sum; the ports of hyper-edges are held before data is there."""
    if not network.fluid or network.problem.switch is SwitchMode.HYPER_EDGE:
        return False
    return bool(network.rate) and bool(network.classes.reduce.any())


class LeastTimes:
    """Least times to and from links, as coverage has them, in networks without some nodes."""

    def __init__(self, network: Network) -> None:
        topology = network.problem.topology
        self.network = network
        self.inward = Side.build(network, inward=True)
        self.outward = Side.build(network, inward=False)
        everything = np.arange(topology.num_nodes)
        # Ways that pass nothing but switches before a link, and behind it.
        self.lead, self.follow = (
            least_ways(side, network.onward, everything, topology.is_switch[side.near])
            for side in (self.inward, self.outward)
        )
        classes = network.classes
        self.ready = np.full(topology.num_nodes, FAR)
        self.sums = np.flatnonzero(classes.reduce).tolist()
        for number in self.sums:
            nodes, ready = classes.origins[classes.origin[number]]
            np.minimum.at(self.ready, nodes, ready)
        self.wanted = np.zeros(topology.num_nodes, dtype=bool)
        for number in self.sums:
            self.wanted[classes.goals[classes.goal[number]]] = True

    def before(self, inside: Mask) -> IntArray:
        """Distances to nodes (rows) from others (columns) on ways outside of a set."""
        network = self.network
        if network.has_circuits:
            return self.inward.distance
        topology = network.problem.topology
        apart = ~inside[topology.link_src] & ~inside[topology.link_dst]
        return all_distances(network.problem, network.step, only=apart).T

    def heads(self, node: int, chosen: Set) -> IntArray:
        """How early a byte that leaves a node may carry one, two, ... of the contributions."""
        places = np.array([node])
        if not self.inward.is_place[node]:
            near = self.lead[node] < FAR
            places = np.flatnonzero(self.inward.is_place & near & ~chosen.cut.inside)
        times = chosen.before[np.ix_(places, chosen.sources)] + self.ready[chosen.sources]
        return _least(times, self.lead[node, places])

    def tails(self, node: int, others: IntArray) -> IntArray:
        """How long a byte at a node takes to serve one, two, ... of the others."""
        places = np.array([node])
        if not self.outward.is_place[node]:
            places = np.flatnonzero(self.outward.is_place & (self.follow[node] < FAR))
        return _least(self.outward.distance[np.ix_(places, others)], self.follow[node, places])

    def need(self, sources: IntArray, goals: IntArray) -> Fraction:
        """Bytes of sums, counted for each of their contributors and destinations among some."""
        classes, total = self.network.classes, Fraction(0)
        for number in self.sums:
            have = np.isin(classes.origins[classes.origin[number]].nodes, sources).sum()
            want = np.isin(classes.goals[classes.goal[number]], goals).sum()
            total += classes.amount[number] * int(have) * int(want)
        return total


def _least(times: IntArray, around: IntArray) -> IntArray:
    """Return the k-th least time of a row with what is around it, for every k the best row."""
    if not len(times):
        return np.full(times.shape[1], FAR)
    return np.minimum((np.sort(times, axis=1) + around[:, None]).min(axis=0), FAR)


def _sets(network: Network, cuts: Iterable[Cut]) -> Iterator[Cut]:
    """Yield sets of nodes without repeats: cuts, the GPUs of each, and those around some GPU."""
    is_switch = network.problem.topology.is_switch
    seen = set()
    for cut in (*cuts, *_around(network)):
        for inside in (cut.inside, cut.inside & ~is_switch):
            key = inside.tobytes()
            if key not in seen and inside.any() and not inside.all():
                seen.add(key)
                yield cut._replace(inside=inside)


def _around(network: Network) -> Iterator[Cut]:
    """Yield the nodes from which a GPU is near, and those far away from it, for some radii."""
    topology = network.problem.topology
    for node in representatives(network):
        name = topology.nodes[node].name
        for distance, is_near in (
            (network.distance[:, node], True),
            (network.distance[node], False),
        ):
            radii = np.unique(distance[topology.gpus])
            for radius in _thinned(radii[:-1], MOST_RADII).tolist():
                count = int(((distance <= radius) == is_near)[topology.gpus].sum())
                label = f"the {count} gpus {'around' if is_near else 'away from'} {name}"
                yield Cut((distance <= radius) == is_near, label)


def _thinned(values: IntArray, most: int) -> IntArray:
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(int)]


def _parts(ways: LeastTimes, crossing: Inflow) -> Iterator[Inflow]:
    """Yield what crosses into a set from far contributors, or to remote destinations."""
    chosen = crossing.chosen
    distance = ways.network.distance[np.ix_(chosen.sources, chosen.goals)]
    for far in _farther(distance.min(axis=1) + ways.ready[chosen.sources]):
        for remote in _farther(distance.min(axis=0)):
            part = chosen._replace(sources=chosen.sources[far], goals=chosen.goals[remote])
            found = inflow_of(ways, part)
            if found is not None:
                yield found


def _farther(distance: IntArray) -> Iterator[Mask]:
    for least in _thinned(np.unique(distance), MOST_THRESHOLDS).tolist():
        yield distance >= least


def inflow_of(ways: LeastTimes, chosen: Set) -> Inflow | None:
    """Collect what must cross from some contributors to some destinations; None for nothing."""
    network, inside = ways.network, chosen.cut.inside
    topology = network.problem.topology
    links = np.flatnonzero(~inside[topology.link_src] & inside[topology.link_dst])
    need = ways.need(chosen.sources, chosen.goals)
    if not need or not len(links):
        return None
    starts, ends = np.unique(topology.link_src[links]), np.unique(topology.link_dst[links])
    head = {node: ways.heads(node, chosen) for node in starts.tolist()}
    tail = {node: ways.tails(node, chosen.goals) for node in ends.tolist()}
    own = np.minimum(network.step, network.crossing)
    gates, heads, tails = network.gates(links), list[IntArray](), list[IntArray]()
    for gate in gates:
        # Of links that share a capacity the best counts, for heads and tails apart.
        heads.append(np.min([head[int(topology.link_src[e])] for e in gate.links], axis=0))
        behind = [tail[int(topology.link_dst[e])] + own[e] for e in gate.links]
        tails.append(np.min(behind, axis=0))
    return Inflow(chosen, gates, heads, tails, need)


class _Kind(NamedTuple):
    """Gates that are alike: how many, their rates over time, and heads and tails with counts."""

    gates: int
    steps: Steps
    heads: tuple[IntArray, IntArray]
    tails: tuple[IntArray, IntArray]


def _kinds(crossing: Inflow) -> list[_Kind]:
    """Return the gates of each kind; heads and tails out of reach leave no window."""
    alike: Counter[tuple[int, bytes, bytes]] = Counter()
    first: dict[tuple[int, bytes, bytes], int] = {}
    rows = zip(crossing.gates, crossing.heads, crossing.tails, strict=True)
    for number, (gate, heads, tails) in enumerate(rows):
        key = (id(gate.steps), heads.tobytes(), tails.tobytes())
        alike[key] += 1
        first.setdefault(key, number)
    found = []
    for key, number in first.items():
        heads, tails = crossing.heads[number], crossing.tails[number]
        found.append(
            _Kind(
                alike[key],
                crossing.gates[number].steps,
                np.unique(heads[heads < FAR], return_counts=True),
                np.unique(tails[tails < FAR], return_counts=True),
            )
        )
    return [kind for kind in found if len(kind.heads[0]) and len(kind.tails[0])]


def estimate(crossing: Inflow) -> float:
    """Least T at which the windows have room for what must cross, in floating point."""
    moments, changes = [], []
    for kind in _kinds(crossing):
        (heads, several), (tails, many) = kind.heads, kind.tails
        count = kind.gates * np.multiply.outer(several, many).ravel()
        last = 0.0
        for start, rate in kind.steps:
            opens = np.maximum(heads, float(start))
            moments.append(np.add.outer(opens, tails).ravel())
            changes.append(count * (float(rate) - last))
            last = float(rate)
    if not moments:
        return 0.0
    return least_estimate(np.concatenate(moments), np.concatenate(changes), float(crossing.need))


def evaluate(crossing: Inflow, near: float) -> Bound:
    """Return the latest whole picosecond near an estimate by which there is too little room."""
    kinds = _kinds(crossing)
    # Room grows with time, so that nothing ends before a moment at which it is too little.
    value, step = int(near), 1
    while value > 0 and _room(kinds, value) > crossing.need:
        value, step = max(0, value - step), 2 * step
    return Bound(kind="coverage", value=value, certificate=_sentence(crossing))


def _room(kinds: list[_Kind], end: int) -> Fraction:
    """Bytes that fit into all windows by an end, each as often as it counts."""
    total = Fraction(0)
    for kind in kinds:
        (heads, several), (tails, many) = kind.heads, kind.tails
        for head, count in zip(heads.tolist(), several.tolist(), strict=True):
            if len(kind.steps) == 1:
                # Python's integers: long times of many destinations exceed the machine's.
                rows = zip(tails.tolist(), many.tolist(), strict=True)
                length = sum(max(end - head - tail, 0) * times for tail, times in rows)
                total += kind.gates * count * length * kind.steps[0][1]
                continue
            for tail, times in zip(tails.tolist(), many.tolist(), strict=True):
                room = carried(kind.steps, head, max(head, end - tail))
                total += kind.gates * count * times * room
    return total


def _sentence(crossing: Inflow) -> str:
    """Say what must cross, and when bytes have room for few contributions or serve few."""
    sources, goals = len(crossing.chosen.sources), len(crossing.chosen.goals)
    rate = format_bandwidth(round(float(sum(gate.rate for gate in crossing.gates)) * 1e12))
    need = format_size(round(crossing.need / (sources * goals)))
    ends = zip(crossing.heads, crossing.tails, strict=True)
    least = display_time(min(int(heads[0] + tails[0]) for heads, tails in ends) / 1e12)
    text = (
        f"{need} from each of {sources} GPUs must come to each of {goals} in "
        f"{crossing.chosen.cut.label} over {rate} in all, plus {least}"
    )
    early = _second(crossing.heads)
    late = _second(crossing.tails)
    if early is not None:
        text += f"; before {early} no byte that enters can be a sum of more than one"
    if late is not None:
        text += f"; what enters less than {late} before the end serves no more than one"
    return text


def _second(times: list[IntArray]) -> str | None:
    """Say from when on a second one counts at any gate, if that is later than the first."""
    first = min(int(row[0]) for row in times)
    second = min((int(row[1]) for row in times if len(row) > 1), default=first)
    return display_time(second / 1e12) if first < second < FAR else None
