"""What a topology consists of, in numbers, and whether its GPUs can all reach each other."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl._graphs import strong_components
from teccl.topology.graph import Topology
from teccl.units import format_bandwidth, format_duration

Profile = tuple[tuple[Fraction, Fraction], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClass:
    """Links of one bandwidth over time, latency and overhead."""

    bandwidth: Fraction
    alpha: Fraction
    overhead: Fraction
    profile: Profile
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySummary:
    """Counts of a topology.

    Parameters
    ----------
    num_groups
        Number of different chassis, racks or pods that nodes name.
    num_parallel_links
        Links beyond the first between the same two nodes in the same direction.
    num_gpu_components
        Sets of GPUs within which every GPU reaches every other; 1 when all do.
    link_classes
        The different kinds of links, fastest first.
    """

    num_gpus: int
    num_switches: int
    num_links: int
    num_groups: int
    num_shared: int
    num_profiles: int
    num_parallel_links: int
    num_gpu_components: int
    link_classes: tuple[LinkClass, ...]

    @property
    def is_strongly_connected(self) -> bool:
        """Whether every GPU reaches every other."""
        return self.num_gpu_components == 1


def summarise(topology: Topology) -> TopologySummary:
    """Count what a topology consists of.

    Examples
    --------
    >>> summary = summarise(Topology.parse("ndv2:chassis=2"))
    >>> summary.num_groups, summary.is_strongly_connected
    (2, True)
    """
    ends = Counter((link.src, link.dst) for link in topology.links)
    classes = Counter(
        (link.bandwidth, link.alpha, link.overhead, link.profile) for link in topology.links
    )
    ordered = sorted(classes.items(), key=lambda item: (-item[0][0], *item[0][1:]))
    return TopologySummary(
        num_gpus=topology.num_gpus,
        num_switches=topology.num_switches,
        num_links=topology.num_links,
        num_groups=len({node.group for node in topology.nodes if node.group is not None}),
        num_shared=len(topology.shared),
        num_profiles=sum(bool(link.profile) for link in topology.links),
        num_parallel_links=topology.num_links - len(ends),
        num_gpu_components=len(set(gpu_components(topology).tolist())),
        link_classes=tuple(
            LinkClass(
                bandwidth=bandwidth, alpha=alpha, overhead=overhead, profile=profile, count=count
            )
            for (bandwidth, alpha, overhead, profile), count in ordered
        ),
    )


def rates_text(bandwidth: Fraction, profile: Profile) -> str:
    """Return what a link carries, with every change over time.

    Examples
    --------
    >>> rates_text(Fraction(10**11), ((Fraction(1, 10**5), Fraction(5 * 10**10)),))
    '100GB/s, 50GB/s from 10us'
    """
    changes = [f"{format_bandwidth(rate)} from {format_duration(at)}" for at, rate in profile]
    return ", ".join([format_bandwidth(bandwidth), *changes])


def gpu_components(topology: Topology) -> npt.NDArray[np.int64]:
    """Label of each rank's component; ranks of one label reach each other in both directions."""
    labels = strong_components(topology.num_nodes, topology.link_src, topology.link_dst)
    return labels[topology.gpus]
