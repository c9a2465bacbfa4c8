"""Makes a failing case smaller, one simplification at a time, as long as it fails the same way."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

Case = dict[str, Any]
# Where something stands in a case: keys and positions from the top.
Place = tuple[str | int, ...]

_PLAIN = {"bandwidth": "10GB/s", "alpha": "0", "size": "1KB"}
# What only says more about a tenant, a link or a node.
_EXTRAS = (
    *("ready", "priority", "root", "ranks"),
    *("profile", "shares", "overhead", "bidirectional", "reduce"),
)
_NAMING_RANKS = {"ranks", "root", "ready", "matrix", "chunks"}


def signature(record: dict[str, Any]) -> str:
    """Return what two records of one fault have in common: numbers may differ."""
    return f"{record['outcome']}: {re.sub(r'[0-9]+', '#', record['detail'])[:60]}"


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a case that fails, too, and that no single simplification leaves failing."""
    seen = {json.dumps(case, sort_keys=True)}
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in simpler(case):
            text = json.dumps(candidate, sort_keys=True)
            if text in seen:
                continue
            seen.add(text)
            if fails(candidate):
                case, is_smaller = candidate, True
                break
    return case


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases with one thing less, the largest steps first."""
    yield from _fewer_nodes(case)
    for place in _droppable(case):
        yield _without(case, place)
    for place, value in _plainer(case):
        yield _with(case, place, value)


def _droppable(case: Case) -> Iterator[Place]:
    """Places of what a case may do without; of a list, something must be left."""
    tenants: Place = ("demand", "collectives")
    yield from _entries(case, tenants, least=1)
    yield from _entries(case, ("topology", "links"), least=0)
    for name in case["keywords"]:
        if name != "time_limit":
            yield ("keywords", name)
    for t, tenant in enumerate(_at(case, tenants)):
        chunks = (*tenants, t, "chunks")
        yield from _entries(case, chunks, least=1)
        for i in range(len(tenant.get("chunks", ()))):
            yield from _entries(case, (*chunks, i, "sources"), least=1)
            yield from _entries(case, (*chunks, i, "destinations"), least=1)
            yield from _extras(case, (*chunks, i))
        yield from _extras(case, (*tenants, t))
    for part in ("links", "nodes"):
        for i in range(len(case["topology"][part])):
            yield from _extras(case, ("topology", part, i))


def _plainer(case: Case) -> Iterator[tuple[Place, Any]]:
    """Places of values, and plainer ones to put there."""
    if case["keywords"].get("chunks", 1) != 1:
        yield ("keywords", "chunks"), 1
    tenants = case["demand"]["collectives"]
    parts: list[tuple[Place, Case]] = [
        *((("demand", "collectives", t), tenant) for t, tenant in enumerate(tenants)),
        *((("topology", "links", i), link) for i, link in enumerate(case["topology"]["links"])),
    ]
    for place, part in parts:
        for name, plain in _PLAIN.items():
            if part.get(name, plain) != plain:
                yield (*place, name), plain
        for i, row in enumerate(part.get("matrix", ())):
            for j, cell in enumerate(row):
                if cell != "0":
                    yield (*place, "matrix", i, j), "0"


def _entries(case: Case, place: Place, *, least: int) -> Iterator[Place]:
    count = len(_at(case, place[:-1]).get(place[-1], ()))
    if count > least:
        yield from ((*place, i) for i in range(count))


def _extras(case: Case, place: Place) -> Iterator[Place]:
    yield from ((*place, name) for name in _EXTRAS if name in _at(case, place))


def _fewer_nodes(case: Case) -> Iterator[Case]:
    """Drop nodes with their links; GPUs only where nothing says who takes part."""
    named = any(_NAMING_RANKS & set(tenant) for tenant in case["demand"]["collectives"])
    for node in case["topology"]["nodes"]:
        if named and node.get("kind") != "switch":
            continue
        smaller, name = deepcopy(case), node["name"]
        network = smaller["topology"]
        network["nodes"].remove(node)
        network["links"] = [each for each in network["links"] if name not in _ends(each)]
        yield smaller


def _ends(link: Case) -> tuple[Any, Any]:
    return link["src"], link["dst"]


def _at(case: Any, place: Place) -> Any:
    for step in place:
        case = case[step]
    return case


def _without(case: Case, place: Place) -> Case:
    smaller = deepcopy(case)
    _at(smaller, place[:-1]).pop(place[-1])
    return smaller


def _with(case: Case, place: Place, value: Any) -> Case:
    smaller = deepcopy(case)
    _at(smaller, place[:-1])[place[-1]] = value
    return smaller
