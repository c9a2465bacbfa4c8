"""Parts of the linear program: slots of time, proofs, and parcels of rates."""

import numpy as np
import pytest
from tests.bounds.instances import random_epoch, random_problem
from tests.models.asking import MICROSECOND, ask, chunks, network
from tests.models.exactly import schedule_within

from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.models.lp.fluid import Clock, FluidModel, coarse_slots, most_slots
from teccl.models.lp.fluid_horizon import Solving, fluid_bound, least_horizon
from teccl.models.lp.fluid_network import fluid_network
from teccl.models.lp.fluid_proof import refutes
from teccl.models.lp.lp_schedule import schedule_journeys, slowest_transmission_ps
from teccl.models.lp.peeling import journeys, peel
from teccl.problem import Problem, SwitchMode
from teccl.solvers import LinearMethod, SolverStatus
from teccl.timegrid import TimeGrid
from teccl.topology import Topology

# Seeds of random problems without copies that are judged quickly, and how many there are in all.
QUICK = range(8)
SLOW = range(8, 1500)


def torus_network(epoch="fastest"):
    problem = Problem(
        topology=Topology.parse("torus:dims=3x3"), demand=Demand.collective("alltoall", size="9MB")
    )
    grid = TimeGrid.build(problem, epoch)
    return problem, grid, fluid_network(problem, grid)


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 16, 63, 64, 100, 257, 1000])
def test_coarse_slots_tile_the_horizon(horizon):
    """Slots begin at zero, end at the horizon, are fine at both ends and grow inwards."""
    bounds = coarse_slots(horizon, 4)
    lengths = np.diff(bounds)
    assert (bounds[0], bounds[-1]) == (0, horizon)
    assert (lengths > 0).all()
    assert (lengths[[0, -1]] == 1).all() or horizon < 8
    assert len(lengths) <= 8 + 8 * horizon.bit_length()


def test_longer_slots_restrict_and_lose_little():
    """Coarse slots never beat fine ones and reach the same horizon here."""
    _, _, network_ = torus_network("5us")
    low = network_.least_horizon
    exact = least_horizon(network_, low=low, solving=Solving()).trial
    for horizon in (exact.horizon - 1, exact.horizon, exact.horizon + 2):
        coarse = Solving().attempt(network_, horizon, coarse=True)
        fine = Solving().attempt(network_, horizon, coarse=False)
        assert coarse.missing >= fine.missing - 1e-6
        assert coarse.model.program.num_columns <= fine.model.program.num_columns
    assert Solving().attempt(network_, exact.horizon, coarse=True).is_complete


@pytest.mark.parametrize("coarse", [False, True])
def test_programs_that_take_too_long_to_build_are_not_begun(coarse):
    """A time limit ends the search before a program of which nothing would come in time."""
    _, _, network_ = torus_network("5us")
    begun = []
    solving = Solving(remaining=lambda: 0.0, news=begun.append)
    answer = least_horizon(network_, low=1000 if coarse else 1, solving=solving)
    assert (answer.status, answer.trial, begun) == (SolverStatus.TIME_LIMIT, None, [])


@pytest.mark.parametrize("alpha", ["0", "100us"])
def test_slots_are_counted_without_laying_them(alpha):
    """There are never more than that; latencies of many epochs need many fine ones."""
    problem = Problem(
        topology=Topology.parse(f"star:gpus=3,alpha={alpha}"),
        demand=Demand.collective("alltoall", size="9MB"),
    )
    network_ = fluid_network(problem, TimeGrid(problem=problem, epoch=MICROSECOND))
    for horizon in (300, 1000, 5000):
        assert Clock.of(network_, horizon, coarse=True).num_slots <= most_slots(network_, horizon)


def test_a_saturated_link_refutes_by_its_own_price():
    """Three chunks do not fit two epochs of a link: length one on it is a proof, zero is none."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(*[((0,), (1,))] * 3))
    small = fluid_network(problem, TimeGrid(problem=problem, epoch=MICROSECOND))
    assert refutes(small, np.ones((1, 2)))
    assert not refutes(small, np.zeros((1, 2)))
    assert not refutes(small, np.ones((1, 3)))


def test_what_cannot_arrive_in_time_is_refuted_without_prices():
    """A way longer than the horizon is proof enough."""
    problem = Problem(topology=network([(0, 1), (1, 2)]), demand=chunks(((0,), (2,))))
    small = fluid_network(problem, TimeGrid(problem=problem, epoch=MICROSECOND))
    assert refutes(small, np.zeros((2, 1)))
    assert not refutes(small, np.zeros((2, 2)))


def test_no_prices_refute_a_horizon_that_is_long_enough():
    """The theorem holds for any lengths whatever."""
    _, _, network_ = torus_network()
    answer = least_horizon(network_, low=1, solving=Solving())
    assert answer.bound == answer.trial.horizon
    rng = np.random.default_rng(0)
    shape = (network_.num_places, answer.trial.horizon)
    for _ in range(50):
        prices = rng.random(shape) * (rng.random(shape) < rng.random())
        assert not refutes(network_, prices)


def test_every_algorithm_finds_the_same_horizon():
    """Simplex, interior point and first-order methods agree."""
    _, _, network_ = torus_network()
    found = {
        least_horizon(network_, low=1, solving=Solving(method=method)).trial.horizon
        for method in (LinearMethod.SIMPLEX, LinearMethod.IPM, LinearMethod.PDLP)
    }
    assert len(found) == 1


@pytest.mark.parametrize("method", [LinearMethod.SIMPLEX, LinearMethod.IPM])
def test_parcels_carry_the_demand_without_being_early(method):
    """Amounts add up, hops follow each other, and no place carries more than it can."""
    _, _, network_ = torus_network()
    trial = least_horizon(network_, low=1, solving=Solving(method=method)).trial
    parcels = peel(network_, trial.model.rates(trial.solution.values))
    load = np.zeros((network_.num_places, trial.horizon))
    for (s, d), options in parcels.items():
        assert sum(p.amount for p in options) == pytest.approx(network_.demand[s, d], abs=1e-4)
        for parcel in options:
            node, now = None, 0
            for arc, epoch in zip(parcel.arcs, parcel.epochs, strict=True):
                assert node is None or network_.src[arc] == node
                assert epoch >= now
                node, now = network_.dst[arc], epoch + network_.delay[arc]
                load[network_.ways[arc][0], epoch] += parcel.amount
            assert node == d
            assert now <= trial.horizon
    assert load.max() <= 1 + 1e-4


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_every_sub_chunk_gets_one_journey(parts):
    """All chunks are split alike, and each part goes from its source to its destination."""
    problem, _, network_ = torus_network()
    trial = least_horizon(network_, low=1, solving=Solving()).trial
    found = journeys(network_, peel(network_, trial.model.rates(trial.solution.values)), parts)
    assert sorted(found.chunk) == list(range(parts * len(problem.chunks)))
    table, topology = found.problem.chunks, problem.topology
    for chunk, passages in zip(found.chunk, found.passages, strict=True):
        assert topology.link_src[passages[0][0]] in table.sources(chunk)
        assert topology.link_dst[passages[-1][-1]] in table.destinations(chunk)


@pytest.mark.parametrize(
    "topology", ["torus:dims=3x3", "dgx1", "internal1:chassis=2", "mesh:dims=2x3"]
)
def test_the_split_schedule_ends_with_the_rates(topology):
    """Within one sub-chunk's time on the slowest link in use, negligible latencies apart."""
    problem = Problem(
        topology=Topology.parse(topology), demand=Demand.collective("alltoall", size="64MB")
    )
    result = ask(problem, "lp", epoch=TimeGrid.build(problem).epoch)
    assert result.verified
    late = result.finish_ps - result.grid_time_s * 1e12
    ignored = 4 * max(problem.topology.alpha_ps.tolist())
    assert late <= slowest_transmission_ps(result.schedule) + ignored


def test_a_model_that_is_too_large_is_refused_before_it_is_built():
    """The message has the remedy."""
    _, _, network_ = torus_network()
    with pytest.raises(MethodError, match="--epoch"):
        Solving().attempt(network_, 10**6, coarse=False)


def has_mixed_ports(problem: Problem) -> bool:
    """Whether hyper-edges replace switches with ports of different rates.

    Rates hold both ports at the slower one's pace, as physical time does; whole chunks hold each
    port for its own epochs only, so that there, and only there, rates may need more of them.
    """
    topology = problem.topology
    ports = {
        link.bandwidth
        for link in topology.links
        if topology.nodes[link.src].is_switch or topology.nodes[link.dst].is_switch
    }
    return problem.switch is SwitchMode.HYPER_EDGE and len(ports) > 1


def judged(seed: int) -> bool:
    """Compare rates and whole chunks on one random problem that rates serve."""
    problem = random_problem(seed)
    epoch = random_epoch(seed, problem)
    grid = TimeGrid(problem=problem, epoch=epoch)
    try:
        network_ = fluid_network(problem, grid)
    except MethodError:
        return False
    low, _ = fluid_bound(problem, grid)
    answer = least_horizon(network_, low=low, solving=Solving())
    assert answer.bound <= answer.trial.horizon
    assert answer.bound == answer.trial.horizon or problem.buffer is not None
    if answer.trial.horizon > 1 and not has_mixed_ports(problem):
        assert schedule_within(problem, answer.trial.horizon - 1, epoch=epoch) is None
    values = answer.trial.solution.values
    parcels = peel(network_, answer.trial.model.rates(values))
    schedule = schedule_journeys(journeys(network_, parcels, 2), target_ps=0)
    from teccl.verification import verify

    assert not verify(schedule)
    return True


def test_rates_are_no_slower_than_whole_chunks():
    """On random problems without copies rates need no more epochs, which is proven exactly."""
    assert sum(judged(seed) for seed in QUICK) >= 2


@pytest.mark.slow
def test_rates_are_no_slower_than_whole_chunks_on_many():
    """The same on as many problems as the quick suite has no time for."""
    assert sum(judged(seed) for seed in SLOW) >= 300


def test_building_counts_what_it_says():
    """Rows and columns of the smallest program, by hand."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(((0,), (1,))))
    small = fluid_network(problem, TimeGrid(problem=problem, epoch=MICROSECOND))
    model = FluidModel.build(small, 2)
    # Flows in epochs 0 and 1; kept at the source once and at the destination once; one chunk
    # that may be short, and one that may be left over.
    assert model.flow.count == 2
    assert model.short.count == 1
    assert model.program.num_rows == 3 + 2 + 2 - 1
