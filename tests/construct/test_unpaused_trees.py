"""Unpaused trees: what arrives goes on at once, and no link is needed twice at a time."""

import numpy as np
from tests.construct.small import make_instance, random_fabric

from teccl.construct.rigid_trees import meets_itself, rigid_pieces
from teccl.construct.tasks import tasks_of_plan
from teccl.construct.unpaused_trees import FreeTime, UnpausedTrees, ends_of, plan_of_trees
from teccl.keywords import SwitchMode


def test_trees_of_random_problems_never_meet_themselves() -> None:
    """All that follows from one send has times that suit each other, for copies and for sums."""
    grown = 0
    for seed in range(80):
        instance = random_fabric(seed)
        ends = None if instance is None else ends_of(instance, 0)
        if instance is None or ends is None or (ends.sums and ends.copies):
            continue
        free = FreeTime(np.zeros(instance.num_resources), np.inf)
        tree = UnpausedTrees(instance).grow(ends, ends.roots[0], free)
        if tree is None:
            continue
        pieces = rigid_pieces(instance, tasks_of_plan(instance, plan_of_trees(instance, [tree])))
        assert pieces is not None
        assert not meets_itself(pieces), seed
        grown += 1
    assert grown > 20


def test_copies_part_in_switches_that_copy() -> None:
    """A root around a copying switch sends once to all, around another along a chain."""
    for switch, hops in ((SwitchMode.COPY, 1), (SwitchMode.NO_COPY, 3)):
        instance = make_instance("star:gpus=4,alpha=0", "broadcast", "1MB", switch=switch)
        ends = ends_of(instance, 0)
        assert ends is not None
        free = FreeTime(np.zeros(instance.num_resources), np.inf)
        tree = UnpausedTrees(instance).grow(ends, ends.roots[0], free)
        assert tree is not None
        plan = plan_of_trees(instance, [tree])
        assert len(np.unique(plan.rows[:, 3])) == hops


def test_room_is_kept_to() -> None:
    """Links that are full are not taken, and what a tree holds is added to the load."""
    instance = make_instance("ring:gpus=4,alpha=0", "broadcast", "1MB")
    ends, trees = ends_of(instance, 0), UnpausedTrees(instance)
    assert ends is not None
    free = FreeTime(np.zeros(instance.num_resources), float(instance.hold.max()))
    assert trees.grow(ends, ends.roots[0], free) is not None
    assert free.load.max() == instance.hold.max()
    # The root has sent over both of its links.
    assert trees.grow(ends, ends.roots[0], free) is None
