"""Orbit files: what is written is read back, and fits the published schema."""

import json
import random
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.orbit.drawing import draw_problem, draw_schedule

from teccl.errors import ScheduleError, TopologyError
from teccl.orbit.expansion import expand
from teccl.orbit.files import fabric_from_dict, fabric_to_dict, orbit_from_dict, orbit_to_dict
from teccl.orbit.presets import parse_fabric
from teccl.orbit.recognition import is_orbit_file
from teccl.orbit.schedule import OrbitSchedule
from teccl.schedule.schedule_files import schedule_from_dict

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "orbit.schema.json"


def drawn(seed: int = 1) -> OrbitSchedule:
    """One random schedule."""
    rng = random.Random(seed)
    return draw_schedule(rng, draw_problem(rng))


@pytest.mark.parametrize("name", ["orbit.json", "orbit.json.gz"])
def test_files_are_read_back(tmp_path, name):
    """A file holds all of a schedule, and the same schedule gives the same bytes."""
    for seed in range(10):
        schedule, path = drawn(seed), tmp_path / name
        schedule.save(path)
        assert is_orbit_file(path)
        again = OrbitSchedule.load_file(path)
        assert orbit_to_dict(again) == orbit_to_dict(schedule)
        first = path.read_bytes()
        again.save(path)
        assert path.read_bytes() == first


def test_files_fit_the_schema():
    """Random schedules fit, with and without switches and shared capacities."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    for seed in range(20):
        document = json.loads(json.dumps(orbit_to_dict(drawn(seed))))
        assert list(validator.iter_errors(document)) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "teccl-schedule", "no orbit file"),
        (("schema_version",), 2, "not supported"),
        (("collective",), "broadcast", "no orbit of chunks"),
        (("size",), "-1B", "size"),
        (("num_chunks",), 0, "num_chunks"),
        (("switch",), "hyper-edge", "switch"),
        (("fabric", "group"), [0], "positive orders"),
        (("fabric", "extra"), 1, "unknown key"),
        (("sends", "link"), [1], "different lengths"),
        (("sends", "reduce", 0), 2, "reduce is 2"),
        (("sends", "start_ps", 0), "0", "start_ps is '0'"),
        (("sends", "link", 0), 10**9, "it must be from 0 to"),
    ],
)
def test_damaged_files_are_refused(path, value, message):
    """One line names what is wrong."""
    document = orbit_to_dict(drawn())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ScheduleError, match=message):
        orbit_from_dict(document)


@pytest.mark.parametrize(
    ("first", "second", "twice"),
    [
        *(("gpu{n}", "gpu1", "gpu1"), ("gpu{n}", "gpu{n+11}", "gpu11")),
        *(("a{0}{1}", "b", "a110"), ("a{n}", "b", None), ("a{0}.{1}", "a{0}-{1}", None)),
    ],
)
def test_two_nodes_of_one_name_are_refused(first, second, twice):
    """A listed topology refuses them, and nobody could say which one is meant."""
    plain = fabric_to_dict(parse_fabric("torus:dims=12x12"))
    plain["nodes"][0]["name"] = "rank{n}"
    sizes = {"moduli": [12, 12] if "{" in second else [1, 1]}
    gpus = plain["nodes"][0] | {"name": first}
    switches = {"name": second, "kind": "switch", "group": None} | sizes
    slow = {"moduli": [12, 12], "bandwidth": "1GB/s"}
    for changes in (
        {"nodes": [gpus, switches]},
        {"shared": [slow | {"name": first}, slow | {"name": second} | sizes]},
    ):
        if twice is None:
            assert fabric_from_dict(plain | changes).num_gpus == 144
            continue
        with pytest.raises(TopologyError, match=f"'{twice}' is the name of two"):
            fabric_from_dict(plain | changes)


def test_any_rank_reads_its_own_sends():
    """The sends of every rank together are those of the expanded schedule, GPU by GPU."""
    for seed in range(12):
        schedule = drawn(seed)
        whole = expand(schedule)
        topology, n = whole.problem.topology, schedule.fabric.num_gpus
        table = whole.problem.chunks
        expected = sorted(
            (int(topology.link_src[s.link]), s.link, s.start_ps, s.op, int(table.piece[s.chunk]))
            for s in whole
            if topology.link_src[s.link] < n
        )
        found = sorted(
            (rank, s.link, s.start_ps, s.op, s.piece)
            for rank in range(n)
            for s in schedule.rank_sends(rank)
        )
        assert found == expected


def test_the_peer_of_a_rank_is_at_the_end_of_its_link():
    """Owner, target and peer are those of the image that this rank takes part in."""
    schedule = drawn(3)
    whole = expand(schedule)
    at = {}
    for s in whole:
        at[s.link, s.start_ps] = s.chunk
    table, topology = whole.problem.chunks, whole.problem.topology
    for rank in range(schedule.fabric.num_gpus):
        for s in schedule.rank_sends(rank):
            chunk = at[s.link, s.start_ps]
            assert s.peer == topology.link_dst[s.link]
            if s.target is not None:
                assert (s.owner, s.target) == (
                    table.sources(chunk)[0],
                    table.destinations(chunk)[0],
                )
            else:
                assert s.owner == table.block[chunk]


def test_readers_of_listed_sends_say_what_an_orbit_is():
    """Whoever needs every send names what reads an orbit instead."""
    with pytest.raises(ScheduleError, match=r"t.json is an orbit.*'teccl verify'"):
        schedule_from_dict({"format": "teccl-orbit"}, where="t.json")
