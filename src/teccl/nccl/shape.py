"""Shape: what NCCL's cost model knows of a machine, and how it follows from a topology."""

from dataclasses import dataclass

from teccl.errors import InputError
from teccl.nccl.constants import NVLINK_LINE_RATE, NVLINK_RATE, Generation, Medium
from teccl.topology import Topology

# Channels of a communicator where nothing says otherwise: what logs of H100 clusters show
# (for example NVIDIA/nccl issue 1453).
CHANNELS = 16
# GB/s of NVLink in each direction of the GPUs that vendors sell, by data sheet.
_SOLD = {
    125.0: Generation.VOLTA,
    150.0: Generation.VOLTA,
    300.0: Generation.AMPERE,
    400.0: Generation.AMPERE,
    200.0: Generation.HOPPER,
    450.0: Generation.HOPPER,
    900.0: Generation.BLACKWELL,
}
_NEAR = 0.002
# From these GPUs on NCCL also tries its plainer trees, and on several nodes logs show that it ends
# with them (NVIDIA/nccl issues 1453 and 1154, H100 and H800; Blackwell alike, unconfirmed).
_PLAIN_TREES = (Generation.HOPPER, Generation.BLACKWELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A machine as the cost model sees it.

    Parameters
    ----------
    ranks, nodes
        GPUs, and the nodes they are spread over evenly.
    generation
        Of the GPUs.
    intra_gbps
        What a ring or tree moves out of a GPU within its node, in all channels together.
    inter_gbps
        What all network cards of a node move together; 0 on one node.
    channels
        Rings or trees side by side.
    medium
        NVLink or PCI within a node.
    cpu
        Vendor of the processors, ``intel`` or ``amd``.
    nvls, collnet
        Whether switches within a node, and beyond it, add up.
    plain_trees
        Whether the search for trees ended with the pattern that NCCL counts with 0.85.
    """

    ranks: int
    nodes: int
    generation: Generation
    intra_gbps: float
    inter_gbps: float = 0.0
    channels: int = CHANNELS
    medium: Medium = Medium.NVLINK
    cpu: str = "intel"
    nvls: bool = False
    collnet: bool = False
    plain_trees: bool = False

    @property
    def per_node(self) -> int:
        """GPUs of a node."""
        return self.ranks // self.nodes

    @property
    def place(self) -> int:
        """Column of the tables: one node, two, or more."""
        return min(self.nodes, 3) - 1


def shape_of(
    topology: Topology, *, generation: Generation | None = None, channels: int = CHANNELS
) -> Shape:
    """Read a machine from a topology whose groups are nodes.

    NVLink counts with the rate that NCCL assumes of it, network cards with theirs.

    Raises
    ------
    InputError
        If nodes differ in size, or the GPUs' generation does not follow from their links.
    """
    members: dict[str | None, list[int]] = {}
    for gpu in topology.gpus.tolist():
        members.setdefault(topology.nodes[gpu].group, []).append(gpu)
    sizes = {len(gpus) for gpus in members.values()}
    if len(sizes) > 1 or topology.num_gpus < 2:
        raise InputError(f"{topology!r} is not made of nodes of one size, as NCCL's model is")
    inside, outside = _rates(topology)
    intra = min(inside[gpu] for gpu in topology.gpus.tolist())
    inter = min(sum(outside[gpu] for gpu in gpus) for gpus in members.values())
    if len(members) > 1 and not inter:
        raise InputError(f"{topology!r} has a node without a way out; nothing to model")
    kind, rate = _nvlink(intra, generation, topology)
    return Shape(
        ranks=topology.num_gpus,
        nodes=len(members),
        generation=kind,
        intra_gbps=rate,
        inter_gbps=inter if len(members) > 1 else 0.0,
        channels=channels,
        nvls=any(node.reduce and node.group in members for node in topology.nodes),
        collnet=any(node.reduce and node.group not in members for node in topology.nodes),
        plain_trees=len(members) > 1 and kind in _PLAIN_TREES,
    )


def _rates(topology: Topology) -> tuple[dict[int, float], dict[int, float]]:
    """GB/s out of each GPU within its group and beyond, shared capacities counted once."""
    inside = dict.fromkeys(topology.gpus.tolist(), 0.0)
    outside = dict(inside)
    users: dict[tuple[str, ...], int] = {}
    for link in topology.links:
        if link.shares:
            users[link.shares] = users.get(link.shares, 0) + 1
    for link in topology.links:
        if link.src not in inside:
            continue
        same = topology.nodes[link.src].group == topology.nodes[link.dst].group
        side = inside if same else outside
        side[link.src] += float(topology.rate(link)) / 1e9 / users.get(link.shares, 1)
    return inside, outside


def _nvlink(
    rate: float, generation: Generation | None, topology: Topology
) -> tuple[Generation, float]:
    """The generation, and what NCCL takes the links to move."""
    for sold, kind in _SOLD.items():
        part = NVLINK_RATE[kind] / NVLINK_LINE_RATE[kind]
        if generation not in (None, kind):
            continue
        if abs(rate / sold - 1) < _NEAR:
            return kind, rate * part
        # Presets have effective rates from Ampere on; 100 GB/s are more often no NVLinks of a V100.
        if kind is not Generation.VOLTA and abs(rate / (sold * part) - 1) < _NEAR:
            return kind, rate
    if generation is None:
        raise InputError(
            f"{topology!r}: {rate:.4g} GB/s within a node is no NVLink that NCCL's model knows; "
            "say which with --gpu volta, ampere, hopper or blackwell"
        )
    return generation, rate
