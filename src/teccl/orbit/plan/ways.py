"""Ways: how data gets from a GPU to the next, straight or through switches, orbit by orbit.

A *way* is one link orbit between GPUs, or a *rise* of link orbits to switches of some level and a
*fall* from there. In the quotient it uses each of its link orbits as one resource. A straight way
takes a GPU to one other; a way through switches joins the GPUs of a *hub*: those of one switch, or
all *blocks* that switches of a higher level join, each a hub one level lower.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from teccl._arrays import IntArray, ints
from teccl.errors import MethodError
from teccl.orbit.fabric import MAX_ORBITS, Fabric
from teccl.orbit.plan.climbs import Climb, Hubs, climbs
from teccl.orbit.problem import FabricProblem
from teccl.units import picoseconds


@dataclass(frozen=True, kw_only=True)
class Ways:
    """All ways of a fabric over links that no element of the group leaves in place.

    Parameters
    ----------
    fabric
        The network.
    steps
        By way, its link orbits in order, -1 after the last.
    held, alpha
        Picoseconds for which a chunk holds each link orbit, and its latency.
    target
        By way and rank, the rank that a straight way leads to, -1 where none.
    entered, left
        By way and rank, the hub that a way through switches enters from there, and the one that it
        leaves to get there, -1 where none.
    block
        By way and rank, the part of the hub it belongs to: a way leads from one block to another.
    rises, falls
        By way, links from the ranks upwards and down to them; none where it is straight.
    num_hubs
        Hubs are numbered from 0 on.
    """

    fabric: Fabric
    steps: IntArray
    held: IntArray
    alpha: IntArray
    target: IntArray
    entered: IntArray
    left: IntArray
    block: IntArray
    rises: tuple[Climb | None, ...]
    falls: tuple[Climb | None, ...]
    num_hubs: int

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def is_straight(self) -> "np.typing.NDArray[np.bool_]":
        """By way, whether it is one link between GPUs."""
        return ints([fall is None for fall in self.falls]).astype(bool)

    @cached_property
    def lags(self) -> IntArray:
        """By way and step, picoseconds from the start until its link is used."""
        took = np.where(self.steps < 0, 0, (self.held + self.alpha)[self.steps])
        return np.cumsum(took, axis=1) - took

    @cached_property
    def length(self) -> IntArray:
        """By way, picoseconds from its start until the far end has the chunk."""
        took: IntArray = np.where(self.steps < 0, 0, (self.held + self.alpha)[self.steps])
        return took.sum(axis=1)

    @cached_property
    def holds(self) -> IntArray:
        """By way, picoseconds for which a chunk holds all of its links together."""
        held: IntArray = np.where(self.steps < 0, 0, self.held[self.steps])
        return held.sum(axis=1)

    @property
    def figures(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """What compiled loops take of ways; see `kernels.grow`."""
        return self.steps, self.lags, self.length, self.held

    def links(self, way: int, source: IntArray, rank: IntArray) -> Iterator[IntArray]:
        """Yield the links of each step of a way between pairs of ranks."""
        rise, fall = self.rises[way], self.falls[way]
        if rise is None or fall is None:
            table = np.full(self.fabric.num_gpus, -1, dtype=np.int64)
            links = self.fabric.links_of(int(self.steps[way, 0]))
            table[self.fabric.link_ends(links)[0]] = links
            yield table[source]
            return
        yield from rise.links(self.fabric, source)
        yield from reversed(list(fall.links(self.fabric, rank)))

    @staticmethod
    def of(problem: FabricProblem) -> "Ways":
        """Find the ways of a problem's fabric.

        Raises
        ------
        MethodError
            If links share capacities, which are no matter of single links.
        """
        if problem.fabric.shared:
            raise MethodError("links share capacities, which orbits are not planned with")
        fabric, size = problem.fabric, problem.chunk_bytes
        routes = _routes(fabric)
        steps = np.full((len(routes), max((len(r.orbits) for r in routes), default=1)), -1)
        for row, route in zip(steps, routes, strict=True):
            row[: len(route.orbits)] = route.orbits
        held = [
            picoseconds(link.overhead) + picoseconds(size / fabric.rate(link))
            for link in fabric.links
        ]
        shape = len(routes), fabric.num_gpus
        return Ways(
            fabric=fabric,
            steps=steps,
            held=ints(held),
            alpha=ints([picoseconds(link.alpha) for link in fabric.links]),
            target=_targets(fabric, routes),
            entered=np.array([r.entered for r in routes], dtype=np.int64).reshape(shape),
            left=np.array([r.left for r in routes], dtype=np.int64).reshape(shape),
            block=np.array([r.block for r in routes], dtype=np.int64).reshape(shape),
            rises=tuple(route.rise for route in routes),
            falls=tuple(route.fall for route in routes),
            num_hubs=1 + max((int(max(r.entered.max(), r.left.max())) for r in routes), default=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """One way: its link orbits and, where it is not straight, how it rises and falls."""

    orbits: tuple[int, ...]
    entered: IntArray
    left: IntArray
    block: IntArray
    rise: Climb | None = None
    fall: Climb | None = None


def _routes(fabric: Fabric) -> list[_Route]:
    """Ways through most switches first: who is far away must not wait for who is near."""
    order = fabric.group.order
    free = [i for i, x in enumerate(fabric.link_lattices) if x.order == order]
    nobody = np.full(fabric.num_gpus, -1, dtype=np.int64)
    straight = [
        _Route(orbits=(i,), entered=nobody, left=nobody, block=nobody)
        for i in free
        if not fabric.nodes[fabric.links[i].src].is_switch
        and not fabric.nodes[fabric.links[i].dst].is_switch
    ]
    rises, falls = climbs(fabric, free, is_fall=False), climbs(fabric, free, is_fall=True)
    pairs = [
        (a, b) for a in rises for b in falls if a.apex == b.apex and len(a.orbits) == len(b.orbits)
    ]
    if len(pairs) > MAX_ORBITS:
        raise MethodError(
            f"{fabric.name}: {len(pairs)} ways through switches are too many to plan with; "
            "plan it without orbits"
        )
    hubs = Hubs(fabric, free)
    through = [route for a, b in pairs if (route := _through(hubs, a, b)) is not None]
    through.sort(key=lambda route: -len(route.orbits))
    high = [route for route in through if len(route.orbits) > 2]
    return [*high, *straight, *(route for route in through if len(route.orbits) == 2)]


def _through(hubs: Hubs, rise: Climb, fall: Climb) -> _Route | None:
    """Return the way of a rise and a fall, None where it joins nobody or not all of its hubs."""
    if len(rise.orbits) == 1:
        return _Route(
            orbits=(*rise.orbits, *fall.orbits),
            entered=rise.switches(hubs.fabric),
            left=fall.switches(hubs.fabric),
            block=np.arange(hubs.fabric.num_gpus),
            rise=rise,
            fall=fall,
        )
    found = hubs.of(rise, fall)
    if found is None:
        return None
    rise, fall, hub, block = found
    return _Route(
        orbits=(*rise.orbits, *fall.orbits[::-1]),
        entered=np.where(rise.tables[0][: len(hub)] < 0, -1, hub),
        left=np.where(fall.tables[0][: len(hub)] < 0, -1, hub),
        block=block,
        rise=rise,
        fall=fall,
    )


def _targets(fabric: Fabric, routes: list[_Route]) -> IntArray:
    """By way and rank, where a straight way leads."""
    tables = np.full((len(routes), fabric.num_gpus), -1, dtype=np.int64)
    for row, route in zip(tables, routes, strict=True):
        if route.rise is None:
            src, dst = fabric.link_ends(fabric.links_of(route.orbits[0]))
            row[src] = dst
    return tables
