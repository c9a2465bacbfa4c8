"""Instances: routes, what they hold and how long they take, worked by hand."""

from typing import Any

import numpy as np
import pytest
from tests.construct.small import SWITCHED_PAIR, make_instance

from teccl.construct.instance import in_own_time
from teccl.demand.demand_files import demand_from_dict
from teccl.problem import SwitchMode, Transit

US = 10**6


def test_direct_link_is_a_route() -> None:
    """Without switches every link is a route that is held for b/C and arrives alpha later."""
    made = make_instance("ring:gpus=4", "allgather")
    routes = made.routes
    assert routes.ways() == [(e,) for e in range(8)]
    assert set(routes.res_hold.tolist()) == {5 * US}
    assert set(routes.length.tolist()) == {5 * US + US // 2}


@pytest.mark.parametrize(
    ("options", "offsets", "holds", "length"),
    [
        # 0.5 us in, 1 us of latency, then out for 1 us and 2 us of latency.
        ({}, [0, 1.5], [0.5, 1], 4.5),
        # Both links at the slower rate, the second one latency later.
        ({"transit": Transit.CUT_THROUGH}, [0, 1], [1, 1], 4),
        # One link of the smaller rate and both latencies.
        ({"switch": SwitchMode.HYPER_EDGE}, [0, 0], [1, 1], 4),
    ],
    ids=["store-and-forward", "cut-through", "hyper-edge"],
)
def test_passage_through_a_switch(
    options: dict[str, Any], offsets: list[float], holds: list[float], length: float
) -> None:
    """A passage holds its links from their offsets on, as the transit mode says."""
    routes = make_instance(SWITCHED_PAIR, "allgather", "2KB", **options).routes
    assert routes.ways() == [(0, 1), (2, 3)]
    assert (routes.src.tolist(), routes.dst.tolist()) == ([0, 1], [1, 0])
    for route in range(2):
        entries = slice(routes.res_start[route], routes.res_start[route + 1])
        assert (routes.res_offset[entries] / US).tolist() == offsets
        assert (routes.res_hold[entries] / US).tolist() == holds
        assert routes.length[route] / US == length


def test_passage_on_the_grid() -> None:
    """In epochs of 1 us kappa is 1 on both links and their latencies are 1 and 2."""
    routes = make_instance(SWITCHED_PAIR, "allgather", "2KB", epoch="1us").routes
    assert routes.res_offset.tolist() == [0, 2, 0, 2]
    assert routes.length.tolist() == [5, 5]


def test_grid_links_take_several_chunks() -> None:
    """A link that is twice as fast as the slowest starts two chunks in one of its epochs."""
    made = make_instance(SWITCHED_PAIR, "allgather", "2KB", epoch="slowest")
    assert made.slots.tolist() == [2, 1, 2, 1]


def test_grid_links_take_few_chunks_when_they_are_slow() -> None:
    """A link that becomes slow later starts no more chunks at once than it takes then."""
    link = {"src": 0, "dst": 1, "bandwidth": "4GB/s", "bidirectional": True}
    slow = {**link, "src": 1, "dst": 2, "profile": [["1us", "1GB/s"]]}
    made = make_instance({"nodes": 3, "links": [link, slow]}, "allgather", "12KB", epoch="2us")
    assert made.slots.tolist() == [2, 2, 1, 1]
    assert made.hold.tolist() == [1, 1, 2, 2]


def test_shared_capacity_is_a_resource() -> None:
    """A link that shares a capacity holds it together with itself."""
    document = {
        "nodes": 3,
        "links": [
            {"src": 0, "dst": 1, "bandwidth": "1GB/s", "shares": ["nic"]},
            {"src": 0, "dst": 2, "bandwidth": "1GB/s", "shares": ["nic"]},
        ],
        "shared": {"nic": "1GB/s"},
    }
    made = make_instance(document, "broadcast", "1KB")
    assert made.num_resources == 3
    assert made.routes.res.tolist() == [0, 2, 1, 2]


def test_each_size_has_its_times() -> None:
    """The shorter last chunk of a smaller block is timed on its own."""
    demand = demand_from_dict({"matrix": [[0, "2KB"], ["500B", 0]]})
    link = {"src": 0, "dst": 1, "bandwidth": "1GB/s", "bidirectional": True}
    document = {"nodes": 2, "links": [link]}
    full = make_instance(document, demand)
    assert full.problem.chunks.sizes == (2000, 500)
    assert set(full.hold.tolist()) == {2 * US}
    rows = np.array([[chunk, 0, 0, chunk, 0] for chunk in range(2)])
    timed, own = in_own_time(full, rows)
    assert timed.routes.res_hold[own[:, 1]].tolist() == [2 * US, US // 2]


def test_ready_times_are_rounded_up_to_epochs() -> None:
    """Data that is ready within an epoch may be sent from the next one on."""
    demand = demand_from_dict({"collective": "allgather", "size": "2KB", "ready": {"1": "1.2us"}})
    assert make_instance(SWITCHED_PAIR, demand, epoch="1us").ready.tolist() == [[0, 2, 0]]
    assert make_instance(SWITCHED_PAIR, demand).ready.tolist() == [[0, 1_200_000, 0]]
