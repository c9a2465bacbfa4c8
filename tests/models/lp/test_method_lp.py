"""The linear program on networks whose answer can be worked out by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.models.asking import MICROSECOND, ask, chunks, network

import teccl
from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import MethodError
from teccl.problem import Problem, SwitchMode, Transit
from teccl.result import Status
from teccl.synthesis.request import Objective, Solver

# A link that takes two epochs for a chunk.
HALF = Fraction(1, 2)


def solved(topology, demand, **options):
    keywords = {k: options.pop(k) for k in ("switch", "transit", "buffer", "copy") if k in options}
    result = ask(Problem(topology=topology, demand=demand, **keywords), "lp", **options)
    assert result.verified
    assert result.method == "lp"
    return result


def test_what_is_where_it_is_wanted_takes_no_part():
    """A chunk whose only destination is its source needs no rates."""
    assert solved(network([(0, 1)]), chunks(([1], [1]))).num_sends == 0


@pytest.mark.parametrize(("count", "epochs"), [(1, 3), (3, 8), (8, 22)])
def test_alltoall_on_a_dgx1_meets_the_cut_between_its_quads(count, epochs):
    """16 c chunks cross at 6 per epoch, so 16 c / 6 epochs are needed, and rates reach that."""
    result = teccl.solve(
        "dgx1:alpha=0",
        "alltoall",
        size=f"{200 * count}KB",
        chunks=count,
        method="lp",
        epoch="slowest",
    )
    assert (result.status, result.epochs, result.bound_epochs) == ("optimal", epochs, epochs)
    assert result.finish_time_s <= result.grid_time_s + 1e-9


def test_fractions_move_on_before_the_chunk_is_whole():
    """Two hops of two epochs each take three: the second half follows the first."""
    line = network([(0, 1, HALF), (1, 2, HALF)])
    result = solved(line, chunks(((0,), (2,))))
    assert result.epochs == 3
    assert result.bound_epochs == 3
    assert result.status is Status.OPTIMAL
    # Whole chunks take four epochs, halves of them three.
    assert result.num_chunks >= 2
    assert result.finish_time_s == pytest.approx(3e-6)


def test_a_chunk_is_split_over_two_ways():
    """Two slow ways together carry a chunk in the time of half a chunk each."""
    diamond = network([(0, 1, HALF), (0, 2, HALF), (1, 3, HALF), (2, 3, HALF)])
    result = solved(diamond, chunks(((0,), (3,))))
    assert result.epochs == 2
    assert result.finish_time_s == pytest.approx(2e-6)


def test_latency_counts_in_whole_epochs():
    """A chunk sent in epoch k is usable from k + 1 + delta on."""
    result = solved(network([(0, 1, 1, Fraction(3, 2))]), chunks(((0,), (1,))))
    assert result.epochs == 3


def test_a_switch_passes_on_at_once():
    """Through a switch two chunks for one output take turns, the inputs wait at their GPUs."""
    star = network([(0, 2), (1, 2), (2, 3)], switches=(2,))
    assert solved(star, chunks(((0,), (2,)), ((1,), (2,)))).epochs == 3


def test_circuits_pay_for_sending_once():
    """Store-and-forward pays at the switch as well, cut-through and hyper-edges do not."""
    star = network([(0, 1, 1, 2), (1, 2, 1, 2)], switches=(1,))
    demand = chunks(((0,), (1,)))
    assert solved(star, demand).epochs == 6
    assert solved(star, demand, transit=Transit.CUT_THROUGH).epochs == 5
    # One hyper-edge rounds the sum of its latencies: here there is nothing to round.
    assert solved(star, demand, switch=SwitchMode.HYPER_EDGE).epochs == 5
    thirds = network([(0, 1, 1, Fraction(4, 3)), (1, 2, 1, Fraction(4, 3))], switches=(1,))
    assert solved(thirds, demand, transit=Transit.CUT_THROUGH).epochs == 5
    assert solved(thirds, demand, switch=SwitchMode.HYPER_EDGE).epochs == 4


def test_a_slow_port_holds_the_fast_one_of_a_hyper_edge():
    """Two chunks for a slow and a fast port leave one fast port in three epochs, not two."""
    star = network([(0, 1), (1, 2, HALF), (1, 3)], switches=(1,))
    demand = chunks(((0,), (1,)), ((0,), (2,)))
    assert solved(star, demand, switch=SwitchMode.HYPER_EDGE).epochs == 3
    assert solved(star, demand, transit=Transit.CUT_THROUGH).epochs == 2


def test_buffers_let_a_chunk_wait_for_a_more_urgent_one():
    """A chunk must cross the first link before late data and the second one after it."""
    line = network([(0, 1), (1, 2), (2, 3)])
    early = chunks(((0,), (2,))).tenants[0]
    late = chunks(
        ((0,), (1,)),
        ((0,), (1,)),
        ((1,), (3,)),
        ready={0: MICROSECOND, 1: MICROSECOND},
        name="late",
    ).tenants[0]
    demand = Demand(tenants=(early, late))
    assert solved(line, demand).epochs == 3
    assert solved(line, demand, buffer=1).epochs == 3
    assert solved(line, demand, buffer=0).epochs == 4


def test_buffer_limits_and_profiles_are_refused_together():
    """No schedule could be made of the rates."""
    fading = network([(0, 1, 2, 0, ((1, Fraction(1, 4)),)), (1, 2)])
    problem = Problem(topology=fading, demand=chunks(((0,), (2,))), buffer=0)
    with pytest.raises(MethodError, match="use --method milp"):
        ask(problem, "lp")


def test_a_profile_changes_the_rate_from_its_epoch_on():
    """A link that is idle at first and fast later is used later."""
    late = network([(0, 1, Fraction(1, 1000), 0, ((3, 2),))])
    assert solved(late, chunks(((0,), (1,)), ((0,), (1,)))).epochs == 4


def test_data_that_is_ready_late_leaves_late():
    """Two epochs of waiting, then one to send."""
    demand = chunks(((0,), (1,)), ready={0: 2 * MICROSECOND})
    assert solved(network([(0, 1)]), demand).epochs == 3


def test_any_holder_may_send():
    """Of two that hold the chunk the nearer one sends it."""
    line = network([(0, 1), (1, 2), (2, 3)])
    assert solved(line, chunks(((0, 2), (3,)))).epochs == 1


def test_tenants_share_links():
    """Two tenants' chunks on one link take two epochs, whoever is first."""
    one = chunks(((0,), (1,))).tenants[0]
    demand = Demand(tenants=(one, replace(one, name="other", priority=Fraction(5))))
    result = solved(network([(0, 1)]), demand)
    assert result.epochs == 2
    assert len(result.tenants) == 2


def test_shared_capacities_bind():
    """Two links that share one capacity carry as much as one."""
    topology = network([(0, 1), (0, 2)])
    links = tuple(replace(link, shares=("port",)) for link in topology.links)
    shared = replace(topology, links=links, shared={"port": topology.links[0].bandwidth})
    demand = chunks(((0,), (1,)), ((0,), (2,)))
    assert solved(topology, demand).epochs == 1
    assert solved(shared, demand).epochs == 2


def test_shorter_last_pieces_count_as_they_are():
    """An AllToAllv of one and a half chunks takes as long as its bytes."""
    matrix = ((Fraction(0), Fraction(50_000)), (Fraction(37_500), Fraction(0)))
    tenant = Tenant(collective=Collective.ALLTOALLV, matrix=matrix)
    problem = Problem(
        topology=network([(0, 1), (1, 0, HALF)]), demand=Demand(tenants=(tenant,)), num_chunks=2
    )
    result = ask(problem, "lp")
    assert result.verified
    assert result.epochs == 3
    assert result.finish_time_s == pytest.approx(3e-6)


def test_copies_are_refused_unless_given_up():
    """What several want is refused with the remedy; without copying each gets its own."""
    topology, demand = network([(0, 1), (0, 2), (1, 2)]), chunks(((0,), (1, 2)))
    with pytest.raises(MethodError, match="use milp, astar or auto, or add --no-copy"):
        ask(Problem(topology=topology, demand=demand), "lp")
    assert solved(topology, demand, copy=False).epochs == 1


def test_sums_are_refused():
    """Rates cannot be added up."""
    explicit = (ExplicitChunk((0, 1), (2,), reduce=True),)
    tenant = replace(chunks(((0,), (1,))).tenants[0], chunks=explicit)
    problem = Problem(topology=network([(0, 2), (1, 2)]), demand=Demand(tenants=(tenant,)))
    with pytest.raises(MethodError, match="cannot reduce"):
        ask(problem, "lp")


def test_cpsat_is_refused():
    """A back end for whole numbers does not solve rates."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(((0,), (1,))))
    with pytest.raises(MethodError, match="--solver highs"):
        ask(problem, "lp", solver=Solver.CPSAT)


def test_a_horizon_that_is_too_short_is_infeasible():
    """The message names the next one to try."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(((0,), (1,)), ((0,), (1,))))
    result = ask(problem, "lp", horizon=1)
    assert result.status is Status.INFEASIBLE
    assert result.schedule is None
    assert "--horizon 2" in result.message
    assert ask(problem, "lp", horizon=9).epochs == 2


def test_the_one_shot_objective_prefers_early_reading():
    """Within a longer horizon the paper's sum still ends in the first epoch that is possible."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(((0,), (1,)), ((0,), (1,))))
    result = ask(problem, "lp", horizon=7, objective=Objective.PAPER)
    assert result.epochs == 2
    assert result.verified


def test_a_demand_that_is_rounding_to_a_solver_is_delivered():
    """One byte beside a megabyte takes the quickest way, alone or beside others of its source."""
    matrices = ([[0, 0, 0], [0, 0, 0], [10**6, 1, 0]], [[0, 1, 0], [0, 0, 0], [10**6, 0, 0]])
    for matrix in matrices:
        rows = tuple(tuple(Fraction(cell) for cell in row) for row in matrix)
        demand = Demand(tenants=(Tenant(collective=Collective.ALLTOALLV, matrix=rows),))
        result = teccl.solve(network([(2, 0), (0, 1)]), demand=demand, method="lp")
        assert result.verified
