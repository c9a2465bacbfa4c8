"""Order: everything that a replay keeps of a schedule but which arrival feeds which send."""

from teccl.replay.crossings import Crossing, Passages
from teccl.replay.forwards import keep_forwards
from teccl.replay.merged import keep_sums
from teccl.replay.places import keep_apart, link_uses, shared_uses
from teccl.replay.relations import Book, Relations
from teccl.replay.sum_relations import keep_partial_sums
from teccl.replay.times import Times
from teccl.schedule.additions import SumArray
from teccl.schedule.columns import Sends


def order_of(
    sends: Sends, passages: Passages, times: Times, sums: SumArray | None = None
) -> Relations:
    """Relate the sends that follow one another at a link, a sum or a buffer.

    Parameters
    ----------
    sums
        The schedule's partial sums, where it has some.

    Raises
    ------
    ScheduleError
        If links that carry one transfer at a time carry several.
    """
    book = Book(len(sends))
    may_meet = passages.passing is Crossing.CIRCUIT
    keep_apart(book, times, link_uses(sends), may_meet=may_meet)
    if sends.problem.topology.shared:
        keep_apart(book, times, shared_uses(sends), may_meet=False)
    if sends.accumulates.any():
        keep_sums(book, sends, times)
    if sums is not None:
        keep_partial_sums(book, sends, times, sums)
    if sends.problem.buffer is not None:
        keep_forwards(book, sends, times)
    return book.close()
