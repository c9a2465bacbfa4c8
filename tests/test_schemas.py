"""The published JSON Schemas: real documents fit them, unknown keys do not."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from tests.cli.helpers import run
from tests.malformed_corpus import COLLECTIVES, SCHEDULE, TOPOLOGY

import teccl
from teccl.demand import Demand
from teccl.demand.demand_files import demand_from_dict, demand_to_dict
from teccl.problem import Problem
from teccl.result import Result, Status
from teccl.schedule import schedule_files, send_array
from teccl.schedule.schedule_files import schedule_from_dict, schedule_to_dict
from teccl.synthesis.request import OBEYED_BY
from teccl.timegrid import TimeGrid
from teccl.topology.presets import PRESETS
from teccl.topology.topology_files import topology_from_dict, topology_to_dict

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
SCHEMAS = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


def validator(kind: str) -> Draft202012Validator:
    """Return the validator of one kind of document."""
    return Draft202012Validator(SCHEMAS[f"{kind}.schema.json"], registry=REGISTRY)


def assert_fits(kind: str, document: Any) -> None:
    """Assert that a document, as a file holds it, fits its schema."""
    plain = json.loads(json.dumps(document))
    errors = [
        f"{list(error.path)}: {error.message}" for error in validator(kind).iter_errors(plain)
    ]
    assert errors == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_valid(name: str) -> None:
    """Each schema is itself a valid schema, named as its file."""
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == name


@pytest.mark.parametrize(
    "spec",
    [
        *PRESETS,
        *(f"{name}:chassis=3" for name in ("ndv2", "dgx2", "internal1", "internal2", "dgx-h100")),
        "dgx-h100:chassis=2,nvls=true",
        "torus:dims=3x4x5,alpha=0",
        "ring:gpus=3,bandwidth=100Gb/s,alpha=1/3us",
    ],
)
def test_presets_fit(spec: str) -> None:
    """The file of every preset fits the schema."""
    assert_fits("topology", topology_to_dict(teccl.Topology.parse(spec)))


@pytest.mark.parametrize(
    "document",
    [
        TOPOLOGY,
        {"nodes": 4, "links": []},
        {"nodes": 2, "links": [{"src": 0, "dst": 1, "bandwidth": "1 GBps", "alpha": "0"}]},
        {"nodes": [{"name": "a", "group": None}], "links": []},
    ],
)
def test_topology_files_fit(document: dict[str, Any]) -> None:
    """Topology files as people write them fit the schema, and are read."""
    assert_fits("topology", document)
    assert_fits("topology", topology_to_dict(topology_from_dict(document)))


DEMANDS: dict[str, dict[str, Any]] = {
    "tenants": COLLECTIVES,
    "one collective": {"collective": "All-Gather", "size": "1 MiB", "ranks": "0-3, 7"},
    "rooted": {"schema_version": 1, "collective": "broadcast", "size": "1e3B", "root": 2},
    "matrix": {"matrix": [[0, 5.5, "1KB"], ["3", 0, 1], [1, 1, 0]], "ranks": [0, 1, 2]},
    "explicit": {"size": "64B", "chunks": [{"source": 0, "destinations": "1-3"}]},
    "priority as text": {"collective": "alltoall", "size": "1KB", "priority": "1/3"},
    "ready ranges": {"collective": "alltoall", "size": "1KB", "ready": {"0-3": 0, "4,5": "1us"}},
}


@pytest.mark.parametrize("title", DEMANDS)
def test_demand_files_fit(title: str) -> None:
    """Demand files as people write them fit the schema, are read, and fit when saved."""
    assert_fits("demand", DEMANDS[title])
    assert_fits("demand", demand_to_dict(demand_from_dict(DEMANDS[title])))


REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{collective} on {topology}": (topology, collective, options)
    for topology, collective, options in (
        ("ring:gpus=4", "allgather", {"method": "ring"}),
        ("dgx1", "alltoall", {"chunks": 2}),
        ("dgx1", "allreduce", {}),
        ("ndv2:chassis=2", "reducescatter", {}),
        ("dgx2:chassis=2", "broadcast", {"root": 5}),
        ("dgx2", "allgather", {"transit": "cut-through"}),
        ("star:gpus=4", "gather", {"switch": "no-copy"}),
        ("internal2:chassis=2", "scatter", {"switch": "hyper-edge"}),
        ("mesh:dims=2x3", "reduce", {"chunks": 3}),
        ("hypercube:dimension=3", "scattergather", {"ranks": "0-3", "root": 1}),
    )
}


@cache
def solved(title: str) -> Result:
    """Return the result of a request, solved where a test needs it: others only import this."""
    topology, collective, options = REQUESTS[title]
    quick = {"effort": "quick"} if options.get("method", "auto") in OBEYED_BY["effort"] else {}
    return teccl.solve(topology, collective, size="1KB", **quick, **options)


@pytest.mark.parametrize("title", REQUESTS)
def test_schedules_fit(title: str) -> None:
    """Schedule files of real results fit the schema and are read back."""
    schedule = solved(title).schedule
    assert schedule is not None
    document = schedule_to_dict(schedule)
    assert_fits("schedule", document)
    assert len(schedule_from_dict(json.loads(json.dumps(document)))) == len(schedule)


@pytest.mark.parametrize("title", REQUESTS)
def test_results_fit(title: str) -> None:
    """What `solve --json` prints fits the schema."""
    assert_fits("result", solved(title).to_dict())


def test_columns_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long schedules, which list their sends by column, fit the schema."""
    monkeypatch.setattr(schedule_files, "MAX_ROWS", 3)
    schedule = solved("allgather on ring:gpus=4").schedule
    assert schedule is not None
    document = schedule_to_dict(schedule)
    assert isinstance(document["sends"], dict)
    assert_fits("schedule", document)


def grid_schedule() -> teccl.Schedule:
    """Return a broadcast over two epochs on a line of three GPUs."""
    problem = Problem(
        topology=teccl.Topology.parse("line:gpus=3,alpha=0"),
        demand=Demand.collective("broadcast", size="50KB", root=0),
    )
    forth = [problem.topology.find_links(spec)[0] for spec in ("0>1", "1>2")]
    return teccl.Schedule(
        problem=problem,
        sends=send_array([0, 0], forth, [0, 10**6], epoch=[0, 1]),
        grid=TimeGrid.build(problem),
        method="milp",
        bound=teccl.schedule.BoundSummary(
            physical_ps=10**6, chunk_ps=2 * 10**6, epochs=2, certificate="two hops"
        ),
    )


def test_grid_schedule_fits() -> None:
    """A schedule with epochs fits the schema."""
    document = schedule_to_dict(grid_schedule())
    assert document["sends"][1]["epoch"] == 1
    assert_fits("schedule", document)


def test_grid_result_fits() -> None:
    """A result on a grid has all keys of the grid, and fits the schema."""
    schedule = grid_schedule()
    result = Result(
        status=Status.OPTIMAL,
        requested_method="milp",
        problem=schedule.problem,
        schedule=schedule,
        finish_ps=schedule.finish_ps,
        tenant_finish_ps=(schedule.finish_ps,),
        bound=schedule.bound,
        given_chunks=True,
        grid=schedule.grid,
        epochs=2,
        verified=True,
    )
    document = result.to_dict()
    assert document["grid_time_s"] == float(Fraction(2, 10**6))
    assert_fits("result", document)
    del document["epochs"]
    assert not validator("result").is_valid(document)


def test_result_without_schedule_fits() -> None:
    """A result without a schedule has nulls and fits the schema."""
    result = teccl.solve("line:gpus=2", "allgather", size="1KB", without_links=["0>1"])
    assert result.status is Status.INFEASIBLE
    assert_fits("result", result.to_dict())
    assert_fits("result", replace(result, status=Status.INTERRUPTED, given_chunks=True).to_dict())


def test_verification_reports_fit(tmp_path: Path) -> None:
    """Reports on a correct and on a broken schedule fit the schema."""
    path = tmp_path / "x.json"
    broken = copy.deepcopy(SCHEDULE)
    broken["sends"][4]["start_ps"] = 0
    for document, code in ((SCHEDULE, 0), (broken, 3)):
        path.write_text(json.dumps(document))
        outcome = run("verify", path, "--json")
        assert outcome.code == code
        assert_fits("verify", json.loads(outcome.out))


def mappings(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every mapping in a document, but for the first few entries of lists."""
    if isinstance(document, dict):
        yield path
        for key, value in document.items():
            yield from mappings(value, (*path, key))
    elif isinstance(document, list):
        for i, value in enumerate(document[:3]):
            yield from mappings(value, (*path, i))


# Mappings of free names, where any key may stand.
FREE = ("shared", "ready")
SAMPLES: dict[str, Any] = {
    "topology": TOPOLOGY,
    "demand": COLLECTIVES,
    "schedule": json.loads(json.dumps(schedule_to_dict(grid_schedule()))),
    "result": solved("allgather on ring:gpus=4").to_dict(),
}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (kind, path)
        for kind, document in SAMPLES.items()
        for path in mappings(document)
        if not path or path[-1] not in FREE
    ],
)
def test_unknown_keys_do_not_fit(kind: str, path: tuple[str | int, ...]) -> None:
    """A key that nobody knows is refused in every mapping of every kind of document."""
    document = copy.deepcopy(SAMPLES[kind])
    assert validator(kind).is_valid(document)
    place = document
    for key in path:
        place = place[key]
    place["unheard-of"] = 1
    assert not validator(kind).is_valid(document)


@pytest.mark.parametrize("kind", SAMPLES)
def test_missing_keys_do_not_fit(kind: str) -> None:
    """Each required key is missed."""
    required = SCHEMAS[f"{kind}.schema.json"].get("required", ["collectives"])
    for key in required:
        document = {name: value for name, value in SAMPLES[kind].items() if name != key}
        assert not validator(kind).is_valid(document), key
