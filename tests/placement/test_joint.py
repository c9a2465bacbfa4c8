"""Joint demands: groups become tenants on the GPUs where their ranks sit."""

from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.demand.demand_files import load_demand
from teccl.errors import DemandError
from teccl.placement import Placement, joint_demand, parse_groups
from teccl.verification import verify


def reversed_order(groups: str, traffic: str = "") -> Placement:
    """Ranks on eight GPUs, the last rank on the first GPU."""
    return Placement(
        topology=teccl.Topology.parse("dgx-h100"),
        axes=parse_groups(groups, traffic),
        gpu=tuple(range(7, -1, -1)),
        model_s=1.0,
        natural_model_s=1.0,
        finish_s=1.0,
        natural_finish_s=1.0,
    )


def test_every_group_is_a_tenant_by_hand() -> None:
    """Names count groups, ranks are GPUs, weights are priorities, and axes of one rank are none."""
    found = joint_demand(reversed_order("tp=4,ep=2,dp=1", "ep=alltoall:2MB:0.0000001"))
    assert [tenant.name for tenant in found.tenants] == ["tp0", "tp1", "ep0", "ep1", "ep2", "ep3"]
    assert found.tenants[1].ranks == (3, 2, 1, 0)
    assert found.tenants[2].ranks == (7, 3)
    assert found.tenants[2].collective is Collective.ALLTOALL
    assert found.tenants[2].priority == Fraction(1, 10**7)
    assert found.tenants[0].size == 64_000_000


def test_axes_whose_groups_would_share_a_name_are_refused_at_once() -> None:
    """The eleventh group of tp and the first of tp1 are both tp10."""
    with pytest.raises(DemandError, match="'tp' and 'tp1' both have one called tp10; rename"):
        parse_groups("tp=2,tp1=2,dp=8", "tp1=allreduce:1MB")


@pytest.mark.parametrize(("other", "groups"), [("tp1=2", 2), ("tp01=2", 99), ("tp1=1", 99)])
def test_axes_of_like_names_serve_while_no_groups_share_one(other: str, groups: int) -> None:
    """Few groups, a number that no group has, or an axis of one rank, which has no groups."""
    name, _ = other.split("=")
    axes = parse_groups(f"tp=2,{other},dp={groups}", f"{name}=allreduce:1MB")
    assert [axis.name for axis in axes] == ["tp", name, "dp"]


def test_pipelines_send_both_ways_between_neighbours() -> None:
    """A group of four has three neighbours, and each pair exchanges its buffer."""
    tenant = joint_demand(reversed_order("pp=4,dp=2", "pp=sendrecv:1MB")).tenants[0]
    ends = {(chunk.sources[0], chunk.destinations[0]) for chunk in tenant.chunks or ()}
    assert ends == {(7, 6), (6, 5), (5, 4), (6, 7), (5, 6), (4, 5)}


def test_further_demands_are_seated_too() -> None:
    """Ranks, roots, ready times and chunks of a demand become GPUs; its names stay."""
    chunk = ExplicitChunk((0,), (1, 2))
    further = Demand(
        tenants=(
            Tenant(collective=Collective.EXPLICIT, size=Fraction(9), name="kv", chunks=(chunk,)),
            Tenant(
                collective=Collective.BROADCAST,
                size=Fraction(9),
                name="weights",
                root=1,
                ready={1: Fraction(1)},
            ),
        )
    )
    *_, kv, weights = joint_demand(reversed_order("tp=8"), demand=further).tenants
    assert kv.chunks == (ExplicitChunk((7,), (6, 5)),)
    assert weights.root == 6
    assert weights.ready == {6: Fraction(1)}
    assert weights.ranks == tuple(range(7, -1, -1))


def test_a_name_of_a_group_is_refused() -> None:
    """Tenants are told apart by name."""
    with pytest.raises(DemandError, match="tp0 is a group and a tenant"):
        joint_demand(
            reversed_order("tp=8"),
            demand=Demand(
                tenants=(Tenant(collective=Collective.ALLGATHER, size=Fraction(8), name="tp0"),)
            ),
        )


def test_a_joint_schedule_is_verified() -> None:
    """Sums and exchanges of all groups run at once on one network."""
    joint = joint_demand(
        reversed_order("tp=4,ep=2", "tp=allreduce:1MB,ep=alltoall:1MB"),
    )
    result = teccl.solve("dgx-h100", demand=joint, effort="quick")
    assert result.schedule is not None
    assert verify(result.schedule) == ()


def test_the_command_writes_a_demand(tmp_path: Path, monkeypatch) -> None:
    """What is written is what `solve` reads; where the rank file is refused nothing is written."""
    monkeypatch.chdir(tmp_path)
    arguments = ("place", "dgx-h100", "--groups", "tp=4,dp=2", "--demand-out", "joint.json")
    outcome = run(*arguments)
    assert outcome.code == 0, outcome
    assert [tenant.name for tenant in load_demand(Path("joint.json")).tenants] == [
        *("tp0", "tp1"),
        *("dp0", "dp1", "dp2", "dp3"),
    ]
    assert_refused(run(*arguments[:3], "tp=3", "--demand-out", "none.json"))
    assert not Path("none.json").exists()
