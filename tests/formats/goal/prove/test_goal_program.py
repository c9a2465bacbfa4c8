"""GOAL text: what the grammar has, and a clear line about what it has not."""

import pytest

from teccl.errors import ScheduleError
from teccl.formats.goal.prove.goal_program import GoalKind, match_messages, parse

GOOD = """// collective allgather, chunks 1
num_ranks 2
/* a comment
   of two lines */
rank 0 {
a: send 8b to 1 tag 3 cpu 1 nic 2
send 9b to 1
w: calc 5 cpu 1
w requires a
}
rank 1 {
l1: recv 8b from 0 tag 3 cpu 1 nic 2
l2 : recv 9 b from 0
l2 irequires l1
}
"""


def test_all_of_the_grammar():
    """Labels, tags, processors and interfaces, both kinds of dependency, comments."""
    program = parse(GOOD)
    first, second = program.ranks
    assert [op.kind for op in first.operations] == [GoalKind.SEND, GoalKind.SEND, GoalKind.COMPUTE]
    assert first.operations[0][1:6] == (8, 1, 3, 1, 2)
    assert first.operations[1][1:6] == (9, 1, 0, 0, 0)
    assert first.operations[2].amount == 5
    assert first.dependencies == [(2, 0, False)]
    assert second.dependencies == [(1, 0, True)]
    assert program.title is not None
    assert program.title.collective == "allgather"
    assert len(match_messages(program)) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_ranks 2", "num_ranks 0", "num_ranks is 0"),
        ("num_ranks 2", "num_ranks 3", "rank 2 is not there"),
        ("num_ranks 2", "", "not one of 0"),
        ("rank 1 {", "rank 0 {", "appears twice"),
        ("rank 1 {", "rank 5 {", "not one of 2"),
        ("}\nrank 1", "rank 1", "within another"),
        ("to 1 tag 3", "from 1 tag 3", "send ... to"),
        ("to 1 tag 3", "to 0 tag 3", "not another"),
        ("to 1 tag 3", "to 7 tag 3", "not another"),
        ("tag 3 cpu 1 nic 2\nsend", "tag -1\nsend", "any source or tag"),
        ("nic 2\nsend", "nic 256\nsend", "nic 256"),
        ("8b to", "0b to", "at least one byte"),
        ("8b to", "8 to", "not GOAL"),
        ("w: calc", "a: calc", "appears twice"),
        ("w requires a", "w requires z", "'z'"),
        ("w requires a\n}", "w requires a", "within another"),
        ("8b to", "7b to", "7 and of 8 bytes"),
        ("send 9b to 1\n", "", "0 sends and 1 receives"),
        ("num_ranks 2\n", "num_ranks 2\na: calc 1\n", "outside of a rank"),
    ],
)
def test_damage_is_named(old, new, words):
    """Each mistake has a line of its own."""
    assert old in GOOD
    with pytest.raises(ScheduleError, match=words):
        match_messages(parse(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize("text", ["", "\n\n", "num_ranks 1", "hello", "/* open", "rank 0 {"])
def test_what_is_no_goal_is_refused(text):
    """Empty and cut text, and other text."""
    with pytest.raises(ScheduleError):
        parse(text)
