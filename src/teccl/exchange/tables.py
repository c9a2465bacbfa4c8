"""Tables: what compiled code reads, whole numbers in arrays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import concatenated_ranges

IntArray = npt.NDArray[np.int64]

# Columns of `Legs.leg`.
WAY, PARENT = 0, 1


class PassageTable(NamedTuple):
    """Passages between GPUs and what they hold; nothing in it depends on a demand.

    Parameters
    ----------
    way_start, links
        CSR list of the links of each passage, first to last.
    kind, alpha
        Of each link: the kind that says how long it is held, and its latency.
    res_start, res
        CSR list of the resources that each link holds.
    use_start, use_res, use_kind
        CSR list of the resources that each passage holds, and for how long as kind of link.
    """

    way_start: IntArray
    links: IntArray
    kind: IntArray
    alpha: IntArray
    res_start: IntArray
    res: IntArray
    use_start: IntArray
    use_res: IntArray
    use_kind: IntArray

    @staticmethod
    def of(
        way_start: IntArray,
        links: IntArray,
        *,
        kind: IntArray,
        alpha: IntArray,
        res_start: IntArray,
        res: IntArray,
    ) -> "PassageTable":
        """List what the links of each passage hold."""
        low, high = res_start[links], res_start[links + 1]
        use_start = np.concatenate([[0], np.cumsum(high - low)])[way_start]
        return PassageTable(
            way_start=way_start,
            links=links,
            kind=kind,
            alpha=alpha,
            res_start=res_start,
            res=res,
            use_start=use_start.astype(np.int64),
            use_res=res[concatenated_ranges(low, high)],
            use_kind=np.repeat(kind[links], high - low),
        )


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

    def depth(self) -> IntArray:
        """How many legs are before each on the way from the chunk's source."""
        parent = self.leg[:, PARENT]
        depth = np.zeros(len(parent), dtype=np.int64)
        above = parent
        while (above >= 0).any():
            depth += above >= 0
            above = np.where(above >= 0, parent[above], -1)
        return depth


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


class Care(NamedTuple):
    """How long to balance.

    Parameters
    ----------
    again
        Chunks that may choose their way again, in all passes after the first; more are counted
        for passes that gain nothing.
    patience
        Passages that may be looked at in a pass to search for ways beyond the known routes.
    """

    again: int
    patience: int


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
