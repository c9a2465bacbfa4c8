"""Cluster trees: into every cluster once, then on among its GPUs, each piece by other relays.

A piece goes from its root to one GPU of every other cluster, which is a pod, then of every leaf of
that pod, then to all of a leaf; sums come the same way back. Relays take turns, so that no GPU
sends more than others. Where one root has all pieces, each of them first goes to another GPU, and
relays are those that have passed on the least, too, where turns fill some link more than that.
Trees are as shallow as can be, which counts where latencies do.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, product
from operator import itemgetter

import numpy as np

from teccl.construct.corridors import Books
from teccl.construct.filling import fill_both_ways
from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray
from teccl.construct.params import (
    NEVER,
    PASSES,
    PYTHON_UNITS,
    SCARCE,
    STEEPNESS,
    TIME_PRICE,
)
from teccl.construct.passages import may_join, with_passages
from teccl.construct.paths import straight_routes
from teccl.construct.plan import Plan, with_starts
from teccl.construct.route_first import choosing_work, listed_plans, listing_work
from teccl.construct.switch_rounds import Ports, justify_in_rounds
from teccl.construct.tasks import finish_time, precedence, task_tails, tasks_of_plan
from teccl.construct.trees import Kind, all_parts, kinds_of, tree_plan
from teccl.footprint import num_deliveries
from teccl.problem import Problem
from teccl.topology import Topology
from teccl.topology.clusters import partings

Edge = tuple[int, int]


def cluster_tree_work(instance: Instance) -> int:
    """Units of growing all trees, of choosing their routes and of scheduling them by one key."""
    return PYTHON_UNITS * num_deliveries(instance.problem) + choosing_work(instance)


def cluster_tree_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans along such trees; nothing where two GPUs of one have no route."""
    best = NEVER
    for load, plan in sorted(_layings(instance, goal), key=itemgetter(0)):
        if load >= best or not goal.is_worth(best, choosing_work(instance)):
            return
        for timed in chain(
            _matched_plans(instance, plan, goal), listed_plans(instance, plan, goal)
        ):
            best = min(best, timed.finish)
            yield timed


def _matched_plans(instance: Instance, plan: Plan, goal: Goal) -> Iterator[Plan]:
    """Yield a plan whose transfers fill gaps in the order in which rounds match their ports.

    Ports of GPUs are mostly full, and links between switches are not: rounds that know the former
    alone tell which of them belong together. Forests know those of single switches, and nothing
    comes of it where links join GPUs.
    """
    links = np.diff(instance.routes.link_start)
    if instance.grid is not None or links.min(initial=2) < 2 or links.max(initial=0) == 2:
        return
    tasks = tasks_of_plan(instance, plan)
    found = Ports.at_ends(tasks, instance.num_resources)
    if found is None:
        return
    ports, kind = found
    rounds = len(tasks) // max(1, instance.problem.num_gpus)
    goal.begin(
        listing_work(len(tasks), len(tasks.hop_link) / len(tasks)) + rounds * len(ports.hold)
    )
    order = precedence(instance, tasks)
    key = tasks.chunk * (goal.target // max(1, len(instance.problem.chunks)))
    key -= 2 * task_tails(tasks, order)
    start = justify_in_rounds(tasks, ports, kind, key=key, order=order)
    start = fill_both_ways(instance, tasks, key=start, order=order)
    yield with_starts(plan, start, finish_time(tasks, start))


def _layings(instance: Instance, goal: Goal) -> Iterator[tuple[float, Plan]]:
    """Yield trees without times and the load of the fullest resource.

    Few roots would have to send all of their pieces to many, unless they hand them over.
    """
    problem = instance.problem
    kinds = kinds_of(problem) or []
    few = any(len(set(k.root.tolist())) * 2 < len(problem.chunks.sets[k.goal[0]]) for k in kinds)
    # One message to all that are behind a switch costs no more than one to one of them.
    joins = bool(problem.topology.overhead_ps.any()) and may_join(instance)
    manners = ({"hands_over": False}, {"hands_over": True}, {"hands_over": True, "balances": True})
    least = np.inf
    chosen = list(product(manners[: 3 if few else 1], (True, False)[1 - joins :]))
    # GPUs at the same place are the nearest, which counts where data is sent in few messages.
    chosen += [({"hands_over": False, "turns": False}, True)] * (joins and not few)
    for manner, join in chosen:
        goal.begin(PYTHON_UNITS * num_deliveries(problem))
        trees, load = [], 0.0
        for kind in kinds:
            routes, peak = _laid(instance, kind, goal, nearest=join, **manner)
            trees.append(tree_plan(kind, routes))
            load += peak
        # Turns are more regular. What is nearly as full is worth no other trees.
        is_even = "balances" not in manner or load < SCARCE * least
        least = min(least, load)
        if trees and np.isfinite(load) and is_even:
            laid = all_parts(trees)
            # How full joined ways make links is not known before they are joined.
            yield (0.0, with_passages(instance, laid)) if join else (load, laid)


def _nested(topology: Topology) -> list[list[int]]:
    """Return ways to part all nodes, coarse ones first, each of which parts the one before."""
    gpus, kept = topology.gpus, [np.zeros(topology.num_nodes, dtype=np.int64)]
    for label in sorted(partings(topology), key=lambda label: len(np.unique(label[gpus]))):
        finer, coarser = label[gpus], kept[-1][gpus]
        both = np.unique(np.stack([coarser, finer]), axis=1).shape[1]
        if both == len(np.unique(finer)) > len(np.unique(coarser)):
            kept.append(label)
    return [label.tolist() for label in kept[1:]]


def _laid(
    instance: Instance,
    kind: Kind,
    goal: Goal,
    *,
    hands_over: bool,
    nearest: bool,
    balances: bool = False,
    turns: bool = True,
) -> tuple[IntArray, float]:
    """Return the routes of one tree for each chunk, by side and node, and the highest load.

    With `nearest` all go the shortest ways, however full these are; others are as for relays.
    """
    relays = _Relays(_nested(instance.problem.topology), balances=balances, turns=turns)
    tree, edges = _edges(instance.problem, kind, relays, hands_over=hands_over)
    near, far = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    sides = [True, False] if kind.paired else [kind.reduce]
    books = Books.of(instance)
    target, price, steepness = max(1, goal.target), TIME_PRICE, STEEPNESS
    if nearest:
        # No link is fuller than all hops make it: load only tells equal ways, as planes are, apart.
        target, price, steepness = max(1, len(edges) * int(instance.hold.max())), 1.0, TIME_PRICE
    weights = (price, float(target), steepness, PASSES, goal.seed)
    trees = np.full((len(kind.chunks), len(sides), instance.problem.topology.num_nodes), -1)
    load = 0.0
    for side, inward in enumerate(sides):
        ends = (far, near) if inward else (near, far)
        trees[tree, side, far], peak = straight_routes(instance, books, *ends, weights)
        load += peak
    return trees, load


def _edges(
    problem: Problem, kind: Kind, relays: "_Relays", *, hands_over: bool
) -> tuple[IntArray, list[Edge]]:
    """Return the edges of all trees, away from their roots, and which tree each belongs to.

    A root that hands over sends each of its pieces to one GPU, which goes on.
    """
    turns: dict[int, int] = {}
    count: list[int] = []
    edges: list[Edge] = []
    for root, goal in zip(kind.root.tolist(), kind.goal.tolist(), strict=True):
        others = [node for node in problem.chunks.sets[goal].tolist() if node != root]
        turn = turns[root] = turns.get(root, -relays.step) + relays.step
        before, head = len(edges), root
        if hands_over and others:
            head = relays.take(root, others, turn)
            edges.append((root, head))
            others.remove(head)
        _spread(head, others, relays, turn, edges)
        count.append(len(edges) - before)
    return np.repeat(np.arange(len(count)), count), edges


class _Relays:
    """Chooses who passes pieces on: by turns, or whose clusters the fewest pieces have left.

    Without turns it is the same for all pieces of a root.
    """

    def __init__(self, labels: Sequence[list[int]], *, balances: bool, turns: bool = True) -> None:
        self.labels = labels
        self._balances = balances
        self.step = int(turns)
        self._left = [Counter[int]() for _ in (*labels, None)]

    def take(self, head: int, group: Sequence[int], place: int) -> int:
        """Return who gets a piece for a group, which comes from a GPU outside of it."""
        turn = place % len(group)
        if not self._balances:
            return group[turn]
        relay = min((*group[turn:], *group[:turn]), key=self._load)
        self.leave(head, [relay])
        return relay

    def leave(self, head: int, nodes: Sequence[int]) -> None:
        """Note that a GPU sends a piece to others."""
        for node in nodes if self._balances else ():
            self._left[-1][head] += 1
            for label, left in zip(self.labels[::-1], self._left, strict=False):
                left[label[head]] += label[node] != label[head]

    def _load(self, node: int) -> tuple[int, ...]:
        """Pieces that have left a GPU's clusters, the finest first, and the GPU itself."""
        numbers = (*(label[node] for label in self.labels[::-1]), node)
        return tuple(left[number] for left, number in zip(self._left, numbers, strict=True))


def _spread(
    head: int, others: list[int], relays: _Relays, turn: int, edges: list[Edge], *, level: int = 0
) -> None:
    """Add edges from a GPU to one of each other cluster, and on from there to all of its GPUs."""
    if level == len(relays.labels):
        edges += [(head, node) for node in others]
        relays.leave(head, others)
        return
    label = relays.labels[level]
    groups: dict[int, list[int]] = {}
    for node in others:
        groups.setdefault(label[node], []).append(node)
    mine = groups.pop(label[head], [])
    # GPUs at the same place of their clusters pass on to each other, and take turns in that.
    place = turn + sum(node < head for node in mine)
    for group in groups.values():
        relay = relays.take(head, group, place)
        edges.append((head, relay))
        _spread(relay, [n for n in group if n != relay], relays, turn, edges, level=level + 1)
    _spread(head, mine, relays, turn, edges, level=level + 1)
