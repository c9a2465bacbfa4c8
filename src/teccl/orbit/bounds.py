"""Bounds in the quotient: what has to enter one GPU, or one coset of GPUs, and how far it comes.

By symmetry what binds one GPU binds all, so one GPU of each orbit and one coset of each subgroup of
axes is looked at. Distances from all GPUs to one are found on the listed graph, which is no larger
than the schedule of one chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import ceil, lcm
from typing import NamedTuple

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints, new_run
from teccl.demand import Collective
from teccl.errors import MethodError
from teccl.orbit.damage import Damage
from teccl.orbit.fabric import LinkOrbit
from teccl.orbit.problem import FabricProblem
from teccl.schedule import BoundSummary
from teccl.units import PICOSECONDS, display_time

# Distances from which on chunks are counted; more of them never loosen a bound.
_THRESHOLDS = 256
# Bits of whole numbers that floats add up without rounding, but for one to spare.
_EXACT_BITS = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class _Network:
    """Every link of a fabric, in the direction in which chunks spread.

    Parameters
    ----------
    kinds
        Link orbits, and each slow link as one of its own.
    src, dst, orbit
        Ends of each link that is not down, and its kind.
    held, alpha
        By kind, whole picoseconds for which a chunk holds a link, and its latency.
    """

    problem: FabricProblem
    kinds: tuple[LinkOrbit, ...]
    src: IntArray
    dst: IntArray
    orbit: IntArray
    held: IntArray
    alpha: IntArray

    @staticmethod
    def of(problem: FabricProblem, damage: Damage | None = None) -> "_Network":
        """List the links; those of a ReduceScatter are reversed, for time runs backwards there."""
        fabric, size = problem.fabric, problem.chunk_bytes
        links = np.arange(fabric.num_links)
        kinds, orbit = list(fabric.links), fabric.link_orbit(links)
        if damage is not None:
            for link, rate in damage.rates.items():
                if rate is not None:
                    orbit[link] = len(kinds)
                    kinds.append(replace(fabric.link_at(link), bandwidth=rate))
            links = links[~damage.is_down(links)]
        src, dst = fabric.link_ends(links)
        if problem.collective is Collective.REDUCESCATTER:
            src, dst = dst, src
        # Bounds are rounded down, and so is all that they are made of.
        held = [int((link.overhead + size / fabric.rate(link)) * PICOSECONDS) for link in kinds]
        alpha = [int(link.alpha * PICOSECONDS) for link in kinds]
        return _Network(
            problem=problem,
            kinds=tuple(kinds),
            src=src,
            dst=dst,
            orbit=orbit[links],
            held=ints(held),
            alpha=ints(alpha),
        )

    def turned(self) -> "_Network":
        """Reverse all links."""
        return replace(self, src=self.dst, dst=self.src)

    def distances(self, nodes: IntArray, cost: IntArray) -> IntArray:
        """Least cost from every node to one of some, in picoseconds, -1 where no way leads there.

        Costs are by link orbit. Sums that floats do not hold exactly are rounded down.
        """
        found = self._least(nodes, cost)
        spare = max(0, int(found.max()).bit_length() - _EXACT_BITS)
        return self._least(nodes, cost >> spare) << spare if spare else found

    def _least(self, nodes: IntArray, cost: IntArray) -> IntArray:
        """The same, exact below 2 ** 53."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        count = self.problem.fabric.num_nodes
        weight = cost[self.orbit].astype(float)
        # Parallel links would be added up; the cheapest counts.
        order = np.lexsort((weight, self.src, self.dst))
        fresh = new_run(self.dst[order], self.src[order])
        kept = order[fresh]
        graph = csr_array((weight[kept], (self.dst[kept], self.src[kept])), shape=(count, count))
        found = dijkstra(graph, directed=True, indices=nodes, min_only=True)
        return np.where(np.isfinite(found), found, -1).astype(np.int64)

    def entering(self, inside: BoolArray) -> list["_Port"]:
        """Links that lead into a set of nodes, those of an orbit together."""
        found = np.flatnonzero(~inside[self.src] & inside[self.dst])
        counts = np.bincount(self.orbit[found], minlength=len(self.held)).tolist()
        fabric, size = self.problem.fabric, self.problem.chunk_bytes
        return [
            _Port(
                number=count,
                held=(kind.overhead + size / fabric.rate(kind)) * PICOSECONDS,
                alpha=kind.alpha * PICOSECONDS,
                rate=fabric.rate(kind) / PICOSECONDS,
            )
            for kind, count in zip(self.kinds, counts, strict=True)
            if count
        ]


class _Port(NamedTuple):
    """Equal links: how many, picoseconds that a chunk takes on one, latency, bytes a picosecond."""

    number: int
    held: Fraction
    alpha: Fraction
    rate: Fraction


class _Bound(NamedTuple):
    value: int
    certificate: str


def summarise(problem: FabricProblem, damage: Damage | None = None) -> BoundSummary:
    """Return the best bounds: for any chunking, and for the problem's chunks.

    What holds for the fabric holds for it with damage, too: links are gone or slower, so that less
    crosses and ways are longer. Besides, GPUs with damaged links and their cosets are looked at.

    Raises
    ------
    MethodError
        If some GPU has no way to or from another.
    """
    physical, whole = (_best(problem, damage, fluid=fluid) for fluid in (True, False))
    winner = whole if whole.value > physical.value else physical
    return BoundSummary(
        physical_ps=physical.value,
        chunk_ps=max(whole.value, physical.value),
        certificate=winner.certificate,
    )


def for_any_chunks(problem: FabricProblem, damage: Damage | None = None) -> BoundSummary:
    """Return the best bound for any chunking, with the certificate of that one."""
    found = _best(problem, damage, fluid=True)
    return BoundSummary(physical_ps=found.value, chunk_ps=None, certificate=found.certificate)


def _best(problem: FabricProblem, damage: Damage | None, *, fluid: bool) -> _Bound:
    """The best bound of all, for any chunking or for whole chunks."""
    bounds = [*_bounds(problem, fluid=fluid), *_around(problem, damage, fluid=fluid)]
    return max(bounds, key=lambda bound: bound.value)


def _bounds(problem: FabricProblem, *, fluid: bool) -> Iterator[_Bound]:
    """Yield bounds for any chunking, or for the problem's whole chunks."""
    network = _Network.of(problem)
    if problem.collective is Collective.ALLREDUCE:
        # Who has all sums everywhere has each at its owner, too.
        yield from _bounds(replace(problem, collective=Collective.REDUCESCATTER), fluid=fluid)
    else:
        for position in range(len(problem.fabric.gpu_orbits)):
            yield from _at_one_gpu(network, position, fluid=fluid)
    if problem.collective is Collective.ALLTOALL:
        yield _all_hops(network, fluid=fluid)
        for part in _halves(network):
            yield from _entering(network, [part], fluid=fluid)
    for parts in _partitions(network):
        yield from _entering(network, parts, fluid=fluid)


def _around(problem: FabricProblem, damage: Damage | None, *, fluid: bool) -> Iterator[_Bound]:
    """Yield bounds of GPUs with damaged links, and of the cosets that they belong to."""
    if damage is None:
        return
    collective = problem.collective
    if collective is Collective.ALLREDUCE:
        # Who has all sums everywhere has each at its owner, too, and got them from there.
        for half in (Collective.REDUCESCATTER, Collective.ALLGATHER):
            yield from _around(replace(problem, collective=half), damage, fluid=fluid)
    network = _Network.of(problem, damage)
    both_ways = collective in (Collective.ALLREDUCE, Collective.ALLTOALL)
    ends = np.unique(problem.fabric.link_ends(damage.links))
    for gpu in ends[ends < problem.fabric.num_gpus].tolist():
        if not both_ways:
            yield from _at_one_gpu(network, gpu, fluid=fluid)
        for parts in _partitions(network, gpu):
            own = [part for part in parts if part[gpu]]
            for turned in (network, network.turned()) if both_ways else (network,):
                yield from _entering(turned, own, fluid=fluid, alone=True)


def _at_one_gpu(network: _Network, gpu: int, *, fluid: bool) -> Iterator[_Bound]:
    """What has to come to one GPU, and from where: far chunks cannot fill its links at first."""
    problem, fabric = network.problem, network.problem.fabric
    cost = network.alpha if fluid else network.held + network.alpha
    peers = problem.members(gpu)
    distance = network.distances(ints([gpu]), cost)[peers]
    if (distance < 0).any():
        raise _not_joined(network, fabric.node_name(gpu))
    farthest = int(peers[distance.argmax()])
    name, far = fabric.node_name(gpu), fabric.node_name(farthest)
    way = int(distance.max())
    yield _Bound(way, f"{display_time(way / PICOSECONDS)} of way from {far} to {name}")
    inside = np.zeros(fabric.num_nodes, dtype=bool)
    inside[gpu] = True
    ports = network.entering(inside)
    # A chunk can begin to cross the last link when it has come to the other end of one.
    tails = np.unique(network.src[network.dst == gpu])
    ready = network.distances(tails, cost)[peers[peers != gpu]]
    levels = np.unique(ready)
    for level in levels[:: len(levels) // _THRESHOLDS + 1].tolist():
        count = int((ready >= level).sum()) * problem.num_chunks
        yield _through(network, ports, (Fraction(count), level), name, fluid=fluid)


def _not_joined(network: _Network, name: str) -> MethodError:
    """What to say of GPUs that lack a way to or from others, which no schedule can serve."""
    return MethodError(
        f"{network.problem.fabric.name}: links do not join {name} to all others that take part; "
        "leave or add some that do"
    )


def _all_hops(network: _Network, *, fluid: bool) -> _Bound:
    """Time for which all chunks together hold links, on the ways that hold them least."""
    problem, fabric = network.problem, network.problem.fabric
    size = problem.chunk_bytes
    lengths = ints([int(size / fabric.rate(x) * PICOSECONDS) for x in fabric.links])
    cost = lengths if fluid else network.held
    firsts = [network.distances(ints([g]), cost) for g in range(len(fabric.gpu_orbits))]
    total = sum(int(found[problem.members(g)].sum()) for g, found in enumerate(firsts))
    total *= problem.num_chunks
    value = total * fabric.group.order // fabric.num_links
    return _Bound(value, f"all chunks hold {fabric.num_links} links for that long on average")


def _partitions(network: _Network, gpu: int = 0) -> Iterator[list[BoolArray]]:
    """Yield sets of GPUs whose images under the group are a partition of all.

    They are what some axes of the group join to one GPU, of all orbits together or of each alone,
    without switches and with those that serve nobody else.
    """
    fabric = network.problem.fabric
    num_orbits, axes = len(fabric.gpu_orbits), range(len(fabric.moduli))
    gpus = np.arange(fabric.num_gpus)
    digits = fabric.group.digits(gpus // num_orbits)
    for number in range(len(fabric.moduli)):
        for joined in combinations(axes, number):
            fixed = [axis for axis in axes if axis not in joined and fabric.moduli[axis] > 1]
            if not fixed:
                continue
            near = (digits[fixed] == digits[fixed][:, [gpu]]).all(axis=0)
            alone = [near & (gpus % num_orbits == orbit) for orbit in range(num_orbits)]
            for parts in ([near], alone)[: min(num_orbits, 2)]:
                first = np.zeros((len(parts), fabric.num_nodes), dtype=bool)
                first[:, : fabric.num_gpus] = parts
                yield from _with_switches(network, list(first))


def _halves(network: _Network) -> Iterator[BoolArray]:
    """Yield sets of half of the places along an axis that follow one another, see `_partitions`.

    Half of the chunks of an AllToAll cross between them, which is more than a few places get.
    """
    fabric = network.problem.fabric
    digits = fabric.group.digits(np.arange(fabric.num_gpus) // len(fabric.gpu_orbits))
    for axis, places in enumerate(fabric.moduli):
        if places > 1:
            first = np.zeros(fabric.num_nodes, dtype=bool)
            first[: fabric.num_gpus] = digits[axis] < places // 2
            yield from (parts[0] for parts in _with_switches(network, [first]))


def _with_switches(network: _Network, parts: list[BoolArray]) -> Iterator[list[BoolArray]]:
    """Yield sets of GPUs, then with the switches next to them that serve no others, and so on.

    A switch serves the nodes below it, those that are nearer to GPUs. Switches of different sets
    differ, because each serves somebody.
    """
    yield parts
    level = _levels(network)
    for height in range(1, int(level.max()) + 1):
        before, parts = parts, [_with_level(network, level == height, level, x) for x in parts]
        if not all(map(np.array_equal, before, parts)):
            yield parts


def _with_level(
    network: _Network, switches: BoolArray, level: IntArray, inside: BoolArray
) -> BoolArray:
    """Add those switches of one level to a set of nodes that serve no others."""
    serves, others = np.zeros_like(inside), np.zeros_like(inside)
    for switch, node in ((network.src, network.dst), (network.dst, network.src)):
        below = switches[switch] & (level[node] < level[switch])
        serves[switch[below & inside[node]]] = True
        others[switch[below & ~inside[node]]] = True
    return inside | (serves & ~others)


def _levels(network: _Network) -> IntArray:
    """By node, links from GPUs on, in whatever direction; -1 where none leads there."""
    fabric, height = network.problem.fabric, 0
    level = np.where(np.arange(fabric.num_nodes) < fabric.num_gpus, 0, -1)
    near = np.concatenate([network.src, network.dst])
    far = np.concatenate([network.dst, network.src])
    while True:
        fresh = far[(level[near] == height) & (level[far] < 0)]
        if not len(fresh):
            return level
        height += 1
        level[fresh] = height


def _entering(
    network: _Network, parts: list[BoolArray], *, fluid: bool, alone: bool = False
) -> Iterator[_Bound]:
    """Yield what has to enter sets of GPUs, of whose images there is a partition unless alone."""
    if network.problem.collective is Collective.ALLREDUCE and not alone:
        whole = sum((_entries(network, part) for part in parts), Fraction(0))
        loads = [(whole, parts)]
    else:
        loads = [(Fraction(_crossing(network, part)), [part]) for part in parts]
    for load, some in loads:
        ports = [port for part in some for port in network.entering(part)]
        yield _through(network, ports, (load, 0), _name(network, some), fluid=fluid)


def _name(network: _Network, parts: list[BoolArray]) -> str:
    """Sets of GPUs, one of each orbit, as certificates name them."""
    fabric, inside = network.problem.fabric, parts[0]
    more = ", and as many of each other orbit" if len(parts) > 1 else ""
    count = int(inside[: fabric.num_gpus].sum())
    return f"{count} gpus around {fabric.node_name(int(inside.argmax()))}{more}"


def _touched(network: _Network, inside: BoolArray) -> IntArray:
    """How many GPUs of each group of ranks are in a set."""
    problem, num_gpus = network.problem, network.problem.fabric.num_gpus
    return np.bincount(problem.labels[inside[:num_gpus]], minlength=num_gpus // problem.group_size)


def _crossing(network: _Network, inside: BoolArray) -> int:
    """Chunks that have to enter a set of GPUs from outside."""
    problem, size = network.problem, network.problem.group_size
    here = _touched(network, inside)
    if problem.collective is Collective.ALLTOALL:
        return int((here * (size - here)).sum()) * problem.num_chunks
    if problem.collective is Collective.ALLREDUCE:
        # What others contribute to each chunk enters once at least; of groups inside nothing does.
        return int((here < size)[here > 0].sum()) * size * problem.num_chunks
    return int((size - here)[here > 0].sum()) * problem.num_chunks


def _entries(network: _Network, inside: BoolArray) -> Fraction:
    """A set's portion of the times that all sums enter some part of a partition.

    Each chunk enters parts at least twice for all but one of those that its group touches, as
    contributions and as the sum. Each group has as many chunks as ranks.
    """
    problem, size = network.problem, network.problem.group_size
    here = _touched(network, inside)
    least = int((here > 0).sum()) - Fraction(int(here.sum()), size)
    return 2 * least * size * problem.num_chunks


def _through(
    network: _Network,
    ports: list[_Port],
    load: tuple[Fraction, int],
    name: str,
    *,
    fluid: bool,
) -> _Bound:
    """Least time in which so many chunks, ready at some moment, pass equal or different links."""
    count, ready = load
    # In whole numbers: fractions would take most of the time of a patch around faults.
    unit = lcm(*(x.denominator for port in ports for x in (port.alpha, port.held)))
    per = lcm(*(port.rate.denominator for port in ports))
    table = [
        (int(port.alpha * unit), int(port.held * unit), port.number, int(port.rate * per))
        for port in ports
    ]
    wanted = count * network.problem.chunk_bytes * unit * per if fluid else count
    enough = ceil(wanted)
    if enough and not ports:
        raise _not_joined(network, name)

    def carried(time: int) -> int:
        """Chunks that can have arrived, or bytes in small units."""
        past = (time - ready) * unit
        if fluid:
            return sum(max(0, past - alpha) * number * rate for alpha, _, number, rate in table)
        return sum(max(0, past - alpha) // held * number for alpha, held, number, _ in table)

    low, high = -1, 1
    while carried(high) < enough:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if carried(middle) >= enough else (middle, high)
    # Between two whole picoseconds the lower one is proven.
    is_whole = all(port.held.denominator == port.alpha.denominator == 1 for port in ports)
    value = high if (carried(high) == wanted if fluid else is_whole) else low
    links = sum(port.number for port in ports)
    amount = f"{float(count):g} chunks must cross {links} links into {name}"
    after = f", none before {display_time(ready / PICOSECONDS)}" if ready else ""
    return _Bound(max(value, 0), amount + after)
