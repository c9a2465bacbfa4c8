"""Turns: calls in the order they were given, on the caller's thread where none waits."""

import threading

from tests.torch.ranks import needs_torch


@needs_torch()
def test_a_turn_is_taken_once():
    """While a call is under way on one thread, others have to queue theirs."""
    from teccl.torch.turns import Turns

    turns = Turns("test")
    assert turns.take()
    assert not turns.take()
    turns.give()
    assert turns.take()


@needs_torch()
def test_queued_calls_keep_their_order_and_go_first():
    """What was queued is made before a later call takes the turn, one after the other."""
    from teccl.torch.turns import Turns

    turns, made, go = Turns("test"), [], threading.Event()
    turns.queue(lambda: (go.wait(60), made.append(0)))
    for i in range(1, 50):
        turns.queue(lambda i=i: made.append(i))
    assert not turns.take()
    go.set()
    turns.stop(60)
    assert made == list(range(50))


@needs_torch()
def test_a_queued_call_waits_for_the_one_under_way():
    """The thread makes nothing while a caller has the turn."""
    from teccl.torch.turns import Turns

    turns, made = Turns("test"), threading.Event()
    assert turns.take()
    turns.queue(made.set)
    assert not made.wait(0.05)
    turns.give()
    assert made.wait(60)
    turns.stop(60)
