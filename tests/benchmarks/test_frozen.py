"""Frozen rows: every one is asked for by its own name, and what is later or dearer is said."""

import _frozen

NAME = "DGX1, alpha 0, AllGather, 1"


def row(**columns: object) -> dict[str, object]:
    """Return a row of the table of DGX1."""
    return {"table": "DGX1, alpha 0, AllGather", "SCCL": 1, **columns}


def test_rows_are_compared_by_name(monkeypatch):
    """A row that ends later or takes more processor time is named; another is not."""
    monkeypatch.setattr(_frozen, "load", lambda: {NAME: (10.0, 1.0)})
    rows = [
        row(epochs=10, **{"row cpu s": 1.2}),
        row(epochs=11, **{"row cpu s": 2.0}),
        {"table": "another", "finish": 3, "row cpu s": 1.0},
        {"table": "no finish", "row cpu s": 1.0},
    ]
    assert _frozen.compare(rows) == [(NAME, 1.0, 1.2, "ok"), (NAME, 1.1, 2.0, "later dearer")]


def test_the_grid_counts_before_the_clock():
    """Where a row has a length on the grid, that is its finish."""
    assert _frozen.finish_of({"finish us": 3.0, "grid us": 4.0}) == 4.0


def test_frozen_rows_are_there():
    """The tables of constructions and of the largest clusters, with positive figures."""
    frozen = _frozen.load()
    assert sum("256 MB, automatic chunks" in name for name in frozen) == 27
    assert all(finish > 0 and cpu_s > 0 for finish, cpu_s in frozen.values())
