"""Tables: what compiled code reads, whole numbers in arrays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

# Columns of `Legs.leg`.
WAY, PARENT = 0, 1


class Fabric(NamedTuple):
    """Passages between GPUs and what they hold; nothing in it depends on a demand.

    Parameters
    ----------
    way_start, links
        CSR list of the links of each passage, first to last.
    kind, alpha
        Of each link: the kind that says how long it is held, and its latency.
    res_start, res
        CSR list of the resources that each link holds.
    """

    way_start: IntArray
    links: IntArray
    kind: IntArray
    alpha: IntArray
    res_start: IntArray
    res: IntArray


class Legs(NamedTuple):
    """Legs of all chunks, those of a chunk one after another, parents before children.

    Parameters
    ----------
    leg
        Passage and parent of each leg, -1 where the chunk starts.
    job
        Chunk that each leg carries.
    size
        Which of the sizes each chunk has.
    ready
        From when each chunk may leave its source; in mirrored time nothing waits.
    """

    leg: IntArray
    job: IntArray
    size: IntArray
    ready: IntArray


class Choices(NamedTuple):
    """Routes between GPUs, by rank, from which chunks choose.

    Parameters
    ----------
    pair_start
        Where the routes of each pair (source times GPUs plus destination) begin.
    route_start, ways
        CSR list of the passages of each route.
    way_begin, way_end
        Ranks at the ends of each passage.
    fan_start, fan
        CSR list of the passages that leave each GPU.
    num_gpus
        Number of GPUs.
    """

    pair_start: IntArray
    route_start: IntArray
    ways: IntArray
    way_begin: IntArray
    way_end: IntArray
    fan_start: IntArray
    fan: IntArray
    num_gpus: int


class Wanted(NamedTuple):
    """Who has and who wants each chunk, by rank.

    Parameters
    ----------
    source, size
        Of each chunk: the rank that holds it, and which of the sizes it has.
    start, ends
        CSR list of the ranks that want it.
    """

    source: IntArray
    size: IntArray
    start: IntArray
    ends: IntArray
