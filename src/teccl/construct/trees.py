"""Trees and paths for any demand, laid so that no link is overloaded, as tasks."""

from collections.abc import Iterator

import numpy as np

from teccl.construct.instance import Instance, IntArray
from teccl.construct.multicast import Tables
from teccl.construct.plan import Plan, single_rows


def laid_plan(
    instance: Instance,
    tables: Tables,
    *,
    target: float,
    seed: int = 0,
    steepness: float = 30.0,
    passes: int = 6,
    length_weight: float = 1e-3,
) -> Plan | None:
    """Lay trees for every chunk, without times; None when some destination is out of reach.

    Copies get a tree from their source to all destinations, reductions one from all sources to
    their destination; where everyone wants the result they get both, through a root that may move.

    Parameters
    ----------
    target
        Load to aim at, such as a lower bound.
    steepness
        How fast prices grow as loads come near the target; zero ignores loads.
    length_weight
        Price of time on the way, against that of load.
    """
    parts = []
    for chunks, reduce, paired in _kinds(instance):
        part = _laid(
            instance,
            tables,
            chunks,
            reduce=reduce,
            paired=paired,
            weights=(length_weight, target, steepness, passes, seed),
        )
        if part is None:
            return None
        parts.append(part)
    return _joined(parts)


def _kinds(instance: Instance) -> Iterator[tuple[IntArray, bool, bool]]:
    """Yield chunks by kind, whether they are combined, and whether the result goes back out."""
    table = instance.problem.chunks
    goes_back = table.reduce & (table.source_set == table.destination_set)
    for chunks, reduce, paired in (
        (np.flatnonzero(~table.reduce), False, False),
        (np.flatnonzero(table.reduce & ~goes_back), True, False),
        (np.flatnonzero(goes_back), True, True),
    ):
        if len(chunks):
            yield chunks, reduce, paired


def _laid(
    instance: Instance,
    tables: Tables,
    chunks: IntArray,
    *,
    reduce: bool,
    paired: bool,
    weights: tuple[float, float, float, int, int],
) -> Plan | None:
    from teccl.construct.routing import lay_trees

    problem, routes = instance.problem, instance.routes
    table, n = problem.chunks, problem.topology.num_nodes
    ends = table.destination_set if reduce else table.source_set
    if reduce and not paired and any(len(table.sets[i]) > 1 for i in np.unique(ends[chunks])):
        # Some other set than the sources wants the result: no tree of these kinds serves it.
        return None
    goal = (table.source_set if reduce else table.destination_set)[chunks]
    goals = np.zeros((len(table.sets), n), dtype=bool)
    for number, nodes in enumerate(table.sets):
        goals[number, nodes] = True
    first = np.array([nodes[0] for nodes in table.sets])
    root = first[ends[chunks]]
    if paired:
        counts = goals.sum(axis=1)[goal]
        turn = np.arange(len(chunks)) % counts
        root = np.array([table.sets[g][t] for g, t in zip(goal, turn, strict=True)])
    may_relay = ~problem.topology.is_switch
    # Where everyone is a goal the whole tree should be cheap; else each branch a cheap path.
    blend = 0.0 if bool(goals[np.unique(goal)][:, may_relay].all()) else 1.0
    by_dst = np.argsort(routes.dst, kind="stable")
    trees, _, peak = lay_trees(
        root,
        goal,
        goals,
        may_relay,
        not reduce,
        paired,
        routes.src,
        routes.dst,
        routes.length,
        routes.res_start,
        routes.res,
        routes.res_hold,
        instance.slots,
        tables.out_start,
        tables.out_routes,
        np.searchsorted(routes.dst[by_dst], np.arange(n + 1)),
        by_dst,
        blend,
        *weights,
    )
    if not np.isfinite(peak):
        return None
    inward = [True, False] if paired else [reduce]
    return _joined(
        [_tree_rows(chunks, trees[:, side], reduce=combine) for side, combine in enumerate(inward)]
    )


def _tree_rows(chunks: IntArray, via: IntArray, *, reduce: bool) -> Plan:
    tree, node = np.nonzero(via >= 0)
    rows = single_rows(chunks[tree], via[tree, node])
    return Plan(rows=rows, reduce=np.full(len(rows), reduce))


def _joined(parts: list[Plan]) -> Plan:
    rows = np.concatenate([part.rows for part in parts])
    rows[:, 3] = np.arange(len(rows))
    masks = [np.zeros(len(p.rows), dtype=bool) if p.reduce is None else p.reduce for p in parts]
    return Plan(rows=rows, reduce=np.concatenate(masks))
