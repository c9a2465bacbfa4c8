"""The benchmark of recent machines: what it asks for, and how it sums up."""

import presets

from teccl.topology.presets import PRESETS


def test_every_recent_machine_is_asked_for_both_ways():
    """Four collectives and two sizes of each, with effective rates where a preset has them."""
    found = list(presets.problems())
    assert len({problem.key for problem in found}) == len(found)
    names = {problem.topology.partition(":")[0] for problem in found}
    assert names <= set(PRESETS)
    for name in presets.MACHINES[:9]:
        asked = [problem for problem in found if problem.key.startswith(f"{name}:rates=effective ")]
        assert len(asked) == len(presets.COLLECTIVES) * len(presets.SIZES)


def test_gaps_are_reported_by_rates_collective_and_size():
    """Quantiles in per cent; what has no schedule counts, and is in no quantile."""
    labels = {"family": "line", "collective": "allgather", "decade": "1MB"}
    records = [{**labels, "gap": gap} for gap in (0.01, 0.03, None)]
    assert list(presets.rows(records)) == [("line", "allgather", "1MB", 3, 2, 1.0, 3.0, 3.0)]
