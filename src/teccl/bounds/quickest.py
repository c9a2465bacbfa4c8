r"""The quickest-flow bound: a cut whose place moves with time.

Give every node u a label :math:`\pi_u \ge 0`, the time from which on it counts as *behind*; before
that it is *ahead*. Let each chunk of a set J start behind, :math:`\pi_s \le r_s` for all its
holders (for one of its sources where it is a sum), and be wanted by a node with label T. Waiting
leads from ahead to behind only. So every byte of J must at least once leave a node u behind and
arrive at a node v ahead, and on link e there is time for that from :math:`\pi_u` to
:math:`\pi_v - \alpha_e`:

.. math:: \sum_{m \in J} b_m \le \sum_e C_e \, (\pi_v - \pi_u - \alpha_e)^+ .

A rate that changes over time is integrated over that window. Labels that break the inequality show
that T is too early. The best ones come from a linear program, the dual
of the quickest flow over time; they are rounded to whole picoseconds and judged exactly.
"""

from collections.abc import Collection, Iterator
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from teccl.bounds.cuts import Estimate
from teccl.bounds.linear_programs import least_cost
from teccl.bounds.model import Bound
from teccl.bounds.network import Network
from teccl.bounds.windows import FloatArray, IntArray, Steps, carried
from teccl.keywords import SwitchMode
from teccl.units import format_size

# Links beyond which the linear program takes too long for what it gains.
MAX_LINKS = 1_500
# Solutions for rates that change: each takes the mean rates in the windows of the one before.
MAX_ROUNDS = 4
# Contributions to a sum that are followed, of those that are equally far away.
MAX_RACES = 4


class Race(NamedTuple):
    """What has to move: its bytes, from which nodes since when, to which nodes."""

    amount: Fraction
    ready: dict[int, int]
    ends: list[int]


def has_quickest(network: Network) -> bool:
    """Whether cuts may move in a network, and few enough links for it.

    The later links of a hyper-edge carry data before it has come to them; those of a circuit, all
    held at the slowest one's rate, do not.
    """
    problem = network.problem
    is_joined = problem.switch is SwitchMode.HYPER_EDGE and problem.topology.num_switches > 0
    return network.fluid and not is_joined and len(network.rate) <= MAX_LINKS


def quickest_bound(network: Network, estimate: Estimate) -> Bound | None:
    """Improve a cut bound by letting the cut move; None where that does not apply."""
    if not has_quickest(network) or not estimate.gates:
        return None
    races = [race_bound(network, race, estimate.value) for race in _races(network, estimate)]
    return max(filter(None, races), key=attrgetter("value"), default=None)


def race_bound(network: Network, race: Race, unit: float) -> Bound | None:
    """Return when all of a race can be over at the earliest; None where labels show nothing.

    Parameters
    ----------
    unit
        A time near it.
    """
    value = _latest(network, race, unit)
    text = (
        f"{format_size(round(race.amount))} must get from {_named(network, race.ready)} to "
        f"{_named(network, race.ends)}, and no flow over time brings it sooner"
    )
    return None if value is None else Bound(kind="quickest", value=value, certificate=text)


def _named(network: Network, nodes: Collection[int]) -> str:
    names = [network.problem.topology.nodes[node].name for node in nodes]
    return names[0] if len(names) == 1 else f"{len(names)} GPUs"


def _races(network: Network, estimate: Estimate) -> Iterator[Race]:
    """Yield what binds a cut, for sums as many times as contributions are equally far away."""
    previous: list[Race] = []
    for turn in range(MAX_RACES):
        race = _race(network, estimate, turn)
        if race in previous:
            return
        previous.append(race)
        yield race


def _race(network: Network, estimate: Estimate, turn: int) -> Race:
    """Take the chunks that bind a cut: where each may start, and one place where it must end."""
    classes, inside = network.classes, estimate.cut.inside
    members = estimate.load.classes[estimate.chosen]
    ready: dict[int, int] = {}
    away = network.distance[:, inside].min(axis=1)
    for member in members.tolist():
        nodes, since = classes.origins[classes.origin[member]]
        outside = ~inside[nodes]
        chosen = np.flatnonzero(outside)
        if classes.reduce[member]:
            # One contribution is enough to be followed: one of the last that could come.
            time = (since + away[nodes])[outside]
            last = np.flatnonzero(time == time.max())
            chosen = chosen[[last[turn % len(last)]]]
        for node, time in zip(nodes[chosen].tolist(), since[chosen].tolist(), strict=True):
            ready[node] = min(time, ready.get(node, time))
    wanted = [
        set(classes.goals[goal][inside[classes.goals[goal]]].tolist())
        for goal in np.unique(classes.goal[members]).tolist()
    ]
    far = network.distance[list(ready)].sum(axis=0)
    # One place that wants all is narrower than several.
    common = set.intersection(*wanted)
    ends = [common] if common else wanted
    return Race(
        amount=sum((classes.amount[member] for member in members), Fraction(0)),
        ready=ready,
        ends=sorted({max(nodes, key=lambda node: (far[node], node)) for nodes in ends}),
    )


def _latest(network: Network, race: Race, unit: float) -> int | None:
    """Return the latest T that labels prove; where rates change, of several tries."""
    links = len(network.rate)
    opened, closed = np.zeros(links, dtype=np.int64), np.full(links, round(unit))
    proven = []
    for _ in range(MAX_ROUNDS if network.problem.topology.has_profiles else 1):
        rates = np.array(
            [
                _mean(*args)
                for args in zip(network.steps, opened.tolist(), closed.tolist(), strict=True)
            ]
        )
        labels = _labels(network, race, rates, unit)
        if labels is None:
            break
        proven.append(_proven(network, race, labels))
        opened = labels[network.problem.topology.link_src]
        closed = labels[network.problem.topology.link_dst] - network.step
    return max((value for value in proven if value is not None), default=None)


def _mean(steps: Steps, opened: int, closed: int) -> float:
    """Mean rate of a link in a window, or its first rate where the window is empty."""
    if len(steps) == 1 or closed <= opened:
        return float(steps[0][1])
    return float(carried(steps, opened, closed)) / (closed - opened)


def _labels(network: Network, race: Race, rates: FloatArray, unit: float) -> IntArray | None:
    """Solve for the labels with the latest T, counted in a unit of time near it."""
    from scipy.sparse import coo_array

    topology = network.problem.topology
    nodes, links, ends = topology.num_nodes, topology.num_links, len(race.ends)
    rate = rates * unit / float(race.amount)
    # Columns: labels, windows of links, T. Rows: a window's length, capacity, T at the ends.
    e, last = np.arange(links), nodes + links
    rows = [e, e, e, np.full(links, links), *2 * [links + 1 + np.arange(ends)]]
    columns = [topology.link_dst, topology.link_src, nodes + e, nodes + e, np.full(ends, last)]
    columns.append(np.array(race.ends))
    values = [np.ones(links), -np.ones(2 * links), rate, np.ones(ends), -np.ones(ends)]
    matrix: Any = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(links + 1 + ends, last + 1),
    )
    upper = np.full(last + 1, np.inf)
    upper[list(race.ready)] = np.array(list(race.ready.values())) / unit
    cost = np.zeros(last + 1)
    cost[last] = -1.0
    high = np.concatenate([network.step / unit, [1.0], np.zeros(ends)])
    found = least_cost(cost, matrix, np.full(len(high), -np.inf), high, upper)
    return None if found is None else np.rint(found.values[:nodes] * unit).astype(np.int64)


def _proven(network: Network, race: Race, labels: IntArray) -> int | None:
    """Return the latest T before which, as the labels cut off at T show, not all can have come."""
    topology = network.problem.topology
    for node, since in race.ready.items():
        labels[node] = min(int(labels[node]), since)
    latest, loss = int(labels[race.ends].min()), 0
    while loss <= latest:
        cut_off = np.minimum(labels, latest - loss)
        opened = cut_off[topology.link_src]
        closed = cut_off[topology.link_dst] - network.step
        used = np.flatnonzero(closed > opened)
        windows = zip(used.tolist(), opened[used].tolist(), closed[used].tolist(), strict=True)
        room = sum((carried(network.steps[e], a, b) for e, a, b in windows), Fraction(0))
        # Just enough room is too little at an earlier T, where windows that end at T are shorter.
        ends_late = bool((cut_off[topology.link_dst[used]] == latest - loss).any())
        if room < race.amount or (room == race.amount and ends_late):
            return latest - loss
        loss = 2 * loss + 1
    return None
