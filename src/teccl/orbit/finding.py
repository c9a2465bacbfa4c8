"""Finding: the symmetry of a topology whose ranks are in any order, as a fabric.

Colours tell at once where no group can act freely on the GPUs. Where one can, GPUs are laid out by
what the links say, and folded in that order, which keeps only shifts that map every node and link
onto an equal one.
"""

from teccl.errors import TopologyError
from teccl.orbit.colours import largest_order, refined
from teccl.orbit.fabric import Fabric
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
    colour = refined(topology)
    most = largest_order(topology, colour)
    if most == 1:
        raise TopologyError(
            f"{topology.name}: links tell some gpus apart from all others, so no symmetry moves "
            "every gpu; plan it without orbits"
        )
    best = known
    for layout in layouts(topology, colour):
        if best is not None and _worth(best) >= (True, most):
            break
        found = fold(topology, layout)
        if found is not None and (best is None or _worth(found) > _worth(best)):
            best = found
        if found is not None and is_joined(found):
            break
    if best is None:
        raise TopologyError(
            f"{topology.name}: no shift of ranks maps the topology onto itself and moves every "
            "gpu, nor is another symmetry found; plan it without orbits"
        )
    if best is not known and best.num_gpus * len(best.gpu_orbits) > MAX_LISTED:
        raise TopologyError(
            f"{topology.name}: the largest symmetry found has {best.group.order} elements, too few "
            f"for {best.num_gpus} gpus; plan it without orbits"
        )
    return best


def _worth(fabric: Fabric) -> tuple[bool, int]:
    """What fabrics are compared by: whether moving links join all GPUs, and the group's order."""
    return is_joined(fabric), fabric.group.order
