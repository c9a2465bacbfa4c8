"""The commands: what they print, how they end and what they write."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.helpers import assert_refused, run
from tests.verification.partial import one_shot

import teccl
from teccl.errors import VerificationError
from teccl.keywords import KEYWORDS
from teccl.result import Result
from teccl.schedule import Schedule
from teccl.topology.presets import PRESETS

SOLVE = ("solve", "ring:gpus=4", "allgather", "--size", "1MB", "--method", "ring", "--chunks", "1")
RESULT_KEYS = {
    *("status", "method", "requested_method", "topology", "collective", "num_gpus", "size_bytes"),
    *("num_chunks", "chunk_bytes", "finish_time_s", "physical_bound_s", "physical_gap"),
    *("certificate", "algbw_GBps", "busbw_GBps", "num_sends", "verified", "solve_seconds"),
}
SCHEDULE_KEYS = ("method", "finish_time_s", "physical_gap", "algbw_GBps", "busbw_GBps", "num_sends")
# Two GPUs and no way from the second to the first.
ONE_WAY = "nodes: 2\nlinks:\n- {src: 0, dst: 1, bandwidth: 1GB/s}\n"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def schedule_file() -> Path:
    """A correct schedule of twelve sends."""
    assert run(*SOLVE, "-o", "ring.json", "--quiet").code == 0
    return Path("ring.json")


@pytest.fixture
def broken_file(schedule_file: Path) -> Path:
    """The same schedule without its last send."""
    document = json.loads(schedule_file.read_text())
    document["sends"].pop()
    path = Path("broken.json")
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def one_way_file() -> Path:
    """A topology on which no collective can end."""
    path = Path("one-way.yaml")
    path.write_text(ONE_WAY)
    return path


def replace_solve(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    """Put another function in place of the library's `solve`."""
    monkeypatch.setattr("teccl.synthesis.solve", function)


# Global options and help.


def test_version() -> None:
    """The version is printed on one line."""
    outcome = run("--version")
    assert (outcome.code, outcome.out) == (0, f"teccl {teccl.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("-h",),
        ("solve", "--help"),
        ("bound", "--help"),
        ("topology", "--help"),
        *(("topology", name, "--help") for name in ("list", "show", "check", "draw")),
        ("verify", "--help"),
        ("simulate", "-h"),
    ],
    ids=" ".join,
)
def test_help(arguments: tuple[str, ...]) -> None:
    """Every command explains itself."""
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage: teccl" in outcome.out


def test_help_flows() -> None:
    """Paragraphs break where the terminal ends, not where the source does."""
    lines = [line.strip() for line in run("bound", "--help").out.splitlines()]
    first = next(line for line in lines if line.startswith("Physical bounds hold"))
    rest = lines[lines.index(first) + 1 :]
    # Short lines end paragraphs; the terminal's width decides about all others.
    assert rest[0].startswith("for N whole pieces per block") or "for N whole pieces per" in first


@pytest.mark.parametrize("arguments", [(), ("topology",)], ids=str)
def test_no_command(arguments: tuple[str, ...]) -> None:
    """Without a command the help is shown and the error says what is missing."""
    outcome = run(*arguments)
    assert "Usage: teccl" in outcome.out
    assert_refused(outcome)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("slove",), ("'slove'", "did you mean 'solve'")),
        (("topology", "chek"), ("'chek'", "did you mean 'check'")),
        (("solve", "--siz", "1MB"), ("--siz", "did you mean '--size'")),
        (("verify", "--jsn", "x"), ("--jsn", "did you mean '--json'")),
        (("solve",), ("missing argument TOPOLOGY", "teccl solve --help")),
        (("verify",), ("missing argument FILE",)),
        (("topology", "draw", "dgx1"), ("missing --output",)),
        (("solve", "dgx1", "allgather", "--size"), ("--size", "requires an argument")),
        (("solve", "dgx1", "a", "b"), ("unexpected extra argument", "b")),
        (("solve", "dgx2:chasis=2", "allgather", "--size", "1MB"), ("chasis", "chassis")),
        (("solve", "dgx", "allgather", "--size", "1MB"), ("'dgx'", "did you mean 'dgx")),
        (("solve", "dgx1", "all-gathr", "--size", "1MB"), ("all-gathr", "allgather")),
        (("solve", "dgx1", "allgather", "--size", "1"), ("size '1'", "unit")),
        (("solve", "dgx1", "allgather", "--size", "1MB", "--switch", "cpy"), ("cpy", "'copy'")),
        (("solve", "dgx1", "allgather", "--size", "1MB", "--method", "rng"), ("rng", "'ring'")),
    ],
)
def test_errors_name_the_remedy(arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    """An error is one line with the value and what to do about it."""
    outcome = run(*arguments)
    assert_refused(outcome)
    assert [fragment for fragment in fragments if fragment not in outcome.err] == []


# Solve.


def test_solve_prints_a_table() -> None:
    """The figures are listed by name, without control sequences when nobody watches."""
    outcome = run(*SOLVE)
    assert (outcome.code, outcome.err) == (0, "")
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert lines["status"] in ("feasible", "optimal")
    assert lines["finish time"] == "16.5 us"
    assert lines["verified"] == "yes"
    assert "\x1b" not in outcome.out


def test_solve_prints_json() -> None:
    """The JSON output is one object with the keys of the contract and nothing else."""
    outcome = run(*SOLVE, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    result = json.loads(outcome.out)
    assert set(result) >= RESULT_KEYS
    assert result["finish_time_s"] == 1.65e-05
    assert result["verified"] is True


@pytest.mark.parametrize("extra", [(), ("-o", "x.json")], ids=["print", "save"])
def test_quiet_prints_nothing(extra: tuple[str, ...]) -> None:
    """A quiet run prints nothing when all is well."""
    outcome = run(*SOLVE, "--quiet", *extra)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "new/folder/a.json"])
def test_solve_saves(name: str) -> None:
    """The schedule is saved, in new folders too, and verifies."""
    assert run(*SOLVE, "-o", name).code == 0
    raw = Path(name).read_bytes()
    text = gzip.decompress(raw) if name.endswith(".gz") else raw
    assert json.loads(text)["format"] == "teccl-schedule"
    assert run("verify", name).code == 0


def test_saved_bytes_repeat() -> None:
    """The same request gives the same bytes."""
    for name in ("a.json.gz", "b.json.gz"):
        assert run(*SOLVE, "-o", name, "--seed", "3").code == 0
    assert Path("a.json.gz").read_bytes() == Path("b.json.gz").read_bytes()


@pytest.mark.parametrize(
    "name", ["x.txt", "x", "", ".", ".json", "folder.json", "file/x.json", "x.json.zip"]
)
def test_unwritable_output_is_refused_before_solving(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output file that cannot be written ends the command before any work."""
    Path("folder.json").mkdir()
    Path("file").touch()
    replace_solve(monkeypatch, lambda *_, **__: pytest.fail("solved"))
    assert_refused(run(*SOLVE, "-o", name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_is_refused(tmp_path: Path) -> None:
    """A folder one may not write to is refused."""
    (tmp_path / "locked").mkdir(mode=0o500)
    assert_refused(run(*SOLVE, "-o", "locked/x.json"))


def test_failed_write_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the new file cannot be put in place, the old one stays and no remains lie about."""
    Path("x.json").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(Path, "replace", fail)
    assert_refused(run(*SOLVE, "-o", "x.json"))
    assert Path("x.json").read_text() == "old"
    assert [path.name for path in Path().iterdir()] == ["x.json"]


def test_infeasible(one_way_file: Path) -> None:
    """A demand that cannot be met ends with exit code 1, says why and writes nothing."""
    arguments = ("solve", one_way_file, "allgather", "--size", "1KB", "--json", "-o", "x.json")
    outcome = run(*arguments)
    assert_refused(outcome, (1,))
    result = json.loads(outcome.out)
    assert result["status"] == "infeasible"
    assert result["verified"] is False
    assert [result[key] for key in SCHEDULE_KEYS] == [None] * len(SCHEDULE_KEYS)
    assert not Path("x.json").exists()


def test_quiet_errors_are_printed(one_way_file: Path) -> None:
    """A quiet run still says why there is no schedule."""
    outcome = run("solve", one_way_file, "allgather", "--size", "1KB", "--quiet")
    assert outcome.out == ""
    assert_refused(outcome, (1,))


def test_failed_verification_in_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that fails verification ends the command with exit code 3."""

    def fail(*_: object, **__: object) -> Result:
        raise VerificationError("the schedule has 2 violations")

    replace_solve(monkeypatch, fail)
    assert_refused(run(*SOLVE, "-o", "x.json"), (3,))
    assert not Path("x.json").exists()


def test_demand_file() -> None:
    """A demand file takes the place of the collective; each tenant's finish is listed."""
    Path("two.yaml").write_text(
        "collectives:\n"
        "- {name: left, collective: allgather, size: 1MB, ranks: 0-3}\n"
        "- {name: right, collective: alltoall, size: 1MB, ranks: 4-7}\n"
    )
    outcome = run(
        "solve", "dgx1", "--demand", "two.yaml", "--chunks", 1, "--effort", "quick", "--json"
    )
    result = json.loads(outcome.out)
    assert result["collective"] == "allgather+alltoall"
    assert [tenant["name"] for tenant in result["tenants"]] == ["left", "right"]


def test_changed_topology() -> None:
    """A removed link and a slower one show in the schedule that is saved."""
    outcome = run(
        *SOLVE, "--without-link", "1>0", "--degrade", "gpu0>gpu1=50%", "-o", "x.json", "--json"
    )
    assert outcome.code == 0
    topology = Schedule.load("x.json").problem.topology
    assert topology.num_links == 7
    assert topology.links[topology.find_links("0>1")[0]].bandwidth == 25 * 10**9


# A value for each keyword that takes one.
VALUES = {
    "size": "2MB",
    "ranks": "0-2",
    "root": "1",
    "demand": "d.yaml",
    "chunks": "4",
    "max_chunks": "8",
    "chunk_tolerance": "1%",
    "overhead": "1us",
    "method": "ring",
    "effort": "quick",
    "time_limit": "10s",
    "gap": "1%",
    "epoch": "slowest",
    "epoch_multiplier": "2",
    "horizon": "12",
    "switch": "no-copy",
    "transit": "cut-through",
    "buffer": "none",
    "objective": "paper",
    "from_schedule": "s.json",
    "solver": "cpsat",
    "threads": "2",
    "seed": "7",
}
REPEATED = [name for name, entry in KEYWORDS.items() if entry.repeats]
SWITCHED = [name for name, entry in KEYWORDS.items() if entry.sets is not None]


def keywords_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """Return the keywords with which a command calls `solve`, except the callbacks."""
    seen: dict[str, Any] = {}

    def record(_topology: str, _collective: str | None, **keywords: Any) -> Result:
        seen.update(keywords)
        raise VerificationError("recorded")

    replace_solve(monkeypatch, record)
    assert run("solve", "dgx1", "allgather", *arguments).code == 3
    assert seen.pop("progress") is None
    assert seen.pop("cancel") is not None
    return seen


def test_every_keyword_is_tried() -> None:
    """The tests below say something of the whole table."""
    assert {*VALUES, *REPEATED, *SWITCHED} == set(KEYWORDS)


@pytest.mark.parametrize("name", VALUES)
def test_flags_reach_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flag with a value is handed on under its keyword, and no other is."""
    found = keywords_of(monkeypatch, KEYWORDS[name].flag, VALUES[name])
    assert found == {name: VALUES[name]}


@pytest.mark.parametrize("name", SWITCHED)
def test_switches_reach_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flag without a value sets its keyword."""
    assert keywords_of(monkeypatch, KEYWORDS[name].flag) == {name: KEYWORDS[name].sets}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_flags_reach_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags that may be repeated are handed on as a list."""
    flag = KEYWORDS[name].flag
    keywords = keywords_of(monkeypatch, flag, "0:1=50%", flag, "0:2=50%")
    assert keywords == {name: ["0:1=50%", "0:2=50%"]}


# Errors that nobody expects.


def test_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of teccl is one line that asks for a report, not a traceback."""

    def fail(*_: object, **__: object) -> Result:
        raise ZeroDivisionError("division\nby zero")

    replace_solve(monkeypatch, fail)
    outcome = run(*SOLVE)
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert outcome.err.startswith("internal error: ZeroDivisionError: division by zero")
    assert "TECCL_DEBUG=1" in outcome.err


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_number_of_threads_that_numba_does_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The variable is named before numba stumbles over it."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    outcome = run("solve", "ring:gpus=4", "allgather", "--size", "1MB")
    assert_refused(outcome)
    assert "NUMBA_NUM_THREADS" in outcome.err


@pytest.mark.parametrize("way", ["option", "environment"])
def test_debug_shows_the_traceback(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On request an error comes with its traceback."""
    if way == "environment":
        monkeypatch.setenv("TECCL_DEBUG", "1")
    options = ["--debug"] if way == "option" else []
    outcome = run(*options, "topology", "check", "nowhere.yaml")
    assert outcome.code == 2
    assert "Traceback (most recent call last)" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (MemoryError(), 1),
        (OSError(5, "Input/output error"), 1),
        (PermissionError(13, "no", "f"), 2),
    ],
    ids=["memory", "system", "file"],
)
def test_system_errors(problem: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of memory and failing system calls are one line, too."""

    def fail(*_: object, **__: object) -> Result:
        raise problem

    replace_solve(monkeypatch, fail)
    assert_refused(run(*SOLVE), (code,))


def test_interrupt_outside_solve(schedule_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a command that has nothing to keep ends it with exit code 130."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("teccl.verification.verify", interrupt)
    assert_refused(run("verify", schedule_file), (130,))


# Verify and simulate.


def test_verify(schedule_file: Path) -> None:
    """A correct schedule is summed up on one line."""
    outcome = run("verify", schedule_file)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("ok: allgather on ring, 4 gpus: 12 sends")
    assert len(outcome.out.splitlines()) == 1


def test_verify_json(schedule_file: Path) -> None:
    """The report of a correct schedule has no violations and sums the schedule up."""
    report = json.loads(run("verify", schedule_file, "--json").out)
    assert report["verified"] is True
    assert report["violations"] == []
    assert report["num_sends"] == 12
    assert report["finish_time_s"] == 1.65e-05


def test_verify_says_whether_ranks_add_in_one_order(tmp_path: Path) -> None:
    """Of an AllReduce the report says whether results have the same bits on all ranks."""
    for same, words in ((True, "one order"), (False, "different orders")):
        one_shot(teccl.Topology.parse("ring:gpus=4"), 1000, same_order=same).save(
            tmp_path / "a.json"
        )
        assert run("verify", tmp_path / "a.json").out.strip().endswith(f"ranks add in {words}")
        assert json.loads(run("verify", tmp_path / "a.json", "--json").out)["same_order"] is same


def test_verify_broken(broken_file: Path) -> None:
    """The violations of a broken schedule are listed, and the exit code is 3."""
    outcome = run("verify", broken_file)
    assert_refused(outcome, (3,))
    assert "unmet-demand" in outcome.out
    assert "broken.json failed verification" in outcome.err


def test_verify_broken_json(broken_file: Path) -> None:
    """The report of a broken schedule names kind, chunk, link, time and detail."""
    outcome = run("verify", broken_file, "--json")
    assert_refused(outcome, (3,))
    report = json.loads(outcome.out)
    assert report["verified"] is False
    for violation in report["violations"]:
        assert set(violation) == {"kind", "chunk", "link", "time_s", "detail"}


def test_verify_quiet(schedule_file: Path, broken_file: Path) -> None:
    """A quiet verification tells by its exit code, and why on standard error."""
    assert run("verify", schedule_file, "-q") == run("verify", schedule_file, "--quiet")
    assert run("verify", schedule_file, "-q").out == ""
    outcome = run("verify", broken_file, "-q")
    assert outcome.out == ""
    assert_refused(outcome, (3,))


def test_long_lists_of_violations_are_cut(schedule_file: Path) -> None:
    """The table of violations stops at a screenful and says how many there are."""
    document = json.loads(schedule_file.read_text())
    document["sends"] = document["sends"] * 4
    Path("many.json").write_text(json.dumps(document))
    outcome = run("verify", "many.json")
    assert len(outcome.out.splitlines()) == 22
    assert "more (--json lists them)" in outcome.out


def test_simulate(schedule_file: Path) -> None:
    """A replay shows the finish time, the busiest links and the critical path."""
    outcome = run("simulate", schedule_file)
    assert (outcome.code, outcome.err) == (0, "")
    for fragment in ("finish time", "16.5 us", "busiest links", "critical path", "gpu0 > gpu1"):
        assert fragment in outcome.out


def test_simulate_json(schedule_file: Path) -> None:
    """The JSON of a replay has times, tenants, links and the critical path."""
    replay = json.loads(run("simulate", schedule_file, "--json").out)
    assert replay["finish_time_s"] == 1.65e-05
    assert replay["tenants"] == [{"name": "tenant0", "finish_time_s": 1.65e-05}]
    assert len(replay["links"]) == 4
    assert replay["critical_path"][-1]["arrival_s"] == 1.65e-05


def test_simulate_tightens(schedule_file: Path) -> None:
    """A schedule with a pause is replayed without it, and the replay can be saved."""
    document = json.loads(schedule_file.read_text())
    for send in document["sends"]:
        send["start_ps"] *= 2
    last = max(send["start_ps"] for send in document["sends"])
    document["finish_ps"] = last + 5_500_000
    Path("slow.json").write_text(json.dumps(document))
    outcome = run("simulate", "slow.json", "-o", "fast.json", "--json")
    replay = json.loads(outcome.out)
    assert replay["scheduled_finish_time_s"] > replay["finish_time_s"] == 1.65e-05
    assert Schedule.load("fast.json").finish_ps == 16_500_000
    assert run("verify", "fast.json").code == 0


def test_simulate_refuses_a_broken_schedule(broken_file: Path) -> None:
    """A schedule that fails verification is not replayed."""
    assert_refused(run("simulate", broken_file, "-o", "x.json"), (3,))
    assert not Path("x.json").exists()


# Topologies.


def test_topology_list() -> None:
    """Every preset is listed with its parameters."""
    outcome = run("topology", "list")
    assert outcome.code == 0
    names = [line.split()[0] for line in outcome.out.splitlines() if line]
    assert set(PRESETS) <= set(names)
    assert "chassis=" in outcome.out


def test_topology_list_json() -> None:
    """The list in JSON has name, summary and parameters of each preset."""
    presets = json.loads(run("topology", "list", "--json").out)["presets"]
    assert [preset["name"] for preset in presets] == list(PRESETS)
    assert all(set(preset) == {"name", "summary", "parameters"} for preset in presets)


@pytest.mark.parametrize("spec", PRESETS)
def test_topology_check_presets(spec: str) -> None:
    """Every preset passes the check, and its GPUs all reach each other."""
    summary = json.loads(run("topology", "check", spec, "--json").out)
    assert summary["valid"] is True
    assert summary["strongly_connected"] is True


def test_topology_check() -> None:
    """The check counts GPUs, switches, links and groups."""
    outcome = run("topology", "check", "ndv2:chassis=4")
    counts = [line.split()[-1] for line in outcome.out.splitlines()]
    assert outcome.out.startswith("ok: ndv2")
    assert counts[1:4] == ["32", "1", "136"]


def test_topology_check_reports_reach(one_way_file: Path) -> None:
    """GPUs that do not all reach each other are reported, not refused."""
    outcome = run("topology", "check", one_way_file)
    assert outcome.code == 0
    assert "no, they fall into 2 sets" in outcome.out


def test_topology_show() -> None:
    """Nodes and links are listed."""
    outcome = run("topology", "show", "star:gpus=3")
    assert outcome.code == 0
    assert "gpu0 > switch" in outcome.out
    assert "50GB/s" in outcome.out


def test_topology_show_is_cut_unless_all() -> None:
    """Long tables are cut with a note; --all shows every row."""
    cut = run("topology", "show", "ndv2:chassis=4").out
    assert "more (--all shows them)" in cut
    assert len(run("topology", "show", "ndv2:chassis=4", "--all").out.splitlines()) > 168


@pytest.mark.parametrize(("option", "parse"), [("--json", json.loads), ("--yaml", yaml.safe_load)])
def test_topology_show_document(option: str, parse: Any) -> None:
    """The document that is printed is a topology file."""
    document = parse(run("topology", "show", "dgx2", option).out)
    Path("x.json").write_text(json.dumps(document))
    assert teccl.Topology.parse("x.json") == teccl.Topology.parse("dgx2")


@pytest.mark.parametrize("name", ["x.yaml", "x.yml", "x.json", "x.yaml.gz", "x.json.gz"])
def test_topology_show_saves(name: str) -> None:
    """A topology is saved and reads back the same."""
    assert run("topology", "show", "dgx-a100:chassis=2", "-o", name, "--quiet").out == ""
    assert teccl.Topology.parse(name) == teccl.Topology.parse("dgx-a100:chassis=2")


@pytest.mark.parametrize(("name", "start"), [("x.svg", "<svg"), ("x.dot", "digraph")])
def test_topology_draw(name: str, start: str) -> None:
    """A drawing is saved as the file name says."""
    outcome = run("topology", "draw", "dgx1", "-o", name)
    assert (outcome.code, outcome.err) == (0, "")
    assert start in Path(name).read_text()[:200]


def test_names_are_text_not_markup() -> None:
    """Names that look like markup or emoji are printed as they are."""
    names = ["[red]a[/red]", "b\N{PARTY POPPER}", "<script>", "'quoted'"]
    Path("x.json").write_text(
        json.dumps({"nodes": [{"name": name} for name in names], "links": [], "name": "[b]odd"})
    )
    outcome = run("topology", "show", "x.json")
    assert outcome.code == 0
    assert [name for name in (*names, "[b]odd") if name not in outcome.out] == []


# Shell completion.


def complete(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Return what the shell would offer for the last word of a line."""
    monkeypatch.setenv("_TECCL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return run().out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("teccl so", ["solve"]),
        ("teccl topology ch", ["check"]),
        ("teccl solve ndv", ["ndv2"]),
        ("teccl solve dgx1 allg", ["allgather"]),
        ("teccl solve dgx1 allgather --meth", ["--method"]),
        ("teccl solve dgx1 allgather --method rec", ["recursive-doubling"]),
        ("teccl solve dgx1 allgather --switch h", ["hyper-edge"]),
    ],
)
def test_completion(line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, presets, collectives, options and their values are completed."""
    assert complete(monkeypatch, line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The completion script is printed for each shell."""
    monkeypatch.setenv("_TECCL_COMPLETE", f"source_{shell}")
    outcome = run()
    assert outcome.code == 0
    assert "_TECCL_COMPLETE" in outcome.out


def test_show_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """--show-completion prints the script of the shell in use."""
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    outcome = run("--show-completion")
    assert (outcome.code, outcome.err) == (0, "")
    assert "complete -o default -F _teccl_completion teccl" in outcome.out


def test_completion_without_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no shell is found, the error says how to get the script all the same."""
    import shellingham

    def fail(*_: object) -> None:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr("shellingham.detect_shell", fail)
    assert_refused(run("--show-completion"))
