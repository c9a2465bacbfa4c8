"""Compiled loads: how full links get when ranks that sit somewhere exchange their bytes."""

import numpy as np

from teccl._kernels import kernel

# Part that all loads together count beside the fullest: where that stays the same, less elsewhere
# is better.
_SPREAD = 0.02


@kernel
def cost_of(gpu, src, dst, volume, axis, weight, fabric, choices, routes, seconds, load):
    """Weighted time of all axes: of each the fullest resource, and a little of all of them.

    Parameters
    ----------
    gpu
        GPU of each rank.
    src, dst, volume, axis
        Pairs of ranks, the bytes they exchange and the axis that these belong to, in its order.
    routes
        The route between each two GPUs.
    seconds
        Time that each link takes for a byte.
    load
        Room for the load of each resource.
    """
    total = 0.0
    first = 0
    for a in range(len(weight)):
        load[:] = 0.0
        while first < len(src) and axis[first] == a:
            route = routes[gpu[src[first]], gpu[dst[first]]]
            for w in range(choices.route_start[route], choices.route_start[route + 1]):
                way = choices.ways[w]
                for k in range(fabric.way_start[way], fabric.way_start[way + 1]):
                    link = fabric.links[k]
                    for r in range(fabric.res_start[link], fabric.res_start[link + 1]):
                        load[fabric.res[r]] += volume[first] * seconds[link]
            first += 1
        total += weight[a] * (load.max() + _SPREAD * np.sqrt((load * load).sum()))
    return total


@kernel
def improve(gpu, src, dst, volume, axis, weight, fabric, choices, routes, seconds, load, budget):
    """Exchange two ranks at a time while that is better; returns the cost.

    Stops after so many looks at a placement.
    """
    best = cost_of(gpu, src, dst, volume, axis, weight, fabric, choices, routes, seconds, load)
    looks, is_better = 0, True
    while is_better:
        is_better = False
        for i in range(len(gpu)):
            for j in range(i + 1, len(gpu)):
                if looks >= budget:
                    return best
                looks += 1
                gpu[i], gpu[j] = gpu[j], gpu[i]
                cost = cost_of(
                    gpu, src, dst, volume, axis, weight, fabric, choices, routes, seconds, load
                )
                if cost < best * (1 - 1e-9):
                    best, is_better = cost, True
                else:
                    gpu[i], gpu[j] = gpu[j], gpu[i]
    return best
