"""Reversal: a ReduceScatter is an AllGather over links turned round, run backwards."""

from dataclasses import replace

import numpy as np

from teccl._arrays import IntArray
from teccl.demand import Collective
from teccl.orbit.fabric import Fabric
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import OrbitSchedule, OrbitSends


def transposed(fabric: Fabric) -> Fabric:
    """Turn every link round; orbits keep their places."""
    links = tuple(
        replace(
            link,
            src=link.dst,
            dst=link.src,
            offset=tuple(
                -x % m for x, m in zip(link.offset, fabric.nodes[link.src].moduli, strict=True)
            ),
        )
        for link in fabric.links
    )
    return replace(fabric, links=links)


def mirrored(problem: FabricProblem) -> FabricProblem:
    """Return the AllGather that solves a ReduceScatter when it is run backwards."""
    return replace(problem, fabric=transposed(problem.fabric), collective=Collective.ALLGATHER)


def backwards(problem: FabricProblem, sends: OrbitSends) -> OrbitSends:
    """Run an AllGather of `mirrored` backwards: contributions flow where chunks came from.

    No switch may have copied, for none adds.
    """
    made = OrbitSchedule(problem=mirrored(problem), sends=sends)
    turned = made.sends.copy()
    turned["start_ps"] = made.finish_ps - made.arrival_ps
    turned["link"] = turned_back(problem.fabric, made.sends["link"])
    turned["reduce"] = True
    return turned


def turned_back(fabric: Fabric, links: IntArray) -> IntArray:
    """Links of a fabric by their numbers in the transposed one.

    A link from g to g + d has the number of g here and that of g + d there.
    """
    return _shifted(fabric, links, -1)


def turned_links(fabric: Fabric, links: IntArray) -> IntArray:
    """Links of the transposed fabric by their numbers in the one that is given."""
    return _shifted(fabric, links, 1)


def _shifted(fabric: Fabric, links: IntArray, sign: int) -> IntArray:
    """Links moved by the offset of their orbits, or back."""
    orbit = fabric.link_orbit(links)
    found = np.empty_like(links)
    for number in np.unique(orbit).tolist():
        rows, lattice = orbit == number, fabric.link_lattices[number]
        base, offset = fabric.link_base[number], [sign * x for x in fabric.links[number].offset]
        found[rows] = base + lattice.image(links[rows] - base, lattice, offset)
    return found
