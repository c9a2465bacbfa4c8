"""Finding: the symmetry of a topology whose ranks are in any order, as a fabric.

Colours tell at once where no group can act freely on the GPUs. Where one can, GPUs are laid out by
what the links say, and folded in that order, which keeps only shifts that map every node and link
onto an equal one.
"""

import numpy as np

from teccl._arrays import IntArray
from teccl.errors import TopologyError
from teccl.orbit.colours import is_symmetry, largest_order, refined
from teccl.orbit.fabric import MAX_ORBITS, Fabric
from teccl.orbit.folding import MAX_LISTED, fold, is_joined, is_plain
from teccl.orbit.layout import layouts
from teccl.topology import Topology


def find_fabric(topology: Topology, known: Fabric | None = None) -> Fabric:
    """Find the fabric with the largest group that some layout of the GPUs shows.

    Parameters
    ----------
    known
        The fabric that shifts of the ranks as they are give, which is kept unless a larger group
        is found.

    Raises
    ------
    TopologyError
        If the topology has what fabrics do not, or no group that acts freely on its GPUs is found.
    """
    if not is_plain(topology):
        raise TopologyError(
            f"{topology.name}: profiles, shared capacities and switches that reduce are not looked "
            "at for symmetries; plan it without orbits"
        )
    # Smaller groups leave more orbits of GPUs than a fabric has.
    least = -(-topology.num_gpus // MAX_ORBITS)
    colour = refined(topology, max(2, least))
    most = largest_order(topology, colour)
    if most == 1:
        raise TopologyError(
            f"{topology.name}: what links and switches are around gpus tells some apart from all "
            "others, so no symmetry moves every gpu; plan it without orbits"
        )
    if most < least:
        raise TopologyError(
            f"{topology.name}: no symmetry leaves {MAX_ORBITS} or fewer kinds of gpus; plan it "
            "without orbits"
        )
    if known is None:
        _check_order(topology, most)
    best = known
    for layout in layouts(topology, colour):
        if best is not None and _worth(best) >= (True, most):
            break
        found = fold(topology, layout)
        if found is None or not _is_verified(topology, found):
            continue
        if best is None or _worth(found) > _worth(best):
            best = found
        if is_joined(found):
            break
    if best is None:
        raise TopologyError(
            f"{topology.name}: no shift of ranks maps the topology onto itself and moves every "
            "gpu, nor is another symmetry found; plan it without orbits"
        )
    if best is not known:
        _check_order(topology, best.group.order)
    return best


def generators(topology: Topology, fabric: Fabric) -> list[IntArray]:
    """Where one shift along each axis of a fabric's group takes the nodes of its topology.

    Parameters
    ----------
    fabric
        Found in the topology, with the names that nodes have there.

    Examples
    --------
    >>> topology = Topology.parse("ring:gpus=4")
    >>> [move.tolist() for move in generators(topology, find_fabric(topology))]
    [[1, 2, 3, 0]]
    """
    every = np.arange(fabric.num_nodes)
    place = np.array([topology.find_node(fabric.node_name(i)) for i in every.tolist()])
    moves = []
    for stride in fabric.group.strides:
        move = np.empty_like(place)
        move[place] = place[fabric.moved_nodes(every, np.full(len(every), stride))]
        moves.append(move)
    return moves


def _is_verified(topology: Topology, fabric: Fabric) -> bool:
    """Whether every generator of a fabric's group maps the topology onto itself."""
    return all(is_symmetry(topology, move) for move in generators(topology, fabric))


def _check_order(topology: Topology, order: int) -> None:
    """Refuse groups so small that one chunk of each orbit is too much to list."""
    if topology.num_gpus**2 // order > MAX_LISTED:
        raise TopologyError(
            f"{topology.name}: a symmetry has {order} elements at most, too few for "
            f"{topology.num_gpus} gpus; plan it without orbits"
        )


def _worth(fabric: Fabric) -> tuple[bool, int]:
    """What fabrics are compared by: whether moving links join all GPUs, and the group's order."""
    return is_joined(fabric), fabric.group.order
