"""Demand files: collectives, a matrix of bytes or explicit chunks, in YAML, JSON or CSV."""

import csv
import io
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl.demand.tenants import Demand, ExplicitChunk, Tenant, parse_collective
from teccl.errors import DemandError, UnitError
from teccl.keywords import Collective
from teccl.units import format_duration, format_size, parse_duration, parse_size

SCHEMA_VERSION = 1
MAX_RANKS = 100_000
_ENTRY_KEYS = (
    "name",
    "collective",
    "size",
    "ranks",
    "root",
    "priority",
    "ready",
    "matrix",
    "chunks",
)
_PRIORITY = re.compile(r"\d{1,30}(/\d{1,30}|(\.\d{1,30})?(e[+-]?\d{1,3})?)", re.ASCII)
_CHUNK_KEYS = ("source", "sources", "destinations", "reduce", "size")


def load_demand(path: Path) -> Demand:
    """Read a demand file; CSV is an AllToAllv matrix of bytes."""
    with files.naming(path, DemandError):
        if ".csv" in [suffix.lower() for suffix in path.suffixes]:
            return _demand_from_csv(files.read_text(path, DemandError), str(path))
        return demand_from_dict(files.read_document(path, DemandError), where=str(path))


def _demand_from_csv(text: str, where: str) -> Demand:
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    except csv.Error as problem:
        raise DemandError(f"{where}: not valid CSV: {problem}") from None
    if not rows:
        raise DemandError(f"{where} is empty; give a row of bytes for each rank")
    matrix = _read_matrix([[cell.strip() for cell in row] for row in rows], where)
    return Demand(tenants=(Tenant(collective=Collective.ALLTOALLV, matrix=matrix),))


def save_demand(demand: Demand, path: Path) -> None:
    """Write a demand file as JSON, which YAML contains."""
    files.write_atomically(path, files.to_json(demand_to_dict(demand)), DemandError)


def demand_from_dict(document: Any, *, where: str = "demand") -> Demand:
    """Build a demand from plain data, refusing anything unknown."""
    top = files.expect_mapping(
        document, where, DemandError, known=("schema_version", "collectives", *_ENTRY_KEYS)
    )
    version = top.pop("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise DemandError(
            f"{where}: schema_version {files.shown(version)} is not supported; "
            f"this teccl reads {SCHEMA_VERSION}"
        )
    if "collectives" not in top:
        return Demand(tenants=(_read_tenant(top, where, 0),))
    if len(top) > 1:
        raise DemandError(f"{where} has collectives and other keys; move them into the list")
    entries = files.expect_list(top["collectives"], f"{where}: collectives", DemandError)
    return Demand(
        tenants=tuple(
            _read_tenant(entry, f"{where}: collectives[{i}]", i) for i, entry in enumerate(entries)
        )
    )


def demand_to_dict(demand: Demand) -> dict[str, Any]:
    """Return the demand as the plain data a file holds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "collectives": [_tenant_to_dict(tenant) for tenant in demand.tenants],
    }


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read a list of ranks such as ``0-7,12``.

    Examples
    --------
    >>> parse_ranks("0-2,7")
    (0, 1, 2, 7)
    """
    ranks: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        bounds = [low.strip(), high.strip() if dash else low.strip()]
        if not all(b.isascii() and b.isdigit() and len(b) <= 6 for b in bounds):
            raise DemandError(f"ranks {text[:60]!r}: {part!r} is not a rank; write 0-7,12")
        first, last = int(bounds[0]), int(bounds[1])
        if first > last or last >= MAX_RANKS:
            raise DemandError(f"ranks {text[:60]!r}: {part!r} is not a range; write 0-7,12")
        ranks += range(first, last + 1)
        if len(ranks) > MAX_RANKS:
            raise DemandError(f"ranks {text[:60]!r} repeat; name each once")
    return tuple(ranks)


def _read_tenant(value: Any, where: str, position: int) -> Tenant:
    entry = files.expect_mapping(value, where, DemandError, known=_ENTRY_KEYS)
    collective = _read_collective(entry, where)
    ranks = _read_ranks(entry.get("ranks"), f"{where}: ranks")
    size = Fraction(0)
    if "size" in entry:
        size = files.quantity(entry["size"], parse_size, f"{where}: size", DemandError)
    elif collective is not Collective.ALLTOALLV and not _has_own_sizes(entry):
        raise DemandError(f"{where} lacks key 'size'; add for example size: 1MB")
    root = entry.get("root")
    return Tenant(
        collective=collective,
        size=size,
        ranks=ranks,
        root=None
        if root is None
        else files.expect_int(root, f"{where}: root", DemandError, low=0, high=MAX_RANKS),
        name=files.expect_text(
            entry.get("name", f"tenant{position}"), f"{where}: name", DemandError
        ),
        priority=_read_priority(entry.get("priority", 1), f"{where}: priority"),
        ready=_read_ready(entry.get("ready", {}), f"{where}: ready", ranks),
        matrix=_read_matrix(entry["matrix"], where) if "matrix" in entry else None,
        chunks=_read_chunks(entry["chunks"], where) if "chunks" in entry else None,
    )


def _has_own_sizes(entry: Mapping[str, Any]) -> bool:
    """Whether every chunk of an entry says how large it is."""
    chunks = entry.get("chunks")
    return isinstance(chunks, list) and all(isinstance(c, dict) and "size" in c for c in chunks)


def _read_collective(entry: Mapping[str, Any], where: str) -> Collective:
    if "collective" in entry:
        name = files.expect_text(entry["collective"], f"{where}: collective", DemandError)
        if name == Collective.EXPLICIT.value:
            return Collective.EXPLICIT
        try:
            return parse_collective(name)
        except DemandError as problem:
            raise DemandError(f"{where}: {problem}") from None
    if "matrix" in entry:
        return Collective.ALLTOALLV
    if "chunks" in entry:
        return Collective.EXPLICIT
    raise DemandError(f"{where} lacks key 'collective', 'matrix' or 'chunks'; add one")


def _read_ranks(value: Any, where: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_ranks(value)
    return tuple(
        files.expect_int(rank, where, DemandError, low=0, high=MAX_RANKS)
        for rank in files.expect_list(value, where, DemandError)
    )


def _read_priority(value: Any, where: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DemandError(f"{where} is {files.shown(value)}; give a positive number")
    text = files.shown(value) if isinstance(value, int) else str(value)
    try:
        # Long exponents would make numbers of a billion digits.
        priority = Fraction(text if _PRIORITY.fullmatch(text) else "none")
    except (ValueError, ZeroDivisionError):
        raise DemandError(f"{where} is {files.shown(value)}; give a positive number") from None
    if not 0 < priority <= 10**9:
        raise DemandError(f"{where} is {files.shown(value)}; give a number from 0 to 1e9")
    return priority


def _read_ready(value: Any, where: str, ranks: tuple[int, ...] | None) -> dict[int, Fraction]:
    """Read times by rank; keys are ranks or ranges of ranks."""
    if not isinstance(value, dict):
        raise DemandError(f"{where} is {files.shown(value)}; give a mapping of rank to time")
    ready: dict[int, Fraction] = {}
    members = None if ranks is None else set(ranks)
    for key, time in value.items():
        label = key if isinstance(key, str) else files.shown(key)
        seconds = files.quantity(time, parse_duration, f"{where} of rank {label}", DemandError)
        for rank in parse_ranks(label):
            if rank in ready:
                raise DemandError(f"{where} names rank {rank} twice; keep one")
            if members is not None and rank not in members:
                raise DemandError(f"{where} names rank {rank}, which takes no part; drop it")
            ready[rank] = seconds
    return ready


def _read_matrix(value: Any, where: str) -> tuple[tuple[Fraction, ...], ...]:
    rows = files.expect_list(value, f"{where}: matrix", DemandError)
    matrix = []
    for i, row in enumerate(rows):
        cells = files.expect_list(row, f"{where}: matrix row {i}", DemandError)
        if len(cells) != len(rows):
            raise DemandError(
                f"{where}: matrix row {i} has {len(cells)} entries for {len(rows)} rows; "
                "give a square matrix"
            )
        matrix.append(
            tuple(_read_bytes(cell, f"{where}: matrix[{i}][{j}]") for j, cell in enumerate(cells))
        )
    return tuple(matrix)


def _read_bytes(cell: Any, where: str) -> Fraction:
    """Read an entry of a matrix of bytes: a plain number or a size with a unit."""
    if isinstance(cell, str) and cell.isascii() and cell.isdigit() and len(cell) <= 18:
        cell = int(cell)
    try:
        return parse_size(cell, what=where)
    except UnitError as problem:
        raise DemandError(str(problem)) from None


def _read_chunks(value: Any, where: str) -> tuple[ExplicitChunk, ...]:
    chunks = []
    for i, item in enumerate(files.expect_list(value, f"{where}: chunks", DemandError)):
        here = f"{where}: chunks[{i}]"
        entry = files.expect_mapping(
            item, here, DemandError, known=_CHUNK_KEYS, required=("destinations",)
        )
        if ("source" in entry) == ("sources" in entry):
            raise DemandError(f"{here} needs 'source' or 'sources', one of them")
        sources = entry.get("sources", [entry.get("source")])
        chunks.append(
            ExplicitChunk(
                _read_ranks(sources, f"{here}: sources") or (),
                _read_ranks(entry["destinations"], f"{here}: destinations") or (),
                files.expect_bool(entry.get("reduce", False), f"{here}: reduce", DemandError),
                _read_bytes(entry["size"], f"{here}: size") if "size" in entry else None,
            )
        )
    return tuple(chunks)


def _tenant_to_dict(tenant: Tenant) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tenant.name, "collective": tenant.collective.value}
    if tenant.matrix is None and tenant.size:
        entry["size"] = format_size(tenant.size)
    if tenant.matrix is not None:
        entry["matrix"] = [[format_size(cell) for cell in row] for row in tenant.matrix]
    if tenant.chunks is not None:
        entry["chunks"] = [
            {
                "sources": list(chunk.sources),
                "destinations": list(chunk.destinations),
                **({"reduce": True} if chunk.reduce else {}),
                **({} if chunk.size is None else {"size": format_size(chunk.size)}),
            }
            for chunk in tenant.chunks
        ]
    if tenant.ranks is not None:
        entry["ranks"] = list(tenant.ranks)
    if tenant.root is not None:
        entry["root"] = tenant.root
    if tenant.priority != 1:
        entry["priority"] = str(tenant.priority)
    if tenant.ready:
        entry["ready"] = {str(rank): format_duration(t) for rank, t in tenant.ready.items()}
    return entry
