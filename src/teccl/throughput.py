"""Throughput: for what, and for how many chunks, trees are laid and repeated."""

from collections.abc import Sequence
from functools import partial

from teccl.footprint import construction_footprint, free_memory
from teccl.problem import Problem
from teccl.search import CHUNK_TOLERANCE, FAR_GAP, Search

# A gap above which a period of trees is repeated, chunks that must have been worth trying before
# unless the bound is many latencies, the most that it is repeated for, and how much larger than
# others all such schedules together may be.
REPEATED_GAP = 0.02
REPEATED_CHUNKS = 8
MANY_LATENCIES = 100
MAX_REPEATED_CHUNKS = 1024
REPEATED_SIZE = 2.7
# Chunks so few that larger schedules are tried too, and how many sends these may have.
FEW_REPEATED = 4
LARGEST_REPEATED = 4_400_000
# Sends from which on it is said beforehand what a schedule takes.
ANNOUNCED_SENDS = 200_000


def is_irregular_cluster(search: Search) -> bool:
    """Whether many GPUs are joined by switches without any symmetry.

    There balanced trees are the best start: greedy schedules take long and are poor.
    """
    from teccl.construct.instance import is_joined_by_single_switches
    from teccl.construct.repeated import MANY_GPUS
    from teccl.construct.symmetry import find_group

    topology = search.request.topology
    if search.request.grid or search.request.chunks is not None or not search.asks_for_trees:
        return False
    if not topology.num_switches or topology.num_gpus < MANY_GPUS:
        return False
    return is_joined_by_single_switches(topology) and find_group(topology) is None


def repeat_trees(search: Search, counts: Sequence[int] | None = None) -> bool:
    """Where throughput counts and a gap is left, repeat a period of balanced trees many times.

    Returns whether there was a reason to, with the given counts of chunks or those that suit best.
    """
    from teccl.construct.repeated import can_repeat, period_pieces
    from teccl.construct.warmup import load_all_kernels, load_tree_kernels

    if search.request.grid or not search.target or not _is_about_throughput(search):
        return False
    if search.is_within(REPEATED_GAP):
        return False
    with search.paused():
        load_all_kernels()
        load_tree_kernels(search.request.topology)
    most = search.finest(MAX_REPEATED_CHUNKS)
    period = period_pieces(search.request.problem(most))
    for count in counts or _repeated_counts(search, period, most):
        search.checkpoint(is_capped=search.is_within(FAR_GAP))
        problem = search.request.problem(count)
        if not can_repeat(problem):
            break
        if not _fits(search, problem):
            continue
        if not _offer_repeated(search, problem) or search.is_within(REPEATED_GAP):
            break
    return True


def _fits(search: Search, problem: Problem) -> bool:
    """Whether there is memory for a schedule; says what a large one takes."""
    footprint = construction_footprint(problem)
    fits = footprint.num_bytes <= free_memory()
    if footprint.sends >= ANNOUNCED_SENDS:
        note = "" if fits else "; not tried, since so much is not free"
        search.report("construct", f"trees for {problem.num_chunks} chunks: {footprint}{note}")
    return fits


def _offer_repeated(search: Search, problem: Problem) -> bool:
    """Offer the best plan that repeats trees; say whether fewer chunks are worth a trial too."""
    from teccl.construct.instance import Instance
    from teccl.construct.repeated import repeated_plans

    instance = Instance.build(problem)
    plans = repeated_plans(
        instance,
        target=search.target or 1,
        seed=search.request.seed,
        # Half of this work is of no use.
        checkpoint=partial(search.checkpoint, is_capped=False),
    )
    plan = min(plans, key=lambda plan: plan.finish, default=None)
    if plan is None:
        return False
    if search.best and plan.finish > search.fastest * (1 + CHUNK_TOLERANCE):
        return False
    search.offer_plan(instance, plan)
    return True


def _is_about_throughput(search: Search) -> bool:
    """Whether many small pieces are likely to help: some were tried, or latencies are nothing."""
    latency = int(search.request.topology.alpha_ps.max(initial=0))
    tried = max(search.best, default=0)
    return tried >= REPEATED_CHUNKS or (search.target or 0) > MANY_LATENCIES * latency


def _repeated_counts(search: Search, period: int, most: int) -> list[int]:
    """Counts of chunks for whole periods, most first: the pipeline's ends weigh least there."""
    sends = construction_footprint(search.request.problem(1)).sends
    room = REPEATED_SIZE * search.most_sends / sends
    if room < FEW_REPEATED and search.request.topology.num_switches and search.asks_for_trees:
        room = min(FEW_REPEATED, LARGEST_REPEATED / sends)
    while period > room:
        period //= 2
    # The two ways of a sum are worth pipelining only if there are several pieces.
    counts = [max(period, search.phases)]
    while 2 * counts[-1] <= min(room, most):
        counts.append(2 * counts[-1])
    chosen = []
    for count in reversed(counts):
        if count > min(room, most):
            break
        chosen.append(count)
        room -= count
    return chosen
