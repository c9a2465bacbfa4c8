"""Studies under test keep their results to themselves."""

from pathlib import Path

import pytest

from teccl.studies.running import Workplace
from teccl.studies.store import VARIABLE


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep results in the test's folder."""
    path = tmp_path / "studies.sqlite"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture
def here() -> Workplace:
    """Work in this process, with the test's own store."""
    return Workplace(jobs=1)
