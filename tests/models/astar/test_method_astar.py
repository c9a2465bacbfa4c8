"""A*: rounds, what they hand on, and schedules that verify whatever the rounds are."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.bounds.instances import random_epoch, random_problem
from tests.models.asking import MICROSECOND, ask, chunks, network
from tests.verification.helpers import wants

import teccl
from teccl import solvers
from teccl.demand import Demand
from teccl.errors import MethodError
from teccl.models.astar.astar_greedy import greedy_flows
from teccl.models.astar.astar_hints import greedy_trips, laid
from teccl.models.astar.astar_round import AstarState, RoundOptions, build_round, look_ahead, window
from teccl.models.milp.arcs import NEVER, arcs_of
from teccl.models.turning import TurnedTask
from teccl.problem import Problem, SwitchMode, Transit
from teccl.progress import CancelToken
from teccl.result import Status
from teccl.solvers import Solution, SolverStatus
from teccl.synthesis.request import Solver
from teccl.synthesis.stop import SearchStoppedError
from teccl.timegrid import TimeGrid
from teccl.topology import Topology

LINE = [(0, 1), (1, 2), (2, 3), (3, 4)]
QUICK = [0, 1, 3, 5, 8, 9, 14, 19]
SLOW = range(700)


def arcs_on(problem, horizon):
    return arcs_of(problem, TimeGrid(problem=problem, epoch=MICROSECOND), horizon)


def state_of(problem):
    """The state before the first round."""
    table, nodes = problem.chunks, problem.topology.num_nodes
    has_from = np.full((len(table), nodes), NEVER)
    wants = np.zeros((len(table), nodes), dtype=bool)
    for m in range(len(table)):
        has_from[m, table.sources(m)] = 0
        wants[m, table.destinations(m)] = True
    return AstarState(has_from=has_from, wants=wants & (has_from >= NEVER))


def one_round(problem, length, **options):
    """The arrivals of one round, solved to the end."""
    arcs = arcs_on(problem, 40)
    ahead = look_ahead(arcs)
    stated = build_round(
        arcs,
        state_of(problem),
        arcs.distances(),
        begin=0,
        length=length,
        ahead=ahead,
        upper=np.ones(len(arcs), dtype=np.int64),
        options=RoundOptions(**options),
    )
    values = solvers.solve(stated.model).values
    return {(m, int(arcs.end[a])): k + int(arcs.delay[a, k]) for m, a, k in stated.chosen(values)}


def test_a_round_moves_what_it_cannot_deliver_closer():
    """One epoch is too short for four hops, but not for the first; without gamma it stays put."""
    problem = Problem(topology=network(LINE), demand=chunks(((0,), (4,))))
    assert one_round(problem, 1) == {(0, 1): 1}
    assert one_round(problem, 2) == {(0, 1): 1, (0, 2): 2}
    assert one_round(problem, 2, gamma=0.0) == {}


def test_a_round_prefers_delivery_to_coming_closer():
    """The one free slot of a link goes to the chunk that arrives."""
    topology = network([(0, 1), (1, 2)])
    problem = Problem(topology=topology, demand=chunks(((0,), (2,)), ((0,), (1,))))
    assert one_round(problem, 1) == {(1, 1): 1}


def test_neighbours_receive_different_chunks_when_a_round_ends():
    """Each can have the other's next: one chunk at both would count as much and bring less."""
    pair = [(0, 1, 1, 3), (0, 2, 1, 3), (1, 2), (2, 1)]
    problem = Problem(topology=network(pair), demand=chunks(((0,), (1, 2)), ((0,), (1, 2))))
    arrivals = one_round(problem, 1)
    assert {chunk for chunk, _ in arrivals} == {0, 1}
    assert {node for _, node in arrivals} == {1, 2}


def test_what_arrives_late_is_decided_in_the_round_that_starts_it():
    """A send with three epochs of latency is started in a round of one."""
    problem = Problem(topology=network([(0, 1, 1, 3)]), demand=chunks(((0,), (1,))))
    assert one_round(problem, 1) == {(0, 1): 4}


def test_a_passage_through_switches_is_decided_whole():
    """The switch sends in the look-ahead what its input started in the round."""
    problem = Problem(
        topology=network([(0, 1), (1, 2)], switches=(1,)), demand=chunks(((0,), (1,)))
    )
    arcs = arcs_on(problem, 10)
    assert look_ahead(arcs) == 2
    assert one_round(problem, 1) == {(0, 1): 1, (0, 2): 2}


def test_links_that_are_still_busy_are_not_free():
    """A send of the round before holds its slow link into the next round."""
    problem = Problem(topology=network([(0, 1, Fraction(1, 3))]), demand=chunks(((0,), (1,))))
    arcs = arcs_on(problem, 10)
    assert window(arcs, [(0, 0, 2)], 3, 4).limit.tolist() == [[0, 0, 1, 1]]
    assert window(arcs, [], 3, 4).limit.tolist() == [[1, 1, 1, 1]]


def test_progress_counts_deliveries_and_epochs_to_go():
    """Both shrink as a chunk comes closer, and vanish when all is under way."""
    problem = Problem(topology=network(LINE), demand=chunks(((0,), (4,))))
    state, way = state_of(problem), arcs_on(problem, 4).distances()
    assert state.progress(way) == (1, 4)
    state.has_from[0, 2] = 7
    assert state.progress(way) == (1, 2)
    state.has_from[0, 4] = 9
    assert state.progress(way) == (0, 0)
    assert state.is_done
    assert state.finish == 9


def test_greedy_starts_are_laid_into_what_is_free():
    """A start is a feasible beginning: nothing early, nothing on a link that is taken."""
    problem = Problem(
        topology=Topology.parse("internal2:chassis=3"),
        demand=Demand.collective("allgather", size="1MB"),
    )
    grid = TimeGrid.build(problem)
    task = TurnedTask.of(problem, grid, method="astar")
    arcs = arcs_of(problem, grid, 40)
    state = state_of(problem)
    trips = greedy_trips(task, arcs, state, 0)
    flows = laid(trips, arcs, state, begin=0, length=12)
    assert flows
    busy = np.zeros(arcs.limit.shape, dtype=np.int64)
    there = {(m, int(problem.chunks.sources(m)[0]), 0) for m in range(len(problem.chunks))}
    for m, a, k in sorted(flows, key=lambda flow: flow[2]):
        busy[a, k : k + int(grid.kappa[a])] += 1
        node = int(arcs.src[a])
        since = [t for chunk, n, t in there if (chunk, n) == (m, node)]
        assert k in since if arcs.is_switch[node] else min(since) <= k
        there.add((m, int(arcs.end[a]), k + int(arcs.delay[a, k])))
    assert (busy <= arcs.limit).all()


@pytest.mark.parametrize("solver", [Solver.HIGHS, Solver.CPSAT])
@pytest.mark.parametrize(
    ("topology", "epochs"), [("ring:gpus=4", 2), ("dgx1", 5), ("internal2:chassis=2", 12)]
)
def test_small_allgathers_come_out_optimal(topology, epochs, solver):
    """One or two rounds are as good as the general model."""
    result = teccl.solve(topology, "allgather", size="1MB", method="astar", solver=solver.value)
    assert (result.status, result.epochs, result.method) == ("optimal", epochs, "astar")
    assert result.verified


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("warm_start", [True, False])
def test_rounds_of_any_length_end(length, warm_start):
    """Rounds shorter than the delays need more of them, and keep their state all the same."""
    problem = Problem(
        topology=network([(a, b, Fraction(1, 2), 2) for a, b in [(0, 1), (1, 2), (2, 0)]]),
        demand=Demand.collective("allgather", size="75KB"),
    )
    result = ask(problem, "astar", horizon=length, warm_start=warm_start)
    assert result.verified
    assert result.epochs == 8


def test_a_solver_that_moves_nothing_does_not_stop_the_rounds(monkeypatch):
    """Progress is guaranteed: a chunk alone is brought on if a round brought nothing."""
    problem = Problem(topology=network(LINE), demand=chunks(((0,), (4,)), ((0,), (3,))))
    honest, calls = solvers.solve, []

    def lazy(model, *args, **keywords):
        calls.append(model)
        solution = honest(model, *args, **keywords)
        if len(calls) % 2:
            return replace(solution, values=np.zeros(model.num_columns))
        return solution

    monkeypatch.setattr(solvers, "solve", lazy)
    result = ask(problem, "astar", warm_start=False)
    assert result.verified
    assert result.epochs >= 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"switch": SwitchMode.NO_COPY},
        {"switch": SwitchMode.HYPER_EDGE},
        {"transit": Transit.CUT_THROUGH},
        {"transit": Transit.CUT_THROUGH, "switch": SwitchMode.NO_COPY},
    ],
)
def test_switches_of_every_kind_are_served(options):
    """A star of four GPUs: copies leave the switch together, or one by one."""
    star = Topology.parse("star:gpus=4,alpha=0")
    problem = Problem(topology=star, demand=Demand.collective("allgather", size="100KB"), **options)
    result = ask(problem, "astar", epoch=TimeGrid.build(problem).epoch)
    assert result.verified
    assert result.epochs <= (5 if options.get("switch") else 4)


def test_sums_are_made_backwards():
    """A ReduceScatter is an AllGather turned round."""
    result = teccl.solve("ring:gpus=4", "reducescatter", size="1MB", method="astar")
    assert result.verified
    assert (
        result.epochs == teccl.solve("ring:gpus=4", "allgather", size="1MB", method="astar").epochs
    )


@pytest.mark.parametrize("options", [{"buffer": 1}, {"copy": False}])
def test_limits_that_rounds_do_not_know_are_refused(options):
    """The message has the remedy."""
    problem = Problem(topology=network([(0, 1)]), demand=chunks(((0,), (1,))), **options)
    with pytest.raises(MethodError, match="--method milp"):
        ask(problem, "astar")


def without_solver(monkeypatch):
    """Let every round end without a solution."""
    nothing = Solution(status=SolverStatus.TIME_LIMIT)
    monkeypatch.setattr(solvers, "solve", lambda *_, **__: nothing)


@pytest.mark.parametrize("warm_start", [True, False])
def test_a_time_limit_keeps_what_was_found_and_completes_it(warm_start):
    """There is a verified schedule however early the rounds end."""
    result = teccl.solve(
        "internal2:chassis=8",
        "allgather",
        size="1MB",
        method="astar",
        time_limit="50ms",
        warm_start=warm_start,
    )
    # What there is when the limit is reached may meet the bound.
    assert result.status in {Status.TIME_LIMIT, Status.OPTIMAL}
    assert result.verified
    assert result.method == "astar"


def test_who_interrupts_the_rounds_gets_a_complete_schedule():
    """What was under way is kept and the rest is brought without a solver."""
    cancel, rounds = CancelToken(), []

    def stop(progress):
        if progress.phase == "astar":
            rounds.append(progress.message)
            cancel.cancel()

    result = teccl.solve(
        "internal1:chassis=4",
        "allgather",
        size="1MB",
        method="astar",
        horizon=6,
        gap="1000%",
        progress=stop,
        cancel=cancel,
    )
    assert len(rounds) == 1
    assert result.status is Status.INTERRUPTED
    assert result.verified


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"switch": SwitchMode.NO_COPY},
        {"switch": SwitchMode.HYPER_EDGE},
        {"transit": Transit.CUT_THROUGH},
        {"transit": Transit.CUT_THROUGH, "switch": SwitchMode.NO_COPY},
    ],
)
@pytest.mark.parametrize("length", [1, 4])
def test_what_arrives_first_makes_schedules_without_a_solver(options, length, monkeypatch):
    """Without any solution rounds still end, for switches of every kind."""
    without_solver(monkeypatch)
    problem = Problem(
        topology=Topology.parse("internal2:chassis=3"),
        demand=Demand.collective("allgather", size="150KB"),
        **options,
    )
    grid = TimeGrid.build(problem)
    result = ask(problem, "astar", epoch=grid.epoch, horizon=length, warm_start=False)
    assert result.verified
    assert result.epochs <= 5 * result.bound_epochs


def test_rounds_that_find_nothing_end_near_what_is_constructed(monkeypatch):
    """Solutions that lead nowhere are replaced by what the construction knows."""

    def idle(model, *_, **__):
        return Solution(status=SolverStatus.FEASIBLE, values=np.zeros(model.num_columns))

    monkeypatch.setattr(solvers, "solve", idle)
    result = teccl.solve(
        "internal2:chassis=8,alpha=0", "allgather", size="1MB", chunks=2, method="astar"
    )
    known = teccl.solve(
        "internal2:chassis=8,alpha=0", "allgather", size="1MB", chunks=2, grid=True, effort="quick"
    )
    assert result.verified
    assert result.epochs <= 1.25 * known.epochs


def test_a_round_of_one_epoch_goes_far(monkeypatch):
    """Deliveries that take many rounds are made where the solver finds none of them."""

    def idle(*_, **__):
        return Solution(status=SolverStatus.TIME_LIMIT)

    monkeypatch.setattr(solvers, "solve", idle)
    chunks = [((i,), (i + 5,)) for i in range(3)]
    demand = Demand(tenants=(wants(*chunks),))
    options = {"method": "astar", "horizon": 1, "chunks": 1, "warm_start": False}
    assert teccl.solve("ring:gpus=10", demand=demand, **options).verified


def judged(seed: int) -> float | None:
    """The gap of A* on a random problem, None where it does not serve it."""
    problem = random_problem(seed)
    try:
        result = ask(problem, "astar", epoch=random_epoch(seed, problem))
    except MethodError:
        return None
    if result.epochs is None:
        return None
    assert result.verified
    assert result.epochs >= result.bound_epochs
    return result.grid_gap


def test_random_problems_are_solved_and_verified():
    """Every one that is served gets a schedule; nearly all are as short as the bound."""
    gaps = [gap for gap in map(judged, QUICK) if gap is not None]
    assert len(gaps) >= 5
    assert np.median(gaps) <= 0.25


@pytest.mark.slow
def test_five_hundred_random_problems(record_property):
    """The same on as many as the quick suite has no time for; their gaps are recorded."""
    gaps = [gap for gap in map(judged, SLOW) if gap is not None]
    record_property("gaps", f"{np.mean(gaps):.3f} mean, {np.max(gaps):.3f} worst of {len(gaps)}")
    assert len(gaps) >= 500
    assert np.mean(gaps) <= 0.15


def test_laying_what_is_left_can_be_ended():
    """Where epochs are short beside latencies, looking for ways takes long: a limit ends it."""
    problem = Problem(topology=network(LINE), demand=chunks(((0,), (4,))))
    found = []

    def pause():
        found.append(1)
        raise SearchStoppedError(Status.TIME_LIMIT)

    with pytest.raises(SearchStoppedError):
        greedy_flows(arcs_on(problem, 40), state_of(problem), begin=0, length=40, pause=pause)
    assert found == [1]
