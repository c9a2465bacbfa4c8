"""solve: from what a user asks to a verified result, and everything that can be wrong with it."""

import contextlib
import pickle
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from tests.sampling import thinned
from tests.verification.helpers import net
from tests.verification.partial import one_shot

import teccl
from teccl.construct.baselines import BASELINES, build_baseline
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict, save_demand
from teccl.errors import (
    DemandError,
    InputError,
    MethodError,
    ProblemError,
    ScheduleError,
    TopologyError,
    UnitError,
    VerificationError,
)
from teccl.keywords import Effort
from teccl.problem import Problem
from teccl.progress import CancelToken
from teccl.result import Status
from teccl.schedule import Schedule
from teccl.synthesis import strategies
from teccl.synthesis.portfolio import run_portfolio
from teccl.synthesis.request import Request
from teccl.synthesis.search import Search
from teccl.synthesis.stop import SearchStoppedError
from teccl.synthesis.strategies import CONSTRUCT
from teccl.topology import Topology
from teccl.verification import has_same_order, verify

RING = "ring:gpus=4"


# A search that goes through several numbers of chunks.
LINE = {"method": "binomial-tree"}


def solve(*args, **options):
    """Solve an AllGather of 1 MB on a ring of four unless told otherwise."""
    if not args:
        args = (RING, "allgather")
    if "demand" not in options:
        options.setdefault("size", "1MB")
    return teccl.solve(*args, **options)


def test_a_named_method_makes_the_schedule():
    """The ring's time is (n - 1) (alpha + S / (n C)), and the result says who made it."""
    result = solve(method="ring", chunks=1)
    assert (result.method, result.requested_method) == ("ring", "ring")
    assert result.finish_time_s == 16.5e-6
    assert result.schedule.finish_time_s == result.finish_time_s
    assert result.verified
    assert not verify(result.schedule)


def test_auto_takes_the_best_baseline():
    """Auto is at least as quick as every baseline with the same chunks."""
    auto = solve("fully-connected:gpus=4", "allreduce", chunks=2)
    for name in BASELINES:
        named = solve("fully-connected:gpus=4", "allreduce", chunks=2, method=name)
        assert auto.finish_ps <= named.finish_ps, name
    assert auto.requested_method == "auto"


def test_schedule_carries_its_bound():
    """The saved schedule has what was proven about it."""
    result = solve(method="ring", chunks=1)
    assert result.schedule.bound == result.bound
    assert result.finish_ps >= result.bound.physical_ps
    assert result.certificate


def test_optimal_where_the_bound_is_met():
    """One hop between two GPUs cannot be beaten."""
    result = solve("ring:gpus=2", "broadcast", method="ring", chunks=1)
    assert result.status is Status.OPTIMAL
    assert result.chunk_gap == 0


def test_optimal_up_to_a_picosecond_per_send():
    """Rounding of a chunk's time up to a picosecond does not hide that a schedule is optimal."""
    result = solve("ring:gpus=2", "broadcast", size=1, method="ring", chunks=3)
    assert result.finish_ps > result.bound.physical_ps
    assert result.status is Status.OPTIMAL


def test_feasible_where_a_gap_is_left():
    """A ring on a fully connected network is not proven optimal."""
    result = solve("fully-connected:gpus=8", "allgather", method="ring", chunks=1)
    assert result.status is Status.FEASIBLE
    assert result.physical_gap > 0


def test_automatic_chunks_are_the_fewest_that_are_good():
    """Of the numbers tried the smallest within a thousandth of the best is taken."""
    result = solve("line:gpus=4", "broadcast", **LINE)
    times = {attempt.num_chunks: attempt.finish_time_s for attempt in result.tried}
    good = [count for count, time in times.items() if time <= 1.001 * min(times.values())]
    assert result.num_chunks == min(good)
    assert len(times) > 2


def test_max_chunks_limits_what_is_tried():
    """No more chunks than allowed are tried, and that number itself is."""
    result = solve("line:gpus=4", "broadcast", max_chunks=6, **LINE)
    assert [attempt.num_chunks for attempt in result.tried] == [1, 2, 4, 6]


def test_max_chunks_limits_strategies_with_numbers_of_their_own():
    """Periods of sums, which want two pieces, and exchanges, which cut finely, keep to it too."""
    sums = solve("star:gpus=5", "allreduce", size="64MB", max_chunks=1, effort="quick")
    matrix = [[0, 3000, 100], [5000, 0, 20], [700, 9000, 0]]
    demand = demand_from_dict({"matrix": matrix})
    exchange = solve("ring:gpus=3", demand=demand, max_chunks=2, effort="quick")
    assert not [each for each in exchange.tried if each.num_chunks > 2]
    assert sums.schedule.problem.whole_buffer or sums.num_chunks == 1


@pytest.mark.parametrize(
    ("network", "collective", "most", "pieces"),
    [
        ("star:gpus=8", "reduce", 4, 4),
        ("dgx-h100:chassis=2", "reduce", 3, 3),
        ("star:gpus=8", "allreduce", 1, 8),
    ],
)
def test_max_chunks_limits_the_shares_of_schemes(
    network: str, collective: str, most: int, pieces: int
):
    """Owners and mixtures of schemes that want more pieces than all blocks may have are left out.

    A Reduce has one block, an AllReduce one for each GPU.
    """
    result = solve(network, collective, size="64KB", max_chunks=most, effort="quick")
    problem = result.schedule.problem
    assert len(problem.chunks) <= pieces
    assert all(each.num_chunks <= pieces for each in result.tried)


@pytest.mark.parametrize(
    ("chassis", "size", "most"),
    [(4, "4MB", 5_000), pytest.param(16, "16MB", 100_000, marks=pytest.mark.slow)],
)
def test_symmetry_affords_larger_schedules(chassis, size, most):
    """Where most of a schedule is copied, more chunks are tried while they are worth it."""
    result = teccl.solve(f"dgx-h100:chassis={chassis}", "allgather", size=size)
    assert result.num_sends > most
    assert result.physical_gap <= 0.02
    assert not verify(result.schedule)


def test_work_is_counted_and_bounds_the_search():
    """A search that leaves a gap ends because it has spent its units, not by the clock."""
    request = Request(
        topology=Topology.parse("dgx-h100:chassis=2"),
        demand=Demand.collective("allgather", size="64KB"),
        effort=Effort.QUICK,
    )
    search = Search(request=request, started=0.0)
    search.bound = search.prove(request.problem(1), narrow=False)
    with contextlib.suppress(SearchStoppedError):
        run_portfolio(search, CONSTRUCT)
    assert 0 < search.budget.spent < 2 * search.budget.total
    again = Search(request=request, started=0.0)
    again.bound = again.prove(request.problem(1), narrow=False)
    with contextlib.suppress(SearchStoppedError):
        run_portfolio(again, CONSTRUCT)
    assert again.budget.spent == search.budget.spent


def test_a_strategy_from_outside_is_used():
    """A strategy that is registered has its turn in auto."""

    class Toy:
        name = "toy"

        def refusal(self, features):
            return None if features.phases == 1 else "one phase only"

        def work(self, features):
            return 0

        def attempts(self, search):
            built = build_baseline("ring", search.request.problem(3))
            search.offer(replace(built, method="toy"))
            yield

    heard = []
    strategies.PORTFOLIO.insert(0, Toy())
    try:
        result = solve(max_chunks=1, progress=heard.append)
    finally:
        strategies.PORTFOLIO.pop(0)
    assert 3 in [attempt.num_chunks for attempt in result.tried]
    assert "toy, 3 chunks" in [event.message for event in heard]


def test_given_chunks_are_used():
    """A fixed number of chunks is not changed, and nothing else is tried."""
    result = solve(chunks=3)
    assert result.num_chunks == 3
    assert result.tried == ()
    assert result.chunk_bound_s is not None


def test_unreachable_destination_is_infeasible():
    """Without a path there is no schedule, and the message names chunk and pair."""
    result = solve("line:gpus=3", "allgather", without_links=["gpu0>gpu1"])
    assert result.status is Status.INFEASIBLE
    assert result.schedule is None
    assert "cannot get from gpu0 to gpu1" in result.message
    assert "chunk 0" in result.message


def test_unreachable_contribution_is_infeasible():
    """A sum needs a path from every source."""
    result = solve("line:gpus=3", "reduce", without_links=["gpu2>gpu1"])
    assert result.status is Status.INFEASIBLE
    assert "cannot get from gpu2 to gpu0" in result.message


def test_one_way_network_is_enough_for_a_broadcast():
    """Links that the demand does not need may be missing."""
    result = solve("line:gpus=3", "broadcast", without_links=["gpu1>gpu0", "gpu2>gpu1"])
    assert result.verified


def test_removed_and_slowed_links_change_the_result():
    """Links can be removed and slowed down by name."""
    whole = solve("fully-connected:gpus=4", "alltoall", chunks=1)
    slow = solve("fully-connected:gpus=4", "alltoall", chunks=1, degrade=["gpu0:gpu1=50%"])
    same = solve("fully-connected:gpus=4", "alltoall", chunks=1, degrade={"gpu0:gpu1": 0.5})
    cut = solve("fully-connected:gpus=4", "alltoall", chunks=1, without_links="gpu0:gpu1")
    assert slow.finish_ps == same.finish_ps > whole.finish_ps
    assert cut.finish_ps > whole.finish_ps
    assert cut.problem.topology.num_links == 10


def test_ranks_and_root_are_read():
    """Members may be given as text or numbers, the root as a rank."""
    for ranks in ("0-2", [0, 1, 2]):
        result = solve("fully-connected:gpus=4", "broadcast", ranks=ranks, root=2)
        assert result.num_gpus == 3
        assert result.problem.chunks.sources(0).tolist() == [2]


def test_demand_file_replaces_the_collective(tmp_path):
    """Several tenants come from a file and each has its finish time."""
    tenants = (
        replace(Demand.collective("alltoall", size="1MB").tenants[0], name="one"),
        replace(Demand.collective("broadcast", size="1KB").tenants[0], name="two"),
    )
    path = tmp_path / "demand.json"
    save_demand(Demand(tenants=tenants), path)
    result = solve(RING, demand=path)
    assert [name for name, _ in result.tenants] == ["one", "two"]
    assert max(time for _, time in result.tenants) == result.finish_time_s
    assert result.finish_ps == solve(RING, demand=Demand(tenants=tenants)).finish_ps


def test_same_call_gives_the_same_sends():
    """Nothing depends on the clock or on chance."""
    first, second = (solve("dgx1", "allreduce", chunks=2) for _ in range(2))
    assert np.array_equal(first.schedule.sends, second.schedule.sends)
    assert first.method == second.method


def test_result_pickles():
    """A result can be sent to another process."""
    result = solve(chunks=1)
    copy = pickle.loads(pickle.dumps(result))
    assert copy.to_dict() == result.to_dict()
    assert np.array_equal(copy.schedule.sends, result.schedule.sends)


def test_topology_object_is_taken_as_it_is():
    """A Topology, a preset and a file give the same."""
    assert solve(Topology.parse(RING), "allgather", chunks=1).finish_ps == solve(chunks=1).finish_ps


@pytest.mark.parametrize("switch", ["copy", "no-copy", "hyper-edge"])
@pytest.mark.parametrize("transit", ["store-and-forward", "cut-through"])
def test_switch_modes_reach_the_problem(switch, transit):
    """Options of the model are those the schedule is verified against."""
    result = solve("star:gpus=4", "allgather", switch=switch, transit=transit, chunks=1)
    assert (result.problem.switch, result.problem.transit) == (switch, transit)


def test_progress_tells_incumbent_and_bound():
    """Listeners see the bound, then ever better schedules with their gap."""
    events = []
    result = solve("line:gpus=4", "broadcast", progress=events.append, **LINE)
    incumbents = [event.incumbent_s for event in events if event.incumbent_s is not None]
    assert events[0].incumbent_s is None
    assert min(incumbents) <= result.finish_time_s
    assert events[-1].bound_s == result.physical_bound_s
    assert events[-1].gap is not None
    assert all(a.elapsed_s <= b.elapsed_s for a, b in pairwise(events))


def test_cancelled_search_keeps_its_best():
    """A token that is cancelled after the first schedule ends the search with it."""
    token = CancelToken()

    def listen(event):
        if event.incumbent_s is not None:
            token.cancel()

    result = solve("line:gpus=4", "broadcast", progress=listen, cancel=token, **LINE)
    assert result.status is Status.INTERRUPTED
    assert result.num_chunks == 1
    assert result.verified


def test_cancelled_before_the_start_has_no_schedule():
    """A token that is already cancelled leaves nothing to keep."""
    token = CancelToken()
    token.cancel()
    result = solve(cancel=token)
    assert result.status is Status.INTERRUPTED
    assert result.schedule is None
    assert "before the first schedule" in result.message


def test_keyboard_interrupt_keeps_the_best():
    """Ctrl-C in the middle of the search ends it with what there is."""

    def listen(event):
        if event.phase == "schedule" and event.message.endswith("2 chunks"):
            raise KeyboardInterrupt

    result = solve("line:gpus=4", "broadcast", progress=listen, **LINE)
    assert result.status is Status.INTERRUPTED
    assert result.verified


def test_time_limit_keeps_the_first_schedule():
    """However short the limit, one schedule is found."""
    result = solve("line:gpus=4", "broadcast", time_limit="1ps", **LINE)
    assert result.status is Status.TIME_LIMIT
    assert len(result.tried) == 1
    assert result.verified


def test_gap_stops_the_search():
    """A schedule within the gap ends the search."""
    all_tried = solve("line:gpus=4", "broadcast", **LINE)
    stopped = solve("line:gpus=4", "broadcast", gap="900%", **LINE)
    assert stopped.status is Status.FEASIBLE
    assert len(stopped.tried) < len(all_tried.tried)


def test_search_can_start_from_a_schedule():
    """A schedule that still works is at least as good a start as none."""
    best = solve(RING, "allgather", chunks=4, method="ring")
    assert solve(RING, "allgather", from_schedule=best.schedule).finish_ps <= best.finish_ps


def test_a_good_start_does_not_end_the_search():
    """What a schedule near the bound lacks is still looked for."""
    start = solve("dgx1", "allgather", size="4MB", effort="quick", max_chunks=2)
    fresh = solve("dgx1", "allgather", size="4MB")
    again = solve("dgx1", "allgather", size="4MB", from_schedule=start.schedule)
    assert again.finish_ps <= fresh.finish_ps < start.finish_ps


def test_start_is_replayed_on_slower_links(tmp_path):
    """The order of a saved schedule is kept where rates have changed."""
    path = tmp_path / "ring.json"
    solve(method="ring", chunks=1).schedule.save(path)
    result = solve(chunks=1, from_schedule=path, degrade="gpu0:gpu1=50%")
    assert result.verified
    assert result.finish_ps <= 3 * 10_500_000


def test_start_that_overloads_a_link_is_left_alone():
    """Where a link would hold an order up for long, that is said and nothing is replayed."""
    start = solve(method="ring", chunks=1).schedule
    heard = []
    slow = {"degrade": "gpu0:gpu1=10%"}
    result = solve(chunks=1, from_schedule=start, progress=heard.append, **slow)
    said = [event.message for event in heard if event.phase == "restart" and event.message]
    assert len(said) == 1
    assert "its order takes link gpu0 > gpu1" in said[0]
    assert result.finish_ps == solve(chunks=1, **slow).finish_ps


def test_start_whose_buffer_is_cut_as_a_whole_is_replayed():
    """An AllReduce in stages is a start like any other."""
    start = solve(RING, "allreduce", size="1KB").schedule
    assert start.problem.whole_buffer
    result = solve(RING, "allreduce", size="1KB", from_schedule=start, degrade="gpu0:gpu1=50%")
    assert result.message is None
    assert result.finish_ps >= start.finish_ps


def test_start_that_adds_in_different_orders_needs_leave():
    """Ranks whose results would differ in their bits are not kept unless any order will do."""
    start = one_shot(teccl.Topology.parse("ring:gpus=4"), 1000, same_order=False)
    asked = {"size": 1000, "from_schedule": start, "effort": "quick"}
    refused = solve(RING, "allreduce", **asked)
    assert "--any-order" in (refused.message or "")
    assert has_same_order(refused.schedule)
    allowed = solve(RING, "allreduce", any_order=True, **asked)
    assert allowed.message is None


@pytest.mark.parametrize(
    ("size", "spec"),
    thinned(
        [
            *product(["1KB", "1MB"], ["dgx1", "star:gpus=5", "dgx-h100:nvls=true"]),
            *product(["1KB", "1MB"], ["ring:gpus=5"]),
        ],
        2,
    ),
)
def test_allreduces_of_auto_add_in_one_order(spec, size):
    """Every rank evaluates one tree of additions, by whatever scheme."""
    assert has_same_order(solve(spec, "allreduce", size=size, effort="quick").schedule)


def test_start_for_another_problem_is_refused():
    """A schedule of another collective or chunk count is no start."""
    schedule = solve(method="ring", chunks=1).schedule
    with pytest.raises(ScheduleError, match="solves another problem"):
        solve(RING, "broadcast", from_schedule=schedule)
    with pytest.raises(ScheduleError, match="--chunks 1"):
        solve(chunks=2, from_schedule=schedule)


def test_wrong_schedule_is_never_returned(monkeypatch):
    """A schedule that fails verification is an error of teccl, not a result."""

    def forgetful(name, problem):
        schedule = build_baseline(name, problem)
        return Schedule(problem=problem, sends=schedule.sends[:-1], method=name)

    monkeypatch.setattr("teccl.synthesis.strategies.baselines.build_baseline", forgetful)
    with pytest.raises(VerificationError, match="never reaches"):
        solve(method="ring", chunks=1)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"method": "rign"}, InputError, "did you mean 'ring'"),
        ({"effort": "norml"}, InputError, "did you mean 'normal'"),
        ({"switch": "copyy"}, InputError, "did you mean 'copy'"),
        ({"transit": "cut-thru"}, InputError, "did you mean 'cut-through'"),
        ({"solver": "high"}, InputError, "did you mean 'highs'"),
        ({"objective": "time"}, InputError, "known: finish, paper"),
        ({"objective": "paper"}, ProblemError, "add --grid"),
        ({"size": None}, DemandError, "needs a size"),
        ({"size": "1MX"}, UnitError, "unknown unit"),
        ({"chunks": 0}, InputError, "chunks '0' is not a whole number"),
        ({"chunks": "many"}, InputError, "chunks 'many'"),
        ({"chunks": True}, InputError, "chunks 'True'"),
        ({"max_chunks": 0}, InputError, "max chunks"),
        ({"gap": -1}, ProblemError, "gap -1 is negative"),
        ({"gap": "wide"}, InputError, "gap 'wide' is not a number"),
        ({"gap": "1e999999999"}, InputError, "is not a number"),
        ({"time_limit": 0}, ProblemError, "time limit 0"),
        ({"time_limit": "10"}, UnitError, "no unit"),
        ({"buffer": -1}, InputError, "buffer '-1'"),
        ({"epoch_multiplier": 0}, ProblemError, "epoch multiplier 0"),
        ({"epoch": "0"}, ProblemError, "epoch 0"),
        ({"horizon": "long"}, InputError, "horizon 'long'"),
        ({"threads": 0}, InputError, "threads"),
        ({"seed": -1}, InputError, "seed"),
        ({"ranks": "0-9"}, DemandError, "rank 4 does not exist"),
        ({"ranks": [0, "x"]}, InputError, "rank 'x'"),
        ({"root": 1}, DemandError, "has no root"),
        ({"without_links": "gpu0:gpu9"}, TopologyError, "gpu9"),
        ({"degrade": "gpu0:gpu1"}, TopologyError, "write for example A:B=50%"),
        ({"degrade": "gpu0:gpu1=0%"}, TopologyError, "not positive"),
        ({"degrade": ["gpu0:gpu1=9%", "gpu0:gpu1=8%"]}, TopologyError, "twice"),
        ({"method": "ring", "grid": True}, MethodError, "no grid; .* use auto"),
        ({"method": "ring", "epoch": "1us"}, MethodError, "no grid"),
        ({"from_schedule": "absent.json"}, ScheduleError, "absent.json"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, error, text):
    """Whatever is wrong is named with its remedy, before any work is done."""
    with pytest.raises(error, match=text) as caught:
        solve(**options)
    assert "\n" not in str(caught.value)


def test_collective_and_demand_exclude_each_other():
    """Exactly one of collective and demand is given, each with its own options only."""
    demand = Demand.collective("allgather", size="1MB")
    with pytest.raises(DemandError, match="both collective"):
        solve(RING, "allgather", demand=demand)
    with pytest.raises(DemandError, match="no collective"):
        solve(RING)
    with pytest.raises(DemandError, match="drop --size"):
        solve(RING, demand=demand, size="1MB")
    with pytest.raises(DemandError, match="needs a matrix"):
        solve(RING, "alltoallv")


def test_method_that_does_not_serve_names_others():
    """A baseline that does not fit ends with the names of methods that do."""
    with pytest.raises(MethodError, match="does not serve alltoall; use auto, shortest-path"):
        solve(RING, "alltoall", method="ring")


@pytest.mark.parametrize("spelling", ["Ring", "RING", "recursive_doubling"])
def test_spelling_of_methods_is_forgiving(spelling):
    """Case and underscores do not matter."""
    assert solve(method=spelling, chunks=1).requested_method == spelling.lower().replace("_", "-")


def test_optional_numbers_may_be_text():
    """What a command line hands over as text is read like a number."""
    result = solve(chunks="2", gap="0.5", buffer="unlimited", seed="3")
    assert result.num_chunks == 2


def test_problem_matches_the_request():
    """Size and chunks arrive exactly, also where they do not divide."""
    result = solve(size="1KB", chunks=3)
    assert result.problem == Problem(
        topology=Topology.parse(RING),
        demand=Demand.collective("allgather", size=1000),
        num_chunks=3,
    )
    assert result.chunk_bytes == Fraction(1000, 12)


def test_a_small_problem_with_given_chunks_is_closed() -> None:
    """Where the bound is below the best order of transfers, branching proves that order best."""
    topology = net("a b c d", "a-b 1 1, b-c 2 1, c-d 1 3, d-a 5 0, a-c 2 0")
    result = teccl.solve(topology, "alltoall", size="40KB", chunks=1)
    assert result.status is Status.OPTIMAL
    assert result.bound is not None
    assert result.bound.chunk_ps is not None
    assert result.bound.chunk_ps > result.bound.physical_ps
