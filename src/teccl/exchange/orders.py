"""Jobs: the chunks of a problem as a network's compiled code sees them, and their orders."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import concatenated_ranges
from teccl.errors import DemandError
from teccl.exchange.passage_network import PassageNetwork
from teccl.exchange.tables import PARENT, WAY, Care, IntArray, Legs, Wanted
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.schedule.ordering import order_by

FloatArray = npt.NDArray[np.float64]

# A whole block, where orders count parts of it.
WHOLE = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeJobs:
    """Chunks on a network, of which each starts at one GPU.

    A sum is seen in mirrored time, as a copy from the GPU that wants it to all that contribute.

    Parameters
    ----------
    network, problem
        Where they travel, and what they are chunks of.
    wanted
        Who has and who wants each.
    hold
        Picoseconds that each kind of link is held by each size.
    ready
        From when each may leave its source.
    """

    network: PassageNetwork
    problem: Problem
    wanted: Wanted
    hold: IntArray
    ready: IntArray

    @staticmethod
    def of(network: PassageNetwork, problem: Problem) -> "ExchangeJobs":
        """List the chunks of a problem on a network, the turned one if it asks for sums."""
        table, rank = problem.chunks, network.rank
        roots, ends = table.source_set, table.destination_set
        if problem.has_reductions:
            roots, ends = ends, roots
        first = np.array([rank[nodes[0]] for nodes in table.sets])
        counts = np.array([len(nodes) for nodes in table.sets])
        source = first[roots]
        members = rank[np.concatenate(table.sets)]
        low = (np.cumsum(counts) - counts)[ends]
        owner = np.repeat(np.arange(len(table)), counts[ends])
        who = members[concatenated_ranges(low, low + counts[ends])]
        is_other = who != source[owner]
        owner, who = owner[is_other], who[is_other]
        start = np.searchsorted(owner, np.arange(len(table) + 1))
        jobs = ExchangeJobs(
            network=network,
            problem=problem,
            wanted=Wanted(source, table.size_index, start.astype(np.int64), who),
            hold=_holds(problem),
            ready=problem.ready_ps()[table.tenant, problem.topology.gpus[source]],
        )
        jobs._check_routes(source[owner], who)
        return jobs

    def _check_routes(self, src: IntArray, dst: IntArray) -> None:
        """Refuse a demand between GPUs that nothing joins."""
        topology, start = self.problem.topology, self.network.choices.pair_start
        pair = src * topology.num_gpus + dst
        cut_off = np.flatnonzero(start[pair] == start[pair + 1])
        if len(cut_off):
            a, b = (topology.nodes[topology.gpus[end[cut_off[0]]]].name for end in (src, dst))
            raise DemandError(f"no way leads from {a} to {b}; add links or drop what goes there")

    def __len__(self) -> int:
        return len(self.wanted.source)

    @property
    def time(self) -> IntArray:
        """How long each chunk holds the slowest kind of link."""
        return self.hold.max(axis=0)[self.wanted.size]

    def balanced(self, care: Care) -> tuple[Legs, IntArray]:
        """Choose legs for all chunks, the longest first, and return how full resources are."""
        from teccl.exchange.balancing import balance

        wants = int(np.diff(self.wanted.start).max(initial=1))
        # A search may find a way one passage longer than known routes.
        most = min((self.network.longest + 1) * wants, self.problem.topology.num_gpus)
        leg, count, load = balance(
            self.network.fabric,
            self.hold,
            self.network.choices,
            self.wanted,
            order_by(-self.time),
            self.network.num_resources,
            most,
            care,
        )
        base = np.arange(len(self)) * most
        kept = concatenated_ranges(base, base + count)
        number = np.full(len(leg) + 1, -1, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        leg = leg[kept]
        leg[:, PARENT] = number[leg[:, PARENT]]
        legs = self._legs(leg, np.repeat(np.arange(len(self)), count))
        return legs, load.astype(np.int64)

    def direct(self) -> Legs:
        """Send each chunk straight to each GPU that wants it, by the route of least latency."""
        choices, ends = self.network.choices, self.wanted.ends
        job = np.repeat(np.arange(len(self)), np.diff(self.wanted.start))
        route = choices.pair_start[self.wanted.source[job] * len(self.network.topology.gpus) + ends]
        low, high = choices.route_start[route], choices.route_start[route + 1]
        ways = choices.ways[concatenated_ranges(low, high)]
        parent = np.arange(len(ways)) - 1
        parent[np.cumsum(high - low) - (high - low)] = -1
        return self._legs(np.stack([ways, parent], axis=1), np.repeat(job, high - low))

    def _legs(self, leg: IntArray, job: IntArray) -> Legs:
        return Legs(np.ascontiguousarray(leg), job, self.wanted.size, self.ready)

    def urgency(self, legs: Legs, load: IntArray) -> IntArray:
        """Load of the fullest resource that each chunk needs."""
        fabric = self.network.fabric
        of_way = np.maximum.reduceat(load[fabric.use_res], fabric.use_start[:-1])
        urgency = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(urgency, legs.job, of_way[legs.leg[:, WAY]])
        return urgency

    def portion(self, jitter: FloatArray) -> IntArray:
        """How much of its block goes before each chunk, in parts of `WHOLE`."""
        piece = self.problem.chunks.piece
        block = np.cumsum(piece == 0) - 1
        count = np.bincount(block)[block]
        return ((piece + jitter[block]) / count * WHOLE).astype(np.int64)


def _holds(problem: Problem) -> IntArray:
    """How long a chunk of each size (columns) holds a link of each kind (rows), overhead first."""
    topology, transmission = problem.topology, problem.kind_transmission_ps
    overhead = np.zeros(len(transmission), dtype=np.int64)
    overhead[topology.link_kind] = topology.overhead_ps
    return transmission + overhead[:, None]


def refusal(problem: Problem) -> str | None:
    """Say why legs do not serve a problem; None if they do."""
    table, is_sum = problem.chunks, problem.has_reductions
    if is_sum and not table.reduce.all():
        return "sums and copies in one demand are not planned"
    if is_sum and problem.demand.has_ready_times:
        return "sums of ranks that are ready later are not planned"
    if problem.topology.has_profiles:
        return "bandwidths change over time"
    is_held = problem.transit is Transit.CUT_THROUGH or problem.switch is SwitchMode.HYPER_EDGE
    if (is_held and problem.topology.num_switches) or problem.buffer is not None:
        return "circuits and limited buffers are not planned"
    roots = table.destination_set if is_sum else table.source_set
    several = next((r for r in np.unique(roots) if len(table.sets[r]) > 1), None)
    if several is not None:
        what = "wanted by" if is_sum else "held by"
        return f"a chunk is {what} {len(table.sets[several])} ranks, where a planner wants one"
    goals = table.source_set if is_sum else table.destination_set
    if not problem.copy and any(len(table.sets[goal]) > 1 for goal in np.unique(goals)):
        return "a chunk for several ranks is not planned without copies"
    return None
