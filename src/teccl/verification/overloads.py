"""Loads: where intervals that overlap at a place need more than the place has."""

import numpy as np

from teccl._arrays import IntArray, NumberArray
from teccl.schedule.ordering import order_by


def overloads(
    place: IntArray, begin: IntArray, end: IntArray, load: NumberArray, limit: NumberArray
) -> IntArray:
    """Intervals at whose begin the loads present at their place sum to more than their limit.

    Intervals are half open and not empty: one that ends when another begins does not meet it.
    Loads only rise at a begin, so a place is never overloaded unless some interval is returned.
    """
    n = len(place)
    time = np.concatenate([begin, end])
    begins = np.repeat([True, False], n)
    order = order_by(np.concatenate([place, place]), time, begins)
    # At each place the changes sum to zero, so one running sum serves all places.
    total = np.cumsum(np.concatenate([load, -load])[order])
    at_begin = order < n
    interval = order[at_begin]
    return np.sort(interval[(total[at_begin] > limit[interval]).astype(bool)])
