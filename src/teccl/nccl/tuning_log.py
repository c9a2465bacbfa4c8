"""Reading what NCCL prints with NCCL_DEBUG_SUBSYS=TUNING: its table of costs and its choices."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from teccl._files import read_text
from teccl.demand import Collective
from teccl.errors import InputError
from teccl.nccl.constants import Algorithm, Protocol
from teccl.nccl.cost_model import Cost

_NAMES = {
    "Broadcast": Collective.BROADCAST,
    "Reduce": Collective.REDUCE,
    "AllGather": Collective.ALLGATHER,
    "ReduceScatter": Collective.REDUCESCATTER,
    "AllReduce": Collective.ALLREDUCE,
}
_ALGORITHMS = {
    "tree": Algorithm.TREE,
    "ring": Algorithm.RING,
    "collnet": Algorithm.COLLNET_DIRECT,
    "collnetdirect": Algorithm.COLLNET_DIRECT,
    "collnetchain": Algorithm.COLLNET_CHAIN,
    "nvls": Algorithm.NVLS,
    "nvlstree": Algorithm.NVLS_TREE,
    "pat": Algorithm.PAT,
}
_VALUE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*$")
_CHOICE = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)(?: time (\d+(?:\.\d+)?))?")
Column = tuple[Algorithm, Protocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedChoice:
    """What NCCL chose for a size.

    Parameters
    ----------
    collective
        None where the log does not say it, as up to NCCL 2.23.
    size_bytes
        The size that was asked for.
    algorithm, protocol
        What it took.
    seconds
        What its model expected, None where the log does not say it, as from NCCL 2.24 on.
    """

    collective: Collective | None
    size_bytes: int
    algorithm: Algorithm
    protocol: Protocol
    seconds: float | None


def read_choices(path: Path) -> tuple[TunedChoice, ...]:
    """Read which algorithm and protocol NCCL took for each size, equal lines once.

    Raises
    ------
    InputError
        If the file has no such line.
    """
    found = dict.fromkeys(_choices(read_text(path, InputError)))
    if not found:
        raise InputError(
            f"log {path} has no line with a choice (Bytes -> Algo ...); run with NCCL_DEBUG=INFO "
            "and NCCL_DEBUG_SUBSYS=TUNING"
        )
    return tuple(found)


def _choices(text: str) -> Iterator[TunedChoice]:
    algorithms, protocols = tuple(Algorithm), tuple(Protocol)
    for name, size, way, protocol, time in _CHOICE.findall(text):
        # Numbers count in NCCL's order, which is that of the enumerations.
        if way.isdecimal() and protocol.isdecimal():
            if int(way) >= len(algorithms) or int(protocol) >= len(protocols):
                continue
            taken = algorithms[int(way)], protocols[int(protocol)]
        elif (known := _algorithm(way.replace("_", ""))) and _is_protocol(protocol):
            taken = known, Protocol(protocol.lower())
        else:
            continue
        yield TunedChoice(
            collective=_NAMES.get(name),
            size_bytes=int(size),
            algorithm=taken[0],
            protocol=taken[1],
            seconds=float(time) * 1e-6 if time else None,
        )


def read_tuning(path: Path) -> tuple[Cost, ...]:
    """Read the table of latencies and bandwidths, without what NCCL does not do.

    Raises
    ------
    InputError
        If the file has no such table.
    """
    found = parse_tuning(read_text(path, InputError))
    if not found:
        raise InputError(
            f"log {path} has no table of latencies and bandwidths; run with NCCL_DEBUG=INFO and "
            "NCCL_DEBUG_SUBSYS=TUNING"
        )
    return found


def parse_tuning(text: str) -> tuple[Cost, ...]:
    """Return the costs that a log lists; the last table of several counts."""
    found: dict[tuple[Collective, Algorithm, Protocol], Cost] = {}
    columns: list[Column] = []
    algorithms: list[Algorithm] = []
    for line in text.splitlines():
        _, _, body = line.rpartition("NCCL INFO")
        head, *cells = (part.strip() for part in body.rstrip().rstrip("|").split("|"))
        if head == "Latency/AlgBw":
            columns = _old_columns(cells)
        elif head == "Algorithm":
            algorithms = [a for cell in cells if (a := _algorithm(cell)) is not None]
        elif head == "Protocol":
            protocols = [Protocol(cell.lower()) for cell in cells if _is_protocol(cell)]
            columns = [(a, p) for a, p in zip(_repeated(algorithms), protocols, strict=False)]
        elif head in _NAMES and len(cells) == len(columns):
            for (algorithm, protocol), cell in zip(columns, cells, strict=True):
                value = _VALUE.match(cell)
                if value and float(value[2]) > 0:
                    key = (_NAMES[head], algorithm, protocol)
                    found[key] = Cost(
                        collective=key[0],
                        algorithm=algorithm,
                        protocol=protocol,
                        latency_us=float(value[1]),
                        bandwidth_gbps=float(value[2]),
                    )
    return tuple(found.values())


def _repeated(algorithms: list[Algorithm]) -> list[Algorithm]:
    """Each algorithm stands over its three protocols."""
    return [algorithm for algorithm in algorithms for _ in Protocol]


def _old_columns(cells: list[str]) -> list[Column]:
    """Columns up to NCCL 2.18 are named Tree/LL, Tree/LL128 and so on."""
    found = []
    for cell in cells:
        name, _, protocol = (part.strip().lower() for part in cell.partition("/"))
        if name in _ALGORITHMS and _is_protocol(protocol):
            found.append((_ALGORITHMS[name], Protocol(protocol)))
    return found


def _algorithm(cell: str) -> Algorithm | None:
    return _ALGORITHMS.get(cell.lower())


def _is_protocol(cell: str) -> bool:
    return cell.strip().lower() in tuple(Protocol)
