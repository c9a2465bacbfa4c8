"""What benchmarks/quality.py draws: the same everywhere, everything, and nothing impossible."""

import hashlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from _quality.chance import Chance
from _quality.demands import COLLECTIVES, DECADES, draw_ranks, ranks_text, size_text
from _quality.draw import FAMILIES, SETS, draw_problem
from _quality.fabrics import connects
from _quality.options import OPTIONS
from _quality.presets import FAMILIES as PRESETS
from _quality.problem import Problem, command
from tests.cli.helpers import run

from teccl.problem import Problem as Checked
from teccl.reachability import find_unreachable
from teccl.synthesis.request import read_demand, read_topology
from teccl.topology.presets import PRESETS as KNOWN
from teccl.units import parse_size

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def drawn(count: int, seed: int = 0) -> list[Problem]:
    """Return the first problems of both sets."""
    return [draw_problem(name, seed, index) for name in SETS for index in range(count)]


def test_a_problem_follows_from_set_seed_and_index() -> None:
    """A problem is the same however often and in whatever order it is drawn."""
    alone = draw_problem("options", 3, 5)
    assert alone == [draw_problem("options", 3, index) for index in range(6)][5]
    others = [draw_problem("plain", 3, 5), draw_problem("options", 3, 6)]
    assert alone.digest not in [other.digest for other in others]


def test_seed_zero_is_what_the_documentation_measured() -> None:
    """The problems behind the published tables have not changed."""
    text = " ".join(problem.digest for problem in drawn(40))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "49192bfb8ac4e97d"


def test_drawing_does_not_load_the_measured_code() -> None:
    """Problems do not depend on the teccl that is measured."""
    draw = "from _quality.draw import draw_problem; draw_problem('plain', 0, 0)"
    code = f"import sys; {draw}; print('teccl' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_every_preset_can_be_drawn() -> None:
    """Presets that are drawn exist; a problem's number means the same whatever is added later."""
    assert {name for names in PRESETS.values() for name in names} <= set(KNOWN)


@pytest.mark.parametrize(
    ("label", "values"),
    [("family", FAMILIES), ("collective", COLLECTIVES), ("decade", DECADES)],
)
def test_labels_are_spread_evenly(label: str, values: tuple[str, ...]) -> None:
    """Each family, collective and decade has about its share of the plain set."""
    found = [getattr(draw_problem("plain", 0, index), label) for index in range(400)]
    share = 400 / len(values)
    assert all(0.5 * share < found.count(value) < 1.5 * share for value in values)


def test_every_option_is_drawn_and_only_in_its_set() -> None:
    """The plain set has no options, the other each of them."""
    problems = drawn(150)
    named = {name for problem in problems for name in problem.options}
    assert named == set(OPTIONS)
    assert all(bool(problem.options) == (problem.set == "options") for problem in problems)


def check(problem: Problem, folder: Path) -> None:
    """Assert that teccl reads a problem as it was meant and that it can be solved."""
    problem.write_files(folder)
    call = problem.call(folder)
    topology = read_topology(
        call["topology"], call.get("without_links", ()), call.get("degrade", ())
    )
    asked = {name: call.get(name) for name in ("size", "ranks", "root")}
    demand = read_demand(topology, call.get("collective"), call.get("demand"), **asked)
    assert topology.num_gpus == problem.num_gpus
    assert 4 <= problem.num_gpus <= 128
    assert demand.tenants[0].collective.value == problem.collective
    checked = Checked(topology=topology, demand=demand, num_chunks=1)
    assert find_unreachable(checked) is None


def test_problems_are_valid_and_within_reach(tmp_path: Path) -> None:
    """Every problem is one that teccl accepts and that has a solution."""
    for problem in drawn(30):
        check(problem, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_problems_are_valid_and_within_reach(seed: int, tmp_path: Path) -> None:
    """The same over many seeds."""
    for problem in drawn(400, seed):
        check(problem, tmp_path)


def test_the_command_can_be_run_as_printed(tmp_path: Path) -> None:
    """Commands, with the files they name, say the same as the call."""
    small = [
        problem
        for problem in drawn(150)
        if problem.num_gpus <= 6 and problem.collective in ("scatter", "gather", "broadcast")
    ]
    for name in SETS:
        problem = next(problem for problem in small if problem.set == name)
        problem.write_files(tmp_path)
        words = shlex.split(command(problem.call(tmp_path)))
        outcome = run(*words[1:], "--effort", "quick", "--quiet")
        assert (words[0], outcome.code, outcome.err) == ("teccl", 0, "")


def test_every_keyword_is_in_the_command(tmp_path: Path) -> None:
    """No option of a drawn problem is lost between call and command."""
    for problem in drawn(150):
        flags = re.findall(r" --([a-z-]+)", command(problem.call(tmp_path)))
        lists = [value for value in problem.keywords.values() if isinstance(value, list)]
        more = sum(len(value) - 1 for value in lists) + (problem.demand is not None)
        assert len(flags) == len(problem.keywords) + more


def test_reach_counts_both_directions() -> None:
    """One-way links connect only where there is a way back."""
    assert connects([("a", "b"), ("b", "c"), ("c", "a")], {"a", "b", "c"})
    assert not connects([("a", "b"), ("b", "c"), ("c", "b")], {"a", "b"})


def test_ranks_and_sizes_are_written_as_users_write_them() -> None:
    """Groups of ranks are ascending and in range, sizes are read back as they were."""
    chance = Chance("test")
    for count in (4, 9, 128):
        ranks = draw_ranks(chance, count)
        assert ranks == sorted(set(ranks))
        assert 2 <= len(ranks) < count > ranks[-1]
    assert ranks_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    for size in (256, 777, 1024, 1_370_000, 2**31, 3_990_000_000):
        assert parse_size(size_text(size)) == size
