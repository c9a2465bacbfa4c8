"""Footprint: about how many sends, bytes and seconds a construction takes, before it begins.

The figures per send were measured with ``benchmarks/scale.py`` and may be off by a factor of two
either way, which is enough for people who wait and for refusing what no memory here could hold.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from teccl.demand import Demand, Tenant
from teccl.problem import Problem

# Bytes and seconds for each send of a multicast and of an exchange, checked and bounded.
MULTICAST_COST = (600, 5e-6)
EXCHANGE_COST = (900, 3e-5)
# By how much an estimate may exceed the memory that is free: it may be too high.
UNCERTAINTY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What constructing a schedule with one chunk size may take."""

    sends: int
    num_bytes: int
    seconds: float

    @staticmethod
    def of_sends(sends: int, cost: tuple[int, float] = MULTICAST_COST) -> "Footprint":
        """Return what so many sends take at some bytes and seconds each."""
        return Footprint(sends=sends, num_bytes=sends * cost[0], seconds=sends * cost[1])

    def __str__(self) -> str:
        size = f"{self.num_bytes / 1e9:.1f} GB"
        return f"about {self.sends:.2g} sends, {size} of memory and {self.seconds:.0f} s"


def construction_footprint(problem: Problem) -> Footprint:
    """Estimate what constructing a schedule takes."""
    table, topology = problem.chunks, problem.topology
    sizes = np.array([len(nodes) for nodes in table.sets])
    is_multicast = bool(
        (sizes[table.destination_set] > 1).any() or (sizes[table.source_set] > 1).any()
    )
    if is_multicast:
        # A passage through a switch is two sends, and a sum that goes back out is sent twice.
        phases = 2 if (table.reduce & (table.source_set == table.destination_set)).any() else 1
        sends = num_deliveries(problem) * phases * (2 if topology.num_switches else 1)
    else:
        sends = int(len(table) * _mean_hops(problem))
    return Footprint.of_sends(sends, MULTICAST_COST if is_multicast else EXCHANGE_COST)


def least_sends(demand: Demand, num_gpus: int) -> int:
    """Sends without which nothing is delivered, before any table of chunks is made."""
    return sum(_tenant_sends(tenant, num_gpus) for tenant in demand.tenants)


def _tenant_sends(tenant: Tenant, num_gpus: int) -> int:
    if tenant.matrix is not None:
        return sum(1 for row in tenant.matrix for cell in row if cell)
    if tenant.chunks is not None:
        return sum(len(set(c.destinations) - set(c.sources)) for c in tenant.chunks)
    others = len(tenant.members(num_gpus)) - 1
    return others if tenant.collective.has_root else others * (others + 1)


def num_deliveries(problem: Problem) -> int:
    """Nodes that chunks are brought to, or collected from, all chunks together."""
    table = problem.chunks
    sizes = np.array([len(nodes) for nodes in table.sets])
    return int(np.maximum(sizes[table.destination_set], sizes[table.source_set]).sum())


def _mean_hops(problem: Problem) -> float:
    """Links on the way from the first GPU to another, on average over those it reaches."""
    topology = problem.topology
    hops = np.full(topology.num_nodes, -1)
    hops[topology.gpus[0]] = 0
    for step in range(1, topology.num_nodes):
        leaving = hops[topology.link_src] == step - 1
        reached = topology.link_dst[leaving]
        reached = reached[hops[reached] < 0]
        if not len(reached):
            break
        hops[reached] = step
    found = hops[topology.gpus]
    return float(found[found > 0].mean()) if (found > 0).any() else 1.0


def free_memory() -> float:
    """Bytes that may be taken without pushing others out, infinite where nobody knows."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return float(kilobytes) * 1024
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError):
        return float("inf")
