"""What a planner keeps of a topology: its passages and the routes to choose from."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np

from teccl.construct.instance import Instance, starts_of, without_long_ways
from teccl.construct.params import STEPS
from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.exchange.tables import Choices, IntArray, PassageTable
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.units import PICOSECONDS

# Routes between two GPUs that are looked for: one for each rail of an eight-rail node, and spares.
ROUTES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageNetwork:
    """A topology as compiled code sees it.

    Parameters
    ----------
    topology
        The network itself.
    fabric
        Its passages and what they hold.
    choices
        Routes between GPUs, by rank.
    rank
        Rank of each node, -1 for switches.
    num_resources
        Links and shared capacities.
    longest
        Passages of the longest route.
    mean_hops
        Links of the route of least latency between two GPUs, in the mean.
    """

    topology: Topology
    fabric: PassageTable
    choices: Choices
    rank: IntArray
    num_resources: int
    longest: int
    mean_hops: float

    @staticmethod
    def of(topology: Topology) -> "PassageNetwork":
        """Find the passages and routes of a topology.

        Raises
        ------
        MethodError
            If rates change over time, which calendars of plain lengths do not know.
        """
        from teccl.exchange.choosing import find_routes

        if topology.has_profiles:
            raise MethodError(
                f"{topology.name}: bandwidths change over time, which a planner does not know; "
                "use teccl.solve"
            )
        fabric, begin, end, rank = _fabric(topology)
        fan, fan_start = np.argsort(begin, kind="stable"), starts_of(begin, topology.num_gpus)
        per_byte = [float(PICOSECONDS / rate) for rate in topology.rates]
        pair_start, route_start, ways = find_routes(
            fabric.way_start,
            fabric.links,
            begin,
            end,
            fan_start,
            fan,
            topology.num_gpus,
            (topology.alpha_ps + topology.overhead_ps).astype(float),
            np.array(per_byte),
            ROUTES,
        )
        return PassageNetwork(
            topology=topology,
            fabric=fabric,
            choices=Choices(
                pair_start, route_start, ways, begin, end, fan_start, fan, topology.num_gpus
            ),
            rank=rank,
            num_resources=topology.num_links + len(topology.shared),
            longest=int(np.diff(route_start).max(initial=1)),
            mean_hops=_mean_hops(fabric, pair_start, route_start, ways),
        )


def _mean_hops(
    fabric: PassageTable, pair_start: IntArray, route_start: IntArray, ways: IntArray
) -> float:
    """Return how many links the first route of a pair has, in the mean over pairs that have one."""
    first = pair_start[:-1][np.diff(pair_start) > 0]
    hops = np.concatenate([[0], np.cumsum(np.diff(fabric.way_start)[ways])])
    return (
        float((hops[route_start[first + 1]] - hops[route_start[first]]).mean())
        if len(first)
        else 1.0
    )


def search_work(topology: Topology) -> int:
    """Units of finding all routes, by the passages through the first switch; see params."""
    gpus = topology.num_gpus
    degree = np.bincount(topology.link_src, minlength=topology.num_nodes)
    through = degree[topology.link_dst[np.isin(topology.link_src, topology.gpus)]]
    return gpus * gpus * ROUTES * int(np.maximum(1, through).sum()) // STEPS


def _fabric(topology: Topology) -> tuple[PassageTable, IntArray, IntArray, IntArray]:
    """List the passages of a topology, and the ranks at their ends and of all nodes."""
    every = Demand.collective("alltoall", size=Fraction(topology.num_gpus))
    instance = Instance.build(Problem(topology=topology, demand=every))
    ways = without_long_ways(instance).routes.ways()
    start = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    links = np.array(list(chain.from_iterable(ways)), dtype=np.int64)
    number = {name: topology.num_links + i for i, name in enumerate(topology.shared)}
    held = [[e, *(number[name] for name in link.shares)] for e, link in enumerate(topology.links)]
    counts = [len(each) for each in held]
    rank = np.full(topology.num_nodes, -1, dtype=np.int64)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    fabric = PassageTable.of(
        start,
        links,
        kind=topology.link_kind,
        alpha=topology.alpha_ps,
        res_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        res=np.array(list(chain.from_iterable(held)), dtype=np.int64),
    )
    begin = rank[topology.link_src[links[start[:-1]]]]
    end = rank[topology.link_dst[links[start[1:] - 1]]]
    return fabric, begin, end, rank
