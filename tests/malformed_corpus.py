"""Malformed files of every kind: spoilt by seeded rules and written by hand."""

import copy
import gzip
import json
import random
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from teccl.schedule.schedule_files import schedule_to_dict
from teccl.synthesis import solve

SEED = 20240804
HUGE = 10**400
DEEP = 100_000


class Case(NamedTuple):
    """One malformed file: what it is called, its name and its content."""

    label: str
    name: str
    content: bytes


class Change(NamedTuple):
    """One way to spoil a document: where, and what stands there then."""

    path: tuple[str | int, ...]
    value: Any


class Missing:
    """Stands for a key that is taken away."""


# ---------------------------------------------------------------------------------------------
# The documents that are spoilt: small, valid, with every key in use.

TOPOLOGY: dict[str, Any] = {
    "schema_version": 1,
    "name": "small",
    "nodes": [
        {"name": "a", "kind": "gpu", "group": "left"},
        {"name": "b", "kind": "gpu"},
        {"name": "s", "kind": "switch", "reduce": True},
    ],
    "links": [
        {"src": "a", "dst": "b", "bandwidth": "25GB/s", "alpha": "0.7us", "bidirectional": True},
        {"src": 0, "dst": "s", "bandwidth": "1/3GB/s", "alpha": 0, "shares": ["nic"]},
        {"src": "s", "dst": 1, "bandwidth": "200Gb/s", "profile": [["1us", "5GB/s"]]},
    ],
    "shared": {"nic": "50GB/s"},
}

COLLECTIVES: dict[str, Any] = {
    "schema_version": 1,
    "collectives": [
        {
            "name": "first",
            "collective": "broadcast",
            "size": "1KB",
            "ranks": [0, 1, 2],
            "root": 0,
            "priority": 2,
            "ready": {"0": "1us"},
        },
        {"name": "second", "matrix": [[0, "1KB"], ["2KB", 0]], "ranks": [2, 3]},
        {
            "name": "third",
            "size": "1KB",
            "chunks": [{"sources": [0, 1], "destinations": [2], "reduce": True}],
        },
    ],
}


def small_schedule() -> dict[str, Any]:
    """Return a correct schedule of twelve sends as plain data."""
    result = solve("ring:gpus=4", "allgather", size="4KB", method="ring", chunks=1)
    assert result.schedule is not None
    return schedule_to_dict(result.schedule)


SCHEDULE = small_schedule()

# ---------------------------------------------------------------------------------------------
# Spoiling: values that are wrong at a place, keys that are missing or unknown.

NOT_TEXT = (None, 7, 1.5, True, [], {}, ["x"], HUGE)
NOT_A_NAME = (*NOT_TEXT, "", "   ", "12", "a\nb", "a\x00b", "\x1b[31m", "x" * 300)
NOT_A_LIST = (None, 3, "text", True, {"a": 1}, 2.5)
NOT_A_MAPPING = (None, 3, "text", True, [], [1], 2.5)
NOT_A_BOOL = (None, 0, 1, "true", "yes", [], {})
NOT_BANDWIDTH = (
    *(
        None,
        5,
        1.5,
        True,
        [],
        {},
        HUGE,
        "",
        "fast",
        "0",
        "0GB/s",
        "-1GB/s",
        "25",
        "25GB",
        "25 parsec",
    ),
    *(
        "nan",
        "inf",
        "NaNGB/s",
        "1e999GB/s",
        "1/0GB/s",
        "GB/s",
        "1 2GB/s",
        "9" * 500 + "B/s",
        "0x10B/s",
    ),
)
NOT_DURATION = (
    *(
        None,
        5,
        1.5,
        True,
        [],
        {},
        HUGE,
        "",
        "-1us",
        "5",
        "1 parsec",
        "1GB",
        "nan",
        "inf us",
        "1e999s",
    ),
    *("1/0s", "9" * 29 + "s", "60days"),
)
NOT_SIZE = (
    None,
    5,
    1.5,
    True,
    [],
    {},
    HUGE,
    "",
    "0",
    "0MB",
    "-1MB",
    "1",
    "1GB/s",
    "1XB",
    "nan",
    "1e999B",
)
NOT_A_RANK = (-1, 4, 99, HUGE, True, 1.5, "x", [], {})
NOT_COUNT = (0, -1, True, 1.5, HUGE, "4", [], None, {})
NOT_INDEX = (-1, True, 1.5, "0", None, [], {}, 2**31, 2**63, HUGE)

TOPOLOGY_CHANGES: tuple[tuple[tuple[str | int, ...], tuple[Any, ...]], ...] = (
    ((), (None, 3, "text", [], [1], True)),
    (("schema_version",), (0, 2, "1", None, True, [], 1.5)),
    (("name",), NOT_A_NAME),
    (("nodes",), (*NOT_A_MAPPING[:1], "text", {"a": 1}, 0, -1, 10**9, HUGE, True, 2.5, [])),
    (("nodes", 0), (None, 3, "a", [], True, ["a"])),
    (("nodes", 0, "name"), (*NOT_A_NAME, "b", "s")),
    (("nodes", 0, "kind"), ("router", "GPU ", None, 3, [], "")),
    (("nodes", 0, "group"), ("", 5, [], {}, True, "x" * 300, "a\nb")),
    (("nodes", 0, "reduce"), (*NOT_A_BOOL, True)),
    (("nodes", 2, "reduce"), NOT_A_BOOL),
    (("nodes", 2, "name"), ("a", "", None)),
    (("links",), NOT_A_LIST),
    (("links", 0), (None, 3, "a>b", [], True)),
    (("links", 0, "src"), ("c", "b", "", -1, 2, 99, HUGE, True, None, 1.5, [], {}, "a b")),
    (("links", 1, "dst"), ("nowhere", "a", 7, None, [])),
    (("links", 0, "bandwidth"), NOT_BANDWIDTH),
    (("links", 0, "alpha"), NOT_DURATION),
    (("links", 0, "bidirectional"), NOT_A_BOOL),
    (("links", 1, "shares"), ("other", ["nic", "nic"], [3], {"nic": 1}, 5, None, True, "")),
    (("links", 2, "profile"), ("fast", {}, 3, None, [1], [[]], [["1us"]], [["1us", "5GB/s", 1]])),
    (("links", 2, "profile", 0, 0), NOT_DURATION),
    (("links", 2, "profile", 0, 1), NOT_BANDWIDTH),
    (("links", 2, "profile"), ([["2us", "1GB/s"], ["1us", "1GB/s"]], [["1us", "1GB/s"]] * 2)),
    (("shared",), (None, [], "nic", 3, {"nic": None}, {"12": "1GB/s"}, {"": "1GB/s"}, {})),
    (("shared", "nic"), NOT_BANDWIDTH),
)
TOPOLOGY_REQUIRED = (
    *((key,) for key in ("nodes", "links", "shared")),
    ("nodes", 0, "name"),
    *(("links", 0, key) for key in ("src", "dst", "bandwidth")),
)
TOPOLOGY_MAPPINGS = ((), ("nodes", 0), ("nodes", 2), ("links", 0), ("links", 2))

DEMAND_CHANGES: tuple[tuple[tuple[str | int, ...], tuple[Any, ...]], ...] = (
    ((), (None, 3, "allgather", [], [1], True)),
    (("schema_version",), (0, 2, "1", None, True)),
    (("collectives",), (*NOT_A_LIST, [], [None], [[]], ["allgather"])),
    (("collectives", 0, "name"), (*NOT_TEXT, "second")),
    (
        ("collectives", 0, "collective"),
        ("allgathr", "", None, 3, [], "alltoallv", "explicit", "all"),
    ),
    (("collectives", 0, "size"), NOT_SIZE),
    (
        ("collectives", 0, "ranks"),
        ([0], [], [0, 0], [0, 9], [-1, 0], "0-", "2-0", "a", {}, 3, "0-99999999"),
    ),
    (("collectives", 0, "ranks", 1), NOT_A_RANK),
    (("collectives", 0, "root"), (*NOT_A_RANK, 3)),
    (
        ("collectives", 0, "priority"),
        (0, -1, None, True, "", "high", "1/0", "1e999999999", [], {}, HUGE, "nan"),
    ),
    (
        ("collectives", 0, "ready"),
        ([], None, 3, "1us", {"3": "1us"}, {"x": "1us"}, {"0-": "1us"}, {"9": "1us"}),
    ),
    (("collectives", 0, "ready", "0"), NOT_DURATION),
    (
        ("collectives", 1, "matrix"),
        (None, 3, [], [[0]], [[0, 1], [1]], [[0, 0], [0, 0, 0]], {}, "0 1", [0, 1]),
    ),
    (
        ("collectives", 1, "matrix", 0, 1),
        (None, -1, True, "x", [], {}, HUGE, "-1KB", "nan", "1XB", ""),
    ),
    (("collectives", 2, "chunks"), (None, 3, {}, "0", [None], [3], [[]], [{}])),
    (
        ("collectives", 2, "chunks", 0, "sources"),
        (None, [], [0, 0], [9], "x", {}, 3, [None], [True]),
    ),
    (
        ("collectives", 2, "chunks", 0, "destinations"),
        (None, [], [2, 2], [-1], "2-1", {}, 2, ["2"]),
    ),
    (("collectives", 2, "chunks", 0, "reduce"), NOT_A_BOOL),
    (("collectives", 2, "collective"), ("allgather", "alltoallv", "nothing")),
)
DEMAND_REQUIRED = (
    ("collectives",),
    ("collectives", 0, "collective"),
    ("collectives", 0, "size"),
    ("collectives", 1, "matrix"),
    ("collectives", 2, "size"),
    ("collectives", 2, "chunks"),
    ("collectives", 2, "chunks", 0, "sources"),
    ("collectives", 2, "chunks", 0, "destinations"),
)
DEMAND_MAPPINGS = ((), ("collectives", 0), ("collectives", 2, "chunks", 0))

SCHEDULE_CHANGES: tuple[tuple[tuple[str | int, ...], tuple[Any, ...]], ...] = (
    ((), (None, 3, "text", [], True, {})),
    (("format",), ("teccl", "", None, 3, [])),
    (("schema_version",), (0, 2, "1", None, True, [])),
    (("tool_version",), NOT_TEXT),
    (("method",), NOT_TEXT),
    (("topology",), (None, 3, "ring:gpus=4", [], {}, "/etc/passwd")),
    (("topology", "links", 0, "bandwidth"), ("25", 5, None, "1e-80B/s")),
    (("topology", "nodes", 0, "name"), (None, "gpu1", "")),
    (("demand",), (None, 3, "allgather", [], {}, "demand.yaml")),
    (("demand", "collectives", 0, "size"), (None, "4", "8KB", "1e90B", "-4KB")),
    (("demand", "collectives", 0, "collective"), ("alltoall", "reducescatter", "none", None)),
    (("options",), (None, 3, [], {}, "copy")),
    (("options", "num_chunks"), (*NOT_COUNT, 2)),
    (("options", "switch"), ("cpy", None, 3, [], True)),
    (("options", "transit"), ("fast", None, 3, {})),
    (("options", "buffer"), (-1, "none", True, 1.5, HUGE)),
    (("options", "copy"), NOT_A_BOOL),
    (("chunks",), (None, [], {}, 3, "none")),
    (("chunks", "sources"), ([], [0], None, [0, 1, 2, 4])),
    (("chunks", "sizes"), ([], ["2KB"], None)),
    (
        ("grid",),
        (3, "1us", [], {}, {"epoch": None}, {"epoch": "0"}, {"epoch": "1"}, {"epoch": "1ps"}),
    ),
    (("finish_ps",), (None, -1, 1.5, "0", True, 2**63, HUGE, [])),
    (("bound",), (3, [], "tight", {})),
    (("sends",), (None, 3, "none", {}, [None], [3], [[]], [{}], {"chunk": [0]})),
    (("sends", 3), (None, 3, [], {}, "send")),
    (("sends", 0, "chunk"), (*NOT_INDEX, 99)),
    (("sends", 2, "link"), (*NOT_INDEX, 99)),
    (("sends", 4, "start_ps"), (-1, True, 1.5, "0", None, [], 2**62, 2**63, HUGE)),
    (("sends", 5, "transfer"), NOT_INDEX),
    (("sends", 6, "op"), ("move", None, 3, "", [], True)),
)
SCHEDULE_REQUIRED = (
    *(
        (key,)
        for key in ("format", "schema_version", "tool_version", "method", "topology", "demand")
    ),
    *((key,) for key in ("options", "chunks", "grid", "finish_ps", "bound", "sends")),
    *(("options", key) for key in ("num_chunks", "switch", "transit", "buffer", "copy")),
    ("chunks", "sets"),
    *(("sends", 0, key) for key in ("chunk", "link", "start_ps", "transfer", "op")),
)
SCHEDULE_MAPPINGS = ((), ("topology",), ("demand",), ("options",), ("chunks",), ("sends", 0))


def spoilt(document: Any, change: Change) -> Any:
    """Return a copy of a document with one place changed."""
    if not change.path:
        return change.value
    document = copy.deepcopy(document)
    place = document
    for key in change.path[:-1]:
        place = place[key]
    if change.value is Missing:
        del place[change.path[-1]]
    else:
        place[change.path[-1]] = change.value
    return document


def changes(
    table: tuple[tuple[tuple[str | int, ...], tuple[Any, ...]], ...],
    required: tuple[tuple[str | int, ...], ...],
    mappings: tuple[tuple[str | int, ...], ...],
) -> Iterator[Change]:
    """Yield every wrong value, every missing key and an unknown key in every mapping."""
    for path, values in table:
        for value in values:
            yield Change(path, value)
    for path in required:
        yield Change(path, Missing)
    for path in mappings:
        for key in ("unknown", "nme", "Name ", "__class__", ""):
            yield Change((*path, key), 1)


def label(change: Change) -> str:
    """Return a short name of a change for the test report."""
    where = ".".join(map(str, change.path)) or "all"
    return f"{where}={'missing' if change.value is Missing else repr(change.value)[:24]}"


def as_json(document: Any) -> bytes:
    """Return the document as JSON, huge integers included."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(document).encode()
    finally:
        sys.set_int_max_str_digits(limit)


def spoilt_files(
    name: str, document: Any, table: Any, required: Any, mappings: Any
) -> Iterator[Case]:
    """Yield a JSON file for every change."""
    for change in changes(table, required, mappings):
        yield Case(label(change), name, as_json(spoilt(document, change)))


# ---------------------------------------------------------------------------------------------
# Files that are no documents at all.


def cut_files(name: str, document: Any, count: int) -> Iterator[Case]:
    """Yield a JSON file cut off at seeded places, plain and compressed."""
    generator = random.Random(SEED)
    text = as_json(document)
    for _ in range(count):
        place = generator.randrange(len(text) - 1)
        yield Case(f"cut at {place}", name, text[:place])
    packed = gzip.compress(text, mtime=0)
    for _ in range(count // 2):
        place = generator.randrange(2, len(packed) - 8)
        yield Case(f"gzip cut at {place}", name, packed[:place])
        flipped = bytearray(packed)
        flipped[place] ^= 0xFF
        yield Case(f"gzip flipped at {place}", name, bytes(flipped))


@cache
def gzip_bomb() -> bytes:
    """Return a small gzip file that unpacks to more than teccl reads."""
    return gzip.compress(bytes(65 * 2**20), mtime=0)


def junk_files(name: str, count: int) -> Iterator[Case]:
    """Yield empty, binary and wrongly encoded files, and some that are made to hurt."""
    generator = random.Random(SEED)
    for i in range(count):
        size = generator.randrange(1, 400)
        # Past the first byte, which is no legal start of UTF-8, anything may come.
        yield Case(f"junk {i}", name, b"\xff" + generator.randbytes(size))
    fixed = {
        "empty": b"",
        "blank": b" \n\n\t\n",
        "bom only": b"\xef\xbb\xbf",
        "null bytes": b"\0" * 100,
        "utf-16": '{"nodes": 2}'.encode("utf-16"),
        "utf-32": '{"nodes": 2}'.encode("utf-32"),
        "latin-1": '{"name": "\xe9\xe8"}'.encode("latin-1"),
        "lone surrogate": b'{"name": "\\ud800", "nodes": 2, "links": []}',
        "elf": b"\x7fELF\x02\x01\x01" + bytes(50),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(50),
        "zip": b"PK\x03\x04" + bytes(50),
        "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00",
        "html": b"<!doctype html><html><body>no</body></html>",
        "deep list": b"[" * DEEP,
        "deep closed list": b"[" * 900 + b"]" * 900,
        "deep mapping": b'{"a":' * DEEP,
        "many digits": b'{"nodes": ' + b"9" * 5000 + b"}",
        "infinite": b'{"nodes": 1e999, "links": []}',
        "nan": b'{"nodes": NaN, "links": []}',
        "duplicate key": b'{"format": 1, "format": 2, "nodes": 1, "nodes": 2}',
        "two documents": b'{"a": 1} {"b": 2}',
        "two commas": b'{"nodes": 2,, "links": []}',
        "comment": b'{"nodes": 2 // two\n}',
        "single quotes": b"{'nodes': 2}{",
        "gzip of nothing": gzip.compress(b"", mtime=0),
        "gzip header only": b"\x1f\x8b",
        "gzip of gzip": gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
        "gzip bomb": gzip_bomb(),
    }
    for title, content in fixed.items():
        yield Case(title, name, content)


YAML_FILES = {
    "python object": "!!python/object/apply:os.system ['touch written']",
    "python name": "nodes: !!python/name:os.system\nlinks: []",
    "python module": "nodes: !!python/module:os\nlinks: []",
    "unknown tag": "nodes: !include /etc/passwd\nlinks: []",
    "binary tag": "nodes: !!binary aGVsbG8=\nlinks: []",
    "set": "nodes: !!set {a, b}\nlinks: []",
    "alias": "nodes: &n [{name: a}]\nlinks: *n",
    "bomb": "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 8)}]\n" for i in range(9)
    )
    + "nodes: *j\nlinks: []",
    "self reference": "nodes: &n [*n]\nlinks: []",
    "merge of a number": "<<: 3\nnodes: 2\nlinks: []",
    "duplicate key": "nodes: 2\nnodes: 3\nlinks: []",
    "duplicate nested key": "nodes: 2\nlinks:\n- {src: 0, src: 1, dst: 1, bandwidth: 1GB/s}",
    "hexadecimal flood": "nodes: 0x" + "f" * 9000 + "\nlinks: []",
    "hexadecimal bandwidth": "nodes: 2\nlinks:\n- {src: 0, dst: 1, bandwidth: 0x"
    + "f" * 9000
    + "}",
    "hexadecimal end": "nodes: 2\nlinks:\n- {src: 0x" + "f" * 9000 + ", dst: 1, bandwidth: 1GB/s}",
    "hexadecimal key": "0x" + "f" * 900 + ": 1\nnodes: 2\nlinks: []",
    "date": "nodes: 2001-12-15\nlinks: []",
    "impossible date": "nodes: 2001-13-45\nlinks: []",
    "not a number": "nodes: .nan\nlinks: []",
    "infinity": "nodes: .inf\nlinks: []",
    "bandwidth not a number": "nodes: 2\nlinks:\n- {src: 0, dst: 1, bandwidth: .nan}",
    "alpha infinite": "nodes: 2\nlinks:\n- {src: 0, dst: 1, bandwidth: 1GB/s, alpha: .inf}",
    "boolean": "nodes: yes\nlinks: []",
    "null": "nodes: ~\nlinks: []",
    "null key": "~: 2\nnodes: 2\nlinks: []",
    "list key": "[a, b]: 2\nnodes: 2\nlinks: []",
    "mapping key": "{a: b}: 2\nnodes: 2\nlinks: []",
    "two documents": "nodes: 2\nlinks: []\n---\nnodes: 3",
    "tab": "nodes:\n\t- a\nlinks: []",
    "bad indent": "nodes:\n  - name: a\n - name: b\nlinks: []",
    "unclosed quote": 'nodes: "2\nlinks: []',
    "unclosed list": "nodes: [\nlinks: []",
    "only a comment": "# nothing here\n",
    "only text": "allgather",
    "control character": "nodes: 2\nlinks: []\nname: 'a\x07'",
    "deep flow": "nodes: " + "[" * DEEP,
    "deep closed flow": "nodes: " + "[" * 2000 + "]" * 2000 + "\nlinks: []",
    "deep blocks": "nodes:\n" + "- " * DEEP + "1",
    "percent directive": "%YAML 9.9\n---\nnodes: 2",
    "file in place of nodes": "nodes: nodes.yaml\nlinks: []",
    "file in place of links": "nodes: 2\nlinks: /etc/passwd",
    "file in shares": "nodes: 2\nlinks: [{src: 0, dst: 1, bandwidth: 1GB/s, shares: other.yaml}]",
    "reference": "$ref: other.yaml",
}

CSV_FILES = {
    "empty": b"",
    "blank": b"\n\n , \n",
    "ragged": b"0,1\n1\n",
    "not square": b"0,1,2\n1,0,2\n",
    "too small": b"0,1\n1,0\n",
    "negative": b"0,-1,1,1\n1,0,1,1\n1,1,0,1\n1,1,1,0\n",
    "words": b"a,b,c,d\n1,0,1,1\n1,1,0,1\n1,1,1,0\n",
    "not a number": b"0,nan,1,1\n1,0,1,1\n1,1,0,1\n1,1,1,0\n",
    "all zero": b"0,0,0,0\n" * 4,
    "missing cell": b"0,,1,1\n1,0,1,1\n1,1,0,1\n1,1,1,0\n",
    "long field": b"0," + b"9" * 200_000 + b",1,1\n" * 4,
    "null byte": b"0,\x00,1,1\n" * 4,
    "not utf-8": b"0,\xff,1,1\n" * 4,
    "formula": b"=1+1,0,0,0\n" * 4,
    "unclosed quote": b'"0,1,1,1\n1,0,1,1\n1,1,0,1\n1,1,1,0\n',
}

TOPOLOGY_CASES = [
    *spoilt_files("x.json", TOPOLOGY, TOPOLOGY_CHANGES, TOPOLOGY_REQUIRED, TOPOLOGY_MAPPINGS),
    *cut_files("x.json", TOPOLOGY, 12),
    *junk_files("x.json", 8),
    *junk_files("x.yaml.gz", 4),
    *(Case(f"yaml {title}", "x.yaml", text.encode()) for title, text in YAML_FILES.items()),
]
DEMAND_CASES = [
    *spoilt_files("x.json", COLLECTIVES, DEMAND_CHANGES, DEMAND_REQUIRED, DEMAND_MAPPINGS),
    *cut_files("x.json", COLLECTIVES, 12),
    *junk_files("x.json", 8),
    *(Case(f"yaml {title}", "x.yml", text.encode()) for title, text in YAML_FILES.items()),
    *(Case(f"csv {title}", "x.csv", content) for title, content in CSV_FILES.items()),
]
SCHEDULE_CASES = [
    *spoilt_files("x.json", SCHEDULE, SCHEDULE_CHANGES, SCHEDULE_REQUIRED, SCHEDULE_MAPPINGS),
    *cut_files("x.json", SCHEDULE, 12),
    *junk_files("x.json", 8),
    *junk_files("x.json.gz", 4),
]
