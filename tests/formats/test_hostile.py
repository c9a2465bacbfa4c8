"""Files that mean harm: every importer refuses them on one line, soon and in little memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.formats.hostile import TARGETS, Case, attempt, bombs, cases, damage
from tests.sampling import counts

ROOT = Path(__file__).parents[2]
# A bomb this large tests limits on size only, which the slow test has for every importer.
LARGE = 2**22


def assert_refused(case: Case, outcome: str) -> None:
    """Assert that a file that can only be refused was, on one readable line."""
    if case.is_bad:
        assert outcome != "ok", case.name
    assert len(outcome.splitlines()) == 1, (case.name, outcome[:500])
    assert len(outcome) < 500, (case.name, outcome[:600])


@pytest.mark.parametrize("count", counts(40, 90))
@pytest.mark.parametrize("target", TARGETS)
def test_small_bombs_and_damage(target, count, tmp_path):
    """A sample of what the slow test has in full."""
    sample = [case for case in cases(target, count) if len(case.content) < LARGE]
    assert len(sample) > 0.7 * count
    for case in sample:
        outcome, _ = attempt(target, case, tmp_path)
        assert_refused(case, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_two_hundred_files(target, tmp_path):
    """200 files each: a clear error within 2 s of CPU time, never more than 500 MB."""
    command = [sys.executable, "-m", "tests.formats.hostile", target, "200", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert len(report["cases"]) == 200
    for name, outcome, seconds, is_bad in report["cases"]:
        assert_refused(Case(name, b"", is_bad), outcome)
        assert seconds < 2, (name, outcome)
    assert report["peak_kib"] * 1024 < 500e6
    refused = sum(outcome != "ok" for _, outcome, _, _ in report["cases"])
    assert refused > 100


def test_damage_is_seeded():
    """The same number gives the same file."""
    import random

    assert damage("abc 123 <x>", random.Random(5)) == damage("abc 123 <x>", random.Random(5))
    assert len(list(bombs("x"))) > 25
