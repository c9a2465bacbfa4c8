"""Components and distances of small graphs in plain numpy.

Importing scipy takes longer than solving most problems of this size does, so that it is left to
graphs with more nodes than fit a dense matrix well.
"""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
HashArray = npt.NDArray[np.uint64]

MAX_DENSE_NODES = 160


def strong_components(num_nodes: int, src: IntArray, dst: IntArray) -> IntArray:
    """Label each node by its strongly connected component.

    Examples
    --------
    >>> strong_components(3, np.array([0, 1, 1]), np.array([1, 0, 2])).tolist()
    [0, 0, 1]
    """
    if num_nodes > MAX_DENSE_NODES:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        shape = (num_nodes, num_nodes)
        graph = coo_array((np.ones(len(src)), (src, dst)), shape=shape).tocsr()
        _, labels = connected_components(graph, directed=True, connection="strong")
        return np.asarray(labels, dtype=np.int64)
    # Sets of nodes as bits of a number: a product of matrices would occupy all cores.
    reach = [1 << node for node in range(num_nodes)]
    for a, b in set(zip(src.tolist(), dst.tolist(), strict=True)):
        reach[a] |= 1 << b
    for middle in range(num_nodes):
        through = reach[middle]
        reach = [ends | through if ends >> middle & 1 else ends for ends in reach]
    first = [
        next(a for a in range(b + 1) if reach[a] >> b & 1 and reach[b] >> a & 1)
        for b in range(num_nodes)
    ]
    return np.unique(np.array(first, dtype=np.int64), return_inverse=True)[1].astype(np.int64)


def least_sums(num_nodes: int, src: IntArray, dst: IntArray, weight: FloatArray) -> FloatArray:
    """All-pairs least sums of positive weights over arcs, infinite where there is no way.

    Examples
    --------
    >>> least_sums(2, np.array([0, 0]), np.array([1, 1]), np.array([3.0, 2.0])).tolist()
    [[0.0, 2.0], [inf, 0.0]]
    """
    order = np.lexsort((weight, dst, src))
    src, dst, weight = src[order], dst[order], weight[order]
    # Of parallel arcs the shortest counts.
    fresh = np.ones(len(src), dtype=bool)
    fresh[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    src, dst, weight = src[fresh], dst[fresh], weight[fresh]
    if num_nodes > MAX_DENSE_NODES:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import dijkstra

        graph = coo_array((weight, (src, dst)), shape=(num_nodes, num_nodes)).tocsr()
        return np.asarray(dijkstra(graph), dtype=np.float64)
    least = np.full((num_nodes, num_nodes), np.inf)
    least[src, dst] = weight
    np.fill_diagonal(least, 0)
    for k in range(num_nodes):
        np.minimum(least, least[:, k, None] + least[None, k], out=least)
    return least


def stable_colours(src: IntArray, dst: IntArray, kind: IntArray, colour: HashArray) -> HashArray:
    """Colour refinement: mix colours until nodes of one colour have alike arcs.

    Two nodes of one colour then have equally many arcs of each kind from and to nodes of each
    colour, if no two 64-bit hashes meet. Nodes of different graphs can be compared, too.

    Examples
    --------
    >>> line = np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])
    >>> colours = stable_colours(*line, np.array([0, 0, 0, 1]), np.zeros(4, dtype=np.uint64))
    >>> len(set(colours.tolist()))
    3
    """
    count = len(np.unique(colour))
    away, back = (_scrambled(2 * kind.astype(np.uint64) + np.uint64(k)) for k in (2**40, 2**41 + 1))
    while True:
        looks = _scrambled(colour)
        finer = _scrambled(looks)
        np.add.at(finer, src, _scrambled(away + looks[dst]))
        np.add.at(finer, dst, _scrambled(back + looks[src]))
        found = len(np.unique(finer))
        if found <= count:
            return colour
        colour, count = finer, found


def _scrambled(value: HashArray) -> HashArray:
    """Mix the bits of numbers (the finaliser of SplitMix64)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
