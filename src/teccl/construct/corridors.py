"""Corridors: what the ways between the same switches have in common.

The ways through a switch are as many as the pairs of its GPUs, but each is one link into it and one
out of it. Where trees are laid, the cheapest way across is the cheapest of either, which takes time
in proportion to the links and not to the pairs.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray

FloatArray = npt.NDArray[np.float64]


class Corridors(NamedTuple):
    """All corridors of an instance, seen from where trees grow.

    Parameters
    ----------
    near_start, near_node, near_link
        CSR list of the GPUs on the tree's side with their links.
    far_start, far_node, far_link
        The same for those that a tree can be extended to; -1 where the near link leads there.
    inner_start, inner_link
        CSR list of the links between switches.
    route_start, route
        Routes of each corridor, by near and far place.
    touching_start, touching, near_place
        CSR list of the corridors of each node, and its place on their near side, -1 for none.
    """

    near_start: IntArray
    near_node: IntArray
    near_link: IntArray
    far_start: IntArray
    far_node: IntArray
    far_link: IntArray
    inner_start: IntArray
    inner_link: IntArray
    route_start: IntArray
    route: IntArray
    touching_start: IntArray
    touching: IntArray
    near_place: IntArray

    def renumbered(self, num_links: int, num_routes: int) -> "Corridors":
        """Return corridors whose links and routes come after so many others."""
        return self._replace(
            near_link=self.near_link + num_links,
            far_link=np.where(self.far_link >= 0, self.far_link + num_links, -1),
            inner_link=self.inner_link + num_links,
            route=np.where(self.route >= 0, self.route + num_routes, -1),
        )

    def few_branches(self, hold: IntArray, patience: float) -> IntArray:
        """Return how many branches a tree needs by each link for it to have about two levels.

        That is where all branches one after another would take longer than `patience`; there are
        more where few can pass on what many want.
        """
        widths = np.diff(self.near_start), np.diff(self.far_start)
        few = np.ceil(np.maximum(np.sqrt(widths[1]), 2 * widths[1] / np.maximum(widths[0], 1)))
        width, few = (np.repeat(each, widths[0]) for each in (widths[1], few.astype(np.int64)))
        is_long = width * hold[self.near_link] > patience
        found = np.zeros(len(hold), dtype=np.int64)
        np.maximum.at(found, self.near_link[is_long], few[is_long])
        return np.where(found > 0, found, np.iinfo(np.int64).max)


def corridors_of(instance: Instance, *, inward: bool) -> Corridors | None:
    """Sort routes into corridors; None where a pair of one has no route.

    Trees that grow outward are extended along routes, inward ones against them.
    """
    topology, routes = instance.problem.topology, instance.routes
    first = routes.links[routes.link_start[:-1]]
    last = routes.links[routes.link_start[1:] - 1]
    is_direct = np.diff(routes.link_start) == 1
    corridor, inner_start, inner_link = _names(instance, first, is_direct)
    near, far = (last, first) if inward else (first, last)
    near_start, near_link, near_place = _sides(corridor, near)
    far_start, far_link, far_place = _sides(corridor, far)
    widths = np.diff(near_start), np.diff(far_start)
    route_start = np.concatenate([[0], np.cumsum(widths[0] * widths[1])])
    route = np.full(route_start[-1], -1)
    route[route_start[corridor] + near_place * widths[1][corridor] + far_place] = np.arange(
        len(corridor)
    )
    ends = (topology.link_src, topology.link_dst)
    near_node, far_node = ends[inward][near_link], ends[not inward][far_link]
    # A GPU has no way through a switch back to itself; every other pair must have one.
    if len(corridor) != len(route) - _returning(near_start, near_node, far_start, far_node):
        return None
    direct = np.unique(corridor[is_direct])
    far_link[far_start[direct]] = -1
    near_of, far_of = (np.repeat(np.arange(len(w)), w) for w in widths)
    rows = np.concatenate(
        [
            np.stack([near_node, near_of, np.arange(len(near_node))], axis=1),
            np.stack([far_node, far_of, np.full(len(far_node), -1)], axis=1),
        ]
    )
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return Corridors(
        near_start=near_start,
        near_node=near_node,
        near_link=near_link,
        far_start=far_start,
        far_node=far_node,
        far_link=far_link,
        inner_start=inner_start,
        inner_link=inner_link,
        route_start=route_start,
        route=route,
        touching_start=np.searchsorted(rows[:, 0], np.arange(topology.num_nodes + 1)),
        touching=rows[:, 1].copy(),
        near_place=rows[:, 2].copy(),
    )


def single_corridors(instance: Instance) -> Corridors:
    """Return a corridor for each route, touched by where it begins only: paths need no more."""
    topology, routes = instance.problem.topology, instance.routes
    num, one_each = len(routes), np.arange(len(routes) + 1)
    first, last = routes.link_start[:-1], routes.link_start[1:] - 1
    is_inner = np.ones(len(routes.links), dtype=bool)
    is_inner[first] = is_inner[last] = False
    by_src = np.argsort(routes.src, kind="stable")
    return Corridors(
        near_start=one_each,
        near_node=routes.src,
        near_link=routes.links[first],
        far_start=one_each,
        far_node=routes.dst,
        far_link=np.where(last > first, routes.links[last], -1),
        inner_start=np.concatenate([[0], np.cumsum(is_inner)])[routes.link_start],
        inner_link=routes.links[is_inner],
        route_start=one_each,
        route=np.arange(num),
        touching_start=np.searchsorted(routes.src[by_src], np.arange(topology.num_nodes + 1)),
        touching=by_src,
        near_place=by_src,
    )


class Books(NamedTuple):
    """What trees are charged for: all that routes hold, with the links that hold it.

    Parameters
    ----------
    routes
        Length of each route, and a CSR list of what it holds how long.
    slots
        How many may hold each at once.
    links
        The same for links as for routes; holds are shares of all slots.
    holders
        CSR list of the links that hold each.
    """

    routes: tuple[FloatArray, IntArray, IntArray, FloatArray]
    slots: IntArray
    links: tuple[FloatArray, IntArray, IntArray, FloatArray]
    holders: tuple[IntArray, IntArray]

    @staticmethod
    def of(instance: Instance) -> "Books":
        """Return the books of an instance."""
        topology, routes = instance.problem.topology, instance.routes
        number = {name: topology.num_links + i for i, name in enumerate(topology.shared)}
        held = [
            [e, *(number[name] for name in link.shares)] for e, link in enumerate(topology.links)
        ]
        start = np.concatenate([[0], np.cumsum([len(each) for each in held])])
        res = np.array([one for each in held for one in each], dtype=np.int64)
        hold = instance.hold[np.repeat(np.arange(len(held)), np.diff(start))].astype(np.float64)
        if not topology.shared:
            # Routes of a quotient hold orbits of links, for as long as all of an orbit together.
            res[routes.links], hold[routes.links] = routes.res, routes.res_hold
        length = (instance.hold + instance.latency).astype(np.float64)
        return Books(
            routes=(
                routes.length.astype(np.float64),
                routes.res_start,
                routes.res,
                routes.res_hold.astype(np.float64),
            ),
            slots=instance.slots,
            links=(length, start, res, hold / instance.slots[res]),
            holders=_holders(start, res, instance.num_resources),
        )

    def by_phase(self, tolerance: float) -> "Books":
        """Return books that also balance each of two phases, so that these can follow each other.

        What the first holds is numbered after what both hold, then comes the second's; routes and
        links of the second are numbered after those of the first. Half of the time is left to each,
        and so much more.
        """
        num, factor = len(self.slots), 2 / (1 + tolerance)
        link_start, link_res, link_hold = _by_phase(*self.links[1:], num, factor)
        return Books(
            routes=(np.tile(self.routes[0], 2), *_by_phase(*self.routes[1:], num, factor)),
            slots=np.tile(self.slots, 1 + 2),
            links=(np.tile(self.links[0], 2), link_start, link_res, link_hold),
            holders=_holders(link_start, link_res, (1 + 2) * num),
        )


def _by_phase(
    start: IntArray, res: IntArray, hold: FloatArray, num: int, factor: float
) -> tuple[IntArray, IntArray, FloatArray]:
    """List what is held twice, each time with what only that phase holds."""
    both = np.stack([res, res + num]), np.stack([res, res + 2 * num])
    return (
        np.concatenate([2 * start, 2 * (start[1:] + start[-1])]),
        np.concatenate([each.T.reshape(-1) for each in both]),
        np.tile(np.stack([hold, factor * hold]).T.reshape(-1), 2),
    )


def _holders(start: IntArray, res: IntArray, num: int) -> tuple[IntArray, IntArray]:
    """CSR list of what holds each resource."""
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    by_res = np.argsort(res, kind="stable")
    return np.searchsorted(res[by_res], np.arange(num + 1)), owner[by_res]


def _names(
    instance: Instance, first: IntArray, is_direct: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Corridor of each route, and the links between switches of each corridor."""
    routes = instance.routes
    count = np.diff(routes.link_start)
    names = np.full((len(routes), 1 + max(0, int(count.max(initial=0)) - 2)), -1)
    # A link between GPUs is a corridor of its own, named below those that begin with a switch.
    names[:, 0] = np.where(is_direct, -1 - first, instance.problem.topology.link_dst[first])
    for place in range(1, names.shape[1]):
        has = np.flatnonzero(count > place + 1)
        names[has, place] = routes.links[routes.link_start[has] + place]
    found, corridor = np.unique(names, axis=0, return_inverse=True)
    inner = found[:, 1:]
    inner_start = np.concatenate([[0], np.cumsum((inner >= 0).sum(axis=1))])
    return corridor.reshape(-1), inner_start, inner[inner >= 0]


def _sides(corridor: IntArray, link: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """CSR list of each corridor's links on one side, and every route's place in its own."""
    beyond = int(link.max()) + 1
    names, number = np.unique(corridor * beyond + link, return_inverse=True)
    start = np.searchsorted(names // beyond, np.arange(int(corridor.max()) + 2))
    return start, names % beyond, number - start[corridor]


def _returning(
    near_start: IntArray, near_node: IntArray, far_start: IntArray, far_node: IntArray
) -> int:
    """Number of pairs of a corridor's ends that are one GPU."""
    beyond = int(max(near_node.max(), far_node.max())) + 1
    numbers = np.arange(len(near_start) - 1)
    near, far = (
        np.unique(np.repeat(numbers, np.diff(start)) * beyond + node, return_counts=True)
        for start, node in ((near_start, near_node), (far_start, far_node))
    )
    _, a, b = np.intersect1d(near[0], far[0], assume_unique=True, return_indices=True)
    return int((near[1][a] * far[1][b]).sum())
