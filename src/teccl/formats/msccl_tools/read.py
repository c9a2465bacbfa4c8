"""msccl-tools' topology JSON: how many chunks a round each link carries.

The matrix `links` is indexed [destination][source]. An entry of `switches` limits what some
sources send to some destinations together, which is a shared capacity here.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl._foreign import expect_matrix, read_json
from teccl.errors import TopologyError
from teccl.formats.shared.imports import Imported, ImportOptions
from teccl.topology.graph import Link, Node, Topology
from teccl.units import format_bandwidth, format_duration

MAX_GPUS = 1024
MAX_SWITCHES = 10_000
# Shares of all links together; real files have at most a few for each link.
MAX_SHARES = 500_000
_KEYS = ("msccl_type", "sccl_type", "name", "links", "switches")


def read_topology(path: Path, options: ImportOptions) -> Imported:
    """Read a topology file.

    Raises
    ------
    TopologyError
        If the file is damaged, or the rate of one chunk a round is not given.
    """
    document = files.expect_mapping(
        read_json(path, TopologyError), str(path), TopologyError, known=_KEYS, required=("links",)
    )
    kind = document.get("msccl_type", document.get("sccl_type"))
    if kind != "topology":
        raise TopologyError(
            f"{path}: msccl_type is {files.shown(kind)}; give a file of type 'topology'"
        )
    if options.link_bandwidth is None:
        raise TopologyError(
            f"{path}: links count chunks a round; give --link-bandwidth, the rate that a 1 means, "
            "for example 25GB/s"
        )
    counts = expect_matrix(
        document["links"], f"{path}: links", TopologyError, size=None, max_size=MAX_GPUS
    )
    n, unit = len(counts), options.link_bandwidth
    shared, shares = _read_switches(document.get("switches", []), n, unit, path)
    alpha = options.alpha if options.alpha is not None else Fraction(7, 10**7)
    links = [
        Link(
            src=src,
            dst=dst,
            bandwidth=Fraction(repr(counts[dst][src])) * unit,
            alpha=alpha,
            shares=tuple(shares.get((src, dst), ())),
        )
        for src in range(n)
        for dst in range(n)
        if counts[dst][src] and src != dst
    ]
    name = files.expect_text(document.get("name", "msccl-tools"), f"{path}: name", TopologyError)
    topology = Topology(
        name=options.name or name,
        nodes=tuple(Node(name=f"gpu{i}") for i in range(n)),
        links=tuple(links),
        shared=shared,
    )
    source = "given" if options.alpha is not None else "the file has none; --alpha"
    notes = [
        "links are read [destination][source], as msccl-tools writes them",
        f"a link of 1 chunk a round carries {format_bandwidth(unit)} (given)",
        f"every link has a latency of {format_duration(alpha)} ({source})",
    ]
    if shared:
        notes.append(
            f"{len(shared)} switches are capacities that links share, one transfer at a time"
        )
    return Imported(topology=topology, assumptions=tuple(notes))


def _read_switches(
    value: Any, n: int, unit: Fraction, path: Path
) -> tuple[dict[str, Fraction], dict[tuple[int, int], list[str]]]:
    """Return the capacity of each switch, and for each pair of GPUs the switches on its way."""
    entries = files.expect_list(value, f"{path}: switches", TopologyError)
    if len(entries) > MAX_SWITCHES:
        raise TopologyError(f"{path}: {len(entries)} switches; give up to {MAX_SWITCHES}")
    shared: dict[str, Fraction] = {}
    shares: dict[tuple[int, int], list[str]] = {}
    total = 0
    for i, entry in enumerate(entries):
        where = f"{path}: switches[{i}]"
        if not isinstance(entry, list) or len(entry) != 4:
            raise TopologyError(
                f"{where} is {files.shown(entry)}; give [sources, destinations, bandwidth, name]"
            )
        sources, destinations = (_read_gpus(part, n, where) for part in entry[:2])
        bandwidth = files.expect_int(
            entry[2], f"{where} bandwidth", TopologyError, low=1, high=1000
        )
        name = f"{files.expect_text(entry[3], f'{where} name', TopologyError)}#{i}"
        shared[name] = bandwidth * unit
        total += len(sources) * len(destinations)
        if total > MAX_SHARES:
            raise TopologyError(f"{path}: switches join more than {MAX_SHARES} pairs; give fewer")
        for src in sources:
            for dst in destinations:
                shares.setdefault((src, dst), []).append(name)
    return shared, shares


def _read_gpus(value: Any, n: int, where: str) -> list[int]:
    ranks = files.expect_list(value, where, TopologyError)
    for rank in ranks:
        files.expect_int(rank, f"{where} rank", TopologyError, low=0, high=n - 1)
    if len(set(ranks)) != len(ranks):
        raise TopologyError(f"{where} names a rank twice; name each once")
    return ranks
