"""Joining: what a GPU sends of a chunk over one link is one passage where switches copy."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from teccl.construct.instance import Instance
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan

Way = tuple[int, ...]


def joined_copies(instance: Instance, plan: Plan) -> Plan:
    """Return a plan of copies in which a GPU sends each chunk once over each of its links.

    Starts are those of one of the rows that were joined, so that they have to be found anew. A plan
    that says which row feeds which stays as it is: a node may receive a chunk twice there, and each
    copy of it goes its own way. So does one whose circuits would slow each other down.
    """
    if plan.feeder is not None:
        return plan
    problem, rows = instance.problem, plan.rows
    if not may_join(instance) or not problem.topology.num_switches:
        return plan
    ways, ends = instance.routes.ways(), problem.topology.link_dst.tolist()
    key = rows[:, 0] * problem.topology.num_nodes + instance.routes.src[rows[:, 1]]
    copies = np.arange(len(rows)) if plan.reduce is None else np.flatnonzero(~plan.reduce)
    order = copies[np.lexsort((rows[copies, 1], key[copies]))]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    joined, known = rows.copy(), dict[Way, list[tuple[int, int]]]()
    # Contributions stay as they are.
    count = int(rows[:, 3].max(initial=-1)) + 1 if len(copies) < len(rows) else 0
    for members in np.split(order, first[1:]) if len(copies) else []:
        routes = tuple(rows[members, 1].tolist())
        if routes not in known:
            known[routes] = _passages([ways[route] for route in routes], ends)
        passage, shared = zip(*known[routes], strict=True)
        joined[members, 3] = np.array(passage) + count
        joined[members, 4] = shared
        count += len(members)
    return replace(plan, rows=joined)


def _passages(ways: Sequence[Way], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Number the passage of each way, and count its first links that are another's, too.

    Ways that part may not meet again: a switch would have the chunk twice.
    """
    found = [(place, 0) for place in range(len(ways))]
    branches: dict[int, list[int]] = {}
    for place in sorted(range(len(ways)), key=lambda place: ways[place]):
        branches.setdefault(ways[place][0], []).append(place)
    for branch in branches.values():
        links = {link for place in branch for link in ways[place]}
        if len({ends[link] for link in links}) < len(links):
            continue
        for before, place in itertools.pairwise(branch):
            pairs = zip(ways[before], ways[place], strict=False)
            shared = next((i for i, (a, b) in enumerate(pairs) if a != b), len(ways[place]))
            found[place] = branch[0], shared
    return found
