"""solve with `auto`: better than what it is made of, repeatable, and stopped without loss."""

import threading
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import teccl
from teccl.construct.baselines import build_baseline, serving_baselines
from teccl.demand import Collective, Demand, Tenant
from teccl.progress import CancelToken, Progress
from teccl.result import Result, Status
from teccl.schedule import Schedule
from teccl.verification import verify

LARGE = "64MB"


@cache
def solve_large(topology: str, collective: str, method: str = "auto") -> Result:
    """Solve for a large buffer, once for all tests."""
    return solve(topology, collective, size=LARGE, method=method)


def solve(topology: str, collective: str | None = None, **options: Any) -> Result:
    """Solve and check again what came out."""
    if "demand" not in options:
        options.setdefault("size", "1MB")
    result = teccl.solve(topology, collective, **options)
    assert result.verified
    assert result.schedule is not None
    assert verify(result.schedule) == ()
    return result


@pytest.mark.parametrize(
    ("topology", "collective"),
    [
        ("ring:gpus=5", "allgather"),
        ("dgx1", "allreduce"),
        ("fully-connected:gpus=4", "alltoall"),
        ("star:gpus=4", "reducescatter"),
        ("line:gpus=4", "broadcast"),
        ("mesh:dims=2x3", "gather"),
        ("dgx2", "allgather"),
    ],
)
def test_auto_is_no_later_than_any_baseline(topology: str, collective: str) -> None:
    """With the same chunks every baseline takes at least as long."""
    result = solve(topology, collective, chunks=2)
    for name in serving_baselines(result.problem):
        schedule = teccl.simulate(build_baseline(name, result.problem))
        assert result.finish_ps <= schedule.finish_ps, name


@pytest.mark.parametrize(
    "topology",
    [
        "ring:gpus=6",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("dgx1", "star:gpus=6", "ndv2:chassis=2")
        ),
    ],
)
def test_allreduce_is_no_later_than_its_halves(topology: str) -> None:
    """AllReduce beats the best ReduceScatter followed by the best AllGather."""
    whole = solve_large(topology, "allreduce")
    halves = [solve_large(topology, half) for half in ("reducescatter", "allgather")]
    assert whole.finish_ps <= sum(half.finish_ps for half in halves)


@pytest.mark.parametrize(
    "topology", ["dgx1", pytest.param("ndv2:chassis=2", marks=pytest.mark.slow)]
)
def test_allreduce_is_far_ahead_of_the_ring(topology: str) -> None:
    """AllReduce of a large buffer takes at most three quarters of the ring's time."""
    whole = solve_large(topology, "allreduce")
    ring = solve_large(topology, "allreduce", "ring")
    assert whole.finish_ps <= Fraction(3, 4) * ring.finish_ps


@pytest.mark.parametrize(
    ("topology", "collective", "options"),
    [
        ("ring:gpus=4", "allgather", {}),
        pytest.param("ndv2:chassis=2", "allgather", {}, marks=pytest.mark.slow),
        ("dgx2", "reducescatter", {"chunks": 2, "effort": "quick"}),
        ("dgx1", "allreduce", {"grid": True, "effort": "quick"}),
        ("dgx1", "alltoall", {"effort": "quick"}),
    ],
)
def test_same_seed_same_bytes(
    topology: str, collective: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The saved file depends on the request and the seed only."""
    saved = []
    for name in ("first.json", "second.json"):
        result = solve(topology, collective, seed=3, **options)
        assert result.schedule is not None
        result.schedule.save(tmp_path / name)
        saved.append((tmp_path / name).read_bytes())
    assert saved[0] == saved[1]


def test_cancelled_midway_keeps_a_verified_schedule() -> None:
    """A token cancelled at the first schedule, from another thread, ends the search with it."""
    token = CancelToken()

    def listen(event: Progress) -> None:
        if event.phase == "schedule":
            thread = threading.Thread(target=token.cancel)
            thread.start()
            thread.join()

    result = solve("ndv2:chassis=2", "allgather", progress=listen, cancel=token)
    assert result.status is Status.INTERRUPTED
    assert [attempt.num_chunks for attempt in result.tried] == [1]


def test_interrupt_between_improvements_keeps_the_best() -> None:
    """Ctrl-C during a later number of chunks leaves the best schedule so far."""
    seen: list[float] = []

    def listen(event: Progress) -> None:
        if event.phase == "schedule" and event.incumbent_s is not None:
            seen.append(event.incumbent_s)
            if len(seen) == 3:
                raise KeyboardInterrupt

    result = solve("ndv2:chassis=2", "allgather", progress=listen)
    assert result.status is Status.INTERRUPTED
    assert result.finish_time_s == min(seen)


def test_time_limit_keeps_the_best() -> None:
    """A limit that is over at once still yields the first schedule, verified."""
    result = solve("ndv2:chassis=2", "allgather", time_limit="1ns")
    assert result.status is Status.TIME_LIMIT
    assert result.num_chunks == 1


def test_gap_stops_early() -> None:
    """A wide gap ends the search at the first schedule within it."""
    full = solve("ndv2:chassis=2", "allgather")
    early = solve("ndv2:chassis=2", "allgather", gap="50%")
    assert len(early.tried) < len(full.tried)
    assert early.physical_gap is not None
    assert early.physical_gap <= 0.5
    assert early.status is Status.FEASIBLE


@pytest.mark.parametrize(
    ("topology", "efforts"),
    [
        ("line:gpus=3", ("quick", "normal")),
        *(
            pytest.param(name, ("quick", "normal", "thorough"), marks=pytest.mark.slow)
            for name in ("line:gpus=3", "dgx1")
        ),
    ],
)
def test_more_effort_is_never_worse(topology: str, efforts: tuple[str, ...]) -> None:
    """With given chunks each effort finishes no later than the one below."""
    finishes = [
        solve(topology, "allreduce", chunks=2, effort=effort).finish_ps for effort in efforts
    ]
    assert finishes == sorted(finishes, reverse=True)


def test_grid_optimum_is_proven() -> None:
    """On the grid a schedule that meets the bound in epochs is optimal."""
    result = solve("dgx1:alpha=0", "allgather", size="400KB", chunks=2, epoch="slowest")
    assert (result.status, result.epochs, result.bound.epochs) == (Status.OPTIMAL, 3, 3)
    assert result.grid_gap == 0


def test_grid_chunks_are_compared_by_time() -> None:
    """On the grid, too, the number of chunks is chosen by time, not by the number of epochs."""
    result = solve("dgx1", "allgather", grid=True, chunks="auto")
    fastest = min(attempt.finish_time_s for attempt in result.tried)
    assert result.finish_time_s <= 1.001 * fastest


def tenants(first: int, second: int) -> Demand:
    """Two AllGathers of one size on all GPUs, with priorities."""
    return Demand(
        tenants=tuple(
            Tenant(
                collective=Collective.ALLGATHER,
                size=Fraction(10**6),
                name=name,
                priority=Fraction(priority),
            )
            for name, priority in (("first", first), ("second", second))
        )
    )


def test_tenants_share_the_network() -> None:
    """The makespan is that of the last tenant, and each one's finish is told."""
    result = solve("ring:gpus=4", demand=tenants(1, 1), chunks=1)
    finishes = [time for _, time in result.tenants]
    assert max(finishes) == result.finish_time_s
    assert result.bound.physical_ps >= 15 * 10**6


def test_priority_decides_among_equal_makespans() -> None:
    """Of two equal collectives on one link either may go first: the weightier one does."""
    ends = []
    for first, second in ((1, 10), (10, 1)):
        times = dict(solve("line:gpus=2", demand=tenants(first, second), chunks=1).tenants)
        ends.append((times["first"], times["second"]))
    assert ends[0][1] < ends[0][0]
    assert ends[1][0] < ends[1][1]


def test_tenants_of_different_kinds_share_the_network() -> None:
    """A broadcast that starts late and an AllToAll of a few ranks go together."""
    demand = Demand(
        tenants=(
            Tenant(collective=Collective.ALLTOALL, size=Fraction(10**5), ranks=(0, 1, 2, 3)),
            Tenant(
                collective=Collective.BROADCAST,
                size=Fraction(10**6),
                name="late",
                root=5,
                ready={5: Fraction(1, 10**5)},
            ),
        )
    )
    result = solve("dgx1", demand=demand)
    assert dict(result.tenants)["late"] > 1e-5


def test_degraded_network_starts_from_the_healthy_schedule(tmp_path: Path) -> None:
    """After a link slows down, the old order is a start and the result is no later than it."""
    healthy = solve("dgx1", "allgather", chunks=4)
    assert healthy.schedule is not None
    healthy.schedule.save(tmp_path / "healthy.json")
    slow = {"degrade": ["gpu0:gpu1=50%"], "chunks": 4}
    again = solve("dgx1", "allgather", from_schedule=tmp_path / "healthy.json", **slow)
    slower = teccl.Topology.parse("dgx1").degraded({"gpu0:gpu1": Fraction(1, 2)})
    replay = teccl.simulate(Schedule.load(tmp_path / "healthy.json"), topology=slower)
    assert again.finish_ps <= replay.finish_ps
    assert again.finish_ps <= solve("dgx1", "allgather", **slow).finish_ps
