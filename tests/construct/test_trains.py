"""Trains: chunks between two GPUs in a fixed rhythm, beside others of the same rhythm."""

import numpy as np
import pytest
from tests.construct.small import make_instance, verified

from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans
from teccl.construct.trains import _Places, _trains, is_staged_exchange, train_plans
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict


def fabric(leaves: int, gpus: int, spines: int, uplink: str) -> dict:
    """Leaves with GPUs at 40 GB/s and spines above them."""
    kinds = {"leaf": leaves, "spine": spines}
    nodes = [{"name": f"gpu{n}"} for n in range(leaves * gpus)]
    nodes += [
        {"name": f"{kind}{n}", "kind": "switch"} for kind in kinds for n in range(kinds[kind])
    ]
    wires = [(f"gpu{n}", f"leaf{n // gpus}", "40GB/s") for n in range(leaves * gpus)]
    wires += [(f"leaf{a}", f"spine{b}", uplink) for a in range(leaves) for b in range(spines)]
    links = [
        {"src": src, "dst": dst, "bandwidth": rate, "alpha": "0.5us", "bidirectional": True}
        for src, dst, rate in wires
    ]
    return {"schema_version": 1, "nodes": nodes, "links": links}


GOAL = {"target": 1, "allowance": 10**9}


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((4, 3, 2, "60GB/s"), 8), ((2, 4, 4, "20GB/s"), 4), ((3, 2, 1, "80GB/s"), 3)],
)
def test_trains_become_schedules(shape, chunks):
    """Plans of trains, and of their chunks one by one, pass verification."""
    instance = make_instance(fabric(*shape), "alltoall", size="12MB", num_chunks=chunks)
    assert is_staged_exchange(instance)
    found = list(train_plans(instance, Goal(**GOAL)))
    assert found
    assert [plan.finish for plan in found] == sorted((p.finish for p in found), reverse=True)
    for plan in found:
        assert verified(instance, plan).finish_ps <= plan.finish


def test_uplinks_half_as_fast_again_are_kept_busy():
    """Three GPUs fill two uplinks that each take one and a half of them, as no other order does."""
    network = fabric(4, 3, 2, "60GB/s")
    instance = make_instance(network, "alltoall", size="12MB", num_chunks=32)
    # Each GPU sends and receives 11 MB at 40 GB/s.
    least = 275_000_000
    trains = min(plan.finish for plan in train_plans(instance, Goal(**GOAL)))
    inserted = min(plan.finish for plan in inserted_plans(instance, Goal(**GOAL)))
    assert trains < 1.05 * least
    assert trains < inserted


def test_every_train_takes_its_ways_in_turns():
    """A train has a rotation for each of its ways, which it takes one after another."""
    instance = make_instance(fabric(2, 2, 2, "40GB/s"), "alltoall", num_chunks=4)
    trains = _trains(instance, across=True, is_free=True)
    sizes = np.diff(trains.first)
    # Behind one leaf there is one way to each, to the other leaf one over each spine.
    assert sorted(set(sizes.tolist())) == [1, 2]
    for number in np.unique(trains.number).tolist():
        routes = trains.route[trains.number == number].tolist()
        assert len(routes) == 4
        assert routes[0] == routes[2]


def test_rounds_pair_each_gpu_once():
    """In a round every GPU sends to one and receives from one."""
    network = topology_from_dict(fabric(3, 2, 1, "40GB/s"))
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    ordered = _Places.of(network, pairs).in_rounds(pairs, across=True)
    assert sorted(ordered) == pairs
    for begin in range(0, len(ordered), 6):
        turn = ordered[begin : begin + 6]
        assert sorted(a for a, _ in turn) == sorted(b for _, b in turn) == list(range(6))


@pytest.mark.parametrize(
    ("network", "collective", "chunks"),
    [
        ("dgx2:chassis=1", "alltoall", 4),
        (fabric(2, 2, 1, "40GB/s"), "alltoall", 1),
        (fabric(2, 2, 1, "40GB/s"), "allgather", 4),
        ("ring:gpus=4", "alltoall", 4),
    ],
)
def test_nothing_else_is_served(network, collective, chunks):
    """One switch, one chunk, copies and direct links need no rhythm."""
    assert not is_staged_exchange(make_instance(network, collective, num_chunks=chunks))


def test_relays_are_not_served():
    """Where a GPU is reached through another one, no train goes all the way."""
    network = fabric(2, 2, 1, "40GB/s")
    network["nodes"].append({"name": "gpu9"})
    wire = {"src": "gpu0", "dst": "gpu9", "bandwidth": "40GB/s", "alpha": "1us"}
    network["links"].append({**wire, "bidirectional": True})
    assert isinstance(topology_from_dict(network), Topology)
    assert not is_staged_exchange(make_instance(network, "alltoall", num_chunks=2))
