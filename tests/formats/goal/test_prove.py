"""The LogGOPS model by hand: what a processor, an interface and the way cost."""

import pytest

from teccl.errors import ScheduleError
from teccl.formats.goal.prove import Parameters, finish_time
from teccl.formats.goal.prove.goal_program import parse

EAGER = 2**31 - 1
ONE = "num_ranks 2\nrank 0 {\ns: send 11b to 1 tag 0\n}\nrank 1 {\nr: recv 11b from 0 tag 0\n}\n"
TWO_SENDERS = (
    "num_ranks 3\nrank 0 {\ns: send 11b to 2 tag 0 nic 0\n}\nrank 1 {\ns: send 11b to 2 tag 1 nic 1"
    "\n}\nrank 2 {\na: recv 11b from 0 tag 0 nic 0\nb: recv 11b from 1 tag 1 nic 1\n}\n"
)
TWO_SENDS = (
    "num_ranks 2\nrank 0 {\na: send 11b to 1 tag 0\nb: send 11b to 1 tag 1\nb requires a\n}\n"
    "rank 1 {\na: recv 11b from 0 tag 0\nb: recv 11b from 0 tag 1\n}\n"
)


def test_one_message():
    """Overhead at both ends, the way, and a time for every byte but the first."""
    assert finish_time(parse(ONE), Parameters(100, 7, 0, 2, 0, EAGER)) == 7 + 100 + 7 + 20
    assert finish_time(parse(ONE), Parameters(100, 7, 0, 2, 3, EAGER)) == 7 + 100 + 7 + 30


def test_messages_over_one_interface_keep_the_gap():
    """The second leaves g and the bytes' time later."""
    assert finish_time(parse(TWO_SENDS), Parameters(100, 0, 5, 0, 0, EAGER)) == 105
    assert finish_time(parse(TWO_SENDS), Parameters(100, 0, 0, 2, 0, EAGER)) == 100 + 20 + 20


def test_bytes_occupy_the_processor_of_the_receiver():
    """Two messages over two interfaces are taken in one after the other, unless G is 0."""
    assert finish_time(parse(TWO_SENDERS), Parameters(100, 0, 0, 2, 0, EAGER)) == 140
    assert finish_time(parse(TWO_SENDERS), Parameters(120, 0, 20, 0, 0, EAGER)) == 120


def test_computations_hold_their_processor():
    """They follow one another on one processor and not on two."""
    text = "num_ranks 1\nrank 0 {\na: calc 5\nb: calc 6 cpu CPU\n}\n"
    none = Parameters(0, 0, 0, 0, 0, EAGER)
    assert finish_time(parse(text.replace("CPU", "0")), none) == 11
    assert finish_time(parse(text.replace("CPU", "1")), none) == 6


def test_a_late_receive_finds_its_message():
    """A receive that is posted after the arrival ends at once."""
    text = ONE.replace(
        "r: recv 11b from 0 tag 0\n", "w: calc 500\nr: recv 11b from 0 tag 0\nr requires w\n"
    )
    assert finish_time(parse(text), Parameters(100, 0, 0, 2, 0, EAGER)) == 520


def test_what_waits_for_ever_is_named():
    """A circle over two ranks."""
    text = ONE.replace(
        "s: send 11b to 1 tag 0\n",
        "s: send 11b to 1 tag 0\nq: recv 1b from 1 tag 9\ns requires q\n",
    ).replace(
        "r: recv 11b from 0 tag 0\n",
        "r: recv 11b from 0 tag 0\nt: send 1b to 0 tag 9\nt requires r\n",
    )
    with pytest.raises(ScheduleError, match="line 3 waits"):
        finish_time(parse(text), Parameters(100, 0, 0, 0, 0, EAGER))


def test_rendezvous_is_refused():
    """Only eager messages are modelled."""
    with pytest.raises(ScheduleError, match="more than S"):
        finish_time(parse(ONE), Parameters(100, 0, 0, 0, 0, 10))
