"""Goals: what a construction is worth after what it did before."""

from dataclasses import replace

from teccl.construct.goal import Goal

# At 100 units a gap of a tenth is worth all of them.
TARGET, FINISH = 1000, 1100


def goal_after(*finishes):
    """Return a goal for a construction that made so much, one time after another."""
    return Goal(target=TARGET, allowance=100, price=0.001, finishes={"x": list(finishes)})


def test_a_first_attempt_is_worth_its_work():
    """Nothing speaks against what was not tried."""
    assert goal_after().is_worth_again("x", FINISH, 50)


def test_a_second_attempt_must_be_cheap():
    """One attempt tells nothing about how it is with more chunks."""
    assert goal_after(2 * FINISH).is_worth_again("x", FINISH, 20)
    assert not goal_after(2 * FINISH).is_worth_again("x", FINISH, 50)


def test_what_stays_behind_must_be_cheap():
    """The later it would be with any number of chunks, the less work it is worth."""
    assert not goal_after(1700, 1650).is_worth_again("x", FINISH, 50)
    assert goal_after(1700, 1650).is_worth_again("x", FINISH, 5)


def test_what_gains_much_is_tried_again():
    """Half as far behind with twice the chunks, it may be ahead with more."""
    assert goal_after(2000, 1500).is_worth_again("x", FINISH, 50)


def test_the_same_again_is_no_more() -> None:
    """With as much work as before a construction would do the same, unless the target differs."""
    goal = Goal(target=5, allowance=10)
    assert goal.claims_more("ring", 4)
    assert not goal.claims_more("ring", 4)
    assert replace(goal, allowance=11).claims_more("ring", 4)
    assert replace(goal, target=6).claims_more("ring", 4)
    assert goal.claims_more("ring", 8)


def test_what_was_not_tried_comes_last():
    """A construction that was too dear before does not go ahead of one that served."""
    assert goal_after(5).latest("x") < goal_after().latest("x")


def test_a_plan_that_is_known_needs_no_better_one():
    """Where another plan is near the target, a late finish is no reason to go on."""
    assert not replace(goal_after(), known=TARGET + 1).is_worth(FINISH, 50)


def test_more_chunks_promise_what_they_gained_before():
    """Half of it, while more of them are tried, and never less than the target."""
    goal = goal_after(1300)
    assert goal.promised("x", 1200) == 1200
    assert replace(goal, climbs=True).promised("x", 1200) == 1150
    assert replace(goal, climbs=True).promised("x", 1050) == TARGET
    assert replace(goal, climbs=True).promised("x", 1400) == 1400
    assert replace(goal, climbs=True).promised("y", 1200) == 1200


def test_what_was_taken_corrects_an_estimate():
    """Two runs with half of the chunks took as much as one takes now, unless that was less."""
    goal = replace(goal_after(), taken={"x": (4, 1000)})
    assert goal.run_work("x", 8, 10) == 1000
    assert goal.run_work("x", 8, 5000) == 5000
    assert goal.run_work("y", 8, 10) == 10


def test_constructions_are_ordered_by_what_more_chunks_promise():
    """Half of what twice the chunks gained is gained again, but nothing below the target."""
    goal = Goal(target=1000, finishes={"one": [5000], "two": [3000, 2000], "near": [1300, 1010]})
    assert goal.next_finish("one") == 5000
    assert goal.next_finish("two") == 1500
    assert goal.next_finish("near") == 1000
