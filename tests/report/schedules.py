"""Schedules that the tests of reports share; each is made once."""

from functools import cache
from typing import Any

import teccl
from teccl.schedule import Schedule
from teccl.synthesis.request import OBEYED_BY

REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dgx1": ("dgx1", "allgather", {"chunks": 4}),
    "ndv2": ("ndv2:chassis=2", "allgather", {"chunks": 8}),
    "dgx2": ("dgx2:chassis=2", "allgather", {"chunks": 2}),
    "torus": ("torus:dims=8x8", "allgather", {"chunks": 1}),
    "alltoall": ("dgx1", "alltoall", {"chunks": 2}),
    "allreduce": ("dgx1", "allreduce", {"chunks": 4}),
    "ring": ("dgx1", "allreduce", {"method": "ring", "chunks": 2}),
    "groups": ("ndv2:chassis=16", "allgather", {"chunks": 1}),
    "large": ("torus:dims=8x8", "alltoall", {"method": "shortest-path", "chunks": 13}),
}


@cache
def solved(name: str) -> Schedule:
    """Return the schedule of a named request."""
    topology, collective, options = REQUESTS[name]
    quick = {"effort": "quick"} if options.get("method", "auto") in OBEYED_BY["effort"] else {}
    result = teccl.solve(topology, collective, size="1MB", **quick, **options)
    assert result.schedule is not None
    return result.schedule
