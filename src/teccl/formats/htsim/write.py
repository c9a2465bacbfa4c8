"""htsim's topology text, for networks of two tiers: leaves with GPUs, and spines above all."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from teccl.errors import ExportError
from teccl.formats.shared.exports import Export, OutputFile
from teccl.topology import Link, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """What the file states: how many of what, and the links of each tier."""

    num_leaves: int
    num_spines: int
    gpus_per_leaf: int
    bundle: int
    lower: Link
    upper: Link


def render_topology(topology: Topology, path: Path) -> Export:
    """Make the topology file of a leaf-spine network.

    Raises
    ------
    ExportError
        If the topology is another network.
    """
    tree = _tree_of(topology)
    return Export(
        target="htsim",
        files=(OutputFile(path=path, content=_text(topology, tree)),),
        facts={"gpus": topology.num_gpus, "leaves": tree.num_leaves, "spines": tree.num_spines},
        notes=("queues and their sizes are htsim's defaults",),
    )


def _text(topology: Topology, tree: _Tree) -> str:
    return "\n".join(
        (
            f"Nodes {topology.num_gpus}",
            "Tiers 2",
            f"Podsize {topology.num_gpus}",
            "",
            "Tier 0",
            *_speed(tree.lower),
            f"Radix_Down {tree.gpus_per_leaf}",
            f"Radix_Up {tree.num_spines * tree.bundle}",
            "",
            "Tier 1",
            *_speed(tree.upper),
            f"Radix_Down {tree.num_leaves * tree.bundle}",
            f"Bundle {tree.bundle}",
            "",
        )
    )


def _speed(link: Link) -> tuple[str, str]:
    gigabits, nanoseconds = link.bandwidth * 8 / 10**9, link.alpha * 10**9
    if gigabits.denominator != 1 or nanoseconds.denominator != 1:
        raise ExportError(
            f"htsim: a link of {float(gigabits):g} Gb/s and {float(nanoseconds):g} ns; the format "
            "has whole numbers only, so round them in the topology"
        )
    return f"Downlink_speed_Gbps {gigabits}", f"Downlink_Latency_ns {nanoseconds}"


def _tree_of(topology: Topology) -> _Tree:
    """Recognise leaves, which have GPUs, and spines, each linked equally to every leaf."""
    is_switch = topology.is_switch.tolist()
    up: dict[int, list[Link]] = {}
    between: Counter[tuple[int, int]] = Counter()
    kinds: dict[bool, set[Link]] = {True: set(), False: set()}
    for link in topology.links:
        low = not (is_switch[link.src] and is_switch[link.dst])
        kinds[low].add(replace(link, src=0, dst=1))
        if not is_switch[link.src]:
            up.setdefault(link.src, []).append(link)
        elif not low or not is_switch[link.dst]:
            between[link.src, link.dst] += 1
    leaves = [up[gpu][0].dst if len(up.get(gpu, ())) == 1 else -1 for gpu in topology.gpus.tolist()]
    order = list(dict.fromkeys(leaves))
    share = len(leaves) // max(1, len(order))
    spines = [i for i, switch in enumerate(is_switch) if switch and i not in set(order)]
    counts = {between[a, b] for leaf in order for s in spines for a, b in ((leaf, s), (s, leaf))}
    expected = len(leaves) * 2 + len(order) * len(spines) * 2 * max(counts, default=0)
    regular = (
        all(leaf >= 0 and is_switch[leaf] for leaf in order)
        and leaves == [leaf for leaf in order for _ in range(share)]
        and all(between[leaf, gpu] == 1 for gpu, leaf in zip(topology.gpus, leaves, strict=True))
        and len(counts) == 1
        and len(kinds[True]) == len(kinds[False]) == 1
        and expected == topology.num_links
        and not any(link.shares or link.profile or link.overhead for link in topology.links)
    )
    if not regular:
        raise ExportError(
            f"htsim: {topology.name} is no leaf-spine network with equal leaves and equal spines, "
            "GPUs of a leaf one after the other; htsim's text can describe trees only"
        )
    return _Tree(
        num_leaves=len(order),
        num_spines=len(spines),
        gpus_per_leaf=share,
        bundle=counts.pop(),
        lower=up[int(topology.gpus[0])][0],
        upper=next(i for i in topology.links if is_switch[i.src] and is_switch[i.dst]),
    )
