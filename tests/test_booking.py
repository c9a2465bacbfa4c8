"""Calendars and booking: every transfer at the earliest time the network has for it."""

import random
from fractions import Fraction

import pytest

from teccl.construct.booking import Booking
from teccl.construct.calendars import ExclusiveCalendar, RateCalendar
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import MethodError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.schedule import Schedule
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.verification import verify

US = 10**6
GB = 10**9


def wire(src, dst, *, gbps=50, alpha_ns=500, **more):
    return Link(
        src=src,
        dst=dst,
        bandwidth=Fraction(gbps) * GB,
        alpha=Fraction(alpha_ns, 10**9),
        **more,
    )


def through_switch(*, up=50, down=50, **more):
    """Two GPUs that send through one switch."""
    nodes = (Node(name="a"), Node(name="b"), Node(name="s", kind=NodeKind.SWITCH))
    links = (wire(0, 2, gbps=up, **more), wire(2, 1, gbps=down, **more))
    return Topology(name="pair", nodes=nodes, links=links, shared={"bus": Fraction(50) * GB})


def from_a_to_b(topology, *, num_chunks=1, ready=None, **options):
    """Chunks of 50 KB, which take 1 us at 50 GB/s, from rank 0 to rank 1."""
    tenant = Tenant(
        collective=Collective.EXPLICIT,
        size=Fraction(50_000),
        chunks=(ExplicitChunk((0,), (1,)),) * num_chunks,
        ready=ready or {},
    )
    return Problem(topology=topology, demand=Demand(tenants=(tenant,)), **options)


def booked(booking):
    """Return (chunk, link, start) of every send."""
    return [(int(s["chunk"]), int(s["link"]), int(s["start_ps"])) for s in booking.sends()]


def schedule(booking):
    return Schedule(problem=booking.problem, sends=booking.sends())


def test_exclusive_calendar_uses_a_gap_that_is_long_enough():
    """A transfer goes into the first gap it fits, not behind the last booking."""
    calendar = ExclusiveCalendar()
    calendar.add(0, 10, 1)
    calendar.add(15, 10, 1)
    assert calendar.first_free(0, 5, 1) == 10
    assert calendar.first_free(0, 6, 1) == 25


def test_exclusive_calendar_agrees_with_plain_search():
    """Merging of touching intervals loses no busy time and invents none."""
    rng = random.Random(1)
    calendar, busy = ExclusiveCalendar(), set()
    for _ in range(300):
        length, earliest = rng.randint(1, 6), rng.randint(0, 400)
        start = calendar.first_free(earliest, length, 1)
        wanted = earliest
        while busy & set(range(wanted, wanted + length)):
            wanted += 1
        assert start == wanted
        calendar.add(start, length, 1)
        busy |= set(range(start, start + length))


def test_rate_calendar_agrees_with_plain_search():
    """Circuits are admitted exactly while their rates fit the link at every moment."""
    rng = random.Random(2)
    calendar, used = RateCalendar(10), [0] * 2000
    for _ in range(300):
        length, rate, earliest = rng.randint(1, 6), rng.randint(1, 10), rng.randint(0, 200)
        start = calendar.first_free(earliest, length, rate)
        wanted = earliest
        while max(used[wanted : wanted + length]) + rate > 10:
            wanted += 1
        assert start == wanted
        calendar.add(start, length, rate)
        for moment in range(start, start + length):
            used[moment] += rate


def test_store_and_forward_leaves_a_switch_when_it_has_arrived():
    """The second hop starts after transmission and latency of the first."""
    booking = Booking(from_a_to_b(through_switch()))
    assert booking.carry(0, (0, 1)) == 3 * US
    assert booked(booking) == [(0, 0, 0), (0, 1, 1_500_000)]
    assert not verify(schedule(booking))


def test_cut_through_overlaps_the_hops():
    """The second hop starts after the first latency and both last as long as the slower link."""
    problem = from_a_to_b(through_switch(up=50, down=25), transit=Transit.CUT_THROUGH)
    booking = Booking(problem)
    assert booking.carry(0, (0, 1)) == 3 * US
    assert booked(booking) == [(0, 0, 0), (0, 1, 500_000)]
    assert not verify(schedule(booking))


def test_circuits_share_a_fast_link():
    """Two circuits at half the rate of a link run on it at once."""
    nodes = (*(Node(name=n) for n in "abc"), Node(name="s", kind=NodeKind.SWITCH))
    links = (wire(0, 3, gbps=50), wire(3, 1, gbps=25), wire(3, 2, gbps=25))
    topology = Topology(name="fork", nodes=nodes, links=links)
    chunks = (ExplicitChunk((0,), (1,)), ExplicitChunk((0,), (2,)))
    tenant = Tenant(collective=Collective.EXPLICIT, size=Fraction(50_000), chunks=chunks)
    problem = Problem(
        topology=topology, demand=Demand(tenants=(tenant,)), transit=Transit.CUT_THROUGH
    )
    booking = Booking(problem)
    assert booking.carry(0, (0, 1)) == booking.carry(1, (0, 2)) == 3 * US
    assert not verify(schedule(booking))


def test_hyper_edge_starts_all_hops_at_once():
    """A contracted switch is one link with the smaller rate and the sum of the latencies."""
    problem = from_a_to_b(through_switch(up=50, down=25), switch=SwitchMode.HYPER_EDGE)
    booking = Booking(problem)
    assert booking.carry(0, (0, 1)) == 3 * US
    assert booked(booking) == [(0, 0, 0), (0, 1, 0)]
    assert not verify(schedule(booking))


def test_second_transfer_waits_for_the_busiest_hop():
    """A slow second hop delays the start of the next passage, which cannot wait in the switch."""
    booking = Booking(from_a_to_b(through_switch(up=50, down=25), num_chunks=2))
    assert booking.carry(0, (0, 1)) == 4 * US
    assert booking.carry(1, (0, 1)) == 6 * US
    assert not verify(schedule(booking))


def test_shared_capacity_carries_one_transfer_at_a_time():
    """Links that share a capacity take turns even though they are different links."""
    nodes = (Node(name="a"), Node(name="b"), Node(name="c"))
    links = (wire(0, 1, shares=("nic",)), wire(0, 2, shares=("nic",)))
    topology = Topology(name="nic", nodes=nodes, links=links, shared={"nic": Fraction(50) * GB})
    problem = Problem(topology=topology, demand=Demand.collective("broadcast", size="50KB"))
    booking = Booking(problem)
    assert booking.carry(0, (0,)) == 1_500_000
    assert booking.carry(0, (1,)) == 2_500_000
    assert not verify(schedule(booking))


def test_circuit_that_holds_a_capacity_twice_is_refused():
    """No time is ever free for a circuit whose two links share one capacity."""
    problem = from_a_to_b(through_switch(shares=("bus",)), transit=Transit.CUT_THROUGH)
    with pytest.raises(MethodError, match="from a to b holds a shared capacity twice"):
        Booking(problem).carry(0, (0, 1))


def test_profile_changes_the_length_with_the_start():
    """A transfer that meets a slower time takes longer, and the next one longer still."""
    profile = ((Fraction(500, 10**9), Fraction(25) * GB),)
    nodes = (Node(name="a"), Node(name="b"))
    topology = Topology(name="slow", nodes=nodes, links=(wire(0, 1, profile=profile),))
    booking = Booking(from_a_to_b(topology, num_chunks=2))
    assert booking.carry(0, (0,)) == 2 * US
    assert booking.carry(1, (0,)) == 4 * US
    assert not verify(schedule(booking))


def test_own_data_waits_until_it_is_ready():
    """Nothing leaves before its rank's ready time."""
    problem = from_a_to_b(through_switch(), ready={0: Fraction(2, 10**6)})
    booking = Booking(problem)
    booking.carry(0, (0, 1))
    assert booked(booking)[0] == (0, 0, 2 * US)


def test_route_through_a_gpu_is_stored_there():
    """A GPU on a route starts a transfer of its own and has the chunk afterwards."""
    problem = Problem(
        topology=Topology.parse("line:gpus=3"), demand=Demand.collective("broadcast", size="50KB")
    )
    booking = Booking(problem)
    route = problem.topology.find_links("gpu0>gpu1") + problem.topology.find_links("gpu1>gpu2")
    assert booking.carry(0, route) == 3 * US
    assert booking.available(0, 1) == 1_500_000
    assert sorted(booking.sends()["transfer"].tolist()) == [0, 1]
    assert not verify(schedule(booking))


def test_copy_is_not_delivered_twice():
    """What a relay received on the way to another GPU is not sent to it again."""
    problem = Problem(
        topology=Topology.parse("line:gpus=4"), demand=Demand.collective("broadcast", size="50KB")
    )
    booking = Booking(problem)
    first, second, third = (problem.topology.find_links(f"gpu{i}>gpu{i + 1}")[0] for i in range(3))
    booking.deliver(0, (first, second))
    booking.deliver(0, (first,))
    booking.deliver(0, (first, second, third))
    assert [link for _, link, _ in booked(booking)] == [first, second, third]
    assert not verify(schedule(booking))


def test_sum_waits_for_all_contributions():
    """A GPU sends its partial sum on when the last contribution to it has arrived."""
    problem = Problem(
        topology=Topology.parse("line:gpus=4"),
        demand=Demand.collective("reduce", size="50KB", root=3),
    )
    booking, find = Booking(problem), problem.topology.find_links
    booking.carry(0, find("gpu0>gpu1"), reduce=True)
    booking.carry(0, find("gpu1>gpu2"), reduce=True)
    assert booking.carry(0, find("gpu2>gpu3"), reduce=True) == 4_500_000
    assert not verify(schedule(booking))


def test_chunk_that_a_node_never_has_is_refused():
    """Booking from a GPU that has nothing is a mistake of the caller, named at once."""
    booking = Booking(from_a_to_b(through_switch()))
    with pytest.raises(ValueError, match="node 1 never has chunk 0"):
        booking.available(0, 1)


def test_a_copy_that_parts_in_a_switch_is_one_transfer():
    """Where rates change a passage may be a tree: each output starts when the input has come."""
    nodes = [Node(name=name) for name in "abc"] + [Node(name="s", kind=NodeKind.SWITCH)]
    late = ((Fraction(1, 10**6), Fraction(25 * GB)),)
    links = [wire(0, 3), wire(3, 1), wire(3, 2, profile=late)]
    topology = Topology(name="y", nodes=tuple(nodes), links=tuple(links))
    demand = Demand.collective("broadcast", size="50KB")
    booking = Booking(Problem(topology=topology, demand=demand))
    assert booking.carry(0, (0, 1, 2)) == 4 * US
    assert booking.available(0, 1) == 3 * US
    sends = booking.sends()
    assert sends["start_ps"].tolist() == [0, 3 * US // 2, 3 * US // 2]
    assert set(sends["transfer"].tolist()) == {0}
    assert not verify(Schedule(problem=booking.problem, sends=sends))
