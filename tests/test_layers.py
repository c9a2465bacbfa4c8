"""The architecture: data flows down one list of layers, and imports follow it."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import teccl

ROOT = Path(teccl.__file__).parent
# Lowest first. A module may import its own layer and those before it.
LAYERS = [
    {
        "errors",
        "_arrays",
        "_collect",
        "_fractions",
        "_graphs",
        "_kernels",
        "_moved",
        "_numba",
        "_parallel",
        "_ratios",
        "_spawning",
        "_suggest",
        "keywords",
    },
    {"linear_model"},
    {"units"},
    {"_files"},
    {"_foreign"},
    {"topology"},
    {"demand"},
    {"problem"},
    {"timegrid"},
    {"schedule"},
    {
        "bounds",
        "construct",
        "footprint",
        "progress",
        "reachability",
        "replay",
        "result",
        "verification",
    },
    {"check"},
    {"exchange"},
    {"moe", "placement"},
    {"orbit"},
    {"synthesis.request"},
    # The state of a search, which exact models take part in.
    {
        "synthesis.features",
        "synthesis.incumbents",
        "synthesis.search",
        "synthesis.stop",
        "synthesis.work",
    },
    {"solvers"},
    {"models"},
    {"synthesis"},
    {"drawing", "formats"},
    {"runtime", "simulators"},
    {"rounds"},
    {"nccl"},
    {"report", "plotting"},
    {"studies"},
    {"torch"},
    {"web"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")


def named_layer(parts: Sequence[str]) -> str:
    """The layer of a module: that of its package, unless the module has one of its own."""
    own = ".".join(parts[:2])
    return own if own in LEVEL else parts[0]


def layer_of(path: Path) -> str:
    return named_layer(path.relative_to(ROOT).with_suffix("").parts)


def imported_layers(path: Path) -> set[str]:
    """Layers of teccl that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "teccl":
                names = [f"teccl.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        parts = [name.split(".") for name in names if name.startswith("teccl.")]
        found |= {named_layer(part[1:]) for part in parts if part[1] != "__version__"}
    return found


def test_every_module_belongs_to_a_layer():
    """A new part of the package has a place in the list."""
    assert {layer_of(path) for path in MODULES} <= set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    """No module imports a layer above its own."""
    above = {n for n in imported_layers(path) if LEVEL.get(n, 99) > LEVEL[layer_of(path)]}
    assert not above


def test_the_judge_shares_no_code_with_what_it_judges():
    """The judge uses data classes only: neither schedulers, nor bounds, nor their arithmetic."""
    allowed = {"errors", "units", "topology", "demand", "problem", "timegrid", "schedule"}
    allowed |= {"_arrays", "_parallel", "_ratios", "keywords", "verification"}
    for path in sorted((ROOT / "verification").rglob("*.py")):
        assert imported_layers(path) <= allowed
        text = path.read_text(encoding="utf-8")
        for word in (
            "schedule.timing",
            "problem.transmission_ps",
            "grid.kappa",
            "grid.delta",
            "epochs_to_",
        ):
            assert word not in text, f"{path.name} uses {word}"


def test_the_judge_of_orbits_shares_no_code_with_what_it_judges():
    """It imports data types of orbits and of violations: no planner, no bound, no timing."""
    allowed = {
        f"teccl.orbit.{name}" for name in ("judge", "lattice", "patched", "problem", "schedule")
    }
    for path in sorted((ROOT / "orbit" / "judge").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"from (teccl\.\S+) import", text):
            within = name.startswith("teccl.orbit")
            assert not within or any(name.startswith(one) for one in allowed), name
            assert within or name.split(".")[1] not in ("construct", "bounds", "replay"), name
        for word in ("held_ps", "arrival_ps", ".rate(", "expansion", "lengths(", "added_times"):
            assert word not in text, f"{path.name} uses {word}"


def test_the_table_of_layers_names_every_package():
    """The design page lists what is on the disk, in the order of the layers."""
    page = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    table = page.split("| layer |")[1].split("\n\n")[0]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`([\w.]+)`", row.split("|")[1])
    ]
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    assert packages <= set(named)
    assert set(named) <= set(LEVEL)
    levels = [LEVEL[name] for name in named]
    assert levels == sorted(levels)


def test_the_tree_is_that_on_the_disk():
    """The design page has a sentence for every package, and none for what is not there."""
    page = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    tree = page.split("## The tree")[1].split("```text\n")[1].split("```")[0]
    named, path = set(), []
    for line in tree.splitlines():
        name, _, sentence = line.strip().partition("/ ")
        assert sentence.strip(), line
        depth = (len(line) - len(line.lstrip())) // 4
        path[depth:] = [name]
        named.add("/".join(path))
    packages = {found.parent.relative_to(ROOT) for found in ROOT.rglob("__init__.py")}
    rooms = {"write", "read", "prove"}
    assert named == {p.as_posix() for p in packages if p.name not in rooms and p.parts}
