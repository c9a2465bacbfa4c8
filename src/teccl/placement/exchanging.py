"""Search: placements that pack groups into near GPUs, improved by exchanging ranks."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from teccl.demand import Demand
from teccl.errors import DemandError
from teccl.exchange import Planner
from teccl.exchange.passage_network import PassageNetwork
from teccl.placement.groups import IN_ORDER, Axis, FloatArray, IntArray, members, traffic_of
from teccl.topology import Topology

# Looks at a placement that exchanges of ranks may take, for each start.
LOOKS = 60_000
# Starts that are improved, the cheapest first.
STARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Ranks on GPUs, and what was measured of it.

    Parameters
    ----------
    topology, axes
        Where the ranks sit, and what they do.
    gpu
        GPU of each rank, counted in the topology's order.
    model_s, natural_model_s
        What was optimised: the weighted load of the fullest links, here and in natural order.
    finish_s, natural_finish_s
        What was measured: the weighted finish of verified schedules of all axes, one at a time.
    """

    topology: Topology
    axes: tuple[Axis, ...]
    gpu: tuple[int, ...]
    model_s: float
    natural_model_s: float
    finish_s: float
    natural_finish_s: float

    @property
    def gain(self) -> float:
        """Factor by which natural order is slower."""
        return self.natural_finish_s / self.finish_s


class Costs:
    """What placements cost on a network by the model of loads."""

    def __init__(
        self, network: PassageNetwork, matrices: list[IntArray], weights: list[float]
    ) -> None:
        ends = [np.nonzero(matrix) for matrix in matrices]
        seconds = np.array([float(1 / rate) for rate in network.topology.rates])
        self.routes, self.distance = _shortest(network, seconds)
        self._pairs = (
            np.concatenate([src for src, _ in ends]),
            np.concatenate([dst for _, dst in ends]),
            np.concatenate([m[e].astype(float) for m, e in zip(matrices, ends, strict=True)]),
            np.repeat(np.arange(len(ends)), [len(src) for src, _ in ends]),
            np.array(weights),
            network.fabric,
            network.choices,
            self.routes,
            seconds,
            np.empty(network.num_resources),
        )

    def __call__(self, gpu: IntArray) -> float:
        """Return the cost of a placement."""
        from teccl.placement.loads import cost_of

        return float(cost_of(gpu, *self._pairs))

    def improved(self, gpu: IntArray) -> tuple[float, IntArray]:
        """Return the cost and the placement after exchanges of two ranks."""
        from teccl.placement.loads import improve

        best = gpu.copy()
        return float(improve(best, *self._pairs, LOOKS)), best


def place(
    topology: Topology, axes: tuple[Axis, ...], *, demand: Demand | None = None, work: int = 0
) -> Placement:
    """Place ranks on GPUs so that the weighted finish of all axes' collectives is small.

    Placements are compared by the load of the fullest links when all groups of an axis run at the
    same time, each pair by its quickest route. The best few and natural order are then measured by
    verified schedules; what is returned is never slower than natural order by that measure.
    Nothing proves it optimal.

    Parameters
    ----------
    topology, axes
        Where to place, and what; axes have as many ranks as there are GPUs.
    demand
        Further traffic between ranks, counted like an axis of weight 1.
    work
        See `teccl.Planner.plan`, for each measured schedule.
    """
    count = prod(axis.size for axis in axes)
    if count != topology.num_gpus:
        raise DemandError(
            f"groups of {' x '.join(str(axis.size) for axis in axes)} are {count} ranks; "
            f"{topology.name} has {topology.num_gpus} GPUs, give groups of as many"
        )
    planner = Planner(topology)
    matrices = [traffic_of(axes, i) for i, axis in enumerate(axes) if axis.size > 1]
    weights = [axis.weight for axis in axes if axis.size > 1]
    if demand is not None:
        matrices.append(_bytes_of(demand, topology))
        weights.append(1.0)
    if not matrices:
        raise DemandError("groups of one rank exchange nothing; give a larger group or --demand")
    costs = Costs(planner.network(), matrices, weights)

    def measure(gpu: IntArray) -> float:
        pairs = zip(matrices, weights, strict=True)
        return sum(weight * _finish(planner, matrix, gpu, work) for matrix, weight in pairs)

    natural = np.arange(count)
    natural_finish = measure(natural)
    measured = [(natural_finish, 0, natural)]
    for number, gpu in enumerate(_candidates(costs, axes, is_named=demand is not None), start=1):
        measured.append((measure(gpu), number, gpu))
    finish, _, found = min(measured, key=lambda each: each[:2])
    return Placement(
        topology=topology,
        axes=axes,
        gpu=tuple(found.tolist()),
        model_s=costs(found),
        natural_model_s=costs(natural),
        finish_s=finish,
        natural_finish_s=natural_finish,
    )


def _candidates(costs: Costs, axes: tuple[Axis, ...], *, is_named: bool) -> list[IntArray]:
    """List the cheapest packed placements, plain and improved; symmetric ones once.

    A demand names ranks: then no two placements are symmetric.
    """

    def distinct(placements: list[IntArray]) -> list[IntArray]:
        keys = [tuple(gpu.tolist()) if is_named else _signature(gpu, axes) for gpu in placements]
        return list(dict(zip(reversed(keys), reversed(placements), strict=True)).values())

    natural = np.arange(len(costs.distance))
    packed = sorted(_packed(costs.distance, axes), key=costs)
    starts = sorted(distinct([natural, *packed]), key=costs)[:STARTS]
    improved = sorted((costs.improved(gpu) for gpu in starts), key=lambda each: each[0])
    return distinct([*starts, *(gpu for _, gpu in improved)])


def _signature(gpu: IntArray, axes: tuple[Axis, ...]) -> Hashable:
    """Who is with whom, or next to whom: placements that agree in this are symmetric."""
    return tuple(
        frozenset(_together(gpu[group].tolist(), axis) for group in members(axes, i))
        for i, axis in enumerate(axes)
    )


def _together(group: list[int], axis: Axis) -> Hashable:
    """Return GPUs of a group as it matters to its traffic; neighbours send both ways."""
    if axis.pattern in IN_ORDER:
        return tuple(min(group, group[::-1]))
    return frozenset(group)


def _packed(distance: FloatArray, axes: tuple[Axis, ...]) -> Iterator[IntArray]:
    """Yield placements in which groups of one axis after another are packed into near GPUs."""
    for order in permutations(range(len(axes))):
        blocks = [[gpu] for gpu in range(len(distance))]
        for axis in order:
            blocks = _joined(blocks, axes[axis], distance)
        # Coordinates of the packed sequence, the axis packed first varying fastest.
        shape = [axes[axis].size for axis in order][::-1]
        packed = np.array(blocks[0]).reshape(shape)
        placed = np.transpose(packed, [len(axes) - 1 - order.index(i) for i in range(len(axes))])
        yield placed.transpose().ravel()


def _joined(blocks: list[list[int]], axis: Axis, distance: FloatArray) -> list[list[int]]:
    """Join each first block that is left with the nearest ones: to all so far, or to the last."""
    left, joined = list(blocks), []
    while left:
        block = near_to = left.pop(0)
        for _ in range(axis.size - 1):
            away = [distance[np.ix_(near_to, other)].mean() for other in left]
            found = left.pop(int(np.argmin(away)))
            block = block + found
            near_to = found if axis.pattern in IN_ORDER else block
        joined.append(block)
    return joined


def _shortest(network: PassageNetwork, seconds: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the quickest route between each two GPUs, and its time for a byte."""
    fabric, choices, topology = network.fabric, network.choices, network.topology
    gpus = topology.num_gpus
    of_way = np.add.reduceat(seconds[fabric.links], fabric.way_start[:-1])
    of_route = np.add.reduceat(of_way[choices.ways], choices.route_start[:-1])
    best, distance = np.zeros((gpus, gpus), dtype=np.int64), np.zeros((gpus, gpus))
    for a, b in permutations(range(gpus), 2):
        low, high = choices.pair_start[a * gpus + b : a * gpus + b + 2]
        if low == high:
            names = [topology.nodes[topology.gpus[end]].name for end in (a, b)]
            raise DemandError(
                f"no way leads from {names[0]} to {names[1]}; place on GPUs that are joined"
            )
        best[a, b] = low + of_route[low:high].argmin()
        distance[a, b] = of_route[best[a, b]]
    return best, distance


def _finish(planner: Planner, matrix: IntArray, gpu: IntArray, work: int) -> float:
    """Seconds until a verified schedule has moved bytes between ranks that sit somewhere."""
    seated = np.zeros_like(matrix)
    seated[np.ix_(gpu, gpu)] = matrix
    return planner.plan(seated, work=work).finish_time_s


def _bytes_of(demand: Demand, topology: Topology) -> IntArray:
    """Bytes from rank to rank of a demand, from the first who has them."""
    matrix = np.zeros((topology.num_gpus, topology.num_gpus), dtype=np.int64)
    for tenant in demand.tenants:
        for block in tenant.blocks(topology.num_gpus):
            ends = [(a, b) for a in block.sources for b in block.destinations if a != b]
            for a, b in ends if block.reduce else [e for e in ends if e[0] == block.sources[0]]:
                matrix[a, b] += -(-block.size.numerator // block.size.denominator)
    if not matrix.any():
        raise DemandError("the demand moves no data between ranks; drop it")
    return matrix
