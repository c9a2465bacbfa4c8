"""What tests of several parts share."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browsing import running_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for the whole run: a process can drive only one at a time."""
    with running_browser() as found:
        yield found
