"""Bounds worked out by hand, mistakes that look like bounds, and relations between bounds."""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.bounds.instances import random_problem
from tests.verification.helpers import US, net, task, wants, with_profile

from teccl.bounds import Bound, all_bounds, summarise
from teccl.bounds.coverage import coverage_bounds
from teccl.bounds.cuts import Cut, cut_estimate
from teccl.bounds.entries import entry_bounds
from teccl.bounds.network import Network
from teccl.bounds.quickest import quickest_bound
from teccl.demand import Collective, Demand, Tenant
from teccl.problem import Problem, SwitchMode, Transit
from teccl.timegrid import TimeGrid
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict


def collective(spec: str | Topology, name: str, size: str | int, **options) -> Problem:
    demand = Demand.collective(name, size=size)
    return Problem(topology=Topology.parse(spec), demand=demand, **options)


def physical_us(problem: Problem) -> Fraction:
    """The physical bound in microseconds."""
    return Fraction(summarise(problem).physical_ps, US)


def whole_us(problem: Problem) -> Fraction:
    """The bound for the given chunks in microseconds."""
    return Fraction(summarise(problem, given_chunks=True).chunk_ps or 0, US)


def epochs(problem: Problem, epoch: str) -> int | None:
    return summarise(problem, grid=TimeGrid.build(problem, epoch)).epochs


# Values on machines


@pytest.mark.parametrize(
    ("name", "size"), [("reducescatter", "80KB"), ("allgather", "80KB"), ("allreduce", "20KB")]
)
def test_what_is_beside_a_link_that_falls_waits_or_takes_another_way(name, size):
    """20 KB from one GPU to another: 10 KB directly, then 5 GB/s there and 100 GB/s over two hops.

    10 + 5 (T - 0.7) + 100 (T - 1) = 20, whichever pair of GPUs it is.
    """
    for ends in ("gpu0>gpu1", "gpu2>gpu3", "gpu3>gpu1"):
        topology = with_profile(Topology.parse("fully-connected:gpus=4"), ends, ("0.2", 5))
        problem = collective(topology, name, size)
        assert physical_us(problem) == Fraction(1_080_952, 10**6)


@pytest.mark.parametrize(
    ("size", "epoch", "bound"), [("1GB", "1250us", 35), ("64KB", "0.08us", 76)]
)
def test_grid_bound_of_the_papers_rows(size, epoch, bound):
    """Chunks cross between NDv2 chassis at a quarter of the speed within them.

    At 1 GB latency is negligible: eight chunks of four epochs each, and three epochs to the
    farthest GPU, 8 * 4 + 3. At 64 KB seven of them reach the gate after 1 + 9 epochs; behind it
    are 17 epochs of latency and two hops of 1 + 9 and 2 + 9: 10 + 7 * 4 + 17 + 21.
    """
    assert epochs(collective("ndv2:chassis=2", "allgather", size), epoch) == bound


def test_physical_bound_of_a_small_allgather_on_two_chassis():
    """Seven of eight chunks reach the gate after 0.7 us and still need 2.7 us behind it."""
    problem = collective("ndv2:chassis=2", "allgather", "64KB")
    assert physical_us(problem) == Fraction("0.7") + 7 * Fraction("0.32") + Fraction("2.7")


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        # 14 * 256 MB into eight GPUs of 150 GB/s each.
        ("dgx1:alpha=0", Fraction(14 * 256_000, 1200)),
        # 2 * 256 MB into two chassis of 12.5 GB/s each.
        ("ndv2:chassis=2,alpha=0", Fraction(20480)),
        # 6 * 256 MB into four chassis of 12.5 GB/s each.
        ("ndv2:chassis=4,alpha=0", Fraction(30720)),
        # 62 * 256 MB into 32 GPUs of 131.25 GB/s each.
        ("dgx2:chassis=2,alpha=0", Fraction(62 * 256_000, 4200)),
    ],
)
def test_allreduce_of_256_megabytes(spec, bound):
    """Every part of the best partition receives its share twice over."""
    found = physical_us(collective(spec, "allreduce", "256MB"))
    assert bound - Fraction(1, US) <= found <= bound


def test_alltoall_between_the_quads_of_a_dgx1():
    """Sixteen pieces of 32 MB go each way between the quads, over links of 150 GB/s in all."""
    found = summarise(collective("dgx1:alpha=0", "alltoall", "256MB")).physical_ps
    assert found == 16 * 32 * 10**18 // (150 * 10**9)


@pytest.mark.parametrize(("chunks", "bound"), [(1, 3), (3, 8), (8, 22)])
def test_alltoall_between_the_quads_of_a_dgx1_in_epochs(chunks, bound):
    """16 chunks each way for each, and six that the links between the quads take in an epoch."""
    demand = Demand.collective("alltoall", size="1MB")
    topology = Topology.parse("dgx1:alpha=0")
    problem = Problem(topology=topology, demand=demand, num_chunks=chunks)
    assert epochs(problem, "slowest") == bound


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_dgx1_needs_one_epoch_more_than_chunks(chunks):
    """A GPU takes in seven chunks of each piece over six slots an epoch, at alpha zero."""
    size = f"{200 * chunks}KB"
    problem = collective("dgx1:alpha=0", "allgather", size, num_chunks=chunks)
    assert epochs(problem, "slowest") == chunks + 1


# Mistakes that look like bounds


def test_parallel_links_share_the_bytes():
    """Two parallel links take alpha + b/2C, not alpha + b/C."""
    problem = task(net("a b", "a>b 1 3, a>b 1 3"), wants(((0,), (1,))))
    assert physical_us(problem) == Fraction("3.5")


def test_the_near_way_may_be_the_thin_one():
    """The least latency and the width of its link do not add up to a bound."""
    problem = task(net("a b", "a>b 1/1000 0, a>b 1 4"), wants(((0,), (1,))))
    assert physical_us(problem) < 5


def test_fluid_pays_transmission_once():
    """Over two hops fluid data takes the latencies and one transmission."""
    problem = task(net("a b c", "a>b 1 2, b>c 1 2"), wants(((0,), (2,))))
    assert physical_us(problem) == 5


def test_whole_chunks_pay_transmission_per_hop():
    """A whole chunk must arrive before it goes on."""
    problem = task(net("a b c", "a>b 1 2, b>c 1 2"), wants(((0,), (2,))))
    assert whole_us(problem) == 6


def test_a_source_sends_its_share_once():
    """A slow output of an AllGather source carries its share, not one copy per destination."""
    topology = net("a b c d", "b-c, c-d, b-d, b>a, c>a, d>a, a>b 1/5")
    assert physical_us(collective(topology, "allgather", 4000)) == 5


def test_a_chunk_may_cross_a_cut_twice():
    """Destinations far apart behind different links are each near to one of them."""
    problem = task(net("a b c", "a>b, a>c, b-c 1 10"), wants(((0,), (1, 2))))
    assert physical_us(problem) == 1


def test_far_data_may_wait_for_near_data():
    """A link is busy from the first that can reach it to the last that may leave it.

    What starts at once and goes on for 10 us crosses first, what comes after 10 us and ends there
    second: the latencies around the link overlap.
    """
    topology = net("a b c d u v", "a>u, c>u 1 10, u>v 1/10, v>b 1 10, v>d")
    assert physical_us(task(topology, wants(((0,), (1,)), ((2,), (3,))))) == 20


def test_allreduce_on_a_line_is_not_two_phases():
    """Reduce and broadcast overlap on a line: S/B, where two phases one by one take 4S/3B."""
    problem = collective(net("a b c", "a-b, b-c"), "allreduce", 3000)
    assert physical_us(problem) == 3


def test_one_chassis_may_be_narrow_inside_and_the_others_between_them():
    """A slow GPU makes its chassis count by GPUs: 20 * S into 3375 and 1575 GB/s."""
    slow = Topology.parse("dgx-h100:chassis=4,alpha=0").degraded({"c0/gpu0:*": Fraction(1, 2)})
    bound = Fraction(20 * 256_000, 3375 + 1575)
    found = physical_us(collective(slow, "allreduce", "256MB"))
    assert bound - Fraction(1, US) <= found <= bound


def test_a_relay_that_combines_saves_entries():
    """Members around a hub that is a GPU finish an AllReduce in S/C."""
    topology = net("a b c d hub", "a-hub, b-hub, c-hub, d-hub")
    demand = Demand.collective("allreduce", size=4000, ranks=[0, 1, 2, 3])
    assert physical_us(Problem(topology=topology, demand=demand)) == 4


def test_neighbours_with_a_wide_link_between_them_are_one_part():
    """Pairs of an MI250 package: 2 * 7 * 64 GB into eight packages at 2.4 TB/s, after 0.7 us."""
    found = physical_us(collective("mi250", "allreduce", "64GB"))
    assert found == Fraction(2 * 7 * 64 * 10**9, 2_400_000) + Fraction(7, 10) - Fraction(1, 3 * US)


def test_relays_are_merged_into_parts():
    """A relay at a wide link adds up for its member only: 2 * S into two parts at 2 GB/s."""
    topology = net("a b ra rb", "a-ra 100, b-rb 100, ra-rb")
    demand = Demand.collective("allreduce", size=4000, ranks=[0, 1])
    bounds = all_bounds(Problem(topology=topology, demand=demand))
    assert max(bound.value for bound in bounds if bound.kind == "partition") == 4 * US


def test_switches_behind_a_narrow_link_are_part_of_their_gpu():
    """Three GPUs with a switch of their own each: 4 * S into parts at 3 GB/s, not at 30 GB/s."""
    topology = net("a b c | sa sb sc m", "a-sa 10, b-sb 10, c-sc 10, sa-m, sb-m, sc-m")
    demand = Demand.collective("allreduce", size=3000)
    bounds = all_bounds(Problem(topology=topology, demand=demand))
    assert max(bound.value for bound in bounds if bound.kind == "partition") == 4 * US


def test_entries_pay_the_way_to_them_and_from_them():
    """Chassis that exchange over relays pay the latencies on both sides of the link between."""
    topology = net("a b ra rb", "a-ra 100 2, b-rb 100 3, ra-rb 1 1")
    demand = Demand.collective("allreduce", size=4000, ranks=[0, 1])
    bounds = all_bounds(Problem(topology=topology, demand=demand))
    assert max(bound.value for bound in bounds if bound.kind == "partition") == 10 * US


@pytest.mark.parametrize("switch", ["s", "s+"])
def test_sums_in_a_switch_save_no_departures_without_copies(switch):
    """Each of four members sends its contributions and its results to three others: 6 S / 4 C."""
    topology = net(f"a b c d | {switch}", "a-s, b-s, c-s, d-s")
    problem = collective(topology, "allreduce", 4000, switch=SwitchMode.NO_COPY)
    assert physical_us(problem) == 6


def test_what_comes_late_serves_few():
    """Inside chassis data takes 0.6 us a hop: 50 GB/s * (27 T - 75.3 us) must be 12 * 64 KB."""
    problem = collective("internal1:chassis=4", "broadcast", "64KB", switch=SwitchMode.NO_COPY)
    assert physical_us(problem) == Fraction(int(Fraction(9066, 2700) * US), US)


def test_what_enters_a_chassis_early_is_a_sum_of_few():
    """A root's chassis has four inputs, 0.75 to 1.95 us before the root, for twelve contributions.

    A byte there carries one of them after 0.75 us, three after 1.35 us, four after 1.95 us and more
    after 2.25 us. So 50 GB/s * (23 T - 63.3 us) must be 12 * 64 KB.
    """
    problem = collective("internal1:chassis=4", "reduce", "64KB")
    assert physical_us(problem) == Fraction(int(Fraction(7866, 2300) * US) - 1, US)


def test_a_copying_switch_serves_a_chassis_at_once():
    """Copies that part in the switch are no fewer for coming late."""
    problem = collective("internal1:chassis=4", "broadcast", "64KB")
    assert Fraction(272, 100) < physical_us(problem) < Fraction(273, 100)


def test_reduce_enters_chassis_once_each():
    """A Reduce has the partition of an AllReduce: three chassis' sums cross the switch."""
    bounds = all_bounds(collective("internal1:chassis=4", "reduce", "64KB"))
    found = max(bound.value for bound in bounds if bound.kind == "partition")
    # 200 GB/s from 2.1 us on the mean, and 12 links of 50 GB/s from 3 us on.
    assert found == int(Fraction(192 + 420 + 1800, 800) * US)


def test_a_plain_switch_combines_nothing():
    """Around a switch that does not reduce, every member takes in its share twice over."""
    topology = net("a b c d | s", "a-s, b-s, c-s, d-s")
    assert physical_us(collective(topology, "allreduce", 4000)) == 6


def test_a_reducing_switch_combines():
    """Around a switch that reduces, S goes in and S comes out."""
    topology = net("a b c d | s+", "a-s, b-s, c-s, d-s")
    assert physical_us(collective(topology, "allreduce", 4000)) == 4


def test_what_a_holder_inside_has_need_not_cross():
    """A chunk that someone on the near side holds stays out of the cut."""
    problem = task(net("a b c", "a>b 1/100, c>b"), wants(((0, 2), (1,))))
    assert physical_us(problem) < 2


# Tenants


def together(spec: str | Topology, *tenants: Tenant) -> Problem:
    return Problem(topology=Topology.parse(spec), demand=Demand(tenants=tenants))


def tenant(name: str, size: int, ranks: range, called: str) -> Tenant:
    return Tenant(collective=Collective(name), size=Fraction(size), ranks=tuple(ranks), name=called)


def test_tenants_together_take_no_less_than_one_alone():
    """An AllReduce is as hard with another collective beside it."""
    first = tenant("allreduce", 10**6, range(4), "a")
    second = tenant("alltoall", 10**6, range(4, 8), "b")
    alone = physical_us(together("dgx1", first))
    assert physical_us(together("dgx1", first, second)) >= alone


def test_copies_of_one_tenant_and_pairs_of_another_share_links():
    """On a ring of four an AllToAll covers 16 hops of b, an AllGather 12: 28 kB on 8 GB/s."""
    ring = net("a b c d", "a-b, b-c, c-d, d-a")
    first, second = (
        tenant("allgather", 4000, range(4), "a"),
        tenant("alltoall", 4000, range(4), "b"),
    )
    assert physical_us(together(ring, first, second)) == Fraction(28, 8)


def test_sums_of_one_tenant_and_pairs_of_another_share_links():
    """An AllReduce of 4 kB enters the GPUs of a ring six times in all: 16 + 24 kB on 8 GB/s."""
    ring = net("a b c d", "a-b, b-c, c-d, d-a")
    first, second = (
        tenant("allreduce", 4000, range(4), "a"),
        tenant("alltoall", 4000, range(4), "b"),
    )
    assert physical_us(together(ring, first, second)) == 5


# Coverage


def coverage(problem: Problem) -> list[Bound]:
    """The coverage bounds of inputs and of outputs."""
    return coverage_bounds(Network.build(problem, fluid=True))


def test_contributions_come_one_by_one_until_sums_can_come():
    """Around a switch two contributions come apart from 2 us on, the third in a sum at 4 us."""
    problem = collective(
        net("a b c d | s", "a-s 1 1, b-s 1 1, c-s 1 1, d-s 1 1"), "allreduce", 1000
    )
    assert [bound.value for bound in coverage(problem)] == [13 * US // 3, 3 * US]
    assert coverage(problem)[0].certificate == (
        "3KB of contributions from 3 GPUs must enter a at 1GB/s; before 4 us nothing that arrives "
        "there can be a sum of more than one"
    )


def test_a_reducing_switch_is_a_place_where_contributions_meet():
    """A switch that adds up lets everything come as one."""
    star = net("a b c d | s+", "a-s 1 1, b-s 1 1, c-s 1 1, d-s 1 1")
    assert coverage(collective(star, "allreduce", 1000))[0].value == 3 * US


@pytest.mark.parametrize(
    ("mode", "bound"), [(SwitchMode.COPY, 3 * US), (SwitchMode.NO_COPY, 13 * US // 3)]
)
def test_outputs_serve_all_at_once_only_where_switches_copy(mode, bound):
    """What leaves less than 4 us before the end goes to one GPU, unless the switch copies."""
    links = ", ".join(f"s>{name} 9 1, {name}>s 1 1" for name in "abcd")
    problem = collective(net("a b c d | s", links), "allreduce", 1000, switch=mode)
    assert coverage(problem)[1].value == bound


def test_gpus_behind_one_card_take_in_contributions_by_turns():
    """Until 4 us two contributions come to a or b, then four more, three in every byte."""
    links = "s>a 1 1 /nic, s>b 1 1 /nic, s>c 9 1, s>d 9 1"
    outputs = ", ".join(f"{name}>s 9 1" for name in "abcd")
    topology = net("a b c d | s", f"{links}, {outputs}", {"nic": "1"})
    bound = coverage(collective(topology, "allreduce", 1000))[0]
    assert bound.value == 16 * US // 3
    assert bound.certificate == (
        "6KB of contributions from 4 GPUs must enter a and b at 1GB/s; before 4 us nothing that "
        "arrives there can be a sum of more than one"
    )


def test_what_comes_over_the_busiest_input_alone_may_bind():
    """Of four contributions two may come over the fast link; the others wait for the slow one."""
    topology = net(
        "v a b c d | s",
        "a>s 9 1, b>s 9 1, c>s 9 1, d>s 9 1, s>v 1 1, c>d 9 1, d>c 9 1, d>v 9 1, a>c 9 9, b>c 9 9",
    )
    problem = Problem(topology=topology, demand=Demand.collective("reduce", size=4000, root=0))
    assert coverage(problem)[0].value == 10 * US


def test_far_contributors_alone_may_bind():
    """Two far contributions come apart from 6 us on; with the near one it would be 5 us in all."""
    topology = net("a b v c | s", "a>s 1 5, b>s 1 5, c>s 1 1, s>v 1 1, a-b 1 9")
    problem = Problem(topology=topology, demand=Demand.collective("reduce", size=1000, root=2))
    assert coverage(problem)[0].value == 8 * US


def test_a_contribution_has_not_passed_its_destination_before():
    """On a line with the root in the middle the sides cannot add up each other's contributions."""
    topology = net("a v b", "a-v 1 1, b-v 1 1")
    problem = Problem(topology=topology, demand=Demand.collective("reduce", size=4000, root=1))
    assert coverage(problem)[0].value == 5 * US


# Modes


def test_circuits_of_half_the_rate_go_side_by_side():
    """Two slow inputs share a fast output, which is no second transmission after the first."""
    topology = net("a b c | s", "a>s 1/2, b>s 1/2, s>c")
    problem = task(topology, wants(((0,), (2,)), ((1,), (2,))), transit=Transit.CUT_THROUGH)
    assert whole_us(problem) == 2


def test_circuits_of_half_the_rate_go_side_by_side_on_the_grid():
    """The same in epochs: two circuits of two epochs each fill the output together."""
    topology = net("a b c | s", "a>s 1/2, b>s 1/2, s>c")
    problem = task(topology, wants(((0,), (2,)), ((1,), (2,))), transit=Transit.CUT_THROUGH)
    assert epochs(problem, "1us") == 2


def test_output_of_a_circuit_is_one_machine():
    """Three chunks over one output take three transmissions, begun after the input's latency."""
    topology = net("a b c d | s", "a>s 1 2, b>s 1 2, c>s 1 2, s>d")
    chunks = [((i,), (3,)) for i in range(3)]
    assert whole_us(task(topology, wants(*chunks), transit=Transit.CUT_THROUGH)) == 5


def test_hyper_edges_hold_both_ports_from_the_start():
    """What has a long way to the switch holds the output early, so latencies overlap.

    From a in [0, 4] and from b, which is ready at 4, in [4, 8]; both arrive at 9.
    """
    topology = net("a b c | s", "a>s 1/4 5, b>s 1/4 1, s>c 1/4 0")
    tenant = wants(((0,), (2,)), ((1,), (2,)), ready={1: 4})
    assert physical_us(task(topology, tenant, switch=SwitchMode.HYPER_EDGE)) <= 9


def test_output_of_hyper_edges_is_one_machine():
    """Three chunks over one output port take three transmissions and both latencies."""
    topology = net("a b c d | s", "a>s 1 2, b>s 1 2, c>s 1 2, s>d 1 1")
    chunks = [((i,), (3,)) for i in range(3)]
    assert whole_us(task(topology, wants(*chunks), switch=SwitchMode.HYPER_EDGE)) == 6


@pytest.mark.parametrize("bound_us", [physical_us, whole_us])
def test_hyper_edges_hold_fast_links_for_as_long_as_slow_ones(bound_us):
    """Two chunks take turns on a link of four times the rate, at the rate of their own ports."""
    topology = net("a b c d | s t", "a>s 1, b>s 1, s>t 4, t>c 1, t>d 1")
    chunks = [((0,), (2,)), ((1,), (3,))]
    assert bound_us(task(topology, wants(*chunks), switch=SwitchMode.HYPER_EDGE)) == 2


def test_hyper_edges_use_the_widest_way_over_a_link():
    """One port is as fast as the link between the switches, so that the link may be, too."""
    topology = net("a b c d | s t", "a>s 4, b>s 1, s>t 4, t>c 4, t>d 4")
    chunks = [((0,), (2,)), ((0,), (3,))]
    assert physical_us(task(topology, wants(*chunks), switch=SwitchMode.HYPER_EDGE)) == Fraction(
        1, 2
    )


def test_every_result_without_copies_has_contributions_of_its_own():
    """What a GPU received of a sum goes into one result, so all send their buffer to all others."""
    star = net("a b c | s", "a-s 1, b-s 1, c-s 1")
    problem = collective(star, "allreduce", 3000, copy=False)
    assert physical_us(problem) == 2 * 3
    assert physical_us(replace(problem, copy=True)) == 4


def test_hyper_edges_round_the_sum_of_latencies():
    """Two latencies of 0.6 epochs are two epochs as a hyper-edge and would be one each apart."""
    topology = net("a b | s", "a>s 1 0.6, s>b 1 0.6")
    problem = task(topology, wants(((0,), (1,))), switch=SwitchMode.HYPER_EDGE)
    bound = epochs(problem, "1us")
    assert bound is not None
    assert bound <= 3


@pytest.mark.parametrize(
    ("steps", "bound"),
    [([(1, 1)], Fraction(7, 4)), ([(2, 1)], Fraction(5, 2)), ([(1, "1/8")], 7)],
)
def test_profiles_are_integrated(steps, bound):
    """A quarter of a chunk comes in every microsecond until the rate changes."""
    topology = with_profile(net("a b", "a>b 1/4"), "a>b", *steps)
    assert physical_us(task(topology, wants(((0,), (1,))))) == bound


def test_profiles_count_when_data_departs():
    """What arrives after a change, but entered the link before it, came at the old rate."""
    topology = with_profile(net("a b", "a>b 1 5"), "a>b", (1, "1/10"))
    assert physical_us(task(topology, wants(((0,), (1,))))) == 6


def test_profiles_count_after_the_way_to_the_link():
    """A link that was fast until the data came is no help."""
    topology = with_profile(net("a b c", "a>b 100 3, b>c 1 0"), "b>c", (3, "1/2"))
    assert physical_us(task(topology, wants(((0,), (2,))))) == 5


def test_links_of_a_card_follow_their_profiles_together():
    """Two links take turns at 1 GB/s and, once both have fallen, at a quarter of it."""
    topology = net("a b c", "a>b 1 /nic, a>c 1 /nic", {"nic": "1"})
    topology = with_profile(with_profile(topology, "a>b", (1, "1/4")), "a>c", (1, "1/4"))
    assert physical_us(task(topology, wants(((0,), (1,)), ((0,), (2,))))) == 5


def test_ports_that_fall_are_looked_at():
    """Of ten GPUs that are alike at first, the one whose link falls receives last."""
    names = " ".join(f"g{i}" for i in range(10))
    links = ", ".join(f"g0>s 9, s>g{i} 1" if i == 1 else f"s>g{i} 1" for i in range(1, 10))
    topology = with_profile(net(f"{names} | s", links), "s>g7", (1, "1/10"))
    chunks = [((0,), (i,)) for i in range(1, 10)] * 2
    assert physical_us(task(topology, wants(*chunks))) > 10


def test_a_falling_link_of_a_ring():
    """One GPU's two inputs carry 50 GB/s each, one of them 10 GB/s after 5 us: 3 MB in 47.2 us."""
    fallen = [(5, 10)]
    topology = net("a b c d", "a-b 50 0.5, b-c 50 0.5, c-d 50 0.5, d-a 50 0.5")
    topology = with_profile(with_profile(topology, "a>b", *fallen), "b>a", *fallen)
    bound = physical_us(collective(topology, "allgather", "4MB"))
    assert bound == Fraction(47_166_666, US)


def test_shared_capacities_bind_like_one_link():
    """Two outputs behind one card of 1 GB/s take turns."""
    topology = net("a b c", "a>b 1 1 /nic, a>c 1 1 /nic", {"nic": "1"})
    assert physical_us(task(topology, wants(((0,), (1,)), ((0,), (2,))))) == 3


def test_shared_capacity_lets_slow_links_take_turns():
    """Two slow links of a fast card carry one chunk after the other, each at its own rate."""
    topology = net("a b c", "a>b 1/4 /nic, a>c 1/4 /nic", {"nic": "1"})
    assert physical_us(task(topology, wants(((0,), (1,)), ((0,), (2,))))) == 8


def test_grid_counts_the_starts_of_slow_links_by_the_shared_rate():
    """On the grid the second of two slow links of a fast card starts an epoch later, not four."""
    topology = net("a b c", "a>b 1/4 /nic, a>c 1/4 /nic", {"nic": "1"})
    bound = epochs(task(topology, wants(((0,), (1,)), ((0,), (2,)))), "1us")
    assert bound is not None
    assert bound <= 5


@pytest.mark.parametrize(("copy", "bound"), [(True, 1), (False, 2)])
def test_without_copy_every_destination_has_its_own_data(copy, bound):
    """What two destinations want goes twice over the only link out of its source."""
    topology = net("a b c d", "a>b, b>c, b>d")
    assert physical_us(task(topology, wants(((0,), (2, 3))), copy=copy)) == bound


def test_without_copy_nothing_may_have_to_move():
    """A demand that is met from the start has a bound of zero."""
    problem = task(net("a b", "a-b"), wants(((0,), (0,))), copy=False)
    assert summarise(problem).physical_ps == 0


def test_late_data_delays_the_bound():
    """Data that is ready after 5 us still has its way to go."""
    problem = task(net("a b", "a>b 1 1"), wants(((0,), (1,)), ready={0: 5}))
    assert physical_us(problem) == 7


def test_another_holder_may_be_ready_first():
    """Only the earliest of several holders counts."""
    problem = task(net("a b c", "a>c, b>c"), wants(((0, 1), (2,)), ready={0: 50}))
    assert physical_us(problem) <= 1


def test_every_contribution_counts():
    """A sum waits for its last contribution."""
    tenant = wants(((0, 1, 2), (2,), True), ready={0: 50})
    assert physical_us(task(net("a b c", "a>c, b>c"), tenant)) == 51


def test_a_network_without_links_has_a_bound():
    """Where nothing has to move the bound is zero, links or not."""
    topology = Topology(name="apart", nodes=net("a b", "a>b").nodes, links=())
    assert summarise(task(topology, wants(((0,), (0,))))).physical_ps == 0


@pytest.mark.parametrize("collective_name", ["allgather", "reducescatter", "allreduce"])
def test_bounds_round_down(collective_name):
    """A third of a picosecond never rounds up."""
    topology = net("a b c", "a-b 3, b-c 3, a-c 3")
    problem = collective(topology, collective_name, 1000)
    bound = summarise(problem)
    exact = {"allgather": 2, "reducescatter": 2, "allreduce": 4}[collective_name]
    assert bound.physical_ps == exact * 1000 * 1000 // (3 * 2 * 3)


# Relations


def relabelled(problem: Problem, order: list[int]) -> Problem:
    """The problem with its nodes in another order and everything else moved along."""
    topology = problem.topology
    place = {old: new for new, old in enumerate(order)}
    nodes = tuple(topology.nodes[old] for old in order)
    links = tuple(
        replace(link, src=place[link.src], dst=place[link.dst]) for link in topology.links[::-1]
    )
    moved = replace(topology, nodes=nodes, links=links)
    rank = [moved.gpus.tolist().index(place[int(node)]) for node in topology.gpus]
    tenants = []
    for tenant in problem.demand.tenants:
        chunks = tenant.chunks and tuple(
            chunk._replace(
                sources=tuple(rank[r] for r in chunk.sources),
                destinations=tuple(rank[r] for r in chunk.destinations),
            )
            for chunk in tenant.chunks
        )
        ranks = tenant.ranks and tuple(rank[r] for r in tenant.ranks)
        root = None if tenant.root is None else rank[tenant.root]
        ready = {rank[r]: time for r, time in tenant.ready.items()}
        tenants.append(replace(tenant, chunks=chunks, ranks=ranks, root=root, ready=ready))
    return replace(problem, topology=moved, demand=Demand(tenants=tuple(tenants)))


@pytest.mark.parametrize("seed", range(0, 80, 8))
def test_names_do_not_matter(seed):
    """Bounds that need no dual prices are the same whatever the order of nodes and links."""
    problem = random_problem(seed)
    order = list(range(problem.topology.num_nodes))
    random.Random(seed).shuffle(order)
    other = relabelled(problem, order)
    for options in ({}, {"fluid": False}):
        first, second = (
            max(b.value for b in all_bounds(p, **options) if b.kind != "lengths")
            for p in (problem, other)
        )
        assert first == second


@pytest.mark.parametrize("seed", range(200, 212))
def test_twice_the_speed_halves_the_time(seed):
    """Doubled bandwidths and halved latencies and ready times halve the physical bound."""
    problem = random_problem(seed)
    topology = problem.topology
    links = tuple(
        replace(link, bandwidth=link.bandwidth * 2, alpha=link.alpha / 2) for link in topology.links
    )
    shared = {name: bandwidth * 2 for name, bandwidth in topology.shared.items()}
    tenants = tuple(
        replace(tenant, ready={rank: time / 2 for rank, time in tenant.ready.items()})
        for tenant in problem.demand.tenants
    )
    faster = replace(
        problem,
        topology=replace(topology, links=links, shared=shared),
        demand=Demand(tenants=tenants),
    )
    before, after = summarise(problem).physical_ps, summarise(faster).physical_ps
    assert abs(before - 2 * after) <= 2


@pytest.mark.parametrize("seed", range(300, 312))
def test_whole_chunks_are_no_faster_than_fluid(seed):
    """The bound for given chunks is at least the physical one."""
    summary = summarise(random_problem(seed), given_chunks=True)
    assert (summary.chunk_ps or 0) >= summary.physical_ps > 0


@pytest.mark.parametrize("spec", ["ring:gpus=5", "dgx1", "ndv2:chassis=2", "dgx2", "mesh:dims=3x4"])
def test_reducescatter_is_allgather_backwards(spec):
    """The bound of a ReduceScatter is that of the AllGather on the transposed network."""
    forward = collective(spec, "reducescatter", "1MB")
    backward = collective(Topology.parse(spec).transposed(), "allgather", "1MB")
    assert physical_us(forward) == physical_us(backward)


@pytest.mark.parametrize("spec", ["dgx1", "torus:dims=3x4", "random:gpus=6,degree=2,seed=3"])
def test_reduce_is_broadcast_backwards(spec):
    """Of contributions that are equally far away the one that takes longest binds."""
    forward = collective(spec, "reduce", "64KB")
    backward = collective(Topology.parse(spec).transposed(), "broadcast", "64KB")
    assert physical_us(forward) == physical_us(backward)


@pytest.mark.parametrize("latency", ["0", "1", "5"])
def test_latency_is_paid_once_by_an_allreduce(latency):
    """An AllReduce between two GPUs takes one diameter, not two."""
    problem = collective(net("a b", f"a-b 1 {latency}"), "allreduce", 1000)
    assert physical_us(problem) == 1 + Fraction(latency)


def test_cuts_that_move_find_the_narrow_place_by_themselves():
    """Two ways of one microsecond a hop, each with a thin link: 4 chunks at 2 a microsecond."""
    topology = net("s a b t", "s>a 1 1, a>t 3 1, s>b 3 1, b>t 1 1")
    problem = task(topology, wants(*4 * [((0,), (3,))]))
    network = Network.build(problem, fluid=True)
    port = cut_estimate(network, Cut(np.array([False, False, False, True]), "t"))
    assert port is not None
    assert port.value == 3 * US
    assert quickest_bound(network, port).value == 4 * US


def two_pairs(overhead: str) -> Topology:
    """Two GPUs on either side of one slow link that begins at a GPU, a fast link between each."""
    fast, slow = (100, 1), (1, 1)
    ends = {("a0", "a1"): fast, ("b0", "b1"): fast, ("a0", "b0"): slow}
    links = [
        {"src": src, "dst": dst, "bandwidth": f"{rate}GB/s", "alpha": f"{alpha}us"}
        for (one, other), (rate, alpha) in ends.items()
        for src, dst in ((one, other), (other, one))
    ]
    for link in links:
        link["overhead"] = overhead
    nodes = [{"name": name, "kind": "gpu"} for name in ("a0", "a1", "b0", "b1")]
    return topology_from_dict({"name": "pairs", "nodes": nodes, "links": links})


@pytest.mark.parametrize(("name", "size"), [("allgather", "4KB"), ("reducescatter", "4KB")])
def test_what_enters_last_is_passed_on_later_still(name, size):
    """Two chunks of 1 KB cross at 1 GB/s, 2 us apart with overheads; the last goes one hop on.

    The second is across at 2 + 2 + 1 us, and a hop of 1 us, 10 ns and 1 us more brings it to b1.
    """
    problem = collective(two_pairs("1us"), name, size)
    network = Network.build(problem)
    inside = np.array([False, False, True, True])
    (bound,) = entry_bounds(network, [Cut(inside, "b0 and b1")])
    assert Fraction(bound.value, US) == Fraction("7.01")
    assert bound.value <= (summarise(problem, given_chunks=True).chunk_ps or 0)


def test_what_enters_late_comes_one_after_another():
    """Two chassis of B200s: what of two chunks each enters last is there at 5.633 us.

    Of these eight no more than three can come over the NIC before others come over NVLink, 1.622 us
    later, 43 ns apart; so the eighth of them is 1.796 us later.
    """
    problem = collective("dgx-b200:chassis=2,rates=effective", "allgather", "1MB", num_chunks=2)
    assert whole_us(problem) == pytest.approx(7.429, abs=0.001)
