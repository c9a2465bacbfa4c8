"""Python shown in the API page runs as it stands."""

import re
from pathlib import Path

import pytest

import teccl
import teccl.errors

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is carried out in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", teccl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Names load, and whatever they are says what it is."""
    found = getattr(teccl, name)
    assert name == "__version__" or found.__doc__


def test_all_errors_are_public() -> None:
    """Whoever catches one finds it in `teccl`."""
    errors = {
        name
        for name, value in vars(teccl.errors).items()
        if isinstance(value, type) and issubclass(value, teccl.TecclError)
    }
    assert errors <= set(teccl.__all__)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("pyproject.toml", 'version = "{}"'),
        ("CITATION.cff", "version: {}"),
        ("CHANGELOG.md", "## [{}]"),
    ],
)
def test_the_version_is_the_same_everywhere(file: str, line: str) -> None:
    """What is released, cited and described is what the package says."""
    text = (PAGE.parents[1] / file).read_text(encoding="utf-8")
    assert f"\n{line.format(teccl.__version__)}" in text
