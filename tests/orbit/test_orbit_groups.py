"""Groups of ranks that each have a collective, planned, bounded, judged and kept as orbits."""

from collections import Counter

import numpy as np
import pytest
from tests.sampling import thinned

from teccl import solve
from teccl.demand import Demand
from teccl.errors import MethodError, ProblemError, ScheduleError
from teccl.orbit import Damage, expand, parse_fabric, solve_orbit, verify_orbit
from teccl.orbit.bounds import summarise
from teccl.orbit.expansion import expanded_problem, expanded_topology
from teccl.orbit.files import load_orbit
from teccl.orbit.groups import Groups, split_for
from teccl.orbit.ranks import rank_program
from teccl.verification import verify

COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall")
SMALL = (
    *(("dgx-h100:chassis=4", "4:8"), ("dgx-h100:chassis=4", "16"), ("fat-tree:k=4", "8")),
    *(("fat-tree:k=4", "8:2"), ("torus:dims=4x4", "4:4"), ("torus:dims=4x3", "3")),
    *(("two-tier:leaves=4,gpus=4,spines=2", "4"), ("gb200-nvl72:chassis=2", "2:72")),
)
CASES = [(spec, groups, each) for spec, groups in SMALL for each in COLLECTIVES]


@pytest.mark.parametrize(("spec", "groups", "collective"), thinned(CASES, 3))
def test_plans_are_correct_with_all_groups_listed(spec, groups, collective):
    """The plan, with every group a tenant and every image listed, is correct."""
    made = solve_orbit(
        parse_fabric(spec), collective, size="1MB", chunks=2, groups=Groups.parse(groups)
    )
    whole = expand(made.schedule)
    assert verify(whole) == ()
    assert whole.finish_ps == made.schedule.finish_ps
    assert (
        len(whole.problem.demand.tenants) * made.problem.group_size == made.problem.fabric.num_gpus
    )


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("spec", "groups"), [("torus:dims=3x2", "3:2"), ("fat-tree:k=4", "4:4")])
def test_the_bound_is_below_whatever_listing_finds(spec, groups, collective):
    """No schedule of all groups as tenants ends before the bound of the quotient."""
    made = solve_orbit(
        parse_fabric(spec), collective, size="1MB", chunks=1, groups=Groups.parse(groups)
    )
    problem = expanded_problem(made.problem)
    listed = solve(problem.topology, demand=problem.demand, chunks=1, effort="quick")
    bound = summarise(made.problem)
    assert bound.physical_ps <= bound.chunk_ps <= round(listed.finish_time_s * 10**12)


def test_all_rails_of_thousands_of_chassis_at_once():
    """Data-parallel sums of 8 rails of 2048 GPUs are within a thousandth of the bound."""
    made = solve_orbit(
        parse_fabric("dgx-h100:chassis=2048"), "allreduce", size="1GB", groups=Groups(2048, 8)
    )
    assert made.physical_gap < 1e-3
    assert len(made.schedule) == 2 * 2 * 2047


def test_one_group_has_the_program_that_it_has_alone(tmp_path):
    """Everybody's messages are with ranks of the same group, and survive the file."""
    groups = Groups(4, 8)
    made = solve_orbit(parse_fabric("dgx-h100:chassis=4"), "alltoall", size="1MB", groups=groups)
    made.schedule.save(tmp_path / "orbit.json")
    again = load_orbit(tmp_path / "orbit.json")
    assert again.problem == made.problem
    assert verify_orbit(again) == ()
    label = groups.labels(32)
    for rank in (0, 5, 31):
        assert {int(label[step.peer]) for step in rank_program(again, rank)} == {label[rank]}


@pytest.mark.parametrize(
    ("spec", "groups", "moduli"),
    [
        ("dgx-h100:chassis=8", Groups(16), (4, 2, 8)),
        ("dgx-h100:chassis=8", Groups(2, 16), (2, 2, 2, 8)),
        ("dgx-h100:chassis=8", Groups(8, 8), (8, 8)),
        ("fat-tree:k=4", Groups(8), (2, 2, 2, 2)),
    ],
)
def test_axes_are_split_where_groups_begin_and_end(spec, groups, moduli):
    """A split fabric has the same nodes by name, and the same links between them."""
    before = parse_fabric(spec)
    after = split_for(before, groups)
    assert after.moduli == moduli
    named = []
    for topology in map(expanded_topology, (before, after)):
        names = [node.name for node in topology.nodes]
        ends = [(names[x.src], names[x.dst], x.bandwidth, x.alpha) for x in topology.links]
        named.append((names[: before.num_gpus], sorted(names), Counter(ends)))
    assert named[0] == named[1]


def test_groups_that_a_shift_mixes_up_are_refused():
    """Consecutive ranks of a ring are no images of each other under a shift by one."""
    with pytest.raises(ProblemError, match="mixed up"):
        solve_orbit(parse_fabric("ring:gpus=8"), "allgather", size="1MB", groups=Groups(4))
    with pytest.raises(ProblemError, match="do not divide"):
        solve_orbit(parse_fabric("ring:gpus=8"), "allgather", size="1MB", groups=Groups(3))
    for text in ("", "1", "8:0", "8:8:8", "x"):
        with pytest.raises(ProblemError):
            Groups.parse(text)


def test_groups_and_damage_are_refused_together():
    """Patches know collectives of all ranks only."""
    fabric = parse_fabric("dgx-h100:chassis=4")
    harm = Damage.of(fabric, down=["c0/gpu0:leaf0"])
    with pytest.raises(MethodError, match="groups"):
        solve_orbit(fabric, "allgather", size="1MB", groups=Groups(4, 8), damage=harm)


def test_chunks_for_other_groups_are_refused():
    """A file cannot send what nobody wants in an AllToAll."""
    made = solve_orbit(
        parse_fabric("torus:dims=4x4"), "alltoall", size="1MB", chunks=1, groups=Groups(4, 4)
    ).schedule
    sends = made.sends.copy()
    sends["chunk"][0] = 1
    with pytest.raises(ScheduleError, match="another group"):
        type(made)(problem=made.problem, sends=sends)
    assert np.isin(made.sends["chunk"], [4, 8, 12]).all()
    assert isinstance(expanded_problem(made.problem).demand, Demand)
