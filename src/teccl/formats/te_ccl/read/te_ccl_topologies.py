"""TE-CCL's input JSON: a topology by name, its chassis, and the collective that is asked for.

Nodes keep TE-CCL's numbers, which its schedules use: node k is entry k of `nodes`, switches
included.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl import _files as files
from teccl._foreign import expect_number, read_json
from teccl.errors import TopologyError
from teccl.formats.shared.imports import Imported, ImportOptions
from teccl.topology.presets._wiring import Wiring, check_size
from teccl.topology.presets.paper import NVLINK_DOUBLE, NVLINK_SINGLE
from teccl.units import format_size

MAX_CHASSIS = 4096
MAX_SIDE = 300
_GB = 10**9
_NVLINK, _NVSWITCH, _MESH, _XGMI = 25 * _GB, 125 * _GB, 100 * _GB, 50 * _GB
_NIC, _AMD_NIC = Fraction(25, 2) * _GB, 25 * _GB
_US = Fraction(1, 10**6)
# Pairs of the 16 GPUs of TE-CCL's AMD node with two links and with one; neighbours (0, 1), (2, 3)
# and so on have four.
_AMD_DOUBLE = ((0, 4), (3, 7), (8, 12), (11, 15))
_AMD_SINGLE = (
    *((0, 8), (1, 5), (1, 9), (1, 10), (2, 6), (2, 9), (2, 10), (3, 11)),
    *((4, 6), (5, 6), (5, 7), (9, 13), (10, 14), (12, 14), (13, 14), (13, 15)),
)
_COLLECTIVES = {1: "allgather", 2: "alltoall"}


def read_topology(path: Path, options: ImportOptions) -> Imported:
    """Read an input file.

    Raises
    ------
    TopologyError
        If the file is damaged, names no topology of TE-CCL, or lacks latencies.
    """
    document = read_json(path, TopologyError)
    values = document.get("TopologyParams")
    if not isinstance(values, dict):
        raise TopologyError(f"{path}: has no object TopologyParams; give a TE-CCL input file")
    name = files.expect_text(values.get("name"), f"{path}: name", TopologyError)
    builder = _BUILDERS.get(name.lower())
    if builder is None:
        raise TopologyError(
            f"{path}: topology {files.shown(name)} is not one of TE-CCL's; "
            "it knows DGX1, DGX2, NDv2, AMD and Mesh"
        )
    build = _Build(values, options, path)
    builder(build)
    build.notes.append(
        "node k of TE-CCL is entry k of the nodes, switches included; ranks count GPUs only"
    )
    topology = replace(build.wiring.topology(), name=options.name or f"te-ccl-{name.lower()}")
    build.note_request(document.get("InstanceParams"), topology.num_gpus)
    return Imported(topology=topology, assumptions=tuple(build.notes))


class _Build:
    """One topology on its way from the file's values."""

    def __init__(self, values: dict[str, Any], options: ImportOptions, path: Path) -> None:
        self.values = values
        self.options = options
        self.path = path
        self.notes: list[str] = []
        self.wiring = Wiring("te-ccl", alpha=options.alpha)

    def whole(self, key: str, high: int) -> int:
        """Return a whole number of the file."""
        value = self.values.get(key, 1)
        return files.expect_int(value, f"{self.path}: {key}", TopologyError, low=1, high=high)

    def alpha(self, place: int) -> Fraction:
        """Return an entry of the file's list of latencies in seconds."""
        if self.options.alpha is not None:
            return self.options.alpha
        alphas = self.values.get("alpha")
        if not isinstance(alphas, list) or len(alphas) <= place:
            raise TopologyError(
                f"{self.path}: alpha has no entry {place}; add the latency in seconds, or --alpha"
            )
        return _exact(expect_number(alphas[place], f"{self.path}: alpha[{place}]", TopologyError))

    def note_request(self, instance: Any, num_gpus: int) -> None:
        """Say what collective and size the file asks for, which is no part of a topology."""
        if not isinstance(instance, dict) or "chunk_size" not in self.values:
            return
        collective = _COLLECTIVES.get(instance.get("collective", 0))
        chunks = instance.get("num_chunks", 1)
        if collective is None or type(chunks) is not int or not 1 <= chunks <= 10**6:
            return
        chunk = expect_number(self.values["chunk_size"], f"{self.path}: chunk_size", TopologyError)
        size = _exact(chunk) * _GB * num_gpus * chunks
        self.notes.append(
            f"the file asks for {collective} --size {format_size(size)} --chunks {chunks}"
        )


def _exact(number: float) -> Fraction:
    """Return the decimal number that a JSON file shows."""
    return Fraction(repr(number))


def _cube_mesh(wiring: Wiring, gpus: Sequence[int], alpha: Fraction) -> None:
    for pairs, links in ((NVLINK_DOUBLE, 2), (NVLINK_SINGLE, 1)):
        for a, b in pairs:
            wiring.wire(gpus[a], gpus[b], Fraction(links * _NVLINK), alpha)


def _dgx1(build: _Build) -> None:
    _cube_mesh(build.wiring, build.wiring.gpus(8), build.alpha(0))


def _ndv2(build: _Build) -> None:
    """Two chassis have direct links between them; any other number one switch, node 0."""
    chassis, wiring = build.whole("chassis", MAX_CHASSIS), build.wiring
    check_size("te-ccl", nodes=8 * chassis + 1, links=34 * chassis, lower="chassis")
    switch = wiring.switch("switch") if chassis != 2 else -1
    gpus = [wiring.chassis_gpus(c, 8) for c in range(chassis)]
    for members in gpus:
        _cube_mesh(wiring, members, Fraction(7, 10) * _US)
    alpha = Fraction(13, 10) * _US
    if chassis == 2:
        wiring.link(gpus[0][0], gpus[1][1], _NIC, alpha)
        wiring.link(gpus[1][0], gpus[0][1], _NIC, alpha)
        build.notes.append(
            "TE-CCL takes node 0 of its two-chassis NDv2, a GPU, for a switch; here it is a GPU"
        )
    for members in gpus if chassis != 2 else ():
        wiring.link(members[0], switch, _NIC, alpha)
        wiring.link(switch, members[1], _NIC, alpha)
    build.notes.append("rates and latencies are those in TE-CCL's code; its file has none")


def _dgx2(build: _Build) -> None:
    """TE-CCL builds two chassis whatever the file says; nodes 0 and 17 are the switches."""
    if build.values.get("chassis", 2) != 2:
        build.notes.append("TE-CCL builds DGX2 with two chassis whatever the file says")
    wiring = build.wiring
    gpus = []
    for c in range(2):
        switch = wiring.switch(f"c{c}/nvswitch", group=f"c{c}")
        gpus.append(wiring.chassis_gpus(c, 16))
        for gpu in gpus[c]:
            wiring.wire(gpu, switch, Fraction(_NVSWITCH), Fraction(35, 100) * _US)
    for here, there in ((0, 1), (1, 0)):
        for sender in range(1, 16, 2):
            receiver = gpus[there][sender - 1]
            wiring.link(gpus[here][sender], receiver, _NIC, Fraction(26, 10) * _US)
    build.notes.append("rates and latencies are those in TE-CCL's code; its file has none")


def _amd(build: _Build) -> None:
    """One chassis is a mesh; several have a switch for each pair of GPUs and node 0 above them."""
    chassis, wiring = build.whole("chassis", MAX_CHASSIS), build.wiring
    check_size("te-ccl", nodes=24 * chassis + 1, links=96 * chassis, lower="chassis")
    top = wiring.switch("switch") if chassis > 1 else -1
    for c in range(chassis):
        gpus = wiring.chassis_gpus(c, 16) if chassis > 1 else wiring.gpus(16)
        packages = tuple((g, g + 1) for g in range(0, 16, 2))
        for pairs, links in ((packages, 4), (_AMD_DOUBLE, 2), (_AMD_SINGLE, 1)):
            for a, b in pairs:
                wiring.wire(gpus[a], gpus[b], Fraction(links * _XGMI), build.alpha(0))
        for pair in range(8) if chassis > 1 else ():
            leaf = wiring.switch(f"c{c}/switch{pair}", group=f"c{c}")
            for end in (gpus[2 * pair], gpus[2 * pair + 1], top):
                wiring.wire(end, leaf, Fraction(_AMD_NIC), build.alpha(1))
    if chassis > 1:
        build.notes.append(
            "TE-CCL's numbers of this topology's switches are off by one, which takes GPUs for "
            "switches; here nodes are what its links make them"
        )


def _mesh(build: _Build) -> None:
    """A square; TE-CCL also joins the end of each row with the start of the next."""
    side, wiring = build.whole("side_length", MAX_SIDE), build.wiring
    gpus = wiring.gpus(side * side)
    for i, gpu in enumerate(gpus):
        for j in sorted({i + 1, i + side}):
            if j < len(gpus):
                wiring.wire(gpu, gpus[j], Fraction(_MESH), build.alpha(0))
    build.notes.append("as in TE-CCL, the last GPU of a row is linked to the first of the next")


_BUILDERS: dict[str, Callable[[_Build], None]] = {
    "dgx1": _dgx1,
    "dgx2": _dgx2,
    "ndv2": _ndv2,
    "amd": _amd,
    "mesh": _mesh,
}
