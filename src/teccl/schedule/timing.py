"""How long sends hold their links and when they arrive, and the chain that sets the finish."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.additions import Needs
from teccl.schedule.sends import Schedule, SendArray
from teccl.topology import Topology
from teccl.units import PICOSECONDS, picoseconds

IntArray = npt.NDArray[np.int64]


class SendTimes(NamedTuple):
    """Per send: picoseconds the link is held, and when the chunk is at the far end."""

    occupancy_ps: IntArray
    arrival_ps: IntArray


def send_times(schedule: Schedule) -> SendTimes:
    """Compute occupancy and arrival of every send under the problem's transit mode."""
    return times_at(schedule.problem, schedule.sends, schedule.sends["start_ps"])


def times_at(problem: Problem, sends: SendArray, start: IntArray) -> SendTimes:
    """Compute the same for sends of a problem that begin at other times than they say."""
    size = problem.chunks.size_index[sends["chunk"]]
    alpha = problem.topology.alpha_ps[sends["link"]]
    overhead = problem.topology.overhead_ps[sends["link"]]
    own = problem.transmission_ps[sends["link"], size]
    if problem.topology.has_profiles:
        own = _profiled(problem, sends["link"], size, start + overhead, own)
    one_go = problem.switch is SwitchMode.HYPER_EDGE or problem.transit is Transit.CUT_THROUGH
    if one_go and problem.topology.num_switches > 0:
        own, overhead = (_most_of_transfer(sends["transfer"], each) for each in (own, overhead))
    held = overhead + own
    if problem.topology.num_switches > 0 and problem.switch is SwitchMode.HYPER_EDGE:
        alpha = _alpha_of_way(problem.topology, sends, alpha)
    return SendTimes(held, start + held + alpha)


def _most_of_transfer(transfer: IntArray, own: IntArray) -> IntArray:
    """Return the largest value among the links of each send's circuit."""
    transfers, index = np.unique(transfer, return_inverse=True)
    longest = np.zeros(len(transfers), dtype=np.int64)
    np.maximum.at(longest, index, own)
    return longest[index]


def _alpha_of_way(topology: Topology, sends: SendArray, alpha: IntArray) -> IntArray:
    """Return the latency from the start of each send's transfer to that send's far end."""
    transfer = sends["transfer"].astype(np.int64) * topology.num_nodes
    into = np.flatnonzero(topology.is_switch[topology.link_dst[sends["link"]]])
    entered = (transfer + topology.link_dst[sends["link"]])[into]
    into, entered = into[np.argsort(entered, kind="stable")], np.sort(entered)
    left = transfer + topology.link_src[sends["link"]]
    parent = np.full(len(sends), -1, dtype=np.int64)
    if len(into):
        found = np.minimum(np.searchsorted(entered, left), len(into) - 1)
        parent = np.where(entered[found] == left, into[found], -1)
    total, before = alpha.copy(), parent.copy()
    for _ in range(topology.num_nodes):
        rows = np.flatnonzero(before >= 0)
        if not len(rows):
            break
        total[rows] += alpha[before[rows]]
        before[rows] = parent[before[rows]]
    return total


def _profiled(
    problem: Problem, link: IntArray, size: IntArray, start: IntArray, own: IntArray
) -> IntArray:
    """Replace the occupancy of sends on links whose bandwidth changes over time."""
    topology, sizes = problem.topology, problem.chunks.sizes
    lengths = own.copy()
    for number in np.unique(link).tolist():
        if not topology.links[number].profile:
            continue
        rows = np.flatnonzero(link == number)
        steps = topology.rate_steps(topology.links[number])
        step = np.searchsorted([picoseconds(begin) for begin, _ in steps], start[rows], "right") - 1
        table = np.array([[picoseconds(s / rate) for s in sizes] for _, rate in steps])
        lengths[rows] = table[step, size[rows]]
        until = np.array([*(begin * PICOSECONDS // 1 for begin, _ in steps[1:]), 2**62], np.int64)
        # Only a send that meets a change of the rate needs the sum over the steps.
        for row in rows[start[rows] + lengths[rows] > until[step]].tolist():
            lengths[row] = transmission_from(steps, sizes[size[row]], int(start[row]))
    return lengths


def transmission_from(
    steps: Sequence[tuple[Fraction, Fraction]],
    size: Fraction,
    start_ps: int,
    *,
    overhead_ps: int = 0,
) -> int:
    """Picoseconds until `size` bytes are sent from `start_ps` at rates that change over time.

    On a link with an overhead the bytes follow it.
    """
    now, left = Fraction(start_ps + overhead_ps, PICOSECONDS), size
    for i, (_, rate) in enumerate(steps):
        end = steps[i + 1][0] if i + 1 < len(steps) else None
        if end is not None and end <= now:
            continue
        if end is None or left <= rate * (end - now):
            return picoseconds(now + left / rate) - start_ps
        left -= rate * (end - now)
        now = end
    raise AssertionError("unreachable: the last rate holds for ever")


def critical_path(schedule: Schedule) -> list[int]:
    """Walk back from the last arrival through the sends that leave no slack.

    A send's start is set by the arrival of its chunk at the sender, by the end of the send
    before it on its link or shared capacity, or by its passage through a switch.
    """
    if not len(schedule):
        return []
    sends, topology = schedule.sends, schedule.problem.topology
    times = send_times(schedule)
    ends = sends["start_ps"] + times.occupancy_ps
    needs = None if schedule.sums is None else Needs(sends, schedule.sums)
    by_arrival = _rows_by(zip(topology.link_dst[sends["link"]], times.arrival_ps, strict=True))
    by_end = _rows_by(zip(sends["link"], ends, strict=True))
    by_transfer = _rows_by(zip(sends["transfer"], strict=True))
    row = int(times.arrival_ps.argmax())
    path, seen = [row], {row}
    while True:
        start, chunk = int(sends["start_ps"][row]), sends["chunk"][row]
        source = int(topology.link_src[sends["link"][row]])
        arrivals = by_arrival.get((source, start), [])
        feeders = [r for r in arrivals if sends["chunk"][r] == chunk]
        if needs is not None and sends["carries"][row] >= 0:
            feeders = sorted(set(feeders) & set(needs.of_send(row)))
        before = by_end.get((int(sends["link"][row]), start), [])
        same = [r for r in by_transfer[(int(sends["transfer"][row]),)] if r < row]
        found = next((r for r in (*feeders, *before, *reversed(same)) if r not in seen), None)
        if found is None or start == 0:
            return path[::-1]
        row = found
        seen.add(row)
        path.append(row)


def _rows_by(keys: Iterable[tuple[Any, ...]]) -> dict[tuple[int, ...], list[int]]:
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(tuple(int(part) for part in key), []).append(row)
    return rows
