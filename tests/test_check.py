"""The former module of `verify` and `simulate` leads to their new homes."""

import pytest

import teccl
import teccl.check


@pytest.mark.parametrize("name", ["verify", "simulate"])
def test_the_old_names_still_lead_there_with_a_warning(name):
    """An import from the former place gives the same function and says where it is now."""
    with pytest.warns(DeprecationWarning, match="import it from"):
        found = getattr(teccl.check, name)
    assert found is getattr(teccl, name)


def test_a_wrong_name_is_refused():
    """Other names do not exist there."""
    with pytest.raises(AttributeError, match="no attribute 'solve'"):
        _ = teccl.check.solve
