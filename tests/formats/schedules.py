"""Schedules that several tests of exporters use, solved once."""

from functools import cache

import teccl
from teccl.schedule import Schedule
from teccl.synthesis.request import OBEYED_BY


@cache
def solved(topology: str, collective: str, size: str = "1MB", **options) -> Schedule:
    """Return a schedule as the search gives it, with little effort unless asked for more.

    With few chunks no solver tries to prove that a schedule is the best: what is made of schedules
    does not depend on that.
    """
    if options.get("method", "auto") in OBEYED_BY["effort"]:
        options.setdefault("effort", "quick")
    if not options.keys().isdisjoint({"chunks", "max_chunks"}) and collective != "allreduce":
        options.setdefault("method", "construct")
    result = teccl.solve(teccl.Topology.parse(topology), collective, size=size, **options)
    assert result.schedule is not None
    return result.schedule
