"""Units: what text means, and what is refused because it may mean two things."""

import pytest

from teccl.errors import UnitError
from teccl.units import parse_bandwidth, parse_size


@pytest.mark.parametrize("text", ["1MB", "1mB", "1 MB", "1000KB", "1000kB", "1000000 bytes"])
def test_prefixes_of_bytes_may_be_small(text: str) -> None:
    """The prefix decides, whatever its case."""
    assert parse_size(text) == 10**6


@pytest.mark.parametrize("text", ["1Mb", "1mb", "64Kib", "8b"])
def test_sizes_that_may_be_bits_are_refused(text: str) -> None:
    """In bandwidths a small b means bits: eight times less."""
    with pytest.raises(UnitError, match="B for bytes"):
        parse_size(text)
    assert 8 * parse_bandwidth("1Gb/s") == parse_bandwidth("1GB/s")
