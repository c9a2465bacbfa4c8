"""Trains: chunks between two GPUs in a fixed rhythm, beside others of the same rhythm."""

from fractions import Fraction

import numpy as np
import pytest
from tests.construct.small import make_instance, verified

from teccl.construct.goal import Goal
from teccl.construct.insertion import inserted_plans
from teccl.construct.trains import (
    _interlaced,
    _interlacing,
    _Places,
    _trains,
    is_staged_exchange,
    train_plans,
)
from teccl.demand import Collective, Demand, Tenant
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


def test_chunks_of_a_train_wait_until_they_are_ready():
    """Two tenants' chunks share a train; the second one's are ready late."""
    late = (Fraction(1, 7 * 10**6), Fraction(0), Fraction(1, 10**5), Fraction(0))
    tenants = [
        Tenant(collective=Collective.ALLTOALL, size=Fraction(7), name=name, ready=ready)
        for name, ready in (("soon", {}), ("late", dict(enumerate(late))))
    ]
    instance = make_instance(fabric(2, 2, 1, "40GB/s"), Demand(tenants=tuple(tenants)))
    assert is_staged_exchange(instance)
    for plan in train_plans(instance, Goal(**GOAL)):
        assert verified(instance, plan).finish_ps >= 10**7


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
        (fabric(2, 2, 1, "40GB/s"), "allgather", 4),
        ("ring:gpus=4", "alltoall", 4),
    ],
)
def test_nothing_else_is_served(network, collective, chunks):
    """One switch, copies and direct links need no rhythm."""
    assert not is_staged_exchange(make_instance(network, collective, num_chunks=chunks))


def test_relays_are_not_served():
    """Where a GPU is reached through another one, no train goes all the way."""
    network = fabric(2, 2, 1, "40GB/s")
    network["nodes"].append({"name": "gpu9"})
    wire = {"src": "gpu0", "dst": "gpu9", "bandwidth": "40GB/s", "alpha": "1us"}
    network["links"].append({**wire, "bidirectional": True})
    assert isinstance(topology_from_dict(network), Topology)
    assert not is_staged_exchange(make_instance(network, "alltoall", num_chunks=2))


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("ways", range(1, 6))
@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
def test_interlaced_trains_never_meet(size, ways, chunks):
    """On each way uses are as far apart as can be, and nobody sends or receives two at once."""
    ports, used = {}, {}
    for turn in range(3 * size):
        for sender in range(size):
            rotation, begin = _interlacing(sender + turn, turn * chunks, size, ways)
            for end in (("out", sender), ("in", (sender + turn) % size)):
                ports.setdefault(end, []).append(begin)
            for chunk in range(chunks):
                used.setdefault((chunk + rotation) % ways, []).append(begin + chunk * size)
    assert all(np.diff(sorted(times)).min(initial=ways) >= ways for times in used.values())
    assert all(np.diff(times).min() >= chunks * size for times in ports.values())


@pytest.mark.parametrize("gpus", [4, 5])
def test_uplinks_that_are_just_enough_are_filled(gpus):
    """GPUs behind three uplinks that carry as much as all of them send wait for next to nothing."""
    network = fabric(3, gpus, 3, f"{gpus * 40 / 3:.2f}GB/s")
    instance = make_instance(network, "alltoall", size="12MB", num_chunks=32)
    least = 12_000_000 * (3 * gpus - 1) / (3 * gpus) / 40e9 * 1e12
    trains = _interlaced(instance)
    assert trains is not None
    assert verified(instance, next(iter(train_plans(instance, Goal(**GOAL))))).finish_ps < (
        1.03 * least
    )


def test_uplinks_that_carry_less_are_not_interlaced():
    """Where a leaf sends more than its uplinks carry, moments would not be those written down."""
    instance = make_instance(fabric(3, 4, 2, "60GB/s"), "alltoall", size="12MB", num_chunks=4)
    assert _interlaced(instance) is None


def test_leaves_of_different_sizes_are_not_interlaced():
    """Rounds pair equal places of switches that are alike."""
    network = fabric(2, 3, 2, "60GB/s")
    network["nodes"].append({"name": "gpu6"})
    network["links"].append(network["links"][0] | {"src": "gpu6"})
    instance = make_instance(network, "alltoall", size="12MB", num_chunks=4)
    assert is_staged_exchange(instance)
    assert _interlaced(instance) is None
