"""Trees and paths for any demand, laid so that no link is overloaded, as tasks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.corridors import Books, corridors_of
from teccl.construct.instance import Instance, IntArray, concatenated_ranges
from teccl.construct.multicast import Tables
from teccl.construct.params import PASSES, PHASE_TOLERANCE, RESERVE, STEEPNESS, TIME_PRICE
from teccl.construct.passages import leads, may_join, with_passages
from teccl.construct.paths import laid_paths
from teccl.construct.plan import Plan, single_rows
from teccl.problem import Problem
from teccl.reachability import Reach

FloatArray = npt.NDArray[np.float64]


def laid_plan(
    instance: Instance,
    tables: Tables,
    *,
    target: float,
    seed: int = 0,
    steepness: float = STEEPNESS,
    passes: int = PASSES,
    length_weight: float = TIME_PRICE,
    join: bool = False,
    stretch: float = np.inf,
) -> Plan | None:
    """Lay trees for every chunk, without times; None when some destination is out of reach.

    Copies get a tree from their source to all destinations, reductions one from all sources to
    their destination; where several want the result they get both, through a root, which may move
    where those are the sources themselves.

    Parameters
    ----------
    target
        Load to aim at, such as a lower bound.
    steepness
        How fast prices grow as loads come near the target; zero ignores loads.
    length_weight
        Price of time on the way, against that of load.
    join
        Whether a copy may leave a switch by several links at once, where the problem allows it.
    stretch
        How much longer than the longest of the shortest trees a balanced one may be.
    """
    join = join and may_join(instance)
    weights = (length_weight, target, steepness, passes, seed, stretch)
    kinds = kinds_of(instance.problem)
    if kinds is None:
        return None
    # Sums with their contributions first: they have fewer ways to go than what is only copied.
    parts: list[Plan] = []
    base = np.zeros(instance.num_resources)
    for kind in reversed(kinds):
        part = _laid(instance, tables, kind, weights, base, join=join)
        if part is None:
            return None
        parts.append(part)
        base += _loads(instance, part)
    plan = all_parts(parts[::-1])
    return with_passages(instance, plan) if join else plan


def plan_across(
    instance: Instance,
    *,
    target: float,
    seed: int = 0,
    steepness: float = STEEPNESS,
    passes: int = PASSES,
    length_weight: float = TIME_PRICE,
    enough: float = 0.0,
    patience: float = np.inf,
    urgent: Sequence[int] = (),
) -> Plan | None:
    """Lay trees as `laid_plan` does, where each way through a switch is a transfer of its own.

    Where the branches by a link would take longer than `patience` one after another, trees have
    few; `urgent` nodes hang near the root. None where that cannot be, because trees would need GPUs
    that take no part, more branches, or too many ways.
    """
    weights = (length_weight, target, steepness, passes, seed, enough)
    parts = []
    for kind in kinds_of(instance.problem) or ():
        part = _laid_across(instance, kind, weights, patience, urgent)
        if part is None:
            return None
        parts.append(part)
    return all_parts(parts) if parts else None


class Kind(NamedTuple):
    """Chunks that get trees of one kind.

    `root` is where each tree begins or ends and `goal` the set of nodes it spans; `paired` adds a
    tree back out to the same set, through a root that may move.
    """

    chunks: IntArray
    root: IntArray
    goal: IntArray
    reduce: bool
    paired: bool = False


def kinds_of(problem: Problem) -> list[Kind] | None:
    """Return chunks by the trees they need; None where no place serves for making a sum."""
    table = problem.chunks
    copies = np.flatnonzero(~table.reduce)
    sums = np.flatnonzero(table.reduce & (table.source_set != table.destination_set))
    returning = np.flatnonzero(table.reduce & (table.source_set == table.destination_set))
    # Of several that want a sum they take turns in being where it is made.
    ends = table.destination_set[sums]
    reach = Reach(problem.topology)
    leaders = {end: reach.leaders(table.sets[end].tolist()) for end in np.unique(ends).tolist()}
    if not all(leaders.values()):
        return None
    makers = _by_turns(leaders, ends)
    spread = np.array([len(nodes) for nodes in table.sets])[ends] > 1
    sets = {number: nodes.tolist() for number, nodes in enumerate(table.sets)}
    owners = np.array([sets[end][0] for end in table.source_set[copies].tolist()], dtype=np.int64)
    back = table.source_set[returning]
    kinds = (
        Kind(copies, owners, table.destination_set[copies], False),
        Kind(sums, makers, table.source_set[sums], True),
        Kind(sums[spread], makers[spread], ends[spread], False),
        Kind(returning, _by_turns(sets, back), back, True, True),
    )
    return [kind for kind in kinds if len(kind.chunks)]


def _by_turns(sets: dict[int, list[int]], which: IntArray) -> IntArray:
    """One node of each of some sets, by turns."""
    numbers = which.tolist()
    found = [sets[number][turn % len(sets[number])] for turn, number in enumerate(numbers)]
    return np.array(found, dtype=np.int64)


def _laid(
    instance: Instance,
    tables: Tables,
    kind: Kind,
    weights: tuple[float, float, float, int, int, float],
    base: FloatArray,
    *,
    join: bool,
) -> Plan | None:
    """Lay the trees of a kind of chunks beside a load that is there already."""
    from teccl.construct.routing import lay_trees

    problem, routes = instance.problem, instance.routes
    if (
        not kind.reduce
        and not base.any()
        and max(len(problem.chunks.sets[goal]) for goal in np.unique(kind.goal)) == 1
    ):
        return _laid_alone(instance, kind, weights)
    n, goals = problem.topology.num_nodes, _goals(problem)
    may_relay = ~problem.topology.is_switch
    # Where everyone is a goal the whole tree should be cheap; else each branch a cheap path.
    blend = np.where(goals[:, may_relay].all(axis=1), 0.0, 1.0)
    by_dst = np.argsort(routes.dst, kind="stable")
    trees, _, peak = lay_trees(
        kind.root,
        kind.goal,
        goals,
        may_relay,
        not kind.reduce,
        kind.paired,
        routes.src,
        routes.dst,
        routes.length,
        *leads(instance, join=join),
        routes.res_start,
        routes.res,
        routes.res_hold,
        instance.slots,
        tables.out_start,
        tables.out_routes,
        np.searchsorted(routes.dst[by_dst], np.arange(n + 1)),
        by_dst,
        blend,
        base,
        *weights,
    )
    if not np.isfinite(peak):
        return None
    return tree_plan(kind, trees)


def _loads(instance: Instance, plan: Plan) -> FloatArray:
    """Time for which a plan holds each resource, by what that can hold at once."""
    routes, route = instance.routes, plan.rows[:, 1]
    entry = concatenated_ranges(routes.res_start[route], routes.res_start[route + 1])
    held = routes.res_hold[entry] / instance.slots[routes.res[entry]]
    return np.bincount(routes.res[entry], held, minlength=instance.num_resources).astype(float)


def _laid_alone(
    instance: Instance,
    kind: Kind,
    weights: tuple[float, float, float, int, int, float],
) -> Plan | None:
    """Lay a path for each chunk that one node wants."""
    length_weight, target, steepness, passes, seed, stretch = weights
    ends = np.array([nodes[0] for nodes in instance.problem.chunks.sets])
    paths = laid_paths(
        instance,
        (kind.chunks, kind.root, ends[kind.goal]),
        target=target,
        seed=seed,
        steepness=steepness,
        passes=passes,
        length_weight=length_weight,
        stretch=stretch,
    )
    if paths is None:
        return None
    rows = single_rows(np.repeat(paths.chunk, np.diff(paths.start)), paths.route)
    return Plan(rows=rows, reduce=np.zeros(len(rows), dtype=bool))


def _laid_across(
    instance: Instance,
    kind: Kind,
    weights: tuple[float, float, float, int, int, float],
    patience: float,
    urgent: Sequence[int],
) -> Plan | None:
    """Lay trees in which every branch pays for the links it takes; None where that cannot be."""
    from teccl.construct.growing import lay_across

    inward, outward = (corridors_of(instance, inward=inward) for inward in (True, False))
    if inward is None or outward is None:
        return None
    books, num_routes = Books.of(instance), len(instance.routes)
    reserved = np.zeros(instance.num_resources)
    if kind.paired:
        reserved[: len(instance.hold)] = RESERVE * instance.hold
        books = books.by_phase(PHASE_TOLERANCE)
        outward = outward.renumbered(instance.problem.topology.num_links, num_routes)
    hold = np.tile(instance.hold, 1 + kind.paired)
    most = np.minimum(*(side.few_branches(hold, patience) for side in (inward, outward)))
    trees, _, peak = lay_across(
        kind.root,
        kind.goal,
        _goals(instance.problem),
        not kind.reduce,
        kind.paired,
        *books,
        tuple(inward),
        tuple(outward),
        *weights,
        reserved,
        most,
        np.array(urgent, dtype=np.int64),
    )
    if not np.isfinite(peak):
        return None
    # What is numbered by phase is a route of the instance all the same.
    return tree_plan(kind, np.where(trees >= 0, trees % num_routes, -1))


def _goals(problem: Problem) -> npt.NDArray[np.bool_]:
    """Whether each node is in each set of nodes that chunks have."""
    goals = np.zeros((len(problem.chunks.sets), problem.topology.num_nodes), dtype=bool)
    for number, nodes in enumerate(problem.chunks.sets):
        goals[number, nodes] = True
    return goals


def tree_plan(kind: Kind, trees: IntArray) -> Plan:
    """Return trees as a plan without times: a route into each node, by chunk and side."""
    inward = [True, False] if kind.paired else [kind.reduce]
    return all_parts(
        [
            _tree_rows(kind.chunks, trees[:, side], reduce=combine)
            for side, combine in enumerate(inward)
        ]
    )


def _tree_rows(chunks: IntArray, via: IntArray, *, reduce: bool) -> Plan:
    tree, node = np.nonzero(via >= 0)
    rows = single_rows(chunks[tree], via[tree, node])
    return Plan(rows=rows, reduce=np.full(len(rows), reduce))


def all_parts(parts: list[Plan]) -> Plan:
    """Return several plans without times as one."""
    rows = np.concatenate([part.rows for part in parts])
    rows[:, 3] = np.arange(len(rows))
    masks = [np.zeros(len(p.rows), dtype=bool) if p.reduce is None else p.reduce for p in parts]
    return Plan(rows=rows, reduce=np.concatenate(masks))
