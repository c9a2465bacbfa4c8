"""Insertion on calendars: chunks one after another, each by the ways that are free soonest.

Every link and shared capacity has a calendar. A chunk is sent from whoever holds it to the nearest
GPU that wants it, then to the next, each time along the way with the least arrival plus price.
Prices make ways over scarce links dearer than others that arrive a little later.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teccl.construct.instance import Instance, IntArray, Routes, concatenated_ranges, starts_of
from teccl.construct.passages import may_join
from teccl.construct.plan import Plan
from teccl.construct.turned import is_turnable, turned_instance, turned_plan
from teccl.problem import Problem, SwitchMode, Transit
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from teccl.construct.labels import Jobs, Rows
    from teccl.construct.timetable import Network, Records

FloatArray = npt.NDArray[np.float64]

# Nodes up to which distances between all of them are computed, to aim searches.
MAX_AIMED = 1024
# A distance that nothing has.
FAR = 2**60
# What holding a full resource costs beside time, in each pass after the first.
PRICES = (0.0, 1.0, 4.0, 0.0, 1.0, 4.0, 0.0)
# Bookings for which there is room on each resource at first.
FIRST_ROOM = 64


class Workshop:
    """An instance with a timetable that chunks are inserted into and taken out of.

    Parameters
    ----------
    instance
        What is to be scheduled; see `refusal`.
    seed
        Of all random choices.
    single
        Whether no GPU may receive a chunk twice, even where it cannot wait there.

    Attributes
    ----------
    work
        Elementary steps so far: looks at a booking or a route.
    """

    def __init__(self, instance: Instance, *, seed: int = 0, single: bool = False) -> None:
        from teccl.construct.labels import empty_labels, empty_rows
        from teccl.construct.timetable import empty_timetable

        topology = instance.problem.topology
        self.instance = instance
        self.net = _network(instance, single=single)
        self.jobs, self.chunk = _jobs(instance)
        buffers = 0 if instance.problem.buffer is None else topology.num_nodes
        self.table = empty_timetable(instance.num_resources + buffers, FIRST_ROOM)
        longest = 2 * _diameter(self.net) if buffers else 0
        self.labels = empty_labels(topology.num_nodes, topology.num_links, longest=longest)
        self.rows = empty_rows(len(self.chunk), self._most_rows())
        self.random = np.array([_scrambled(seed)], dtype=np.uint64)
        self.steps = np.zeros(1, dtype=np.int64)
        # Each route of a job may pass a link, and a shared capacity by each of its links.
        shares = [name for link in topology.links for name in link.shares]
        self.each = max([1, *(shares.count(name) for name in topology.shared)])
        self.more = self.each * self.rows.row.shape[1]

    def _most_rows(self) -> int:
        """Return how many routes a job may take: one into each GPU, more where it cannot wait."""
        wants = int(np.diff(self.jobs.job["want"]).max(initial=0))
        if self.net.buffer >= 0:
            return wants * 2 * _diameter(self.net)
        return min(self.instance.problem.topology.num_gpus, wants + 4 * _diameter(self.net))

    @property
    def work(self) -> int:
        """Elementary steps so far."""
        return int(self.steps[0])

    @property
    def finish(self) -> int:
        """Last arrival of what is inserted."""
        return int(self.rows.end["finish"].max(initial=0))

    def clear(self) -> None:
        """Take everything out."""
        from teccl.construct.timetable import empty_timetable

        self.table = empty_timetable(len(self.table.count), self.table.who.shape[1])
        self.rows.end["count"] = 0
        self.rows.end["finish"] = 0

    def insert(self, order: IntArray) -> bool:
        """Insert jobs in an order; whether all could be served."""
        return self._insert(order, None)

    def alone(self) -> IntArray | None:
        """Return when each job would end if it were the only one; None if one cannot be served."""
        alone = np.zeros(len(self.chunk), dtype=np.int64)
        return alone if self._insert(np.arange(len(alone)), alone) else None

    def _insert(self, order: IntArray, alone: IntArray | None) -> bool:
        from teccl.construct.inserting import insert_all

        done = 0
        while True:
            done = insert_all(
                self.net,
                self.jobs,
                self.table,
                self.labels,
                self.rows,
                order,
                done,
                self.more,
                alone is not None,
                order if alone is None else alone,
                self.random,
                self.steps,
            )
            if done < 0 or done == len(order):
                return done >= 0
            self.enlarge()

    def enlarge(self) -> None:
        """Make room for more bookings."""
        from teccl.construct.timetable import enlarged

        self.table = enlarged(self.table)

    def set_prices(self, per_time: FloatArray) -> None:
        """Set what it costs to hold each resource for a unit of time."""
        cost = per_time[self.net.entry["res"]] * self.net.entry["hold"]
        ends = np.concatenate([np.zeros((len(cost), 1)), np.cumsum(cost, axis=1)], axis=1)
        start = self.net.route["entry"][0]
        price = np.rint(ends[:, start[1:]] - ends[:, start[:-1]]).astype(np.int64)
        self.net.route["price"][:, :-1] = price

    def loads(self) -> FloatArray:
        """Return for how long each resource is held."""
        job, row = _taken(self.rows)
        rows = self.rows.row[job, row]
        size, route = self.jobs.job["size_index"][job], rows["route"]
        hop = self.net.route["hop"][0][route] + rows["shared"]
        low, high = self.net.hop["entry"][hop], self.net.route["entry"][0][route + 1]
        entry = self.net.entry[np.repeat(size, high - low), concatenated_ranges(low, high)]
        part = entry["load"] / self.net.limit[entry["res"]]
        held: FloatArray = entry["hold"] * part
        return np.bincount(entry["res"], held, minlength=len(self.net.limit)).astype(float)

    def plan(self) -> Plan:
        """Return what is inserted."""
        return plan_of(self, self.rows)


def plan_of(shop: Workshop, rows: "Rows") -> Plan:
    """Return a workshop's jobs along rows as a plan."""
    job, row = _taken(rows)
    taken, count = rows.row[job, row], rows.end["count"]
    before = (np.cumsum(count) - count)[job]
    columns = [shop.chunk[job], taken["route"], taken["start"], before + taken["head"]]
    table = np.stack([*columns, taken["shared"]], axis=1)
    feeder = None
    if not shop.instance.problem.copy:
        feeder = np.where(row > 0, np.arange(len(row)) - 1, -1)
    exact = shop.instance.grid is None
    finish = int(rows.end["finish"].max(initial=0))
    return Plan(rows=table, finish=finish, feeder=feeder, exact=exact)


def _taken(rows: "Rows") -> tuple[IntArray, IntArray]:
    """Return job and number of all rows that are in use."""
    job, row = np.nonzero(np.arange(rows.row.shape[1]) < rows.end["count"][:, None])
    return job, row


def refusal(instance: Instance) -> str | None:
    """Say why insertion does not serve an instance; None if it does."""
    problem = instance.problem
    if problem.chunks.reduce.any() and not is_turnable(instance):
        return "sums cannot be turned round"
    if problem.buffer is not None and instance.grid is not None:
        return "buffers are limited on a grid"
    if problem.topology.has_profiles:
        if instance.grid is not None:
            return "rates change on a grid"
        if _steps(problem) is None:
            return "rates change at times or by amounts that are no whole numbers"
    return None


def inserted_plans(
    instance: Instance, *, target: int, seed: int, budget: int, single: bool = False
) -> Iterator[Plan]:
    """Yield plans made by inserting all chunks in several orders, each better than those before.

    Parameters
    ----------
    instance
        What is to be scheduled; nothing is yielded where `refusal` says why.
    target
        A lower bound; reaching it ends the search.
    seed
        Of all random choices.
    budget
        Elementary steps after which no further pass is begun.
    single
        Whether no GPU may receive a chunk twice, even where chunks cannot wait.
    """
    if refusal(instance) is not None:
        return
    if instance.problem.has_reductions:
        copies = inserted_plans(
            turned_instance(instance), target=target, seed=seed, budget=budget, single=True
        )
        yield from (turned_plan(instance, plan) for plan in copies)
        return
    shop = Workshop(instance, seed=seed, single=single)
    alone = shop.alone()
    if alone is None:
        return
    best = FAR
    for order, price in _passes(shop, alone, seed):
        shop.set_prices(price)
        shop.clear()
        if not shop.insert(order):
            continue
        if shop.finish < best:
            best = shop.finish
            yield shop.plan()
        if best <= target or shop.work >= budget:
            return


def _passes(shop: Workshop, alone: IntArray, seed: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield orders of jobs and prices of resources: the longest when alone first.

    A resource that was full in the pass before costs as much as the time for which it is held, or
    several times that, others less in proportion.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    yield np.lexsort((_turns(shop), -alone)), np.zeros(len(shop.net.limit))
    for weight in PRICES:
        load = shop.loads()
        order = np.lexsort((generator.permutation(len(alone)), -alone))
        yield order, weight * load / max(1.0, load.max(initial=0.0))


def _turns(shop: Workshop) -> IntArray:
    """Distance around the ranks from each job's source to the first that wants it."""
    topology, jobs = shop.instance.problem.topology, shop.jobs
    rank = np.zeros(topology.num_nodes, dtype=np.int64)
    rank[topology.gpus] = np.arange(topology.num_gpus)
    ends = np.append(jobs.want, 0)[jobs.job["want"][:-1]]
    begins = jobs.source["node"][jobs.job["source"][:-1]]
    turn: IntArray = (rank[ends] - rank[begins]) % topology.num_gpus
    return turn


def estimated_work(instance: Instance) -> int:
    """Elementary steps that one pass over all chunks takes, about.

    For every delivery the routes out of two GPUs are looked at, and half of them with all that
    they hold.
    """
    routes, table = instance.routes, instance.problem.chunks
    wants = np.array([len(nodes) for nodes in table.sets])[table.destination_set].sum()
    per_gpu = len(routes) / max(1, instance.problem.topology.num_gpus)
    held = len(routes.res) / max(1, len(routes))
    return int(wants * 8 * per_gpu * (1 + held))


def _scrambled(seed: int) -> int:
    """Return a state for the generator that differs much between seeds and is never zero."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) | 1


def _jobs(instance: Instance) -> tuple["Jobs", IntArray]:
    """Return what is to be delivered and the chunk of each."""
    from teccl.construct.labels import JOB, SOURCE, Jobs

    problem, table = instance.problem, instance.problem.chunks
    sources = [nodes.tolist() for nodes in table.sets]
    found: list[tuple[int, list[int]]] = []
    for k in range(len(table)):
        held = sources[table.source_set[k]]
        wants = [node for node in sources[table.destination_set[k]] if node not in held]
        found += [(k, wants)] if problem.copy else [(k, [node]) for node in wants]
    chunk = np.array([k for k, _ in found], dtype=np.int64)
    held_by = [sources[table.source_set[k]] for k in chunk]
    source_start, source = _packed(held_by)
    want_start, want = _packed([wants for _, wants in found])
    owner = np.repeat(np.arange(len(chunk)), np.diff(source_start))
    job = np.zeros(len(chunk) + 1, dtype=JOB)
    job["source"], job["want"] = source_start, want_start
    if instance.grid is None:
        job["size_index"][:-1] = table.size_index[chunk]
    held = np.zeros(len(source), dtype=SOURCE)
    held["node"], held["ready"] = source, instance.ready[table.tenant[chunk[owner]], source]
    return Jobs(job=job, source=held, want=want), chunk


def _packed(lists: list[list[int]]) -> tuple[IntArray, IntArray]:
    """Return lists as one CSR list."""
    counts = np.array([len(each) for each in lists], dtype=np.int64)
    values = np.array([value for each in lists for value in each], dtype=np.int64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), values


def _network(instance: Instance, *, single: bool) -> "Network":
    """Return an instance's routes as the kernels take them."""
    from teccl.construct.timetable import Network

    problem, routes, topology = instance.problem, instance.routes, instance.problem.topology
    timed = [routes]
    if instance.grid is None and len(problem.chunks.sizes) > 1:
        ways = routes.ways()
        others = range(1, len(problem.chunks.sizes))
        timed += [Instance.build(problem, ways=ways, size=size).routes for size in others]
    steps = _steps(problem) if topology.has_profiles else None
    length = np.stack([each.length for each in timed])
    if steps is not None:
        length = _shortest_lengths(instance, steps)
    limit, load = _loads(instance)
    return Network(
        route=_route_table(routes, length),
        entry=_entry_table(timed, load),
        hop=_hop_table(instance),
        limit=limit,
        **_fans(instance),
        distance=_distances(routes.src, routes.dst, length, topology.num_nodes),
        **(steps or _no_steps()),
        buffer=-1 if problem.buffer is None else problem.buffer,
        single=single,
    )


def _route_table(routes: Routes, length: IntArray) -> "Records":
    from teccl.construct.timetable import ROUTE

    table = np.zeros((len(length), len(routes) + 1), dtype=ROUTE)
    table["src"][:, :-1], table["dst"][:, :-1] = routes.src, routes.dst
    table["entry"], table["hop"] = routes.res_start, routes.link_start
    table["length"][:, :-1] = length
    return table


def _entry_table(timed: list[Routes], load: IntArray) -> "Records":
    from teccl.construct.timetable import ENTRY

    table = np.zeros((len(timed), len(load)), dtype=ENTRY)
    table["res"], table["load"] = timed[0].res, load
    for size, routes in enumerate(timed):
        table["offset"][size], table["hold"][size] = routes.res_offset, routes.res_hold
    return table


def _hop_table(instance: Instance) -> "Records":
    from teccl.construct.timetable import HOP

    topology, links = instance.problem.topology, instance.routes.links
    per_link = np.array([1 + len(link.shares) for link in topology.links], dtype=np.int64)
    table = np.zeros(len(links) + 1, dtype=HOP)
    table["link"][:-1], table["end"][:-1] = links, topology.link_dst[links]
    table["entry"][1:] = np.cumsum(per_link[links])
    return table


def _fans(instance: Instance) -> dict[str, Any]:
    """Return lists of routes by source, by destination, and by the link into a switch."""
    routes, topology = instance.routes, instance.problem.topology
    hops = np.diff(routes.link_start)
    first = routes.links[routes.link_start[:-1]]
    lead = np.where((hops > 1) & may_join(instance), first, -1)
    num = max(topology.num_nodes, topology.num_links)
    starts, lists, done = [], [], 0
    for owner in (routes.src, routes.dst, lead):
        kept = np.flatnonzero(owner >= 0)
        starts.append(done + starts_of(owner[kept], num))
        lists.append(kept[np.argsort(owner[kept], kind="stable")])
        done += len(kept)
    return {"fan_start": np.stack(starts), "fan": np.concatenate(lists)}


def _loads(instance: Instance) -> tuple[IntArray, IntArray]:
    """What each resource can carry at a time, and what each entry takes of it."""
    problem, routes = instance.problem, instance.routes
    load, limit = np.ones(len(routes.res), dtype=np.int64), instance.slots.copy()
    is_circuit = (
        problem.transit is Transit.CUT_THROUGH and problem.switch is not SwitchMode.HYPER_EDGE
    )
    if not is_circuit or instance.grid is not None or not problem.topology.num_switches:
        return limit, load
    rates = problem.topology.rates
    unit = math.lcm(*(rate.denominator for rate in rates))
    whole = [int(rate * unit) for rate in rates]
    common = math.gcd(*whole)
    if max(whole) // common >= 2**40 or min(whole) == max(whole):
        return limit, load
    rate = np.array(whole, dtype=np.int64) // common
    slowest = np.minimum.reduceat(rate[routes.links], routes.link_start[:-1])
    of_entry = np.repeat(slowest, np.diff(routes.res_start))
    is_link = routes.res < len(rate)
    limit[: len(rate)] = rate
    return limit, np.where(is_link, of_entry, 1)


def _distances(src: IntArray, dst: IntArray, length: IntArray, num: int) -> IntArray:
    """Return per size the shortest time between nodes; zeros where there are too many nodes."""
    from teccl.construct.timetable import all_distances

    if num > MAX_AIMED:
        return np.zeros((len(length), num, num), dtype=np.int64)
    return np.stack([all_distances(src, dst, each, num, FAR) for each in length])


def _diameter(net: "Network") -> int:
    """Most routes on a shortest way between nodes that have one."""
    from teccl.construct.timetable import all_distances

    num, routes = net.distance.shape[1], net.route[0, :-1]
    if num > MAX_AIMED:
        return num
    hops = all_distances(routes["src"], routes["dst"], np.ones_like(routes["src"]), num, FAR)
    return int(hops[hops < FAR].max(initial=1))


def _steps(problem: Problem) -> dict[str, Any] | None:
    """Return rates and sizes in whole numbers of one unit; None where that cannot be exact."""
    from teccl.construct.timetable import LINK, STEP

    topology = problem.topology
    steps = topology.each_link(topology.rate_steps)
    times = [begin * PICOSECONDS for each in steps for begin, _ in each]
    rates = [rate / PICOSECONDS for each in steps for _, rate in each]
    unit = math.lcm(*(value.denominator for value in (*rates, *problem.chunks.sizes)))
    units = [int(size * unit) for size in problem.chunks.sizes]
    whole = [int(rate * unit) for rate in rates]
    latest = max(times)
    # What a link carries until its last step must fit a word.
    if (
        any(time.denominator > 1 for time in times)
        or max(*units, max(whole) * (int(latest) + 1)) >= 2**62
    ):
        return None
    link = np.zeros(len(steps) + 1, dtype=LINK)
    link["step"] = _packed([[0] * len(each) for each in steps])[0]
    link["alpha"][:-1] = topology.alpha_ps
    step = np.zeros(len(times), dtype=STEP)
    step["time"], step["rate"] = [int(time) for time in times], whole
    return {"link": link, "step": step, "units": np.array(units, dtype=np.int64)}


def _no_steps() -> dict[str, Any]:
    from teccl.construct.timetable import LINK, STEP

    none = {"link": np.zeros(0, dtype=LINK), "step": np.zeros(0, dtype=STEP)}
    return none | {"units": np.zeros(0, dtype=np.int64)}


def _shortest_lengths(instance: Instance, steps: dict[str, Any]) -> IntArray:
    """Return the length of each route at the highest rates its links ever have."""
    fastest = np.maximum.reduceat(steps["step"]["rate"], steps["link"]["step"][:-1])
    routes = instance.routes
    hops = -(-steps["units"][:, None] // fastest) + steps["link"]["alpha"][:-1]
    lengths: IntArray = np.add.reduceat(hops[:, routes.links], routes.link_start[:-1], axis=1)
    return lengths
