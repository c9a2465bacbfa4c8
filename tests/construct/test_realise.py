"""From plans to schedules: what fits the grid is placed anew in physical time."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.construct.small import SWITCHED_PAIR, best_plan, make_instance, verified

import teccl
from teccl.demand.demand_files import demand_from_dict
from teccl.problem import SwitchMode, Transit
from teccl.replay import simulate
from teccl.topology import Topology

MODES: list[dict[str, Any]] = [
    {},
    {"switch": SwitchMode.NO_COPY},
    {"switch": SwitchMode.HYPER_EDGE},
    {"transit": Transit.CUT_THROUGH},
]


@pytest.mark.parametrize("spec", ["dgx1", "dgx2", "ndv2:chassis=2", "internal2:chassis=2"])
@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
def test_grid_plans_verify_twice(spec: str, collective: str) -> None:
    """A plan in epochs keeps the rules of the grid and, re-timed, those of physical time."""
    made = make_instance(spec, collective, epoch="fastest")
    plan = best_plan(made, level="quick")
    schedule = verified(made, plan)
    assert schedule.grid is made.grid
    last = schedule.sends["epoch"].max()
    assert last < plan.finish


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("epoch", [None, "fastest", "slowest", "1us"])
def test_all_modes_verify(options: dict[str, Any], epoch: str | None) -> None:
    """Every way to pass a switch gives schedules that verify, on every grid and off it."""
    made = make_instance(SWITCHED_PAIR, "allgather", "2KB", epoch=epoch, **options)
    verified(made, best_plan(made, level="quick"))
    made = make_instance("dgx2", "allgather", epoch=epoch, **options)
    verified(made, best_plan(made, level="quick"))


def test_plans_in_picoseconds_are_exact() -> None:
    """Off the grid, with chunks of one size, a schedule ends when its plan does."""
    made = make_instance("dgx2", "allgather", num_chunks=2)
    plan = best_plan(made)
    assert verified(made, plan).finish_ps == plan.finish


UNEVEN = {"matrix": [[0, "9KB", "1KB", 0], ["2KB", 0, 0, "5KB"], [0, "7KB", 0, 0], [1, 0, 0, 0]]}


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("chunks", [1, 2])
def test_uneven_chunks_verify_through_switches(options: dict[str, Any], chunks: int) -> None:
    """Shorter chunks pass switches at their own pace, in every mode."""
    made = make_instance("star:gpus=4", demand_from_dict(UNEVEN), num_chunks=chunks, **options)
    assert len(made.problem.chunks.sizes) > 1
    verified(made, best_plan(made, level="quick"))


@pytest.mark.parametrize("buffer", [None, 0])
def test_uneven_chunks_verify_on_paths(buffer: int | None) -> None:
    """Shorter chunks that may not wait anywhere verify as well."""
    made = make_instance("ring:gpus=4", demand_from_dict(UNEVEN), num_chunks=2, buffer=buffer)
    verified(made, best_plan(made, level="quick"))


def profiled() -> dict[str, Any]:
    """Return a ring of four whose first link is slow for a while."""
    links = []
    for i in range(4):
        link = {"src": i, "dst": (i + 1) % 4, "bandwidth": "1GB/s", "bidirectional": True}
        links.append(link | ({"profile": [["1us", "100MB/s"], ["4us", "2GB/s"]]} if i == 0 else {}))
    return {"nodes": 4, "links": links}


@pytest.mark.parametrize("collective", ["allgather", "alltoall", "reducescatter", "allreduce"])
def test_profiles_verify(collective: str) -> None:
    """On links whose bandwidth changes over time every transfer gets its bytes across."""
    made = make_instance(profiled(), collective, "16KB")
    verified(made, best_plan(made, level="quick"))


def test_profiles_verify_on_the_grid() -> None:
    """On a grid, too, where the rate at an epoch's start counts."""
    made = make_instance(profiled(), "allgather", "16KB", epoch="1us")
    verified(made, best_plan(made, level="quick"))


def test_replay_is_never_later() -> None:
    """The exact replay of a re-timed schedule keeps its order and gains, if anything."""
    made = make_instance("ndv2:chassis=2", "allgather", epoch="fastest")
    schedule = verified(made, best_plan(made, level="quick"))
    replay = simulate(schedule)
    assert replay.finish_ps <= schedule.finish_ps
    assert np.array_equal(np.sort(replay.schedule.sends["link"]), np.sort(schedule.sends["link"]))


@pytest.mark.parametrize("transit", list(Transit))
def test_joined_passages_are_trees(transit: Transit) -> None:
    """Where several ways lead to a switch, one passage enters it once."""
    made = make_instance("dragonfly", "broadcast", transit=transit)
    verified(made, best_plan(made, level="quick"))


def test_copies_that_travel_apart_wait_for_their_own_arrival() -> None:
    """Where rates change and nobody copies, a relay passes each copy on when that has come."""
    line = Topology.parse("line:gpus=4,alpha=0,bandwidth=10GB/s")
    falling = ((Fraction(3, 10**6), Fraction(33 * 10**8)),)
    links = tuple(
        replace(link, bandwidth=Fraction(33 * 10**8))
        if 0 in (link.src, link.dst)
        else replace(link, profile=falling if 3 in (link.src, link.dst) else ())
        for link in line.links
    )
    result = teccl.solve(replace(line, links=links), "allgather", size="1KB", copy=False)
    assert teccl.verify(result.schedule) == ()
