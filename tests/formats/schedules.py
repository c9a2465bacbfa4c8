"""Schedules that several tests of exporters use, solved once."""

from functools import cache

import teccl
from teccl.schedule import Schedule


@cache
def solved(topology: str, collective: str, size: str = "1MB", **options) -> Schedule:
    """Return a schedule as the search gives it, with little effort unless asked for more."""
    options.setdefault("effort", "quick")
    result = teccl.solve(teccl.Topology.parse(topology), collective, size=size, **options)
    assert result.schedule is not None
    return result.schedule
