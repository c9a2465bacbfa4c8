"""The matrix that `nvidia-smi topo -m` prints: which links join two devices, but not how fast."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from teccl import _files as files
from teccl.errors import TopologyError
from teccl.formats.shared.cluster import Host, Nic, Wire, assign_nics, compose
from teccl.formats.shared.imports import Imported, ImportOptions
from teccl.formats.shared.pcie import PcieHop, is_connected, pcie_wires

MAX_BYTES = 2**20
MAX_DEVICES = 1024
# No GPU has more NVLinks than this, so more cannot be direct links.
_MAX_NVLINKS = 18
# How near two devices are by the relation the matrix names, nearest first.
_NEARNESS = {"X": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
_STYLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"(GPU|NIC)\d{1,4}|mlx\w{1,40}|(?:hfi|efa|bnxt|rocep)\w{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """Relations between devices by name, for GPUs and for NICs."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]

    def nvlinks(self, i: int, j: int) -> int:
        """Return the number of NVLinks between two GPUs."""
        cell = self.cells[self.gpus[i], self.gpus[j]]
        return int(cell[2:]) if cell.startswith("NV") else 0

    def nearness(self, one: str, other: str) -> int:
        """Return how near two devices are over PCIe; where NVLink hides it, on one processor."""
        return _NEARNESS.get(self.cells[one, other], _NEARNESS["NODE"])


def read_topology(path: Path, options: ImportOptions) -> Imported:
    """Read a matrix.

    Raises
    ------
    TopologyError
        If the file holds no such matrix, or leaves something open that an option must say.
    """
    matrix = _parse(files.read_text(path, TopologyError, max_bytes=MAX_BYTES), path)
    notes: list[str] = []
    wires, switches = _nvlink_wires(matrix, options, path, notes)
    if not is_connected(len(matrix.gpus), wires):
        if options.pcie_bandwidth is None:
            raise TopologyError(
                f"{path}: PCIe joins some GPUs and the matrix has no rates; give "
                "--pcie-bandwidth, for example 24GB/s for 16 lanes of PCIe 4.0"
            )
        more, names = pcie_wires(
            _pci_chains(matrix),
            first_switch=len(matrix.gpus) + len(switches),
            default=options.pcie_bandwidth,
            socket=options.socket_bandwidth,
            notes=notes,
        )
        wires, switches = [*wires, *more], [*switches, *names]
    machine = Host(
        name="nvidia-smi",
        num_gpus=len(matrix.gpus),
        switches=tuple(switches),
        wires=tuple(wires),
        nics=_nics(matrix, notes) if (options.nodes or 1) > 1 else (),
    )
    return compose(machine, options, notes)


def _nics(matrix: _Matrix, notes: list[str]) -> tuple[Nic, ...]:
    """Return the network cards with the GPUs they are nearest to."""
    if not matrix.nics:
        return ()
    notes.append("each GPU sends through the NIC that the matrix shows nearest to it")
    distances = [[matrix.nearness(nic, gpu) for gpu in matrix.gpus] for nic in matrix.nics]
    return tuple(Nic(gpus=gpus) for gpus in assign_nics(len(matrix.gpus), distances))


def _split(line: str) -> list[str]:
    """Return the cells of a line: between tabs, or between two and more spaces."""
    parts = line.split("\t") if "\t" in line else re.split(r" {2,}", line)
    return [part.strip() for part in parts]


def _parse(text: str, path: Path) -> _Matrix:
    lines = [_STYLE.sub("", line).rstrip() for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if _devices(line)), None)
    if start is None:
        raise TopologyError(
            f"{path}: no line names GPU0, GPU1, ...; give the output of 'nvidia-smi topo -m'"
        )
    columns = _devices(lines[start])
    if len(set(columns)) != len(columns) or len(columns) > MAX_DEVICES:
        raise TopologyError(
            f"{path}: line {start + 1} names a device twice or more than {MAX_DEVICES}; mend it"
        )
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        cells = _split(line)
        if not line.strip() or cells[0].startswith("Legend"):
            break
        if cells[0] not in columns:
            continue
        row = cells[1 : 1 + len(columns)]
        _check_row(cells[0], row, columns, f"{path}: line {number}")
        rows[cells[0]] = row
    missing = [name for name in columns if name not in rows]
    if missing:
        raise TopologyError(f"{path}: there is no row for {missing[0]}; give the whole matrix")
    relations = {(a, b): rows[a][i] for a in columns for i, b in enumerate(columns)}
    return _Matrix(
        gpus=tuple(name for name in columns if name.startswith("GPU")),
        nics=tuple(name for name in columns if not name.startswith("GPU")),
        cells=relations,
    )


def _devices(line: str) -> list[str]:
    """Return the devices that a head line names, nothing for other lines."""
    names = [part for part in _split(line) if part]
    if not names or names[0] != "GPU0":
        return []
    devices: list[str] = []
    for name in names:
        if not _DEVICE.fullmatch(name):
            break
        devices.append(name)
    # A single GPU's row looks the same as a head line until its first relation.
    return devices if len(names) == len(devices) or names[len(devices)] != "X" else []


def _check_row(device: str, relations: Sequence[str], columns: Sequence[str], where: str) -> None:
    if len(relations) != len(columns):
        raise TopologyError(
            f"{where}: {device} has {len(relations)} relations for {len(columns)} devices; "
            "give the whole matrix"
        )
    for other, relation in zip(columns, relations, strict=True):
        known = relation in _NEARNESS or re.fullmatch(r"NV([1-9]|[1-9]\d)", relation, re.ASCII)
        if not known or (relation == "X") != (device == other):
            raise TopologyError(
                f"{where}: the relation of {device} and {other} is {files.shown(relation)}; "
                "known are X for itself, NV and a number, PIX, PXB, PHB, NODE, SYS"
            )


def _nvlink_wires(
    matrix: _Matrix, options: ImportOptions, path: Path, notes: list[str]
) -> tuple[list[Wire], list[str]]:
    """Return NVLinks between GPUs, or between GPUs and an NVSwitch."""
    n = len(matrix.gpus)
    pairs = {(i, j): matrix.nvlinks(i, j) for i in range(n) for j in range(n) if i != j}
    if not any(pairs.values()):
        return [], []
    rate = options.link_bandwidth
    if rate is None:
        raise TopologyError(
            f"{path}: the matrix has no rates; give --link-bandwidth, that of one NVLink in one "
            "direction (V100, A100 and H100 have 25GB/s, B200 50GB/s)"
        )
    if not _is_switched(n, pairs, options, path, notes):
        links = [Wire(src=i, dst=j, bandwidth=c * rate) for (i, j), c in pairs.items() if c]
        return links, []
    ports: list[Wire] = []
    for i in range(n):
        bandwidth = max(pairs[i, j] for j in range(n) if j != i) * rate
        ports += [Wire(src=i, dst=n, bandwidth=bandwidth), Wire(src=n, dst=i, bandwidth=bandwidth)]
    return ports, ["nvswitch"]


def _is_switched(
    n: int,
    pairs: Mapping[tuple[int, int], int],
    options: ImportOptions,
    path: Path,
    notes: list[str],
) -> bool:
    """Whether NVLinks lead to a switch, which the matrix shows as links between all pairs."""
    counts = set(pairs.values())
    each = next(iter(counts))
    if options.links is not None:
        return options.links == "switch"
    if len(counts) > 1:
        notes.append("pairs have different numbers of NVLinks, so these are direct links (--links)")
        return False
    if (n - 1) * each > _MAX_NVLINKS:
        notes.append(
            f"NV{each} between all of {n} GPUs would be {(n - 1) * each} links a GPU; none has "
            f"that many, so they lead to an NVSwitch with {each} links a GPU (--links)"
        )
        return True
    raise TopologyError(
        f"{path}: NV{each} between all of {n} GPUs can be direct links or an NVSwitch, and the "
        "matrix cannot say which; give --links direct or --links switch"
    )


def _pci_chains(matrix: _Matrix) -> list[list[PcieHop]]:
    """Return for each GPU its processor, its bridge and itself, by the relations."""
    chains = []
    for i, gpu in enumerate(matrix.gpus):
        near = {j: matrix.nearness(gpu, other) for j, other in enumerate(matrix.gpus)}
        socket = min(j for j, d in near.items() if d <= _NEARNESS["NODE"])
        bridge = min(j for j, d in near.items() if d <= _NEARNESS["PXB"])
        chains.append(
            [
                PcieHop(key=("cpu", socket)),
                PcieHop(key=("bridge", bridge)),
                PcieHop(key=("device", i)),
            ]
        )
    return chains
