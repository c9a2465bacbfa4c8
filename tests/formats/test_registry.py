"""The list of formats: one entry is all that a format needs to be known everywhere."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import teccl
from teccl.formats import registry
from teccl.formats.registry import FORMATS, Format, formats_that

ROOT = Path(registry.__file__).parent
ROOMS = {"write", "read", "prove"}
PACKAGES = sorted(p.parent for p in ROOT.glob("*/__init__.py") if p.parent.name != "shared")
# The function that each kind of summary promises, and the room that holds it.
PROMISES = {
    "writes": ("write", "render"),
    "reads": ("read", "read_schedule"),
    "writes_topology": ("write", "render_topology"),
    "reads_topology": ("read", "read_topology"),
}
TOY = """
from pathlib import Path

from teccl.formats.shared.exports import Export, OutputFile


def render(schedule, path, options):
    return Export(target="toy", files=(OutputFile(path=path, content=f"{len(schedule)} sends"),))
"""
# What a developer writes into the registry, ahead of the command line.
ENTRY = """
import sys
from teccl.formats.registry import FORMATS, Format
FORMATS["toy"] = Format(package="toy", writes="a toy", suffixes=(".toy",))
from teccl.cli import main
sys.argv = ["teccl", *sys.argv[1:]]
main()
"""


def imports(path: Path) -> set[str]:
    """Modules of teccl that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("teccl.")}


def file_of(module: str) -> Path | None:
    """The file of a module, None for the name of something in one."""
    stem = Path(teccl.__file__).parent.joinpath(*module.split(".")[1:])
    candidates = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_format_has_three_rooms_and_no_other(package):
    """Whoever looks for what writes, reads or proves a format knows where to look."""
    names = {path.stem for path in package.iterdir() if path.name != "__pycache__"}
    assert names - {"__init__"} <= ROOMS
    assert names & ROOMS


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_proof_never_imports_a_writer(package):
    """What judges a file shares no code with what makes it, not even through others."""
    room = package / "prove"
    waiting = sorted(room.rglob("*.py")) if room.is_dir() else [room.with_suffix(".py")]
    waiting = [path for path in waiting if path.is_file()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        modules = imports(path)
        assert not any(
            name.startswith("teccl.formats.") and "write" in name.split(".") for name in modules
        ), path
        found = {file for file in map(file_of, modules) if file is not None}
        waiting += sorted(found - seen)
        seen |= found


def test_every_package_of_a_format_is_in_the_list():
    """A format that is not in the list cannot be asked for."""
    assert {known.package for known in FORMATS.values()} == {
        f"teccl.formats.{path.name}" for path in PACKAGES
    }


@pytest.mark.parametrize("name", FORMATS)
def test_an_entry_keeps_what_it_promises(name):
    """Each summary has its function, and an output has suffixes."""
    known = FORMATS[name]
    for what, (room, function) in PROMISES.items():
        if getattr(known, what) is not None:
            assert callable(known.function(room, function))
    assert bool(known.suffixes) == bool(known.writes or known.writes_topology)


def test_the_library_takes_its_choices_from_the_list(monkeypatch, schedule):
    """The library knows a format as soon as it has an entry."""
    monkeypatch.setitem(FORMATS, "toy", Format(package="toy", writes="a toy", suffixes=(".toy",)))
    assert "toy" in formats_that("writes")
    assert "toy" not in formats_that("reads")
    with pytest.raises(ModuleNotFoundError, match="toy"):
        teccl.export(schedule, to="toy")


def test_a_new_format_is_one_file_and_one_entry(tmp_path, schedule):
    """The command line offers it, checks its suffix and writes its file."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "write.py").write_text(TOY, encoding="utf-8")
    schedule.save(tmp_path / "s.json")

    def run(*arguments):
        command = [sys.executable, "-c", ENTRY, "export", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "toy" in run("--help").stdout
    assert "ending in .toy" in run("s.json", "--to", "toy", "-o", "x.xml").stderr
    done = run("s.json", "--to", "toy", "-o", "x.toy", "--json")
    assert json.loads(done.stdout)["target"] == "toy", done.stderr
    assert (tmp_path / "x.toy").read_text(encoding="utf-8") == f"{len(schedule)} sends"


@pytest.fixture(scope="module")
def schedule():
    """A schedule to write."""
    return teccl.solve("ring:gpus=3", "allgather", size="3kB").schedule
