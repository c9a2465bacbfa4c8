"""Schedule files read by docs/files.md and docs/concepts.md alone; nothing of teccl is imported."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

PICO = 10**12
_QUANTITY = re.compile(r"\s*([0-9./e+-]*[0-9.])\s*([A-Za-z]*)(?:/s)?\s*")
_UNITS = {
    **{f"{prefix}B": 1000**i for i, prefix in enumerate(("", "K", "M", "G", "T"))},
    **{f"{prefix}iB": 1024**i for i, prefix in enumerate(("", "K", "M", "G", "T")) if i},
    **{f"{prefix}b": Fraction(1000**i, 8) for i, prefix in enumerate(("", "K", "M", "G", "T"))},
    **{f"{prefix}s": Fraction(1, 1000**i) for i, prefix in enumerate(("", "m", "u", "n", "p"))},
    "": 1,
}


def quantity(text: Any) -> Fraction:
    """Read a number with its unit, in bytes, seconds or bytes a second.

    Examples
    --------
    >>> quantity("1/3us"), quantity("100Gb/s"), quantity(0)
    (Fraction(1, 3000000), Fraction(12500000000, 1), Fraction(0, 1))
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    return Fraction(match[1]) * _UNITS[match[2]]


def up(value: Fraction) -> int:
    """Round up to a whole number."""
    return -int(-value // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A directed link: its ends, its times, when which rate begins, and what it shares."""

    src: int
    dst: int
    alpha: Fraction
    overhead: Fraction
    steps: tuple[tuple[Fraction, Fraction], ...]
    shares: tuple[str, ...]

    @property
    def alpha_ps(self) -> int:
        """Latency in whole picoseconds."""
        return up(self.alpha * PICO)

    @property
    def overhead_ps(self) -> int:
        """Overhead of a transfer in whole picoseconds."""
        return up(self.overhead * PICO)

    @property
    def rate(self) -> Fraction:
        """Rate at the start."""
        return self.steps[0][1]

    def busy_ps(self, size: Fraction, start_ps: int) -> int:
        """Picoseconds for which `size` bytes keep it busy from `start_ps` on."""
        now, left = Fraction(start_ps + self.overhead_ps, PICO), size
        for i, (_, rate) in enumerate(self.steps):
            until = self.steps[i + 1][0] if i + 1 < len(self.steps) else None
            if until is not None and until <= now:
                continue
            if until is None or left <= rate * (until - now):
                return up((now + left / rate) * PICO) - start_ps
            left -= rate * (until - now)
            now = until
        raise AssertionError("the last rate holds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of data: bytes, who has it or adds to it, who wants it."""

    size: Fraction
    sources: frozenset[int]
    wanted: frozenset[int]
    is_sum: bool
    tenant: int
    block: int
    piece: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A chunk on a link."""

    chunk: int
    link: int
    start: int
    transfer: int
    op: str
    epoch: int | None
    carries: int | None
    becomes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a schedule file says."""

    content: dict[str, Any]
    is_switch: tuple[bool, ...]
    reduces: tuple[bool, ...]
    gpus: tuple[int, ...]
    wires: tuple[Wire, ...]
    shared: dict[str, Fraction]
    chunks: tuple[Chunk, ...]
    hops: tuple[Hop, ...]
    ready_ps: dict[tuple[int, int], int]
    # Hops by chunk and the node that they lead to, or come from.
    into: dict[tuple[int, int], list[Hop]]
    out_of: dict[tuple[int, int], list[Hop]]

    @property
    def options(self) -> dict[str, Any]:
        """Switch, transit, buffer and copy."""
        found: dict[str, Any] = self.content["options"]
        return found


def read(path: Path) -> Document:
    """Read a schedule file that is not folded by symmetry."""
    content = json.loads(path.read_text())
    network = content["topology"]
    names = {node["name"]: i for i, node in enumerate(network["nodes"])}
    kinds = tuple(node.get("kind") == "switch" for node in network["nodes"])
    gpus = tuple(i for i, is_switch in enumerate(kinds) if not is_switch)
    shared = {name: quantity(rate) for name, rate in network.get("shared", {}).items()}
    wires = tuple(w for link in network["links"] for w in _wires(link, names, gpus, shared))
    hops = tuple(_hops(content["sends"]))
    into, out_of = defaultdict(list), defaultdict(list)
    for hop in hops:
        into[hop.chunk, wires[hop.link].dst].append(hop)
        out_of[hop.chunk, wires[hop.link].src].append(hop)
    return Document(
        content=content,
        is_switch=kinds,
        reduces=tuple(bool(node.get("reduce")) for node in network["nodes"]),
        gpus=gpus,
        wires=wires,
        shared=shared,
        chunks=tuple(_chunks(content["chunks"])),
        hops=hops,
        into=into,
        out_of=out_of,
        ready_ps={
            (t, gpus[int(rank)]): up(quantity(time) * PICO)
            for t, tenant in enumerate(_tenants(content["demand"]))
            for rank, time in tenant.get("ready", {}).items()
        },
    )


def _tenants(demand: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = demand.get("collectives", [demand])
    return found


def _wires(
    link: dict[str, Any], names: dict[str, int], gpus: tuple[int, ...], shared: dict[str, Fraction]
) -> Iterable[Wire]:
    ends = [names[end] if end in names else gpus[int(end)] for end in (link["src"], link["dst"])]
    shares = link.get("shares", [])
    shares = (shares,) if isinstance(shares, str) else tuple(shares)
    most = [shared[name] for name in shares]
    steps = [(Fraction(0), quantity(link["bandwidth"]))]
    steps += [(quantity(start), quantity(rate)) for start, rate in link.get("profile", [])]
    for src, dst in [ends, ends[::-1]] if link.get("bidirectional") else [ends]:
        yield Wire(
            src=src,
            dst=dst,
            alpha=quantity(link.get("alpha", 0)),
            overhead=quantity(link.get("overhead", 0)),
            steps=tuple((start, min([rate, *most])) for start, rate in steps),
            shares=shares,
        )


def _chunks(table: dict[str, Any]) -> Iterable[Chunk]:
    for i, size in enumerate(table["size"]):
        yield Chunk(
            size=quantity(table["sizes"][size]),
            sources=frozenset(table["sets"][table["sources"][i]]),
            wanted=frozenset(table["sets"][table["destinations"][i]]),
            is_sum=bool(table["reduce"][i]),
            tenant=table["tenant"][i],
            block=table["block"][i],
            piece=table["piece"][i],
        )


def _hops(sends: list[dict[str, Any]]) -> Iterable[Hop]:
    for send in sends:
        yield Hop(
            chunk=send["chunk"],
            link=send["link"],
            start=send["start_ps"],
            transfer=send["transfer"],
            op=send["op"],
            epoch=send.get("epoch"),
            carries=send.get("carries"),
            becomes=send.get("becomes"),
        )
