"""The paper's three modelling examples: latency, store-and-forward, copy (its figure 1)."""

from fractions import Fraction
from itertools import permutations

import pytest
from tests.verification.helpers import find_link

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.problem import Problem
from teccl.replay import simulate
from teccl.schedule.sends import Schedule, send_array
from teccl.timegrid import TimeGrid
from teccl.topology import Link, Node, Topology
from teccl.verification import verify

SECOND = 10**12


def network(names: str, *links) -> Topology:
    """Links as (ends, units per second, alpha in seconds); a unit is a byte."""
    nodes = names.split()
    built = []
    for ends, rate, alpha in links:
        a, b = ends.split(">")
        built.append(
            Link(
                src=nodes.index(a),
                dst=nodes.index(b),
                bandwidth=Fraction(rate),
                alpha=Fraction(alpha),
            )
        )
    return Topology(name="paper", nodes=tuple(Node(name=n) for n in nodes), links=tuple(built))


def problem_of(topology: Topology, *chunks, **options) -> Problem:
    """Chunks of one unit, from a node to nodes by name."""
    listed = tuple(
        ExplicitChunk(
            (topology.find_node(source),), tuple(topology.find_node(d) for d in ends.split())
        )
        for source, ends in chunks
    )
    tenant = Tenant(collective=Collective.EXPLICIT, size=Fraction(1), chunks=listed)
    return Problem(topology=topology, demand=Demand(tenants=(tenant,)), **options)


def schedule_of(problem: Problem, *rows, epoch=None) -> Schedule:
    """Sends as (chunk, link, start in seconds[, epoch])."""
    full = [(*row, 0)[:4] for row in rows]
    return Schedule(
        problem=problem,
        sends=send_array(
            [row[0] for row in full],
            [find_link(problem.topology, row[1]) for row in full],
            [int(Fraction(row[2]) * SECOND) for row in full],
            epoch=[row[3] for row in full],
        ),
        grid=None if epoch is None else TimeGrid(problem=problem, epoch=Fraction(epoch)),
    )


# (a) Latency


@pytest.mark.parametrize("first", [0, 1])
def test_latency_is_paid_along_each_way_not_as_the_largest_of_all(first):
    """Both chunks reach h3 at the same time, so the last is there at alpha2 + 3 beta."""
    beta, alpha1 = Fraction(1), Fraction(7, 10)
    alpha2 = 2 * beta + 3 * alpha1
    topology = network(
        "s1 h1 h2 h3 d s2",
        ("s1>h1", 1, alpha1),
        ("h1>h2", 1, alpha1),
        ("h2>h3", 1, alpha1),
        ("h3>d", 1, 0),
        ("s2>h3", 1, alpha2),
    )
    problem = problem_of(topology, ("s1", "d"), ("s2", "d"))
    # Sparse starts, in the order that matters: which chunk h3 sends first.
    schedule = schedule_of(
        problem,
        (0, "s1>h1", 0),
        (0, "h1>h2", 10),
        (0, "h2>h3", 20),
        (1, "s2>h3", 0),
        (first, "h3>d", 30),
        (1 - first, "h3>d", 40),
    )
    assert verify(schedule) == ()
    replay = simulate(schedule)
    assert replay.finish_ps == (alpha2 + 3 * beta) * SECOND
    assert replay.finish_ps != (alpha2 + 4 * beta) * SECOND


# (b) Store-and-forward

RELAY = network("s1 s2 s3 h d", ("s1>h", 1, 0), ("s2>h", 1, 0), ("s3>h", 1, 0), ("h>d", 2, 0))
SOURCES = (("s1", "d"), ("s2", "d"), ("s3", "d"))


def relay_schedule(order, *, buffer, together: bool) -> Schedule:
    """All three to d over h in epochs of a second; `together`: all set out at once."""
    problem = problem_of(RELAY, *SOURCES, buffer=buffer)
    half = Fraction(1, 2)
    rows = []
    for place, chunk in enumerate(order):
        start, epoch = (0, 0) if together else (place * half, 0 if place < 2 else 1)
        # h sends two units in a second, one after the other.
        leave = 1 + place * half
        rows.append((chunk, f"s{chunk + 1}>h", start, epoch))
        rows.append((chunk, "h>d", leave, 1 if place < 2 else 2))
    return schedule_of(problem, *rows, epoch=1)


def last_epoch(schedule: Schedule) -> int:
    """Epoch at whose start everything is usable; each link has kappa 1 and delta 0 here."""
    return int(schedule.sends["epoch"].max()) + 1


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_without_buffers_two_sources_go_first(order):
    """Any two sources send in the first second; d has everything after three."""
    schedule = relay_schedule(order, buffer=0, together=False)
    assert verify(schedule) == ()
    assert last_epoch(schedule) == 3


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_buffers_add_solutions_of_the_same_length(order):
    """With store-and-forward all sources may send at once; it takes three seconds as well."""
    schedule = relay_schedule(order, buffer=None, together=True)
    assert verify(schedule) == ()
    assert last_epoch(schedule) == 3
    refused = {v.kind.value for v in verify(relay_schedule(order, buffer=0, together=True))}
    assert refused == {"buffer-exceeded", "grid-buffer-exceeded"}


@pytest.mark.parametrize(("buffer", "together"), [(0, False), (None, True)])
def test_off_the_grid_the_relay_needs_two_and_a_half_seconds(buffer, together):
    """The third chunk takes half a second on the fast link; epochs of a second hide that."""
    schedule = relay_schedule((0, 1, 2), buffer=buffer, together=together)
    assert simulate(schedule).finish_ps == Fraction(5, 2) * SECOND


# (c) Copy

FAN = network("s h d1 d2 d3", ("s>h", 1, 0), ("h>d1", 1, 0), ("h>d2", 1, 0), ("h>d3", 1, 0))


def test_with_copy_the_fan_takes_two_seconds():
    """The relay sends one arrival to all three."""
    problem = problem_of(FAN, ("s", "d1 d2 d3"))
    rows = [(0, "s>h", 0), *((0, f"h>d{i}", 3 + i) for i in (1, 2, 3))]
    schedule = schedule_of(problem, *rows)
    assert verify(schedule) == ()
    assert simulate(schedule).finish_ps == 2 * SECOND


def test_without_copy_the_fan_takes_four_seconds():
    """Each destination needs its own send from the source."""
    problem = problem_of(FAN, ("s", "d1 d2 d3"), copy=False)
    rows = [(0, "s>h", 2 * i) for i in range(3)] + [(0, f"h>d{i}", 3 + 2 * i) for i in (1, 2, 3)]
    schedule = schedule_of(problem, *rows)
    assert verify(schedule) == ()
    assert simulate(schedule).finish_ps == 4 * SECOND


def test_without_copy_one_arrival_is_not_enough():
    """The fast schedule is refused when nothing may be copied."""
    problem = problem_of(FAN, ("s", "d1 d2 d3"), copy=False)
    rows = [(0, "s>h", 0), *((0, f"h>d{i}", 1) for i in (1, 2, 3))]
    assert {v.kind.value for v in verify(schedule_of(problem, *rows))} == {"gpu-copy"}
