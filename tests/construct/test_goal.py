"""Goals: what a construction is worth after what it did before."""

from dataclasses import replace

from teccl.construct.goal import Goal

# At 100 units a gap of a tenth is worth all of them.
TARGET, FINISH = 1000, 1100


def goal_after(*behind):
    """Return a goal for a construction that was so far behind, one time after another."""
    return Goal(target=TARGET, allowance=100, price=0.001, behind={"x": list(behind)})


def test_a_first_attempt_is_worth_its_work():
    """Nothing speaks against what was not tried."""
    assert goal_after().is_worth_again("x", FINISH, 50)


def test_what_was_behind_must_be_cheap():
    """The farther behind, the less work it is worth."""
    assert not goal_after(0.5).is_worth_again("x", FINISH, 50)
    assert goal_after(0.5).is_worth_again("x", FINISH, 5)


def test_what_falls_back_is_not_tried_again():
    """Twice behind, the second time farther, ends it; coming nearer does not."""
    assert not goal_after(0.1, 0.2).is_worth_again("x", FINISH, 1)
    assert goal_after(0.2, 0.1).is_worth_again("x", FINISH, 1)


def test_the_same_again_is_no_more() -> None:
    """With as much work as before a construction would do the same, unless the target differs."""
    goal = Goal(target=5, allowance=10)
    assert goal.is_more("ring", 4)
    assert not goal.is_more("ring", 4)
    assert replace(goal, allowance=11).is_more("ring", 4)
    assert replace(goal, target=6).is_more("ring", 4)
    assert goal.is_more("ring", 8)
