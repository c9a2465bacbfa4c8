"""Partial sums where nothing may be copied."""

from dataclasses import replace

from tests.verification.partial import exchange, one_shot

from teccl.topology import Topology
from teccl.verification import ViolationKind, verify


def test_partial_sums_that_are_used_twice_are_copies():
    """An exchange keeps every sum that it sends on; a one-shot AllReduce sends own data only."""
    for schedule, found in (
        (exchange(2, 1), {ViolationKind.GPU_COPY}),
        (one_shot(Topology.parse("ring:gpus=3"), 3), set()),
    ):
        problem = replace(schedule.problem, copy=False)
        violations = verify(replace(schedule, problem=problem, claimed_finish_ps=None, bound=None))
        assert {violation.kind for violation in violations} == found
