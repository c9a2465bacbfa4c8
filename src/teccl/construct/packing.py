"""Compiled packing of spanning trees: as many from each root as it has shares, in whole numbers.

A tree that stands for several alike grows by one arc at a time. An arc may be taken by as many of
them as leaves room for all other trees, which a flow tells (Edmonds' theorem in the form of Berczi
and Frank for trees that have begun); the others stay behind and grow on by themselves.
"""

import numpy as np

from teccl._kernels import kernel
from teccl.construct.flows import push_flow


@kernel
def _room(free, wanted, behind, inside, tail, head, most):
    """How many trees alike may take an arc, at most so many, for all others to find room.

    Every set of nodes with the head but without the tail must have room left for all other trees
    that have no node in it: a flow from the tail to the head, with an arc to where each other tree
    is, is that much larger than their number.
    """
    count, copies = len(free), len(behind)
    rest = np.zeros((count + copies, count + copies), dtype=np.int64)
    rest[:count, :count] = free
    total = 0
    for root in range(count):
        total += wanted[root]
        if root != tail:
            rest[tail, root] += wanted[root]
    for i in range(copies):
        total += behind[i]
        rest[tail, count + i] = behind[i]
        for node in range(count):
            if inside[i, node]:
                rest[count + i, node] = behind[i]
    return push_flow(rest, tail, head, total + most) - total


@kernel
def _next_arc(free, cost, inside, arrival, is_dead):
    """Return the arc out of a tree that ends first, of equal ones that with most room, or -1."""
    best_tail, best_head = -1, -1
    for tail in range(len(free)):
        if not inside[tail]:
            continue
        for head in range(len(free)):
            if inside[head] or free[tail, head] == 0 or is_dead[tail, head]:
                continue
            if best_tail >= 0:
                ends = arrival[tail] + cost[tail, head]
                best = arrival[best_tail] + cost[best_tail, best_head]
                if ends > best or (ends == best and free[tail, head] <= free[best_tail, best_head]):
                    continue
            best_tail, best_head = tail, head
    return best_tail, best_head


@kernel
def pack_trees(capacity, wanted, is_member, cost):
    """Return trees that share the capacities: parents of all nodes (-1 for none), and how many.

    Both are arrays: Python would compile how it reads a list of numba's, in every process anew.

    Parameters
    ----------
    capacity
        Of arcs between members; must have room for all trees.
    wanted
        Per node, how many trees begin there.
    is_member
        Nodes that each tree must reach.
    cost
        Of arcs: time that a hop takes, by which trees are kept short.
    """
    count = len(capacity)
    free, wanted = capacity.copy(), wanted.copy()
    size = is_member.sum()
    # As many rows as trees at most; `grown` of them are.
    parents = np.full((wanted.sum(), count), -1, dtype=np.int64)
    number = np.zeros(len(parents), dtype=np.int64)
    grown = 0
    for root in range(count):
        # Trees that began like others and stay behind; the last one grows.
        amount = wanted[root]
        wanted[root] = 0
        behind = np.array([amount], dtype=np.int64)
        inside = np.zeros((1, count), dtype=np.bool_)
        inside[0, root] = True
        arrival = np.zeros((1, count), dtype=np.int64)
        parent = np.full((1, count), -1, dtype=np.int64)
        is_dead = np.zeros((1, count, count), dtype=np.bool_)
        while amount and len(behind):
            last = len(behind) - 1
            if (inside[last] & is_member).sum() == size:
                parents[grown] = parent[last]
                number[grown] = behind[last]
                grown += 1
                behind, inside, arrival = behind[:last], inside[:last], arrival[:last]
                parent, is_dead = parent[:last], is_dead[:last]
                continue
            tail, head = _next_arc(free, cost, inside[last], arrival[last], is_dead[last])
            if tail < 0:
                return parents[:grown], number[:grown]
            most = min(free[tail, head], behind[last])
            part = _room(free, wanted, behind[:last], inside[:last], tail, head, most)
            if part <= 0:
                is_dead[last, tail, head] = True
                continue
            if part < behind[last]:
                behind = np.append(behind, part)
                behind[last] -= part
                inside = np.concatenate((inside, inside[last:].copy()))
                arrival = np.concatenate((arrival, arrival[last:].copy()))
                parent = np.concatenate((parent, parent[last:].copy()))
                is_dead = np.concatenate((is_dead, is_dead[last:].copy()))
                last += 1
            free[tail, head] -= part
            inside[last, head] = True
            parent[last, head] = tail
            arrival[last, head] = arrival[last, tail] + cost[tail, head]
    return parents[:grown], number[:grown]
