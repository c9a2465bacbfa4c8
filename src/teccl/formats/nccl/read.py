"""NCCL and RCCL topology dumps (`NCCL_TOPO_DUMP_FILE`): XML, one machine each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from teccl._foreign import Element, read_xml
from teccl.errors import TopologyError
from teccl.formats.shared.cluster import Host, Nic, Wire, assign_nics, compose
from teccl.formats.shared.imports import Imported, ImportOptions
from teccl.formats.shared.pcie import PcieHop, is_connected, pcie_wires
from teccl.units import format_bandwidth, parse_bandwidth

MAX_GPUS = 1024
_GB = 10**9
# GB/s of one NVLink in one direction, as NCCL assumes it, from each compute capability on.
_NVLINK_RATES = ((60, "18"), (70, "20"), (86, "12"), (90, "20.6"), (100, "40.1"))
# The same for xGMI by the start of AMD's architecture name, with or without "gfx".
_XGMI_RATES = (("90a", "36"), ("910", "36"), ("94", "48"), ("90", "24"))
_NVSWITCH_CLASS = "0x068000"
# A PCIe 4.0 link of 16 lanes by NCCL's rule, for dumps that leave a link's speed out.
_DEFAULT_PCIE = parse_bandwidth("24GB/s")
# NICs below this share of the fastest one's rate serve storage or management.
_SLOW_NIC = Fraction(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    """A GPU of the dump and where it hangs: elements from the root down to its PCI device."""

    element: Element
    path: tuple[Element, ...]

    @property
    def busid(self) -> str:
        """Address of its PCI device."""
        return self.path[-1].attributes.get("busid", "").lower()


def read_topology(path: Path, options: ImportOptions) -> Imported:
    """Read a dump.

    Raises
    ------
    TopologyError
        If the file is damaged, is no dump, or leaves something open that no option fills in.
    """
    root = read_xml(path, TopologyError)
    if root.tag != "system":
        raise TopologyError(f"{path}: the root is <{root.tag[:40]}>; give an NCCL dump, <system>")
    hosts = {cpu.attributes.get("host_hash") for cpu in root.named("cpu")}
    if len(hosts) > 1:
        raise TopologyError(f"{path}: holds {len(hosts)} hosts; dump one machine and use --nodes")
    gpus = _find_gpus(root, path)
    notes: list[str] = []
    rate = _link_rate(gpus, options, path, notes)
    wires, switches = _nvlink_wires(gpus, rate, path, notes)
    if not is_connected(len(gpus), wires):
        more, names = pcie_wires(
            [_pci_chain(gpu, options) for gpu in gpus],
            first_switch=len(gpus) + len(switches),
            default=options.pcie_bandwidth or _DEFAULT_PCIE,
            socket=options.socket_bandwidth,
            notes=notes,
        )
        wires, switches = [*wires, *more], [*switches, *names]
    machine = Host(
        name=re.sub(r"[^\w.-]", "-", path.name.split(".")[0]).strip("-") or "nccl",
        num_gpus=len(gpus),
        switches=tuple(switches),
        wires=tuple(wires),
        nics=_find_nics(root, gpus, notes) if (options.nodes or 1) > 1 else (),
    )
    return compose(machine, options, notes)


def _walk(element: Element, path: tuple[Element, ...] = ()) -> Iterator[tuple[Element, ...]]:
    """Yield every element with its ancestors, in document order."""
    here = (*path, element)
    yield here
    for child in element.children:
        yield from _walk(child, here)


def _find_gpus(root: Element, path: Path) -> list[_Gpu]:
    """Return the GPUs in order of device number."""
    gpus = [
        _Gpu(element=chain[-1], path=chain[:-1]) for chain in _walk(root) if chain[-1].tag == "gpu"
    ]
    if not 1 <= len(gpus) <= MAX_GPUS:
        raise TopologyError(f"{path}: holds {len(gpus)} GPUs; a machine has 1 to {MAX_GPUS}")
    gpus.sort(key=lambda gpu: _number(gpu.element, "dev", path, default=0))
    seen: set[str] = set()
    for gpu in gpus:
        if not gpu.busid or gpu.busid in seen:
            what = f"repeats busid {gpu.busid[:40]!r}" if gpu.busid else "is in no <pci> with busid"
            raise TopologyError(f"{path}: the gpu at line {gpu.element.line} {what}; mend the dump")
        seen.add(gpu.busid)
    return gpus


def _number(element: Element, key: str, path: Path, *, default: int | None = None) -> int:
    text = element.attributes.get(key)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
        raise TopologyError(
            f"{path}: {key} of <{element.tag[:40]}> at line {element.line} is "
            f"{(text or 'missing')[:40]!r}; give a whole number"
        )
    return int(text)


def _link_rate(
    gpus: Sequence[_Gpu], options: ImportOptions, path: Path, notes: list[str]
) -> Fraction:
    """Return bytes per second of one NVLink or xGMI link."""
    has_links = any(gpu.element.children for gpu in gpus)
    if options.link_bandwidth is not None or not has_links:
        return options.link_bandwidth or Fraction(0)
    first = gpus[0].element.attributes
    is_amd = "gcn" in first or "arch" in first
    if is_amd:
        model = first.get("gcn") or first.get("arch", "")
        stem = model.lower().removeprefix("gfx")
        found = next((rate for start, rate in _XGMI_RATES if stem.startswith(start)), None)
    else:
        capability = _number(gpus[0].element, "sm", path, default=0)
        model = f"sm {capability}"
        found = next((r for low, r in reversed(_NVLINK_RATES) if capability >= low), None)
    if found is None:
        raise TopologyError(
            f"{path}: no rate is known for the links of a GPU of {model[:40]!r}; "
            "give --link-bandwidth, the rate of one link in one direction"
        )
    rate = Fraction(found) * _GB
    notes.append(
        f"one {'xGMI' if is_amd else 'NVLink'} link of {model[:40]} carries "
        f"{format_bandwidth(rate)} a direction, the tuned figure NCCL uses, below the data sheet's "
        "(--link-bandwidth)"
    )
    return rate


def _nvlink_wires(
    gpus: Sequence[_Gpu], rate: Fraction, path: Path, notes: list[str]
) -> tuple[list[Wire], list[str]]:
    """Return links between GPUs, read at each one's own end, and through the NVSwitch."""
    index = {gpu.busid: i for i, gpu in enumerate(gpus)}
    counts: dict[tuple[int, int], int] = {}
    skipped = 0
    for i, gpu in enumerate(gpus):
        for link in gpu.element.named("nvlink", "xgmi"):
            target = link.attributes.get("target", "").lower()
            count = _number(link, "count", path, default=1)
            if not 1 <= count <= 1000:
                raise TopologyError(
                    f"{path}: count of <{link.tag}> at line {link.line} is {count}; give 1 to 1000"
                )
            if link.attributes.get("tclass", "").lower() == _NVSWITCH_CLASS:
                other = len(gpus)
            elif target in index and index[target] != i:
                other = index[target]
            else:
                skipped += 1
                continue
            counts[i, other] = counts.get((i, other), 0) + count
    ports = {i: n for (i, other), n in counts.items() if other == len(gpus)}
    counts |= {(len(gpus), i): n for i, n in ports.items()}
    if ports:
        notes.append("all NVSwitches of the machine are one switch; a GPU's links to them add up")
    if skipped:
        notes.append(f"links that lead to no GPU of the dump are left out: {skipped}")
    wires = [Wire(src=i, dst=j, bandwidth=n * rate) for (i, j), n in sorted(counts.items())]
    return wires, ["nvswitch"] if ports else []


def _pci_chain(gpu: _Gpu, options: ImportOptions) -> list[PcieHop]:
    """Return the devices from the GPU's processor down to the GPU's own."""
    return [
        PcieHop(key=id(element), rate=options.pcie_bandwidth or _pci_rate(element))
        for element in gpu.path[1:]
    ]


def _pci_rate(element: Element) -> Fraction | None:
    """Return bytes per second of a PCI device's link, None where the dump does not say."""
    speed = re.match(r"(\d+(?:\.\d+)?) ?GT/s", element.attributes.get("link_speed", ""), re.ASCII)
    width = element.attributes.get("link_width", "")
    if speed is None or not re.fullmatch(r"\d{1,3}", width, re.ASCII) or not int(width):
        return None
    lanes = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
    value = lanes.get(speed[1].removesuffix(".0"))
    return None if value is None else Fraction(int(width) * value, 80) * _GB


def _find_nics(root: Element, gpus: Sequence[_Gpu], notes: list[str]) -> tuple[Nic, ...]:
    """Return the network cards with the GPUs that are nearest to them in the PCI tree."""
    chains = [chain for chain in _walk(root) if chain[-1].tag == "net"]
    rates = [_net_rate(chain[-1]) for chain in chains]
    fastest = max((rate for rate in rates if rate is not None), default=None)
    kept = [
        (chain, rate)
        for chain, rate in zip(chains, rates, strict=True)
        if fastest is None or (rate is not None and rate >= _SLOW_NIC * fastest)
    ]
    if len(kept) > MAX_GPUS:
        raise TopologyError(f"the dump holds {len(kept)} NICs; a machine has up to {MAX_GPUS}")
    if len(kept) < len(chains):
        left_out = len(chains) - len(kept)
        notes.append(f"NICs below half the fastest one's rate are left out: {left_out}")
    distances = [[-_common(chain, gpu.path) for gpu in gpus] for chain, _ in kept]
    users = assign_nics(len(gpus), distances)
    if kept:
        notes.append("each GPU sends through the NIC nearest to it in the PCI tree")
    return tuple(Nic(gpus=u, bandwidth=rate) for u, (_, rate) in zip(users, kept, strict=True))


def _net_rate(net: Element) -> Fraction | None:
    """Return bytes per second of a `net`, whose speed is in Mbit/s."""
    text = net.attributes.get("speed", "")
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not int(text):
        return None
    return Fraction(int(text) * 10**6, 8)


def _common(one: Sequence[Element], other: Sequence[Element]) -> int:
    """Return the number of ancestors that two elements share."""
    same = 0
    for a, b in zip(one, other, strict=False):
        if a is not b:
            break
        same += 1
    return same
