"""Constructions: which of them serve a problem, in the order in which they are tried."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from teccl.construct.cluster_trees import cluster_tree_plans, cluster_tree_work
from teccl.construct.compositions import (
    at_mean_rates,
    may_change_rates,
    mean_rate_plans,
    regime_plans,
    steady,
)
from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans, insertion_work
from teccl.construct.insertion import refusal as insertion_refusal
from teccl.construct.instance import Instance
from teccl.construct.multicasts import greedy_work, multicast_plans
from teccl.construct.params import NEVER
from teccl.construct.pipelines import may_be_piped, pipeline_work, pipelined_plans
from teccl.construct.plan import Plan
from teccl.construct.restricted import goal_sets, only_combines, rigid_plans
from teccl.construct.reversal import can_reverse, reducing_switches
from teccl.construct.rigid_trees import (
    may_be_rigid,
    rigid_tree_plans,
    unpaused_tree_plans,
    unpaused_work,
)
from teccl.construct.ring_order import cluster_ring_plans, widest_ring_plans
from teccl.construct.route_first import choosing_work, routed_plans, routing_work, separate_plans
from teccl.construct.sums import composed_plans, in_network_plans, reduction_plans
from teccl.construct.symmetry import (
    find_group,
    fits_quotient,
    free_group,
    is_symmetric_demand,
    plans_in_quotient,
)
from teccl.construct.tenants_apart import apart_plans, apart_work, favoured_plan, shares_fabric
from teccl.construct.trains import is_staged_exchange, train_plans, train_work
from teccl.construct.transshipped import flow_plans, flow_work, has_one_end
from teccl.construct.trimming import may_be_trimmed, trimmed_trains, trimmed_work
from teccl.demand import Collective
from teccl.demand.tenants import MAKESPAN_PART
from teccl.units import PICOSECONDS


class Construction(NamedTuple):
    """A way to construct plans, the instances that it serves, and what one run of it takes."""

    name: str
    serves: Callable[[Instance], bool]
    work: Callable[[Instance], int]
    plans: Callable[[Instance, Goal], Iterator[Plan]]


def construct(instance: Instance, goal: Goal) -> Iterator[Plan]:
    """Yield plans for an instance, each better than the ones before, or about as good for tenants.

    Where rates change, those whose times hold are compared with each other, others apart.
    Every construction that serves may have two runs, if the gap is worth them, or an equal share of
    the work that is left when its turn comes. Those that were ahead before go first; what more
    chunks will make of them is no reason to try others.
    """
    best: dict[str, int] = {}
    earliest = {True: goal.known, False: NEVER}
    promised = goal.known
    is_estimated = instance.problem.topology.has_profiles
    # Of several tenants' plans that end together one may serve the important tenant sooner.
    tied = len(instance.problem.demand.tenants) > 1
    serving = [c for c in CONSTRUCTIONS if c.serves(instance)]
    serving.sort(key=lambda each: (goal.next_finish(each.name), goal.latest(each.name)))
    for place, construction in enumerate(serving):
        name, num_chunks = construction.name, instance.problem.num_chunks
        left, estimate = goal.allowance - goal.spent, construction.work(instance)
        work = goal.run_work(name, num_chunks, estimate)
        share = max(left // (len(serving) - place), 2 * estimate, work)
        share = max(work, min(share, goal.most - goal.spent))
        part = replace(goal, allowance=share, spent=0, known=promised)
        # What more chunks promise says nothing about more runs with these.
        is_worth = (
            part.is_worth_again(name, promised, work)
            if goal.climbs
            else part.is_worth(promised, work)
        )
        is_left = goal.spent + work <= goal.most
        if promised < NEVER and not tied and not (is_worth and is_left):
            continue
        if not part.claims_more(name, num_chunks):
            continue
        best[name] = NEVER
        try:
            for plan in construction.plans(instance, part):
                best[name] = min(best[name], plan.finish)
                holds = plan.exact or not is_estimated
                before = earliest[holds]
                if plan.finish < before or (tied and is_about(plan.finish, before)):
                    earliest[holds] = min(before, plan.finish)
                    yield plan
                    favoured = favoured_plan(instance, plan) if tied else None
                    if favoured is not None and is_about(favoured.finish, earliest[holds]):
                        yield favoured
                if earliest[True] <= goal.target and not tied:
                    return
        finally:
            goal.spent += part.spent
            goal.taken[name] = num_chunks, part.spent
        if not is_estimated:
            promised = min(promised, goal.promised(name, best[name]))
        promised = min(promised, earliest[True])
    # Estimates tell nothing about who will be ahead.
    for name, finish in best.items() if not is_estimated else ():
        goal.finishes.setdefault(name, []).append(finish)


def is_about(finish: int, best: int) -> bool:
    """Whether a plan of several tenants ends late by so little that the tenants' finishes count."""
    return (finish - best) * MAKESPAN_PART <= best


def _inserts(instance: Instance) -> bool:
    problem = instance.problem
    sums = only_combines(problem) or not problem.chunks.reduce.any()
    alone = problem.copy or all(len(nodes) == 1 for nodes in goal_sets(problem.chunks))
    return sums and alone and insertion_refusal(instance) is None


def _repeats(instance: Instance) -> bool:
    """Whether shifts of all ranks leave an exchange as it is."""
    problem = instance.problem
    is_alike = problem.copy and is_symmetric_demand(problem, Collective.ALLTOALL)
    is_alike = is_alike and fits_quotient(problem)
    return is_alike and _inserts(instance) and find_group(problem.topology) is not None


def _repeated_work(instance: Instance) -> int:
    """Units of inserting one source's chunks, and of making rows of all images."""
    group = free_group(instance.problem.topology)
    alike = 1 if group is None else len(group)
    return insertion_work(instance) // alike + greedy_work(instance)


def _repeated_plans(instance: Instance, goal: Goal) -> Iterator[Plan]:
    goal.begin(greedy_work(instance))
    return plans_in_quotient(instance, lambda small: inserted_plans(small, goal))


def _least_work(instance: Instance) -> int:
    """Units of the cheapest construction that serves."""
    return min((c.work(instance) for c in CONSTRUCTIONS if c.serves(instance)), default=0)


def _changes_on_grid(instance: Instance) -> bool:
    """Whether rates change on a grid with switches, so that no route has times of its own."""
    topology = instance.problem.topology
    has_switches = topology.num_switches > 0
    return instance.grid is not None and topology.has_profiles and has_switches


def _steady_work(instance: Instance) -> int:
    return _least_work(steady(instance, 0))


def _mean_rate_work(instance: Instance) -> int:
    return _least_work(at_mean_rates(instance, PICOSECONDS))


def _limits_buffers(instance: Instance) -> bool:
    problem = instance.problem
    is_limited = problem.buffer is not None and not problem.chunks.reduce.any()
    return is_limited and not _changes_on_grid(instance)


def _never_waits(instance: Instance) -> bool:
    """Whether buffers are limited, and chunks have several sources or several destinations."""
    several = max((len(nodes) for nodes in instance.problem.chunks.sets), default=0) > 1
    return may_be_rigid(instance) and several


def _lacks_copies(instance: Instance) -> bool:
    problem = instance.problem
    return _is_free(instance, copies=False) and not problem.chunks.reduce.any()


def _flows(instance: Instance) -> bool:
    return _is_free(instance) and has_one_end(instance)


def _runs_trains(instance: Instance) -> bool:
    return _is_free(instance) and is_staged_exchange(instance)


def _multicasts(instance: Instance) -> bool:
    table = instance.problem.chunks
    several = any(len(nodes) > 1 for nodes in goal_sets(table))
    return _is_free(instance) and several and not table.reduce.any()


def _spans_trees(instance: Instance) -> bool:
    """Whether chunks have several sources or several destinations."""
    table = instance.problem.chunks
    return _is_free(instance) and max(len(nodes) for nodes in table.sets) > 1


def _reduces(instance: Instance) -> bool:
    problem = instance.problem
    return _is_free(instance) and only_combines(problem) and can_reverse(problem)


def _allreduces(instance: Instance) -> bool:
    problem = instance.problem
    sums = all(t.collective is Collective.ALLREDUCE for t in problem.demand.tenants)
    return _is_free(instance) and sums and can_reverse(problem)


def _allreduces_in_switches(instance: Instance) -> bool:
    return _allreduces(instance) and len(reducing_switches(instance)) > 0


def _is_free(instance: Instance, *, copies: bool = True) -> bool:
    """Whether nothing limits what waits, rates stay, and as little is copied as is said."""
    problem = instance.problem
    # On a grid a switch passes data on in an exact epoch, which then depends on when it is sent.
    in_time = not _changes_on_grid(instance) and not may_change_rates(instance)
    allowed = problem.copy or only_combines(problem)
    return in_time and problem.buffer is None and allowed == copies


CONSTRUCTIONS = [
    Construction("multicast", _multicasts, greedy_work, multicast_plans),
    Construction("in-network sums", _allreduces_in_switches, greedy_work, in_network_plans),
    Construction("both halves", _allreduces, greedy_work, composed_plans),
    Construction("reversed multicast", _reduces, greedy_work, reduction_plans),
    Construction("ring of clusters", _spans_trees, choosing_work, cluster_ring_plans),
    Construction("widest ring", _spans_trees, choosing_work, widest_ring_plans),
    Construction("cluster trees", _spans_trees, cluster_tree_work, cluster_tree_plans),
    Construction("repeated insertion", _repeats, _repeated_work, _repeated_plans),
    Construction("flow over time", _flows, flow_work, flow_plans),
    Construction("trains", _runs_trains, train_work, train_plans),
    Construction("trimmed trains", may_be_trimmed, trimmed_work, trimmed_trains),
    Construction("route first", _is_free, routing_work, routed_plans),
    Construction("separate copies", _lacks_copies, routing_work, separate_plans),
    Construction("pipelines", may_be_piped, pipeline_work, pipelined_plans),
    Construction("rigid trees", may_be_rigid, routing_work, rigid_tree_plans),
    Construction("at mean rates", may_change_rates, _mean_rate_work, mean_rate_plans),
    Construction("insertion", _inserts, insertion_work, inserted_plans),
    Construction("no waiting", _limits_buffers, routing_work, rigid_plans),
    Construction("unpaused trees", _never_waits, unpaused_work, unpaused_tree_plans),
    Construction("tenants apart", shares_fabric, apart_work, apart_plans),
    Construction("between changes", _changes_on_grid, _steady_work, regime_plans),
]
