"""Rail-optimised clusters with three tiers of switches."""

from collections import Counter

import pytest

from teccl.errors import TopologyError
from teccl.orbit import expand, parse_fabric, solve_orbit
from teccl.orbit.expansion import expanded_topology
from teccl.orbit.rails import rail_tree
from teccl.orbit.recognition import count_gpus
from teccl.topology import Topology
from teccl.verification import verify

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall")


def test_every_switch_has_the_links_that_its_tier_says():
    """A leaf has a link to each chassis and half as many up, a spine as many up as down."""
    topology = expanded_topology(rail_tree(pods=2, units=3, chassis=4, gpus=2, oversubscription=2))
    names = [node.name for node in topology.nodes]
    out: dict[str, list[str]] = {name: [] for name in names}
    for link in topology.links:
        out[names[link.src]].append(names[link.dst])
    assert sorted(out["p1/u2/leaf1"]) == [
        *(f"p1/rail1/spine{i}" for i in range(2)),
        *(f"p1/u2/c{i}/gpu1" for i in range(4)),
    ]
    assert sorted(out["p1/rail0/spine1"]) == [
        *(f"p1/u{i}/leaf0" for i in range(3)),
        *(f"rail0/core{i}-1" for i in range(3)),
    ]
    assert sorted(out["rail1/core2-0"]) == [f"p{i}/rail1/spine0" for i in range(2)]
    assert sorted(out["p0/u0/c3/gpu1"]) == ["p0/u0/c3/nvswitch", "p0/u0/leaf1"]


@pytest.mark.parametrize("options", ["", ",oversubscription=2", ",gpus=3,overhead=1us,alpha=2us"])
def test_the_preset_is_the_fabric_with_every_link_listed(options):
    """The same nodes in the same ranks, in the same chassis, and the same links."""
    spec = f"rail-tree:pods=3,units=2,chassis=4{options}"
    listed, folded = Topology.parse(spec), expanded_topology(parse_fabric(spec))
    assert listed.nodes[: listed.num_gpus] == folded.nodes[: folded.num_gpus]
    assert set(listed.nodes) == set(folded.nodes)
    links = [
        Counter(
            (each.nodes[x.src].name, each.nodes[x.dst].name, x.bandwidth, x.alpha, x.overhead)
            for x in each.links
        )
        for each in (listed, folded)
    ]
    assert links[0] == links[1]
    assert count_gpus(spec) == listed.num_gpus


@pytest.mark.parametrize("oversubscription", [1, 2])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_plans_through_three_tiers_are_correct_with_all_sends_listed(collective, oversubscription):
    """Leaves, spines and cores carry what `verify` accepts."""
    fabric = rail_tree(chassis=2, gpus=2, oversubscription=oversubscription)
    made = solve_orbit(fabric, collective, size="1MB", chunks=1)
    whole = expand(made.schedule)
    assert verify(whole) == ()
    assert whole.finish_ps == made.schedule.finish_ps


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_sixteen_thousand_gpus_come_close_to_the_bound(collective, oversubscription):
    """Each chunk enters a unit and a chassis once, whichever tier it came through."""
    fabric = rail_tree(pods=8, units=8, chassis=32, oversubscription=oversubscription)
    assert fabric.num_gpus == 16384
    assert solve_orbit(fabric, collective, size="1GB", chunks=2).physical_gap < 0.01


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_a_chassis_is_entered_once_by_every_chunk(oversubscription):
    """So its links to the leaves carry no chunk that is there already."""
    fabric = rail_tree(pods=2, units=3, chassis=4, oversubscription=oversubscription)
    sends = solve_orbit(fabric, "allgather", size="1GB", chunks=1).schedule.sends
    src, dst = fabric.link_ends(sends["link"])
    names = [(fabric.node_name(a), fabric.node_name(b)) for a, b in zip(src, dst, strict=True)]
    entered = [
        (chunk, near.rpartition("/")[0])
        for chunk, (far, near) in zip(sends["chunk"].tolist(), names, strict=True)
        if "/leaf" in far and "/gpu" in near
    ]
    assert len(set(entered)) == len(entered) == oversubscription * (2 * 3 * 4 - 1)


def test_counts_that_do_not_fit_are_refused():
    """Links up are a whole number."""
    with pytest.raises(TopologyError, match="does not divide"):
        rail_tree(chassis=4, oversubscription=3)
    with pytest.raises(TopologyError, match="pods"):
        rail_tree(pods=0)
