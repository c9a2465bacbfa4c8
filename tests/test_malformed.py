"""Malformed input of every kind: exit code 2 or 3, one line, no traceback, no file written."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.helpers import assert_refused, run
from tests.malformed_corpus import (
    COLLECTIVES,
    DEMAND_CASES,
    SCHEDULE,
    SCHEDULE_CASES,
    TOPOLOGY,
    TOPOLOGY_CASES,
    YAML_FILES,
    Case,
    as_json,
)
from tests.sampling import thinned

TOPOLOGY_COMMANDS = (
    ("topology", "show", "{file}", "-o", "out.yaml"),
    ("solve", "{file}", "allgather", "--size", "1KB", "-o", "out.json"),
    ("topology", "check", "{file}"),
    ("topology", "draw", "{file}", "-o", "out.svg"),
)
DEMAND_COMMANDS = (("solve", "ring:gpus=4", "--demand", "{file}", "-o", "out.json"),)
SCHEDULE_COMMANDS = (
    ("verify", "{file}"),
    ("simulate", "{file}", "-o", "out.json"),
    ("verify", "{file}", "--json"),
)

SOLVE = ("solve", "ring:gpus=4", "allgather", "--size", "1KB")
COMMAND_LINES = (
    (),
    ("",),
    ("slove",),
    ("SOLVE", "dgx1", "allgather", "--size", "1MB"),
    ("--no-such-option",),
    ("-x",),
    ("--version=3",),
    ("solve",),
    ("solve", "dgx1"),
    ("solve", "dgx1", "allgather"),
    ("solve", "dgx1", "allgather", "extra", "--size", "1MB"),
    ("solve", "dgx1", "allgather", "--size"),
    ("solve", "dgx1", "allgathr", "--size", "1MB"),
    ("solve", "dgx1", "", "--size", "1MB"),
    ("solve", "dgx1", "alltoallv", "--size", "1MB"),
    ("solve", "dgx1", "explicit", "--size", "1MB"),
    ("solve", "", "allgather", "--size", "1MB"),
    ("solve", "dgx9", "allgather", "--size", "1MB"),
    ("solve", "dgx1:", "allgather", "--size", "1MB"),
    ("solve", "dgx1:chassis=2", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chasis=2", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=0", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=-1", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=2.5", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=2,chassis=3", "allgather", "--size", "1MB"),
    ("solve", "ndv2:chassis=99999999999999999", "allgather", "--size", "1MB"),
    ("solve", "ring:gpus=1", "allgather", "--size", "1MB"),
    ("solve", "ring:gpus=0", "allgather", "--size", "1MB"),
    ("solve", "ring:bandwidth=0", "allgather", "--size", "1MB"),
    ("solve", "ring:bandwidth=fast", "allgather", "--size", "1MB"),
    ("solve", "ring:alpha=-1us", "allgather", "--size", "1MB"),
    ("solve", "ring:alpha=5", "allgather", "--size", "1MB"),
    ("solve", "torus:dims=0x4", "allgather", "--size", "1MB"),
    ("solve", "torus:dims=4xx4", "allgather", "--size", "1MB"),
    ("solve", "torus:dims=99999x99999", "allgather", "--size", "1MB"),
    ("solve", "fully-connected:gpus=100000", "allgather", "--size", "1MB"),
    ("solve", "hypercube:dimension=60", "allgather", "--size", "1MB"),
    ("solve", "fat-tree:k=3", "allgather", "--size", "1MB"),
    ("solve", "random:gpus=4,degree=9", "allgather", "--size", "1MB"),
    ("solve", "dgx-h100:nvls=maybe", "allgather", "--size", "1MB"),
    ("solve", "missing.yaml", "allgather", "--size", "1MB"),
    ("solve", "/dev/null/x.json", "allgather", "--size", "1MB"),
    ("solve", "./", "allgather", "--size", "1MB"),
    ("solve", "a" * 5000, "allgather", "--size", "1MB"),
    ("solve", "a" * 5000 + ".yaml", "allgather", "--size", "1MB"),
    ("solve", "x\0.yaml", "allgather", "--size", "1MB"),
    ("solve", "x\n.yaml", "allgather", "--size", "1MB"),
    ("solve", "\x1b[31mred.yaml", "allgather", "--size", "1MB"),
    ("solve", "\udcff.yaml", "allgather", "--size", "1MB"),
    ("solve", "dgx1", "allgather", "--demand", "missing.yaml"),
    ("solve", "dgx1", "--demand", "missing.yaml"),
    ("solve", "dgx1", "--demand", "missing.csv"),
    ("solve", "dgx1", "--demand", "."),
    ("solve", "dgx1", "--demand", ""),
    (*SOLVE, "--from", "missing.json"),
    (*SOLVE, "--from", "."),
    (*SOLVE, "--sise", "1MB"),
    (*SOLVE, "--json=yes"),
    (*SOLVE, "--root", "0"),
    (*SOLVE, "--objective", "paper"),
    (*SOLVE, "--method", "ring", "--grid"),
    ("solve", "ring:gpus=4", "broadcast", "--size", "1KB", "--root", "4"),
    ("solve", "ring:gpus=4", "broadcast", "--size", "1KB", "--root", "-1"),
    ("solve", "ring:gpus=4", "broadcast", "--size", "1KB", "--root", "first"),
    ("solve", "ring:gpus=4", "scattergather", "--size", "1KB", "--method", "recursive-doubling"),
    ("solve", "ring:gpus=100000", "alltoall", "--size", "1MB"),
    *(
        (*SOLVE, "-o", name)
        for name in ("out.txt", "out", "", ".", "..", ".json", ".json.gz", "a/")
    ),
    *(
        (*SOLVE, "-o", name)
        for name in ("out.yaml", "out.json.bz2", "/proc/no/out.json", "a\0.json")
    ),
    ("topology",),
    ("topology", "lst"),
    ("topology", "list", "extra"),
    ("topology", "show"),
    ("topology", "show", "dgx1", "--json", "--yaml"),
    ("topology", "show", "dgx1", "-o", "x.txt"),
    ("topology", "show", "dgx1", "--al"),
    ("topology", "check"),
    ("topology", "check", "nothing"),
    ("topology", "check", "missing.json"),
    ("topology", "draw"),
    ("topology", "draw", "dgx1"),
    ("topology", "draw", "dgx1", "-o", "x.docx"),
    ("topology", "draw", "dgx1", "-o", "/proc/no/x.svg"),
    ("topology", "draw", "fully-connected:gpus=300", "-o", "x.svg"),
    ("verify",),
    ("verify", "missing.json"),
    ("verify", "."),
    ("verify", "", "--json"),
    ("verify", "dgx1"),
    ("verify", "a", "b"),
    ("verify", "/dev/zero"),
    ("simulate",),
    ("simulate", "missing.json"),
    ("simulate", "missing.json", "-o", "x.txt"),
)
BAD_VALUES = {
    "--size": (
        "",
        "0",
        "0MB",
        "-1MB",
        "1",
        "1 parsec",
        "nan",
        "inf",
        "1e999MB",
        "1GB/s",
        "1e99PB",
        "\n",
    ),
    "--chunks": ("0", "-1", "1.5", "many", "", "99999999", "auto,2", "٣"),
    "--max-chunks": ("0", "-1", "x", "", "1e3"),
    "--method": ("rings", "", "gurobi", "ring,auto", "\x00"),
    "--effort": ("fast", "", "0"),
    "--time-limit": ("0", "-1s", "10", "", "forever", "1e999s", "nan"),
    "--gap": ("-1", "-1%", "x", "", "nan", "inf", "1e999999999", "1/0", "%"),
    "--epoch": ("0", "-1us", "5", "quick", "", "1e999s"),
    "--epoch-multiplier": ("0", "-1", "x", "", "nan", "1e99999"),
    "--horizon": ("0", "-1", "x", "1.5", ""),
    "--switch": ("cpy", "", "reduce", "1"),
    "--transit": ("fast", "", "cut_thru"),
    "--buffer": ("-1", "some", "", "1.5"),
    "--objective": ("speed", ""),
    "--solver": ("cplex", ""),
    "--threads": ("0", "-1", "x", "", "1.5"),
    "--seed": ("-1", "x", "", "1.5", "9" * 30),
    "--ranks": ("", "9", "0", "0-", "-3", "0-9", "3-0", "0,0", "a", "0;1", "0-99999999999", "0,,1"),
    "--without-link": ("", "0", "0:9", "0:0", "0:2", "gpu0:nobody", "0>1>2", "*:0", ":"),
    "--degrade": (
        "",
        "0:1",
        "0:1=",
        "0:1=0",
        "0:1=-5%",
        "0:1=x",
        "0:9=50%",
        "0:1=1e999999",
        "=50%",
    ),
}
COMMAND_CASES = [
    *COMMAND_LINES,
    *((*SOLVE, option, value) for option, values in BAD_VALUES.items() for value in values),
]

DAMAGED_SCHEDULES: dict[str, Any] = {
    "a send is missing": lambda d: d["sends"].pop(5),
    "the last send is missing": lambda d: d["sends"].pop(),
    "no sends": lambda d: d.update(sends=[]),
    "a send is there twice": lambda d: d["sends"].append(dict(d["sends"][0])),
    "a send is too early": lambda d: d["sends"][-1].update(start_ps=0),
    "a send takes another link": lambda d: d["sends"][-1].update(link=0),
    "a send carries another chunk": lambda d: d["sends"][-1].update(chunk=0),
    "a send reduces": lambda d: d["sends"][3].update(op="reduce"),
    "the finish is too early": lambda d: d.update(finish_ps=1),
    "the finish is too late": lambda d: d.update(finish_ps=2**60),
    "a link is slower": lambda d: d["topology"]["links"][0].update(bandwidth="1B/s"),
    "a link is longer": lambda d: d["topology"]["links"][0].update(alpha="1s"),
    "a link is turned round": lambda d: d["topology"]["links"][0].update(src="gpu1", dst="gpu0"),
    "data comes late": lambda d: d["demand"]["collectives"][0].update(ready={"0": "1ms"}),
}


def parameters(cases: list[Case]) -> list[Any]:
    """Return the cases as parameters whose names say what is wrong."""
    return [pytest.param(case, i, id=f"{i}-{case.label}") for i, case in enumerate(cases)]


def check_file(case: Case, command: tuple[str, ...], folder: Path, codes: tuple[int, ...]) -> None:
    """Run a command on a malformed file and check how it ends and that nothing is written."""
    path = folder / case.name
    path.write_bytes(case.content)
    assert_refused(run(*(part.format(file=path) for part in command)), codes)
    assert [entry.name for entry in folder.iterdir()] == [case.name]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where a file that is written would be seen."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("document", "command"),
    [
        *((TOPOLOGY, command) for command in TOPOLOGY_COMMANDS),
        *((COLLECTIVES, command) for command in DEMAND_COMMANDS),
        *((SCHEDULE, command) for command in SCHEDULE_COMMANDS),
    ],
)
def test_unspoilt_documents_are_accepted(
    document: Any, command: tuple[str, ...], tmp_path: Path
) -> None:
    """What the corpus spoils is in order before, so each refusal is due to its one change."""
    path = tmp_path / "x.json"
    path.write_bytes(as_json(document))
    outcome = run(*(part.format(file=path) for part in command))
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(("case", "number"), parameters(TOPOLOGY_CASES))
def test_malformed_topology(case: Case, number: int, tmp_path: Path) -> None:
    """A malformed topology file is refused in one line by every command that reads one."""
    check_file(case, TOPOLOGY_COMMANDS[number % len(TOPOLOGY_COMMANDS)], tmp_path, (2,))


@pytest.mark.parametrize(("case", "number"), parameters(DEMAND_CASES))
def test_malformed_demand(case: Case, number: int, tmp_path: Path) -> None:
    """A malformed demand file is refused in one line."""
    check_file(case, DEMAND_COMMANDS[number % len(DEMAND_COMMANDS)], tmp_path, (2,))


@pytest.mark.parametrize(("case", "number"), parameters(SCHEDULE_CASES))
def test_malformed_schedule(case: Case, number: int, tmp_path: Path) -> None:
    """A malformed schedule file is refused in one line, as unreadable or as incorrect."""
    check_file(case, SCHEDULE_COMMANDS[number % len(SCHEDULE_COMMANDS)], tmp_path, (2, 3))


@pytest.mark.parametrize("title", DAMAGED_SCHEDULES)
@pytest.mark.parametrize("command", SCHEDULE_COMMANDS, ids=" ".join)
def test_incorrect_schedule(title: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """A schedule that reads well but is wrong ends with exit code 3 and one line."""
    document = copy.deepcopy(SCHEDULE)
    DAMAGED_SCHEDULES[title](document)
    check_file(Case(title, "x.json", as_json(document)), command, tmp_path, (3,))


@pytest.mark.parametrize(
    "arguments", COMMAND_CASES, ids=[str(i) for i in range(len(COMMAND_CASES))]
)
def test_malformed_command_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A wrong command line is refused in one line and writes nothing."""
    assert_refused(run(*arguments))
    assert not list(tmp_path.iterdir())


def test_there_are_enough_cases() -> None:
    """The corpus has at least 300 malformed inputs, and many of each sort."""
    sizes = [len(c) for c in (TOPOLOGY_CASES, DEMAND_CASES, SCHEDULE_CASES, COMMAND_CASES)]
    assert min(sizes) >= 100
    assert sum(sizes) >= 300


@pytest.mark.parametrize(
    "command", [*TOPOLOGY_COMMANDS, *DEMAND_COMMANDS, *SCHEDULE_COMMANDS], ids=" ".join
)
@pytest.mark.parametrize(
    "kind", ["folder", "pipe", "unreadable", "dangling link", "link to itself"]
)
def test_what_is_no_file(command: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """A folder, a pipe, a dangling link and a file one may not read are refused in one line."""
    path = tmp_path / "x.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.write_text("{}")
        path.chmod(0)
        if os.access(path, os.R_OK):
            path.write_text("")
    else:
        path.symlink_to("missing" if kind == "dangling link" else "x.json")
    assert_refused(run(*(part.format(file=path) for part in command)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


OPENED: list[str] = []


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        OPENED.append(os.fspath(arguments[0]))


@pytest.mark.parametrize(
    "text",
    [
        "name: secret.yaml\nnodes: 2\nlinks: []",
        "nodes: secret.yaml\nlinks: []",
        "nodes: 2\nlinks: !include secret.yaml",
        "nodes: [{name: secret.yaml}, {name: ./secret.yaml, group: secret.yaml}]\nlinks: []",
        "$ref: secret.yaml",
        "nodes: 2\nlinks: [{src: secret.yaml, dst: 1, bandwidth: 1GB/s}]",
    ],
)
def test_file_names_in_inputs_are_not_opened(text: str, tmp_path: Path) -> None:
    """A file name inside a topology is never opened."""
    secret = tmp_path / "secret.yaml"
    secret.write_text("nodes: 2\nlinks: []")
    path = tmp_path / "x.yaml"
    path.write_text(text)
    opened = files_opened_by("topology", "check", path)
    assert [name for name in opened if "secret" in name] == []
    assert [name for name in opened if name.startswith(str(tmp_path))] == [str(path)]


def test_verify_opens_the_schedule_only(tmp_path: Path) -> None:
    """Verification opens the schedule file and nothing else near it."""
    path = tmp_path / "x.json"
    path.write_bytes(as_json(SCHEDULE))
    opened = files_opened_by("verify", path)
    assert {name for name in opened if name.startswith(str(tmp_path))} == {str(path)}


def files_opened_by(*arguments: object) -> list[str]:
    """Return the names of the files that a command opens."""
    if not OPENED:
        # A hook cannot be taken away again; it stays and costs next to nothing.
        sys.addaudithook(_note_open)
        OPENED.append("hooked")
    start = len(OPENED)
    run(*arguments)
    return OPENED[start:]


PROCESSES = (
    ("solve", "dgx9", "allgather", "--size", "1MB", "-o", "out.json"),
    ("verify", "x.yaml"),
    ("topology", "check", "x.yaml"),
    ("topology", "chek", "x.yaml"),
    ("solve", "ring:gpus=4", "--demand", "x.yaml", "-o", "out.json"),
)
TITLES = ("python object", "bomb", "deep flow")


@pytest.mark.parametrize(
    ("arguments", "title"),
    thinned(
        (
            (arguments, TITLES[(i + j) % len(TITLES)])
            for i, arguments in enumerate(PROCESSES)
            for j in range(len(TITLES))
        ),
        len(TITLES),
    ),
)
def test_malformed_in_a_process_of_its_own(
    arguments: tuple[str, ...], title: str, tmp_path: Path
) -> None:
    """The real program ends with exit code 2 and one line, too."""
    (tmp_path / "x.yaml").write_text(YAML_FILES[title])
    ended = subprocess.run(
        [sys.executable, "-m", "teccl", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert ended.returncode == 2, ended
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("error: ")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.yaml"]
