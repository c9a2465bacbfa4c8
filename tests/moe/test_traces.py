"""Traces: the same choices in every format, and damaged ones refused in a line."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.helpers import assert_refused, run

from teccl.errors import DemandError
from teccl.moe import read_routing

CHOICES = np.array([[0, 5], [3, 1], [7, 2], [5, 6]])


def as_csv(head: str, rows: list[tuple[int, int]]) -> str:
    """Lines of two numbers below a head."""
    return "\n".join([head, *(f"{a},{b}" for a, b in rows)]) + "\n"


def tokens() -> list[tuple[int, int]]:
    """Pairs of token and expert."""
    return [(i, int(e)) for i, row in enumerate(CHOICES) for e in row]


def write(path: Path, name: str) -> Path:
    """Write the choices in the format that a name stands for."""
    target = path / name
    if name == "tokens.csv":
        target.write_text(as_csv("token,expert", tokens()[::-1]))
    elif name == "layers.csv":
        rows = [(layer, e) for layer in (3, 4) for _, e in tokens()]
        target.write_text(as_csv("layer,expert", rows))
    elif name == "lists.jsonl":
        target.write_text("\n".join(json.dumps(row) for row in CHOICES.tolist()))
    elif name == "objects.jsonl":
        rows = [{"layer": 4, "experts": row} for row in CHOICES.tolist()]
        target.write_text("\n".join(map(json.dumps, rows)))
    elif name == "flat.npy":
        np.save(target, CHOICES.ravel())
    elif name == "layers.npy":
        np.save(target, np.stack([CHOICES] * 5))
    else:
        np.save(target, CHOICES.astype(np.int16))
    return target


@pytest.mark.parametrize(
    "name",
    [
        "tokens.csv",
        "layers.csv",
        "lists.jsonl",
        "objects.jsonl",
        "plain.npy",
        "flat.npy",
        "layers.npy",
    ],
)
def test_every_format_gives_the_same_choices(name: str, tmp_path: Path) -> None:
    """Order of lines and of choices within a token does not matter."""
    layer = 4 if "layers" in name or "objects" in name else None
    routing = read_routing(str(write(tmp_path, name)), num_experts=8, top_k=2, layer=layer)
    assert np.array_equal(routing.experts, np.sort(CHOICES, axis=1))


def test_without_pyarrow_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet files need a package that is not installed with this one."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(DemandError, match="pip install pyarrow"):
        read_routing(str(path), num_experts=8, top_k=2)


def test_parquet_is_read_where_pyarrow_is(tmp_path: Path) -> None:
    """A column of lists holds the choices."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed; pip install pyarrow")
    from pyarrow import parquet

    path = tmp_path / "trace.parquet"
    parquet.write_table(pyarrow.table({"indices": CHOICES.tolist()}), path)
    routing = read_routing(str(path), num_experts=8, top_k=2)
    assert np.array_equal(routing.experts, np.sort(CHOICES, axis=1))


@pytest.mark.parametrize(
    "columns",
    [
        {"experts": [[0.5, 1.5]]},
        {"experts": [["0", "1"]]},
        {"experts": [[[0, 1], [2, 3]]]},
        {"experts": [[0, None]]},
        {"experts": [[0, 1], None]},
        {"experts": [[0, 1], [2]]},
        {"experts": [[0, 1]], "layer": [None]},
        {"experts": [[0, 1]], "layer": ["first"]},
        {"expert": [3]},
    ],
)
def test_other_parquet_is_refused(columns: dict[str, list[Any]], tmp_path: Path) -> None:
    """Nothing but lists of whole numbers, all as long as asked for, is taken for choices."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "trace.parquet"
    parquet.write_table(arrow.table(columns), path)
    with pytest.raises(DemandError, match=r"trace\.parquet"):
        read_routing(str(path), num_experts=8, top_k=2)


@pytest.mark.parametrize("trace", ["tokens.csv", "plain.npy", "lists.jsonl", "zipf:tokens=9"])
def test_a_layer_of_a_trace_without_layers_is_refused(trace: str, tmp_path: Path) -> None:
    """What was asked for is not quietly replaced by all there is."""
    name = trace if ":" in trace else str(write(tmp_path, trace))
    with pytest.raises(DemandError, match="layer"):
        read_routing(name, num_experts=8, top_k=2, layer=7)


def test_hot_experts_get_three_times_the_mean_unasked() -> None:
    """The skew that help shows is the one that is drawn."""
    asked, unasked = (
        read_routing(f"hot:tokens=99{skew}", num_experts=16, top_k=2).experts
        for skew in (",skew=3", "")
    )
    assert np.array_equal(asked, unasked)


def test_steep_likings_are_drawn_quietly() -> None:
    """Experts that are liked less than floats can tell still come in their order."""
    loads = read_routing("zipf:tokens=40,exponent=1000", num_experts=8, top_k=2).loads()
    assert sorted(loads) == [0, 0, 0, 0, 0, 0, 40, 40]


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("zipf:tokens=5,tokens=6", "tokens appears twice"),
        ("zipf:tokens=99999999999", "give 1 to 50000000"),
        ("hot:tokens=5,hot=2,skew=4", "skew of 4; give"),
    ],
)
def test_drawn_traces_say_what_would_fit(trace: str, words: str) -> None:
    """The remedy names the limit."""
    with pytest.raises(DemandError, match=words):
        read_routing(trace, num_experts=8, top_k=2)


def test_hot_experts_get_the_share_that_is_asked_for() -> None:
    """Four hot experts of 256 get three times the mean, the others less than it."""
    loads = read_routing("hot:tokens=20000,hot=4,skew=3", num_experts=256, top_k=8).loads()
    assert loads[:4] / loads.mean() == pytest.approx(np.full(4, 3.0), rel=0.05)
    assert (loads[4:] < 1.2 * loads.mean()).all()


def test_drawn_choices_depend_on_the_seed_alone() -> None:
    """The same text gives the same choices, another seed others."""
    first, again, other = (
        read_routing(f"zipf:tokens=50,exponent=1.2,seed={seed}", num_experts=16, top_k=3).experts
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def damaged() -> list[tuple[str, bytes | None]]:
    """Names and contents of traces that are no traces, a hundred and some."""
    bad_cells = ["x", "-1", "1.5", "", "8", "1e3", "9" * 30, "0x3", "٣", "NaN", "1 2", "true"]
    csvs = [f"token,expert\n0,1\n0,{cell}\n" for cell in bad_cells]
    csvs += [f"token,expert\n{cell},1\n0,2\n" for cell in bad_cells if cell != "8"]
    csvs += [
        "",
        "\n\n",
        "expert,token\n0,1\n",
        "token\n0\n",
        "token,expert,weight\n0,1,2\n",
        "token,expert\n",
        "token,expert\n0\n",
        "token,expert\n0,1,2\n",
        "token,expert\n0,1\n",
        "token,expert\n0,1\n0,1\n",
        "token,expert\n0,1\n0,2\n0,3\n",
        'token,expert\n"0,1\n',
        "layer,expert\n0,1\n",
        "layer,expert\n0,1\n1,2\n",
        "layer,expert\n0,1\n0,1\n",
        "token;expert\n0;1\n",
        "\x00token,expert\n",
    ]
    lines = [
        "",
        "{}",
        "[]",
        "[1]",
        "[1,2,3]",
        "[1,1]",
        "[1,8]",
        "[1,-1]",
        "[1,1.0]",
        "[1,true]",
        "[1,null]",
        '[1,"2"]',
        "[1,[2]]",
        "[1,2",
        "nonsense",
        '{"experts": 3}',
        '{"experts": [1]}',
        '{"experts": [1, 9]}',
        '{"layer": -1, "experts": [1, 2]}',
        '{"layer": "a", "experts": [1, 2]}',
        '{"layer": 0, "experts": [1, 2]}\n{"layer": 1, "experts": [1, 2]}',
        "[1,2]\n[3]",
        "[" * 3000,
        "[1,99999999999999999999999]",
        "3",
        "null",
        '"text"',
    ]
    arrays = [b"", b"\x93NUMPY", b"PK\x03\x04", b"nonsense", b"\x93NUMPY\x01\x00\xff\xff"]
    cases: list[tuple[str, bytes | None]] = [(f"{i}.csv", t.encode()) for i, t in enumerate(csvs)]
    cases += [(f"{i}.jsonl", text.encode()) for i, text in enumerate(lines)]
    cases += [(f"{i}.npy", content) for i, content in enumerate(arrays)]
    cases += [("bytes.csv", b"\xff\xfe\x00"), ("bytes.jsonl", b"\x80[1,2]")]
    cases += [(f"missing{s}", None) for s in (".csv", ".jsonl", ".npy", ".txt", "")]
    drawn = ["zipf", "zipf:", "zipf:tokens=0", "zipf:tokens=-1", "zipf:tokens=x", "hot:tokens=1e9"]
    drawn += ["zipf:token=5", "hot:tokens=5,skew=0", "hot:tokens=5,skew=nan", "hot:tokens=5,hot=8"]
    drawn += ["zipf:tokens=5,exponent=inf", "zipf:tokens=99999999999", "gauss:tokens=5", "hot:x"]
    cases += [(text, None) for text in drawn]
    for name, array in (
        ("float.npy", np.ones((2, 2))),
        ("text.npy", np.array([["a", "b"]])),
        ("wide.npy", np.arange(6).reshape(2, 3)),
        ("odd.npy", np.arange(3)),
        ("empty.npy", np.zeros((0, 2), dtype=int)),
        ("scalar.npy", np.array(3)),
        ("deep.npy", np.zeros((1, 1, 1, 2), dtype=int)),
        ("layers.npy", np.zeros((2, 1, 2), dtype=int)),
        ("beyond.npy", np.array([[0, 8]])),
        ("twice.npy", np.array([[3, 3]])),
    ):
        cases.append((name, _saved(array)))
    return cases


def _saved(array: np.ndarray) -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_damaged_traces_are_refused_in_one_line(tmp_path: Path, monkeypatch) -> None:
    """More than a hundred malformed traces end with code 2, a line that says why, and no file."""
    monkeypatch.chdir(tmp_path)
    cases = damaged()
    assert len(cases) >= 100
    for name, content in cases:
        if content is not None:
            Path(name).write_bytes(content)
        outcome = run(
            *("demand", "moe", name, "--experts", 8, "--top-k", 2, "--ranks", 4, "-o", "out.json")
        )
        assert outcome.code == 2, (name, content, outcome)
        assert_refused(outcome)
        assert not Path("out.json").exists()
