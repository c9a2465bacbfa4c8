"""Symmetries found from links alone: any order of ranks and any names give the preset's plan."""

import contextlib
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from teccl import Topology
from teccl.errors import ProblemError, TopologyError
from teccl.orbit import Damage, OrbitSchedule, expand, mend_orbit, solve_orbit, verify_orbit
from teccl.orbit.colours import is_symmetry, largest_order, refined
from teccl.orbit.expansion import expanded_topology
from teccl.orbit.finding import find_fabric, generators
from teccl.orbit.folding import is_joined
from teccl.orbit.groups import Groups
from teccl.orbit.presets import parse_fabric
from teccl.orbit.ranks import rank_program
from teccl.verification import verify

SPECS = ["dgx-h100:chassis=4", "torus:dims=4x4", "fat-tree:k=4", "two-tier"]
OTHERS = [
    *("torus:dims=5x7", "torus:dims=4x4x4", "torus:dims=2x3", "ring:gpus=7", "star:gpus=6"),
    *("fat-tree:k=6", "two-tier:leaves=8,gpus=8,spines=4", "gb200-nvl72:chassis=2"),
    *("mi300x:chassis=2", "dgx-b300:chassis=2,planes=2", "fully-connected:gpus=5"),
    "dgx-a100:chassis=3,rates=effective",
]
COLLECTIVES = ["allgather", "reducescatter", "allreduce", "alltoall"]


def shuffled(topology: Topology, seed: int = 0) -> Topology:
    """The same network with nodes and links in another order and with other names."""
    rng = random.Random(seed)
    place, names = list(range(topology.num_nodes)), list(range(topology.num_nodes))
    rng.shuffle(place)
    rng.shuffle(names)
    nodes = [
        replace(topology.nodes[i], name=f"host{names[i]}", group=None)
        for i in np.argsort(place).tolist()
    ]
    links = [replace(x, src=place[x.src], dst=place[x.dst]) for x in topology.links]
    rng.shuffle(links)
    return replace(topology, nodes=tuple(nodes), links=tuple(links))


def links_of(topology: Topology) -> list[object]:
    """Every link by the names of its ends, in one order."""
    names = [node.name for node in topology.nodes]
    return sorted(
        (names[x.src], names[x.dst], x.bandwidth, x.alpha, x.overhead) for x in topology.links
    )


def mutated(topology: Topology, link: int, **changes: object) -> Topology:
    """The topology with one link changed."""
    links = list(topology.links)
    links[link] = replace(links[link], **changes)
    return replace(topology, links=tuple(links))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("spec", SPECS)
def test_a_shuffled_file_has_the_plan_of_its_preset(spec, collective, tmp_path):
    """The same bound, a finish within one percent, accepted by both judges, on the file's nodes."""
    path = tmp_path / "shuffled.json"
    shuffled(Topology.parse(spec)).save(path)
    own = solve_orbit(parse_fabric(spec), collective, size="16MB", chunks=4)
    found = solve_orbit(parse_fabric(path), collective, size="16MB", chunks=4)
    assert found.bound.physical_ps == own.bound.physical_ps
    assert abs(found.schedule.finish_ps / own.schedule.finish_ps - 1) <= 0.01
    assert verify_orbit(found.schedule) == ()
    found.schedule.save(tmp_path / "orbit.json")
    listed = expand(OrbitSchedule.load_file(tmp_path / "orbit.json"))
    assert verify(listed) == ()
    assert listed.finish_ps == found.schedule.finish_ps


@pytest.mark.parametrize("spec", [*SPECS, *OTHERS])
@pytest.mark.parametrize("seed", range(3))
def test_the_fabric_found_is_the_topology(spec, seed):
    """Listed again it has the names, ranks and links that it was found in, and as large a group."""
    topology = shuffled(Topology.parse(spec), seed)
    fabric = parse_fabric(topology)
    again = expanded_topology(fabric)
    assert links_of(again) == links_of(topology)
    ranks = [[t.nodes[i].name for i in t.gpus] for t in (topology, again)]
    assert ranks[0] == ranks[1]
    assert fabric.group.order == parse_fabric(spec).group.order


@pytest.mark.parametrize("spec", SPECS)
def test_a_mutation_breaks_every_generator_that_moves_the_link(spec):
    """A link that differs in anything is taken to an equal one only by what leaves it in place."""
    topology = shuffled(Topology.parse(spec))
    moves = generators(topology, find_fabric(topology))
    assert all(is_symmetry(topology, move) for move in moves)
    for i, link in enumerate(topology.links):
        moved = [move[link.src] != link.src or move[link.dst] != link.dst for move in moves]
        assert any(moved)
        for change in (
            {"bandwidth": link.bandwidth / 2},
            {"alpha": link.alpha + Fraction(1, 10**9)},
            {"overhead": link.overhead + Fraction(1, 10**9)},
            {"profile": ((Fraction(1), link.bandwidth / 2),)},
        ):
            other = mutated(topology, i, **change)
            assert [not is_symmetry(other, move) for move in moves] == moved


@pytest.mark.parametrize("spec", SPECS)
def test_a_slow_link_leaves_a_smaller_group_or_none(spec):
    """Whatever is found then leaves the link in place, so it is never the whole group."""
    topology = shuffled(Topology.parse(spec))
    whole = find_fabric(topology).group.order
    for i, link in list(enumerate(topology.links))[::7]:
        slow = mutated(topology, i, bandwidth=link.bandwidth / 2)
        assert largest_order(slow, refined(slow)) <= largest_order(topology, refined(topology))
        with contextlib.suppress(TopologyError):
            found = find_fabric(slow)
            assert found.group.order < whole or not is_joined(found)
            for move in generators(slow, found):
                assert (move[link.src], move[link.dst]) == (link.src, link.dst)
            assert links_of(expanded_topology(found)) == links_of(slow)


def test_colours_are_those_of_orbits():
    """A slow cable tells GPUs apart by their distance from it; without it all are alike."""
    topology = Topology.parse("ring:gpus=6")
    assert refined(topology).tolist() == [0] * 6
    slow = topology.find_links("0:1")
    for i in slow:
        topology = mutated(topology, i, bandwidth=Fraction(10**9))
    assert refined(topology).tolist() == [0, 0, 1, 2, 2, 1]
    assert largest_order(topology, refined(topology)) == 2


def test_kinds_of_gpus_and_chassis_are_kept_apart():
    """Two kinds of chassis are two orbits, shifted together."""
    base = Topology.parse("dgx-h100:chassis=4")
    links = tuple(
        replace(x, alpha=x.alpha * 2)
        if {"c0", "c1"} & {str(base.nodes[i].group) for i in (x.src, x.dst)}
        else x
        for x in base.links
    )
    mixed = shuffled(replace(base, links=links))
    assert sorted(np.bincount(refined(mixed)[mixed.gpus]).tolist())[-2:] == [16, 16]
    fabric = find_fabric(mixed)
    assert fabric.group.order == 16
    assert links_of(expanded_topology(fabric)) == links_of(mixed)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("line:gpus=5", "no symmetry moves every gpu"),
        ("dgx-h100:nvls=true", "switches that reduce"),
        ("mi250:chassis=2", "shared capacities"),
        ("mesh:dims=64x64", "4 elements at most"),
    ],
)
def test_what_has_no_useful_group_is_refused(spec, words):
    """In one line that says why."""
    with pytest.raises(TopologyError, match=words) as caught:
        find_fabric(Topology.parse(spec))
    assert "\n" not in str(caught.value)


def test_programs_are_those_of_the_ranks_of_the_file():
    """One rank's messages are those that the listed schedule has at that rank."""
    fabric = parse_fabric(shuffled(Topology.parse("dgx-h100:chassis=2")))
    assert fabric.ranks != tuple(range(16))
    result = solve_orbit(fabric, "alltoall", size="1MB", chunks=1)
    listed = expand(result.schedule)
    topology, table = listed.problem.topology, listed.problem.chunks
    for rank in (0, 5, 11):
        node = int(topology.gpus[rank])
        steps = [x for x in rank_program(result.schedule, rank) if x.action == "send"]
        owned = {(x.target, x.time_ps) for x in steps if x.owner == rank}
        rows = listed.sends[topology.link_src[listed.sends["link"]] == node]
        expected = {
            (int(np.searchsorted(topology.gpus, table.destinations(k)[0])), start)
            for k, start in zip(rows["chunk"].tolist(), rows["start_ps"].tolist(), strict=True)
            if table.sources(k)[0] == node
        }
        assert owned == expected


def test_sends_of_ranks_are_those_of_the_ranks_of_the_file():
    """Whose sends they are, of whose chunks and to whom is counted as in the file."""
    fabric = parse_fabric(shuffled(Topology.parse("dgx-h100:chassis=2")))
    schedule = solve_orbit(fabric, "alltoall", size="1MB", chunks=1).schedule
    listed = expand(schedule)
    topology, table = listed.problem.topology, listed.problem.chunks
    for rank in (0, 5, 11):
        expected = sorted(
            (table.sources(s.chunk)[0], table.destinations(s.chunk)[0], s.link, s.start_ps)
            for s in listed
            if topology.link_src[s.link] == rank
        )
        sends = list(schedule.rank_sends(rank))
        assert sorted((s.owner, s.target, s.link, s.start_ps) for s in sends) == expected
        assert [s.peer for s in sends] == [topology.link_dst[s.link] for s in sends]


def test_damage_is_named_as_in_the_file():
    """A cable by the names of its ends or by rank is that of the topology."""
    topology = shuffled(Topology.parse("dgx-h100:chassis=4"))
    fabric = parse_fabric(topology)
    gpu, link = 3, next(x for x in topology.links if x.src == topology.gpus[3])
    far = topology.nodes[link.dst].name
    damage = Damage.of(fabric, down=[f"{topology.nodes[link.src].name}:{far}"])
    assert damage == Damage.of(fabric, down=[f"{gpu}:{far}"])
    plan = solve_orbit(fabric, "allgather", size="16MB", chunks=2).schedule
    assert isinstance(plan, OrbitSchedule)
    listed = expand(mend_orbit(plan, damage).schedule)
    assert verify(listed) == ()
    gone = set(links_of(topology)) - set(links_of(listed.problem.topology))
    assert {(a, b) for a, b, *_ in gone} == {
        (topology.nodes[link.src].name, far),
        (far, topology.nodes[link.src].name),
    }


def test_groups_of_ranks_in_another_order_are_refused():
    """They would be other GPUs than the file's."""
    fabric = parse_fabric(shuffled(Topology.parse("dgx-h100:chassis=4")))
    with pytest.raises(ProblemError, match="another order"):
        solve_orbit(fabric, "allgather", size="1MB", groups=Groups(8))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranks": (0, 0, 1)}, "in some order"),
        ({"names": ("a", "a", "b")}, "each node its own"),
        ({"names": ("a", "b")}, "each node its own"),
        ({"names": ("a", "", "b")}, "each node its own"),
    ],
)
def test_wrong_ranks_and_names_are_refused(change, words):
    """One for each GPU and node."""
    fabric = parse_fabric("ring:gpus=3")
    with pytest.raises(TopologyError, match=words):
        replace(fabric, **change)


@pytest.mark.parametrize("gpus", [39_999, 40_000])
def test_long_lines_are_given_up_at_once(gpus: int) -> None:
    """Round by round their ends would tell all others apart, in as many rounds as half of them."""
    with pytest.raises(TopologyError, match="plan it without orbits"):
        find_fabric(Topology.parse(f"mesh:dims={gpus}"))
