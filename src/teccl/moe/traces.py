"""Traces: expert choices from CSV, JSON lines, parquet and numpy files, or drawn by a name."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from teccl import _files as files
from teccl._suggest import did_you_mean
from teccl.errors import DemandError
from teccl.moe.token_choices import MAX_EXPERTS, IntArray, Routing, draw_hot, draw_zipf

_LIST_COLUMNS = ("experts", "indices", "expert_ids", "topk_ids")
_NUMBERS: dict[str, Callable[[str], float]] = {
    "tokens": int,
    "seed": int,
    "hot": int,
    "skew": float,
    "exponent": float,
}
_DRAWN: dict[str, tuple[Callable[..., Routing], tuple[str, ...]]] = {
    "zipf": (draw_zipf, ("tokens", "exponent", "seed")),
    "hot": (draw_hot, ("tokens", "hot", "skew", "seed")),
}


def read_routing(trace: str, *, num_experts: int, top_k: int, layer: int | None = None) -> Routing:
    """Read the expert choices of tokens, or draw them.

    Parameters
    ----------
    trace
        A file: CSV with columns ``token,expert`` or ``layer,expert``, JSON lines, parquet with a
        column of lists, or ``.npy``; or ``zipf:tokens=4096,exponent=1,seed=0`` or
        ``hot:tokens=4096,hot=4,skew=3,seed=0``.
    num_experts
        How many experts there are.
    top_k
        Experts of each token.
    layer
        Which layer, where the trace has several.

    Raises
    ------
    DemandError
        If the trace is damaged or does not fit.
    """
    if num_experts < 1 or top_k < 1:
        raise DemandError(f"{num_experts} experts, {top_k} a token; give at least one of each")
    name, _, rest = trace.partition(":")
    if name in _DRAWN:
        if layer is not None:
            raise DemandError(f"trace {name} is drawn and has no layers; drop --layer")
        return _draw(name, rest, num_experts, top_k)
    path = Path(trace)
    readers = {
        ".csv": _from_csv,
        ".jsonl": _from_json_lines,
        ".ndjson": _from_json_lines,
        ".parquet": _from_parquet,
        ".npy": _from_numpy,
    }
    suffix = next((s.lower() for s in reversed(path.suffixes) if s.lower() != ".gz"), "")
    if suffix not in readers:
        known = ", ".join([*readers, *(f"{each}:..." for each in _DRAWN)])
        raise DemandError(f"trace {trace[:80]!r} has no known form; give one of {known}")
    with files.naming(path, DemandError):
        experts = readers[suffix](path, top_k, layer)
        if experts.ndim != 2:
            raise DemandError(
                f"{path.name}: the array has {experts.ndim} dimensions; save tokens by choices, or "
                "layers by tokens by choices"
            )
        if experts.shape[1] != top_k:
            raise DemandError(
                f"{path.name}: tokens have {experts.shape[1]} experts; --top-k says {top_k}"
            )
        return Routing(experts=experts, num_experts=num_experts)


def _draw(name: str, text: str, num_experts: int, top_k: int) -> Routing:
    """Draw choices as a text asks for it."""
    draw, known = _DRAWN[name]
    given: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise DemandError(f"trace {name}: unknown key {key[:40]!r}{did_you_mean(key, known)}")
        if key in given:
            raise DemandError(f"trace {name}: {key} appears twice; give it once")
        try:
            number = _NUMBERS[key](value)
        except ValueError:
            raise DemandError(f"trace {name}: {key} {value[:40]!r} is no number") from None
        if not np.isfinite(number) or number < 0 or abs(number) > 2**53:
            raise DemandError(f"trace {name}: {key} {value[:40]} is out of range; give 0 or more")
        given[key] = number
    if "tokens" not in given:
        raise DemandError(f"trace {name} lacks tokens; write for example {name}:tokens=4096")
    return draw(experts=num_experts, top_k=top_k, **given)


def _from_csv(path: Path, top_k: int, layer: int | None) -> IntArray:
    """Read ``token,expert`` (in any order) or ``layer,expert`` (top_k rows a token)."""
    text = files.read_text(path, DemandError)
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as problem:
        raise DemandError(f"{path.name}: not valid CSV: {problem}") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header not in (["token", "expert"], ["layer", "expert"]):
        raise DemandError(
            f"{path.name}: the first line is {','.join(header)[:60]!r}; write token,expert or "
            "layer,expert"
        )
    table = np.array(
        [_cells(row, i + 2, path) for i, row in enumerate(rows[1:]) if any(map(str.strip, row))],
        dtype=np.int64,
    ).reshape(-1, 2)
    if header[0] == "layer":
        return _in_groups(table[_of_layer(table[:, 0], layer, path), 1], top_k, path)
    _check_no_layer(layer, path)
    table = table[np.argsort(table[:, 0], kind="stable")]
    tokens, counts = np.unique(table[:, 0], return_counts=True)
    odd = np.flatnonzero(counts != top_k)
    if len(odd):
        raise DemandError(
            f"{path.name}: token {tokens[odd[0]]} has {counts[odd[0]]} experts; --top-k says "
            f"{top_k}"
        )
    return table[:, 1].reshape(-1, top_k)


def _cells(row: list[str], line: int, path: Path) -> tuple[int, int]:
    """Read the two whole numbers of a line."""
    cells = [cell.strip() for cell in row]
    if len(cells) != 2 or not all(c.isascii() and c.isdigit() and len(c) < 18 for c in cells):
        raise DemandError(
            f"{path.name}: line {line} is {','.join(row)[:60]!r}; write two whole numbers"
        )
    return int(cells[0]), int(cells[1])


def _of_layer(layers: IntArray, layer: int | None, path: Path) -> Any:
    """Which rows belong to the layer that is asked for."""
    known = np.unique(layers)
    if layer is None and len(known) > 1:
        raise DemandError(f"{path.name}: has {len(known)} layers; choose one with --layer")
    if layer is not None and layer not in known:
        raise DemandError(f"{path.name}: has no layer {layer}; it has {known[:8].tolist()}")
    return layers == (layer if layer is not None else layers[:1])


def _check_no_layer(layer: int | None, path: Path) -> None:
    """Refuse to choose a layer of a trace that does not tell them apart."""
    if layer is not None:
        raise DemandError(f"{path.name}: does not say which layers there are; drop --layer")


def _in_groups(experts: IntArray, top_k: int, path: Path) -> IntArray:
    """Cut choices that follow each other into tokens."""
    if len(experts) % top_k:
        raise DemandError(
            f"{path.name}: {len(experts)} choices are not whole tokens of {top_k}; check --top-k"
        )
    return experts.reshape(-1, top_k)


def _from_json_lines(path: Path, top_k: int, layer: int | None) -> IntArray:
    """Read a line for each token: a list of experts, or an object that has one."""
    rows: list[list[int]] = []
    layers: list[int] = []
    for number, line in enumerate(files.read_text(path, DemandError).splitlines(), start=1):
        if not line.strip():
            continue
        here = f"{path.name}: line {number}"
        try:
            entry = json.loads(line)
        except (json.JSONDecodeError, RecursionError, ValueError):
            raise DemandError(f"{here} is no JSON; write a list of experts a line") from None
        if isinstance(entry, dict):
            found = entry.get("layer", 0)
            layers.append(files.expect_int(found, f"{here}: layer", DemandError, low=0, high=10**6))
            entry = next((entry[key] for key in _LIST_COLUMNS if key in entry), None)
        else:
            layers.append(0)
        if not isinstance(entry, list) or len(entry) != top_k:
            what = f"{len(entry)} experts" if isinstance(entry, list) else "no list of experts"
            raise DemandError(f"{here} has {what}; give {top_k}, as --top-k says")
        rows.append(
            [
                files.expect_int(e, f"{here}: expert", DemandError, low=0, high=MAX_EXPERTS)
                for e in entry
            ]
        )
    table = np.array(rows, dtype=np.int64).reshape(-1, top_k)
    return table[_of_layer(np.array(layers, dtype=np.int64), layer, path)]


def _from_numpy(path: Path, top_k: int, layer: int | None) -> IntArray:
    """Read an array of tokens by choices, or of layers by tokens by choices."""
    try:
        with path.open("rb") as stream:
            found = np.lib.format.read_array(stream, allow_pickle=False)
    except FileNotFoundError:
        raise DemandError(f"{path} does not exist; give an existing file") from None
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError) as problem:
        reason = str(problem).splitlines()[0][:80] if str(problem) else type(problem).__name__
        raise DemandError(f"{path.name} is no numpy array: {reason}") from None
    if not np.issubdtype(found.dtype, np.integer):
        raise DemandError(f"{path.name} holds no whole numbers; save an integer array")
    if found.ndim == 3:
        if layer is None or not 0 <= layer < len(found):
            raise DemandError(
                f"{path.name} has layers 0 to {len(found) - 1}; choose one with --layer"
            )
        return found[layer]
    _check_no_layer(layer, path)
    return _in_groups(found, top_k, path) if found.ndim == 1 else found


def _from_parquet(path: Path, top_k: int, layer: int | None) -> IntArray:
    """Read a column of lists; `layer` chooses among rows that have a column of that name."""
    try:
        import pyarrow as arrow
        from pyarrow import compute, parquet
    except ImportError:
        raise DemandError(
            f"{path.name}: parquet needs pyarrow; pip install pyarrow, or convert to .npy"
        ) from None
    if not path.exists():
        raise DemandError(f"{path} does not exist; give an existing file")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as problem:
        raise DemandError(f"{path.name} is no parquet: {str(problem).splitlines()[0]}") from None
    lists = [f.name for f in table.schema if _holds_choices(f.type)]
    name = next((known for known in _LIST_COLUMNS if known in lists), lists[0] if lists else None)
    if name is None:
        raise DemandError(f"{path.name} has no column of lists of whole numbers; name one experts")
    if "layer" in table.column_names:
        table = table.filter(_of_layer(_whole(table["layer"], "layer", path), layer, path))
    else:
        _check_no_layer(layer, path)
    rows = table[name].combine_chunks()
    odd = np.flatnonzero(_whole(compute.list_value_length(rows).fill_null(0), name, path) != top_k)
    if len(odd):
        raise DemandError(f"{path.name}: row {odd[0]} of {name} has not the {top_k} of --top-k")
    return _whole(rows.flatten(), name, path).reshape(-1, top_k)


def _holds_choices(kind: Any) -> bool:
    """Whether a column of parquet has lists of whole numbers."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and types.is_integer(kind.value_type)


def _whole(column: Any, name: str, path: Path) -> IntArray:
    """Whole numbers of a column of parquet, none of which may be missing."""
    from pyarrow import types

    if not types.is_integer(column.type) or column.null_count:
        raise DemandError(f"{path.name}: {name} holds something else than whole numbers")
    return np.asarray(column.to_numpy(zero_copy_only=False))
