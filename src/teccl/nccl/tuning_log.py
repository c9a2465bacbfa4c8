"""Reading what NCCL prints of its own cost model with NCCL_DEBUG_SUBSYS=TUNING."""

import re
from pathlib import Path

from teccl._files import read_text
from teccl.demand import Collective
from teccl.errors import InputError
from teccl.nccl.constants import Algorithm, Protocol
from teccl.nccl.model import Cost

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
Column = tuple[Algorithm, Protocol]


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
