"""Old names of modules lead to the new ones, with a warning."""

import subprocess
import sys
from importlib import import_module

import pytest

from teccl._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_still_imports(old, monkeypatch):
    """Public names are found under the old module, which says where they are now."""
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = import_module(old)
    new = import_module(MOVED[old])
    names = getattr(new, "__all__", [name for name in vars(new) if not name.startswith("_")])
    assert names
    for name in names:
        assert getattr(module, name) is getattr(new, name)


def test_nothing_of_the_package_uses_old_names():
    """Whoever imports all of it sees no warning of its own making."""
    code = "import teccl; [getattr(teccl, name) for name in teccl.__all__]"
    command = [sys.executable, "-W", "error::DeprecationWarning:teccl", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
