"""Lists of sizes."""

import pytest

from teccl.errors import InputError
from teccl.studies.sizes import read_sizes


def test_the_papers_walk_has_eleven_sizes():
    """From 1 KB to 1 GB the walk has the sizes of the paper's table."""
    sizes = [int(size) for size in read_sizes("1KB:1GB")]
    units = [step * 1000**unit for unit in (1, 2) for step in (1, 4, 16, 64, 256)]
    assert sizes == [*units, 10**9]


def test_a_list_is_taken_as_it_is():
    """Order and odd sizes stay."""
    assert [int(size) for size in read_sizes("3MB,1KiB")] == [3_000_000, 1024]


@pytest.mark.parametrize("text", ["", "1KB,1KB", "2KB:1KB", "0B", "x", "1KB:"])
def test_bad_lists_are_refused(text):
    """Empty, repeated, reversed and unreadable sizes are errors."""
    with pytest.raises(InputError):
        read_sizes(text)


@pytest.mark.parametrize("factor", ["1", "0.5", "-2", "1.000001"])
def test_bad_factors_are_refused(factor):
    """A factor must grow, and not by next to nothing."""
    with pytest.raises(InputError):
        read_sizes("1KB:1GB", factor)
