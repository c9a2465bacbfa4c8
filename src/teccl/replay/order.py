"""Order: everything that a replay keeps of a schedule but which arrival feeds which send."""

from teccl.replay.forwards import keep_forwards
from teccl.replay.passages import Passages, Passing
from teccl.replay.places import keep_apart, link_uses, shared_uses
from teccl.replay.relations import Book, Relations
from teccl.replay.sums import keep_sums
from teccl.replay.times import Times
from teccl.schedule.columns import Sends


def order_of(sends: Sends, passages: Passages, times: Times) -> Relations:
    """Relate the sends that follow one another at a link, a sum or a buffer.

    Raises
    ------
    ScheduleError
        If links that carry one transfer at a time carry several.
    """
    book = Book(len(sends))
    may_meet = passages.passing is Passing.CIRCUIT
    keep_apart(book, times, link_uses(sends), may_meet=may_meet)
    if sends.problem.topology.shared:
        keep_apart(book, times, shared_uses(sends), may_meet=False)
    if sends.combines.any():
        keep_sums(book, sends, times)
    if sends.problem.buffer is not None:
        keep_forwards(book, sends, times)
    return book.close()
