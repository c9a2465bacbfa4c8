"""Problems with fewer freedoms: nothing waits under a buffer of zero, and nothing is copied."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.construct.small import best_plan, make_instance, verified
from tests.sampling import thinned

from teccl.construct.goal import Goal
from teccl.construct.restricted import place_paths, rigid_plans
from teccl.errors import MethodError
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times
from teccl.synthesis import solve
from teccl.verification import verify

NETWORKS = ["ring:gpus=5", "dgx1", "mesh:dims=2x3", "star:gpus=4", "dgx2"]


def waits(schedule: Schedule) -> list[int]:
    """Return how long each send of a chunk waited at a GPU that had received it."""
    topology, table = schedule.problem.topology, schedule.problem.chunks
    arrivals = send_times(schedule).arrival_ps
    came: dict[tuple[int, int], set[int]] = {}
    for send, arrival in zip(schedule.sends, arrivals, strict=True):
        place = (int(send["chunk"]), int(topology.link_dst[send["link"]]))
        came.setdefault(place, set()).add(int(arrival))
    found = []
    for send in schedule.sends:
        node, chunk = int(topology.link_src[send["link"]]), int(send["chunk"])
        if topology.is_switch[node] or node in table.sources(chunk):
            continue
        start = int(send["start_ps"])
        found.append(min(start - time for time in came[chunk, node] if time <= start))
    return found


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_nothing_waits_without_buffers(spec: str, collective: str) -> None:
    """With a buffer of zero whatever is forwarded leaves the instant it arrives."""
    made = make_instance(spec, collective, buffer=0)
    schedule = verified(made, best_plan(made, level="quick"))
    assert set(waits(schedule)) <= {0}


def test_nothing_waits_on_the_grid() -> None:
    """In epochs, too, a schedule without buffers verifies."""
    made = make_instance("ring:gpus=5,alpha=0", "allgather", buffer=0, epoch="fastest")
    verified(made, best_plan(made))


@pytest.mark.parametrize("buffer", [0, 1, 3])
def test_any_limit_is_kept(buffer: int) -> None:
    """What never waits keeps to every limit."""
    made = make_instance("dgx1", "allgather", buffer=buffer, num_chunks=2)
    verified(made, best_plan(made, level="quick"))


@pytest.mark.parametrize("spec", NETWORKS)
def test_without_copies_each_delivery_has_its_own(spec: str) -> None:
    """When nobody copies, a source sends each chunk once for every destination."""
    made = make_instance(spec, "allgather", copy=False)
    schedule = verified(made, best_plan(made, level="quick"))
    topology, table = made.problem.topology, made.problem.chunks
    for chunk in range(len(table)):
        sends = schedule.sends[schedule.sends["chunk"] == chunk]
        leaving = topology.link_src[sends["link"]] == table.sources(chunk)[0]
        assert leaving.sum() == len(table.destinations(chunk)) - 1


def test_copies_are_counted_on_a_line() -> None:
    """Broadcast along a line of four takes 3 + 2 + 1 sends without copies and 3 with them."""
    apart = make_instance("line:gpus=4", "broadcast", copy=False)
    assert len(verified(apart, best_plan(apart))) == 6
    copied = make_instance("line:gpus=4", "broadcast")
    assert len(verified(copied, best_plan(copied))) == 3


def test_paths_are_placed_without_gaps() -> None:
    """Each leg of a path starts when the one before has arrived, whatever the order."""
    made = make_instance("ring:gpus=6", "alltoall", buffer=0)
    plan = next(rigid_plans(made, Goal()))
    assert plan.path is not None
    key = np.arange(int(plan.path.max()) + 1)[::-1]
    placed = place_paths(made, plan, key=key)
    end = placed.rows[:, 2] + made.routes.length[placed.rows[:, 1]]
    follows = np.flatnonzero(np.diff(plan.path) == 0)
    assert len(follows)
    assert (end[follows] == placed.rows[follows + 1, 2]).all()


@pytest.mark.parametrize("buffer", [0, 1])
@pytest.mark.parametrize("collective", ["reduce", "reducescatter"])
def test_sums_for_one_gpu_keep_to_buffers(collective: str, buffer: int) -> None:
    """A tree of sums is placed so that no more waits than may."""
    result = solve("ring:gpus=3", collective, size="1MB", chunks=1, buffer=buffer)
    assert not verify(result.schedule)


@pytest.mark.parametrize(
    ("topology", "buffer"),
    thinned(product(["ring:gpus=5", "dgx1", "dgx-h100"], [0, 1, 4]), 2),
)
def test_sums_for_all_keep_to_buffers(topology: str, buffer: int) -> None:
    """In one shot everybody sends its own, and what relays keep is counted."""
    result = solve(topology, "allreduce", size="64KB", buffer=buffer, effort="quick")
    assert not verify(result.schedule)
    assert result.physical_gap >= 0


def test_sums_for_all_without_copies_come_in_one_shot() -> None:
    """Everybody sends its own to everybody, and nothing that was received is sent on."""
    result = solve("dgx-h100", "allreduce", size="64KB", copy=False)
    assert not verify(result.schedule)
    assert result.physical_gap >= 0


def test_sums_for_all_through_relays_go_to_each_by_themselves() -> None:
    """What a relay passes on is one buffer for one GPU, sent once for each arrival."""
    result = solve("ring:gpus=5", "allreduce", size="1MB", copy=False)
    assert not verify(result.schedule)
    # Four buffers leave each GPU by two links, and each crosses one link and a half on average.
    assert result.finish_time_s >= 4 * 1.5 * 1e6 / 100e9
    assert result.physical_gap >= 0


def test_sums_for_all_without_copies_have_no_epochs() -> None:
    """What no construction serves is said in one line; nothing wrong is returned."""
    with pytest.raises(MethodError, match=r"no construction serves .*drop --no-copy"):
        solve("ring:gpus=5", "allreduce", size="1MB", copy=False, grid=True)


@pytest.mark.parametrize(
    "collective", ["reduce", pytest.param("reducescatter", marks=pytest.mark.slow)]
)
def test_sums_for_one_gpu_need_no_copies(collective: str) -> None:
    """A tree of sums is as fast where nothing may be copied."""
    free, bound = (
        solve("dgx1", collective, size="1MB", chunks=2, copy=copy) for copy in (True, False)
    )
    assert bound.verified
    assert bound.finish_ps == free.finish_ps


def test_nothing_waits_on_a_grid_whose_rates_change(tmp_path: Path) -> None:
    """Whole ways are placed again in physical time, where other rates let legs overtake."""
    links = [(2, 3, "10GB/s"), (3, 1, "3.3GB/s"), (1, 0, "10GB/s"), (0, 5, "25GB/s")]
    document = {
        "nodes": 6,
        "links": [
            {"src": a, "dst": b, "bandwidth": rate, "bidirectional": True} for a, b, rate in links
        ],
    }
    slow = {"src": 5, "dst": 4, "bandwidth": "10GB/s", "bidirectional": True}
    document["links"].append({**slow, "profile": [["1us", "25GB/s"], ["100us", "7GB/s"]]})
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    pairs = {(0, 2): "4KiB", (4, 3): "1000B", (5, 2): "1/3KB", (5, 3): "4KiB"}
    matrix = [[pairs.get((i, j), "0") for j in range(6)] for i in range(6)]
    (tmp_path / "demand.json").write_text(json.dumps({"matrix": matrix}))
    result = solve(path, demand=tmp_path / "demand.json", grid=True, buffer=2, effort="quick")
    assert result.verified
