"""Calibration: a topology whose links have what was measured on ranks, and the measuring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from statistics import median
from typing import Any

from teccl.errors import InputError, TopologyError
from teccl.runtime.fits import Fit, faster_half, fit_line, fit_trains
from teccl.runtime.launch import check_mpi, launch, launched_rank
from teccl.runtime.nccl_logs import NcclLog
from teccl.runtime.pingpong import PingPongPlan, measure_links
from teccl.runtime.worker import in_world
from teccl.topology import Link, Node, Topology

DEFAULT_RANKS = 2
# Emulated links are slow, and steady.
_EMULATED_REPEAT = 5
# Pairs that stand for all between two groups.
_PER_GROUP = 3
# Digits that a measurement deserves.
_DIGITS = 4
# On emulated links, sizes as multiples of what a link carries during its alpha.
_MULTIPLES = (0.0, 0.5, 1.0, 2.0, 4.0)
# An emulated alpha lasts this long, so that the machine's own delays do not show.
_EMULATED_ALPHA_S = 0.025
# Where a link has no alpha, sizes that take up to this long.
_EMULATED_LONGEST_S = 0.08
_EMULATED_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """The fit of one direction between two ranks."""

    src: int
    dst: int
    fit: Fit

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        fit = self.fit
        return {
            "src": self.src,
            "dst": self.dst,
            "alpha_s": fit.alpha_s,
            "alpha_error_s": fit.alpha_error,
            "overhead_s": fit.overhead_s,
            "overhead_error_s": None if fit.overhead_s is None else fit.overhead_error,
            "bandwidth_Bps": fit.bandwidth,
            "bandwidth_error": fit.beta_error / max(fit.beta_s_per_byte, 1e-300),
            "samples": fit.samples,
            "typical_residual": fit.typical_residual,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured.

    Parameters
    ----------
    links
        One fit per direction of each pair.
    num_ranks
        How many ranks there are.
    hosts
        Host of each rank.
    ports
        Whether all links of a rank share one port in and one out.
    """

    links: tuple[LinkFit, ...]
    num_ranks: int
    hosts: tuple[str, ...]
    ports: bool = False

    @property
    def overhead_s(self) -> float | None:
        """Seconds that one more small message costs beside others, None where not measured."""
        known = [link.fit.overhead_s for link in self.links if link.fit.overhead_s is not None]
        return median(known) if known else None

    def topology(self, name: str = "calibrated") -> Topology:
        """Return the topology, its values rounded to the digits they deserve."""
        groups = {host: f"host{i}" for i, host in enumerate(dict.fromkeys(self.hosts))}
        shared: dict[str, Fraction] = {}
        links = []
        for found in self.links:
            rate = rounded(found.fit.bandwidth)
            shares = (f"gpu{found.src} out", f"gpu{found.dst} in") if self.ports else ()
            shared |= dict.fromkeys(shares, rate)
            links.append(
                Link(
                    src=found.src,
                    dst=found.dst,
                    bandwidth=rate,
                    alpha=rounded(found.fit.alpha_s),
                    overhead=rounded(found.fit.overhead_s or 0.0),
                    shares=shares,
                )
            )
        nodes = tuple(
            Node(name=f"gpu{i}", group=groups[host] if len(groups) > 1 else None)
            for i, host in enumerate(self.hosts)
        )
        return Topology(name=name, nodes=nodes, links=tuple(links), shared=shared)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, as ``--json`` prints them."""
        return {
            "num_ranks": self.num_ranks,
            "hosts": list(self.hosts),
            "links": [link.to_dict() for link in self.links],
            "overhead_s": self.overhead_s,
        }


def rounded(value: float) -> Fraction:
    """Return a measured value with a few significant digits, exactly as printed.

    Examples
    --------
    >>> rounded(12345678.0)
    Fraction(12350000, 1)
    """
    return Fraction(f"{value:.{_DIGITS - 1}e}")


def plan_pairs(
    num_ranks: int, sizes: Sequence[int], *, group: int | None = None, **options: Any
) -> tuple[PingPongPlan, list[list[tuple[int, int]]]]:
    """Plan to measure all ordered pairs of ranks, or some for every two groups.

    Returns
    -------
    tuple
        The plan, and for each measured pair the ordered pairs that it stands for.
    """
    if num_ranks < 2:
        raise InputError(f"calibration needs two ranks or more, not {num_ranks}")
    if group is None:
        pairs = list(permutations(range(num_ranks), 2))
        stands_for = [[pair] for pair in pairs]
    else:
        pairs, stands_for = _group_pairs(num_ranks, group)
    plan = PingPongPlan(pairs=tuple(pairs), sizes=(tuple(sizes),) * len(pairs), **options)
    return plan, stands_for


def _group_pairs(
    num_ranks: int, group: int
) -> tuple[list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Take a few pairs for every two groups of consecutive ranks."""
    if not 1 <= group <= num_ranks:
        raise InputError(f"groups of {group} ranks do not fit {num_ranks} ranks")
    classes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in permutations(range(num_ranks), 2):
        classes.setdefault((a // group, b // group), []).append((a, b))
    pairs, stands_for = [], []
    for members in classes.values():
        step = max(1, len(members) // _PER_GROUP)
        chosen = members[::step][:_PER_GROUP]
        pairs += chosen
        stands_for += [members] * len(chosen)
    return pairs, stands_for


def plan_emulated(
    topology: Topology, *, time_scale: float | None = None, **options: Any
) -> tuple[PingPongPlan, float]:
    """Plan to measure every link of a topology that is emulated.

    Returns
    -------
    tuple
        The plan, its links' times multiplied by the time scale, and the time scale.

    Raises
    ------
    TopologyError
        If the topology has switches, parallel links or one-way links, which a ping-pong cannot
        measure.
    """
    links = {(link.src, link.dst): link for link in topology.links}
    one_way = [pair for pair in links if pair[::-1] not in links]
    if topology.num_switches or len(links) != len(topology.links) or one_way:
        raise TopologyError(
            f"{topology!r} has switches, parallel or one-way links, which a ping-pong cannot "
            "measure; give one with a link each way between GPUs"
        )
    scale = _emulated_scale(topology) if time_scale is None else time_scale
    emulated = {
        f"{src}>{dst}": (
            float(link.alpha) * scale,
            scale / float(topology.rate(link)),
            float(link.overhead) * scale,
        )
        for (src, dst), link in links.items()
    }
    sizes = tuple(_emulated_sizes(*emulated[f"{src}>{dst}"][:2]) for src, dst in links)
    plan = PingPongPlan(pairs=tuple(links), sizes=sizes, links=emulated, concurrent=True, **options)
    return plan, scale


def _emulated_scale(topology: Topology) -> float:
    alphas = [float(link.alpha) for link in topology.links if link.alpha > 0]
    slowest = min(float(rate) for rate in topology.rates)
    return max(_EMULATED_ALPHA_S / min(alphas) if alphas else 1.0, slowest / 2e8)


def _emulated_sizes(alpha_s: float, beta_s: float) -> tuple[int, ...]:
    """Sizes that take from nothing to a few alphas, as far as memory goes."""
    longest = 4 * alpha_s if alpha_s else _EMULATED_LONGEST_S
    largest = min(longest / beta_s, _EMULATED_BYTES)
    return tuple(max(1, int(m / _MULTIPLES[-1] * largest)) for m in _MULTIPLES)


def calibration(
    plan: PingPongPlan,
    found: dict[str, Any],
    *,
    stands_for: Sequence[Sequence[tuple[int, int]]] | None = None,
    time_scale: float = 1.0,
) -> Calibration:
    """Fit what a ping-pong has measured.

    Parameters
    ----------
    found
        What `measure_links` returned.
    stands_for
        For each measured pair, the pairs that get its fit; pairs that stand for the same ones are
        fitted together.
    time_scale
        Factor on the times of emulated links.
    """
    pools: dict[tuple[tuple[int, int], ...], tuple[list[tuple[int, int]], list[float]]] = {}
    for i, pair in enumerate(plan.pairs):
        key = tuple(stands_for[i]) if stands_for is not None else (pair,)
        kinds, seconds = pools.setdefault(key, ([], []))
        for kind, times in zip(plan.kinds(i), found["seconds"][i], strict=True):
            kinds += [kind] * len(times)
            seconds += times
    fits: dict[tuple[int, int], Fit] = {}
    for key, (kinds, seconds) in pools.items():
        kept = faster_half(kinds, seconds)
        counts, sizes = zip(*(kinds[place] for place in kept), strict=True)
        fit = fit_trains(counts, sizes, [seconds[place] for place in kept])
        fits |= dict.fromkeys(key, fit.scaled(*[1.0 / time_scale] * 3))
    return Calibration(
        links=tuple(LinkFit(src=a, dst=b, fit=fit) for (a, b), fit in sorted(fits.items())),
        num_ranks=len(found["hosts"]),
        hosts=tuple(found["hosts"]),
    )


def calibration_from_logs(logs: Sequence[tuple[tuple[int, int] | None, NcclLog]]) -> Calibration:
    """Fit logs of nccl-tests.

    A log for a pair of ranks gives their link, both ways. One log for all ranks gives every rank a
    port in and a port out that its links share.

    Raises
    ------
    InputError
        If both kinds are mixed, or several logs are given for all ranks.
    """
    if len(logs) == 1 and logs[0][0] is None:
        log = logs[0][1]
        fit = _log_fit(log)
        links = [LinkFit(src=a, dst=b, fit=fit) for a, b in permutations(range(log.ranks), 2)]
        hosts = ("unknown",) * log.ranks
        return Calibration(links=tuple(links), num_ranks=log.ranks, hosts=hosts, ports=True)
    if any(pair is None for pair, _ in logs):
        raise InputError("give one log for all ranks, or one for each pair as A-B=FILE")
    fits: dict[tuple[int, int], Fit] = {}
    for pair, log in logs:
        if pair is not None:
            fit = _log_fit(log)
            fits |= {pair: fit, pair[::-1]: fit}
    ranks = 1 + max(max(pair) for pair in fits)
    return Calibration(
        links=tuple(LinkFit(src=a, dst=b, fit=fit) for (a, b), fit in sorted(fits.items())),
        num_ranks=ranks,
        hosts=("unknown",) * ranks,
    )


def _log_fit(log: NcclLog) -> Fit:
    return fit_line(log.sizes, log.seconds).scaled(1.0 / log.steps, 1.0 / log.volume)


def calibrate_ranks(
    *,
    sizes: Sequence[int],
    ranks: int | None = None,
    repeat: int = 10,
    group: int | None = None,
    emulate: str | Topology | None = None,
    time_scale: float | None = None,
    timeout: float | None = None,
    tell: Callable[[BaseException], None] | None = None,
) -> Calibration | None:
    """Measure links between ranks by ping-pong and fit them.

    Parameters
    ----------
    sizes
        Bytes of the messages; emulated links choose their own.
    ranks
        Local ranks to start, None for two or as many as `emulate` has GPUs.
    repeat
        Exchanges that are timed at each size.
    group
        Measure a few pairs for every two groups of so many ranks; None for all pairs.
    emulate
        A topology whose links are emulated and measured.
    time_scale
        Factor on the times of emulated links, None to choose it.
    timeout
        Seconds without a sign of life after which all ranks are ended.
    tell
        Under ``mpirun``, called on one rank with what went wrong before all ranks end.

    Returns
    -------
    Calibration or None
        The fits; None on all ranks but the first under ``mpirun``.
    """
    check_mpi()

    def make_plan(number: int) -> tuple[PingPongPlan, list[list[tuple[int, int]]] | None, float]:
        if emulate is not None:
            return _emulated_plan(number, repeat, Topology.parse(emulate), time_scale)
        return *plan_pairs(number, sizes, group=group, repeat=repeat), 1.0

    rank = launched_rank()
    if rank is not None:

        def work(comm: Any, watchdog: Any) -> tuple[PingPongPlan, Any, float, dict[str, Any]]:
            plan, stands_for, scale = make_plan(comm.Get_size())
            return plan, stands_for, scale, measure_links(plan, comm, beat=watchdog.beat)

        plan, stands_for, scale, found = in_world(
            work, tell or (lambda _: None), rank=rank, timeout=timeout
        )
        if rank:
            return None
    else:
        number = ranks or _default_ranks(emulate)
        plan, stands_for, scale = make_plan(number)
        found = launch({"task": "calibrate", "plan": plan.to_dict()}, number, timeout=timeout)
    return calibration(plan, found, stands_for=stands_for, time_scale=scale)


def _default_ranks(emulate: str | Topology | None) -> int:
    return DEFAULT_RANKS if emulate is None else Topology.parse(emulate).num_gpus


def _emulated_plan(
    ranks: int, repeat: int, topology: Topology, time_scale: float | None
) -> tuple[PingPongPlan, None, float]:
    if topology.num_gpus != ranks:
        raise InputError(
            f"{topology!r} has {topology.num_gpus} GPUs and there are {ranks} ranks; "
            "start as many, or drop --ranks"
        )
    plan, scale = plan_emulated(
        topology, time_scale=time_scale, repeat=min(repeat, _EMULATED_REPEAT), warmup=1
    )
    return plan, None, scale
