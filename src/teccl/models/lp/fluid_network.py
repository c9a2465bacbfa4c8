"""FluidNetwork: commodities, arcs and places of the linear program, on a grid without kappa."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from teccl.errors import MethodError
from teccl.keywords import SwitchMode, Transit
from teccl.models.milp.arcs import NEVER, arcs_of
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidNetwork:
    """What flows where; times are epochs, amounts chunks.

    Parameters
    ----------
    ways
        Links of each arc: one, or all of a hyper-edge's.
    src, dst, delay
        Ends of each arc, and epochs from sending to being usable.
    use_arc, use_place, use_weight
        What a chunk on an arc takes of a place: links first, then shared capacities.
    limits
        By place, (first epoch, chunks per epoch) of each step of its rate.
    shift
        By arc, epochs by which whatever leaves a switch follows what leaves a GPU; None if ways
        into some switch differ in that.
    holds, ready
        By commodity and node, whether its data starts there, and from which epoch on.
    demand, exact_demand
        By commodity and node, chunks that are wanted there.
    chunks
        By (commodity, node), the problem's chunks to be delivered.
    first, after
        By commodity and node, earliest epoch there, and epochs on to the nearest destination.
    worthwhile
        By commodity and arc, whether the arc leads anywhere new.
    buffer
        Received chunks that may wait at a GPU, None for any number.
    """

    problem: Problem = field(repr=False)
    grid: TimeGrid = field(repr=False)
    ways: tuple[tuple[int, ...], ...]
    src: IntArray
    dst: IntArray
    delay: IntArray
    use_arc: IntArray
    use_place: IntArray
    use_weight: FloatArray
    exact_weight: tuple[Fraction, ...]
    limits: tuple[tuple[tuple[int, Fraction], ...], ...]
    shift: IntArray | None
    is_switch: BoolArray
    holds: BoolArray
    ready: IntArray
    demand: FloatArray
    exact_demand: dict[tuple[int, int], Fraction]
    chunks: dict[tuple[int, int], list[int]]
    tenant: IntArray
    first: IntArray
    after: IntArray
    worthwhile: BoolArray
    buffer: int | None

    def __len__(self) -> int:
        return len(self.ways)

    @property
    def num_nodes(self) -> int:
        """GPUs and switches."""
        return len(self.is_switch)

    @property
    def num_places(self) -> int:
        """Links and shared capacities."""
        return len(self.limits)

    @property
    def num_links(self) -> IntArray:
        """Links of each arc."""
        return np.array([len(way) for way in self.ways], dtype=np.int64)

    @property
    def starts(self) -> IntArray:
        """Epochs in which some data becomes ready."""
        return np.unique(self.ready[self.holds])

    @property
    def priority(self) -> FloatArray:
        """Weight of each commodity's tenant."""
        tenants = self.problem.demand.tenants
        return np.array([float(tenants[t].priority) for t in self.tenant])

    @property
    def least_horizon(self) -> int:
        """Epochs before which some destination cannot have anything."""
        return int(self.first[self.demand > 0].max(initial=0))

    def place_shift(self, shift: IntArray) -> IntArray:
        """By place, the shift of the arcs that use it."""
        table = np.zeros(self.num_places, dtype=np.int64)
        table[self.use_place] = shift[self.use_arc]
        return table

    def limit_at(self, place: int, epoch: int) -> Fraction:
        """Chunks that a place carries in an epoch."""
        return next(limit for start, limit in reversed(self.limits[place]) if start <= epoch)

    def slot_limits(self, bounds: IntArray, shift: IntArray) -> FloatArray:
        """By place and slot, chunks that it carries: the lowest rate within, all the time."""
        lengths = np.diff(bounds)
        shifts = self.place_shift(shift)
        table = np.empty((self.num_places, len(lengths)))
        for place, steps in enumerate(self.limits):
            if len(steps) == 1:
                table[place] = float(steps[0][1]) * lengths
                continue
            begin, end = bounds[:-1] + shifts[place], bounds[1:] + shifts[place]
            starts = np.array([start for start, _ in steps])
            rates = np.array([float(limit) for _, limit in steps])
            low = np.searchsorted(starts, begin, side="right") - 1
            high = np.searchsorted(starts, end - 1, side="right") - 1
            lowest = [rates[a : b + 1].min() for a, b in zip(low, high, strict=True)]
            table[place] = np.array(lowest) * lengths
        return table


def fluid_network(problem: Problem, grid: TimeGrid) -> FluidNetwork:
    """Read a problem whose destinations each want their own data.

    Raises
    ------
    MethodError
        If copies or reductions would help, which the linear program cannot express.
    """
    _check_demand(problem)
    arcs = _Arcs.of(problem, grid)
    commodities = _Commodities.of(problem, grid)
    way = _distances(problem.topology.num_nodes, arcs)
    holds, wanted = commodities.holds, commodities.demand > 0
    first = _least(np.where(holds, commodities.ready, NEVER), way)
    after = _least(np.where(wanted, 0, NEVER), way.T)
    own = holds & (commodities.ready == 0)
    return FluidNetwork(
        problem=problem,
        grid=grid,
        ways=arcs.ways,
        src=arcs.src,
        dst=arcs.dst,
        delay=arcs.delay,
        use_arc=np.array([use[0] for use in arcs.uses], dtype=np.int64),
        use_place=np.array([use[1] for use in arcs.uses], dtype=np.int64),
        use_weight=np.array([float(use[2]) for use in arcs.uses]),
        exact_weight=tuple(use[2] for use in arcs.uses),
        limits=_limits(problem, grid),
        shift=_shifts(problem, arcs),
        is_switch=problem.topology.is_switch,
        holds=holds,
        ready=commodities.ready,
        demand=commodities.demand,
        exact_demand=commodities.exact,
        chunks=commodities.chunks,
        tenant=commodities.tenant,
        first=first,
        after=after,
        worthwhile=~own[:, arcs.dst] & (after[:, arcs.dst] < NEVER),
        buffer=problem.buffer,
    )


def _check_demand(problem: Problem) -> None:
    table = problem.chunks
    if problem.topology.has_overheads:
        raise MethodError(
            "method lp moves fluid data, which has no number of transfers to pay an overhead for; "
            "use milp, astar or auto, or --overhead 0"
        )
    if table.reduce.any():
        raise MethodError(
            f"method lp moves data and cannot reduce it, as {problem.demand.title} asks; "
            "use auto or construct"
        )
    if not problem.copy:
        return
    for source, wanted in np.unique(
        np.stack([table.source_set, table.destination_set], axis=1), axis=0
    ):
        if len(np.setdiff1d(table.sets[wanted], table.sets[source])) > 1:
            raise MethodError(
                f"method lp makes no copies, and {problem.demand.title} sends the same data to "
                "several destinations; use milp, astar or auto, or add --no-copy"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arcs:
    ways: tuple[tuple[int, ...], ...]
    src: IntArray
    dst: IntArray
    delay: IntArray
    uses: list[tuple[int, int, Fraction]]

    @staticmethod
    def of(problem: Problem, grid: TimeGrid) -> "_Arcs":
        """Links, except where circuits have to be told apart."""
        topology = problem.topology
        cut = problem.transit is Transit.CUT_THROUGH
        hyper = problem.switch is SwitchMode.HYPER_EDGE
        circuits = topology.num_switches > 0 and hyper
        if cut and not circuits:
            _check_circuits(problem)
        ways: tuple[tuple[int, ...], ...] = tuple((e,) for e in range(topology.num_links))
        if circuits:
            plain = np.zeros(topology.num_nodes, dtype=bool)
            ways = arcs_of(problem, grid, 1, plain).ways
        src = np.array([topology.link_src[way[0]] for way in ways], dtype=np.int64)
        dst = np.array([topology.link_dst[way[-1]] for way in ways], dtype=np.int64)
        delay = [_delay(grid, way, hyper=hyper) for way in ways]
        if cut and not circuits:
            # The time to send is paid once for a circuit, where it ends.
            delay = [d - int(topology.is_switch[n]) for d, n in zip(delay, dst, strict=True)]
        return _Arcs(
            ways=ways,
            src=src,
            dst=dst,
            delay=np.array(delay, dtype=np.int64),
            uses=_uses(problem, ways, hyper=hyper),
        )


def _check_circuits(problem: Problem) -> None:
    """Refuse circuits that might hold a shared capacity twice, which rates cannot see."""
    topology = problem.topology
    is_switch = topology.is_switch
    into = {name for link in topology.links if is_switch[link.dst] for name in link.shares}
    away = {name for link in topology.links if is_switch[link.src] for name in link.shares}
    if into & away:
        raise MethodError(
            f"method lp cannot keep circuits from holding {sorted(into & away)[0]} twice; "
            "use --transit store-and-forward or --method milp"
        )


def _delay(grid: TimeGrid, way: tuple[int, ...], *, hyper: bool) -> int:
    links = grid.problem.topology.links
    if hyper:
        return 1 + grid.epochs_of_latency(sum((links[e].alpha for e in way), Fraction(0)))
    return 1 + sum(int(grid.delta[e]) for e in way)


def _uses(
    problem: Problem, ways: tuple[tuple[int, ...], ...], *, hyper: bool
) -> list[tuple[int, int, Fraction]]:
    """Arc, place and weight; a port of a hyper-edge is held at the pace of the slower port."""
    topology = problem.topology
    rates, number = topology.rates, {name: i for i, name in enumerate(topology.shared)}
    uses = []
    for arc, way in enumerate(ways):
        slowest = min(rates[e] for e in way)
        for e in way:
            weight = rates[e] / slowest if hyper else Fraction(1)
            uses.append((arc, e, weight))
            uses += [
                (arc, topology.num_links + number[name], Fraction(1))
                for name in topology.links[e].shares
            ]
    return uses


def _limits(problem: Problem, grid: TimeGrid) -> tuple[tuple[tuple[int, Fraction], ...], ...]:
    """Chunks per epoch of every place over time."""
    topology, scale = problem.topology, grid.epoch / problem.chunk_bytes
    limits = []
    for link in topology.links:
        steps: dict[int, Fraction] = {}
        for start, rate in topology.rate_steps(link):
            steps[-(-start // grid.epoch)] = rate * scale
        limits.append(tuple(sorted(steps.items())))
    limits += [((0, rate * scale),) for rate in topology.shared.values()]
    return tuple(limits)


def _shifts(problem: Problem, arcs: _Arcs) -> IntArray | None:
    """Epochs from leaving a GPU to leaving each arc's tail, None if that depends on the way."""
    is_switch = problem.topology.is_switch
    node = np.where(is_switch, -1, 0)
    for _ in range(int(is_switch.sum()) + 1):
        known = node[arcs.src] >= 0
        into = known & is_switch[arcs.dst]
        if not into.any():
            break
        reached = node[arcs.src[into]] + arcs.delay[into]
        found = node.copy()
        found[arcs.dst[into]] = reached
        if (found[arcs.dst[into]] != reached).any():
            return None
        if np.array_equal(found, node):
            break
        node = found
    else:
        return None
    return np.maximum(0, node[arcs.src])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commodities:
    holds: BoolArray
    ready: IntArray
    demand: FloatArray
    exact: dict[tuple[int, int], Fraction]
    chunks: dict[tuple[int, int], list[int]]
    tenant: IntArray

    @staticmethod
    def of(problem: Problem, grid: TimeGrid) -> "_Commodities":
        """Gather chunks of one tenant with the same holders."""
        table, nodes = problem.chunks, problem.topology.num_nodes
        keys = np.stack([table.source_set, table.tenant], axis=1)
        kinds, number = np.unique(keys, axis=0, return_inverse=True)
        exact: dict[tuple[int, int], Fraction] = {}
        chunks: dict[tuple[int, int], list[int]] = {}
        for chunk, s in enumerate(number.ravel().tolist()):
            held = set(table.sources(chunk).tolist())
            for node in table.destinations(chunk).tolist():
                if node not in held:
                    amount = table.size(chunk) / problem.chunk_bytes
                    exact[s, node] = exact.get((s, node), Fraction(0)) + amount
                    chunks.setdefault((s, node), []).append(chunk)
        holds = np.zeros((len(kinds), nodes), dtype=bool)
        ready = np.zeros((len(kinds), nodes), dtype=np.int64)
        for s, (source, tenant) in enumerate(kinds):
            holds[s, table.sets[source]] = True
            for rank, time in problem.demand.tenants[tenant].ready.items():
                ready[s, problem.topology.gpus[rank]] = grid.ready_epoch(time)
        demand = np.zeros((len(kinds), nodes))
        for place, amount in exact.items():
            demand[place] = float(amount)
        return _Commodities(
            holds=holds,
            ready=ready,
            demand=demand,
            exact=exact,
            chunks=chunks,
            tenant=kinds[:, 1],
        )


def _distances(nodes: int, arcs: _Arcs) -> IntArray:
    # Links into switches may take no epoch at all, which graph libraries read as no link.
    way = np.full((nodes, nodes), NEVER)
    np.fill_diagonal(way, 0)
    np.minimum.at(way, (arcs.src, arcs.dst), arcs.delay)
    for i in range(nodes):
        way = np.minimum(way, way[:, i, None] + way[i])
    return np.minimum(way, NEVER)


def _least(start: IntArray, way: IntArray) -> IntArray:
    """Least of start[s, i] + way[i, j] over i, for each s and j."""
    found = np.full(start.shape, NEVER)
    for i in range(way.shape[0]):
        found = np.minimum(found, start[:, i, None] + way[i])
    return np.minimum(found, NEVER)
