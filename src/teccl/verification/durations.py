"""Lengths of transfers, from exact fractions, apart from the arithmetic that makes schedules."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from teccl._arrays import IntArray, ints
from teccl._ratios import Ratios
from teccl.demand import Tenant
from teccl.schedule.columns import Sends
from teccl.topology import Link, Topology

Steps = Sequence[tuple[Fraction, Fraction]]

_PS_PER_S = 10**12


def ceiling(value: Fraction) -> int:
    """The next whole number."""
    return -(-value.numerator // value.denominator)


def to_ps(seconds: Fraction) -> int:
    """Whole picoseconds, rounded up."""
    return ceiling(seconds * _PS_PER_S)


def link_rate(topology: Topology, link: Link) -> Fraction:
    """Bytes per second a transfer gets: the link's own or a slower shared rate."""
    return min([link.bandwidth, *(topology.shared[name] for name in link.shares)])


def link_steps(topology: Topology, link: Link) -> Steps:
    """Pairs (from when, bytes per second) of a link with a profile, the first from time zero."""
    ceilings = [topology.shared[name] for name in link.shares]
    profile = list(link.profile)
    if not profile or profile[0][0] > 0:
        profile.insert(0, (Fraction(0), link.bandwidth))
    return [(begin, min([rate, *ceilings])) for begin, rate in profile]


def link_alphas(topology: Topology) -> IntArray:
    """Latency of each link in picoseconds."""
    return ints(topology.each_kind(lambda link: to_ps(link.alpha)))[topology.link_kind]


def link_overheads(topology: Topology) -> IntArray:
    """Picoseconds for which a transfer holds each link beside its bytes."""
    return ints(topology.each_kind(lambda link: to_ps(link.overhead)))[topology.link_kind]


def ready_times(topology: Topology, tenants: Sequence[Tenant], unit: Fraction) -> IntArray:
    """First moment, in whole units of time, from which a node's own data of a tenant may leave."""
    table = np.zeros((len(tenants), topology.num_nodes), dtype=np.int64)
    for t, tenant in enumerate(tenants):
        for rank, seconds in tenant.ready.items():
            table[t, topology.gpus[rank]] = ceiling(seconds / unit)
    return table


def transmissions(sends: Sends, start: IntArray) -> IntArray:
    """Picoseconds each send's bytes would take on its link if nothing slower lay on its way.

    Parameters
    ----------
    start
        Picoseconds at which the bytes begin; matters on links with a profile only.
    """
    topology = sends.problem.topology
    sizes = sends.problem.chunks.sizes
    kind = topology.link_kind[sends.link]
    rates = topology.each_kind(lambda link: link_rate(topology, link))
    held = _held(sizes, rates)[kind, sends.size]
    has_profile = np.array(topology.each_kind(lambda link: bool(link.profile)), dtype=bool)
    rows = np.flatnonzero(has_profile[kind])
    rows = rows[np.argsort(sends.link[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(sends.link[rows])) + 1
    for group in np.split(rows, cuts) if len(rows) else []:
        steps = link_steps(topology, topology.links[sends.link[group[0]]])
        held[group] = _profiled(steps, sizes, sends.size[group], start[group])
    return held


def _held(sizes: Ratios, rates: Iterable[Fraction]) -> IntArray:
    """Picoseconds that each size takes at each rate, rounded up; sizes may be thousands."""
    numbers, parts = sizes.numerators, sizes.denominators
    largest, finest = max(numbers), max(parts)
    kind = np.int64 if max(largest, finest) < 2**62 else object
    up, down = np.array(numbers, dtype=kind), np.array(parts, dtype=kind)
    rows = []
    for rate in rates:
        pace = _PS_PER_S / rate
        if max(largest * pace.numerator, finest * pace.denominator) < 2**62:
            rows.append(-(-up * pace.numerator // (down * pace.denominator)))
        else:
            rows.append(ints([to_ps(size / rate) for size in sizes]))
    # Without links there are no rates.
    return np.stack(rows) if rows else np.zeros((0, len(up)), dtype=np.int64)


def transmission_ps(steps: Steps, size: Fraction, start_ps: int) -> int:
    """Picoseconds until the integral of the rate from `start_ps` on reaches `size` bytes."""
    now, missing = Fraction(start_ps, _PS_PER_S), size
    for (_, rate), (until, _) in pairwise(steps):
        if until <= now:
            continue
        carried = rate * (until - now)
        if carried >= missing:
            return to_ps(now + missing / rate) - start_ps
        now, missing = until, missing - carried
    return to_ps(now + missing / steps[-1][1]) - start_ps


def _profiled(steps: Steps, sizes: Sequence[Fraction], size: IntArray, start: IntArray) -> IntArray:
    """Occupancy on one link with a profile; only sends that meet a step need the integral."""
    begins = ints([to_ps(begin) for begin, _ in steps])
    ends = np.append([begin * _PS_PER_S // 1 for begin, _ in steps[1:]], 2**62).astype(np.int64)
    step = np.searchsorted(begins, start, side="right") - 1
    table = ints([to_ps(s / rate) for _, rate in steps for s in sizes]).reshape(len(steps), -1)
    held = table[step, size]
    for row in np.flatnonzero(start + held > ends[step]):
        held[row] = transmission_ps(steps, sizes[size[row]], int(start[row]))
    return held
