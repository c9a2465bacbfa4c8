"""Insertion on calendars: chunks one after another, each by the ways that are free soonest.

Every link and shared capacity has a calendar. A chunk is sent from whoever holds it to the nearest
GPU that wants it, then to the next, each time along the way with the least arrival plus price.
Prices make ways over scarce links dearer than others that arrive a little later.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from teccl.construct.goal import Goal
from teccl.construct.instance import Instance, IntArray, concatenated_ranges
from teccl.construct.params import BOOK_STEPS, NEVER, PART, PASS_WORK, PYTHON_UNITS, STEPS
from teccl.construct.plan import Plan
from teccl.construct.tabulation import FAR, diameter, job_tables, network_tables, rate_steps
from teccl.construct.turned import is_turnable, turned_instance, turned_plan
from teccl.footprint import num_deliveries

if TYPE_CHECKING:
    from teccl.construct.labels import Rows

FloatArray = npt.NDArray[np.float64]

# What holding a full resource costs beside time, in each pass after the first.
PRICES = (*2 * (0.0, 1.0, 4.0), 0.0)
# Bookings for which there is room on each resource at first.
FIRST_ROOM = 2


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
        self.net = network_tables(instance, single=single)
        self.jobs, self.chunk = job_tables(instance)
        buffers = 0 if instance.problem.buffer is None else topology.num_nodes
        self.table = empty_timetable(instance.num_resources + buffers, FIRST_ROOM)
        longest = 2 * diameter(self.net) if buffers else 0
        self.labels = empty_labels(topology.num_nodes, topology.num_links, longest=longest)
        self.rows = empty_rows(len(self.chunk), self._most_rows())
        self.random = np.array([_scrambled(seed)], dtype=np.uint64)
        self.steps = np.zeros(1, dtype=np.int64)
        # Each route of a job may pass a link, and a shared capacity by each of its links.
        shares = [name for link in topology.links for name in link.shares]
        self.each = max([1, *(shares.count(name) for name in topology.shared)])

    def _most_rows(self) -> int:
        """Return how many routes a job may take: one into each GPU, more where it cannot wait."""
        wants = int(np.diff(self.jobs.job["want"]).max(initial=0))
        if self.net.buffer >= 0:
            return wants * 2 * diameter(self.net)
        return min(self.instance.problem.topology.num_gpus, wants + 2 * diameter(self.net))

    @property
    def more(self) -> int:
        """Bookings on one resource that a job may add."""
        return self.each * int(self.rows.row.shape[1])

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

    def insert(self, order: IntArray, *, until: int = FAR) -> bool:
        """Insert jobs in an order; whether all could be served before so much work was done."""
        return self._insert(order, None, until)

    def alone(self) -> IntArray | None:
        """Return when each job would end if it were the only one; None if one cannot be served."""
        alone = np.zeros(len(self.chunk), dtype=np.int64)
        return alone if self._insert(np.arange(len(alone)), alone, FAR) else None

    def _insert(self, order: IntArray, alone: IntArray | None, until: int) -> bool:
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
                until,
            )
            if done == len(order) or self.work >= until:
                return done == len(order)
            if done >= 0:
                self.enlarge()
            elif not self._lengthen():
                return False
            done = max(done, -done - 1)

    def _lengthen(self) -> bool:
        """Make room for more routes of each job; whether any job could need it."""
        from teccl.construct.labels import empty_rows

        num_jobs, most = self.rows.row.shape
        # Every GPU receives a chunk once, unless chunks cannot wait.
        if self.net.buffer >= 0 or most >= self.instance.problem.topology.num_gpus:
            return False
        longer = empty_rows(num_jobs, 2 * most)
        longer.row[:, :most] = self.rows.row
        longer.end[:] = self.rows.end
        self.rows = longer
        return True

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

    def set_due(self, due: int) -> None:
        """Set when everything should have come; by then cheap ways are better than quick ones."""
        self.net = self.net._replace(due=due)

    def loads(self) -> FloatArray:
        """Return for how long each resource is held."""
        job, row = _taken(self.rows)
        rows = self.rows.row[job, row]
        entries, count = self.entries(rows["route"], rows["shared"])
        entry = self.net.entry[np.repeat(self.jobs.job["size_index"][job], count), entries]
        part = entry["load"] / self.net.limit[entry["res"]]
        held: FloatArray = entry["hold"] * part
        return np.bincount(entry["res"], held, minlength=len(self.net.limit)).astype(float)

    def entries(self, route: IntArray, shared: IntArray) -> tuple[IntArray, IntArray]:
        """Return what routes hold, the links that are another's aside, and how much each does."""
        low = self.net.hop["entry"][self.net.route["hop"][0, route] + shared]
        high = self.net.route["entry"][0, route + 1]
        return concatenated_ranges(low, high), high - low

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
    routes, num_nodes = instance.routes, problem.topology.num_nodes
    times = len(routes) + len(routes.res) + num_nodes**2
    if instance.grid is None and times * len(problem.chunks.sizes) > PASS_WORK:
        return "chunks of very many sizes need tables that would not fit"
    if problem.topology.has_profiles:
        if instance.grid is not None:
            return "rates change on a grid"
        if rate_steps(problem) is None:
            return "rates change at times or by amounts that are no whole numbers"
    return None


def inserted_plans(instance: Instance, goal: Goal, *, single: bool = False) -> Iterator[Plan]:
    """Yield plans made by inserting all chunks in several orders, each better than those before.

    Parameters
    ----------
    instance
        What is to be scheduled; nothing is yielded where `refusal` says why.
    goal
        Says when a further pass is worth it. Where no other plan is known, the first one goes to
        its end whatever that takes.
    single
        Whether no GPU may receive a chunk twice, even where chunks cannot wait.
    """
    if refusal(instance) is not None:
        return
    if instance.problem.has_reductions:
        copies = inserted_plans(turned_instance(instance), goal, single=True)
        yield from (turned_plan(instance, plan) for plan in copies)
        return
    goal.begin(_tabulation_work(instance))
    shop = Workshop(instance, seed=goal.seed, single=single)
    alone = shop.alone()
    if alone is None:
        return
    best, done, estimate = NEVER, 0, estimated_work(instance) // STEPS
    for order, price, due in _passes(shop, alone, goal):
        shop.set_prices(price)
        shop.set_due(due)
        shop.clear()
        is_needed = min(best, goal.known) == NEVER
        # An estimate may be too low, and all of a pass is lost if it ends early.
        most = 2 * STEPS * max(goal.allowance - goal.spent, estimate)
        is_served = shop.insert(order, until=FAR if is_needed else done + most)
        work, done = (shop.work - done) // STEPS, shop.work
        goal.spent += work
        if is_served and shop.finish < best:
            best = shop.finish
            yield shop.plan()
        if best <= goal.target or not goal.is_worth(min(best, goal.known), work):
            return


def insertion_work(instance: Instance) -> int:
    """Units of inserting every chunk once."""
    return _tabulation_work(instance) + estimated_work(instance) // STEPS


def _tabulation_work(instance: Instance) -> int:
    """Units of making tables of what is to be inserted, and a plan of what was."""
    return PYTHON_UNITS * num_deliveries(instance.problem)


def _passes(
    shop: Workshop, alone: IntArray, goal: Goal
) -> Iterator[tuple[IntArray, FloatArray, int]]:
    """Yield orders of jobs, prices of resources, and when everything is due.

    The longest when alone come first, or those of the fullest port; what was better is kept. A
    resource that was full in the pass before costs as much as the time for which it is held, or
    several times that, others less in proportion.
    """
    generator = np.random.Generator(np.random.PCG64(goal.seed))
    turns = _turns(shop)
    found: list[tuple[int, int, IntArray | FloatArray]] = []
    for urgency in (alone, _port_loads(shop)):
        yield np.lexsort((turns, -urgency)), np.zeros(len(shop.net.limit)), NEVER
        found.append((shop.finish, len(found), urgency))
    best, _, urgency = min(found)
    if shop.net.buffer < 0 and np.diff(shop.jobs.job["want"]).max(initial=0) > 1:
        for due in _dues(shop, best, max(goal.target, int(alone.max()))):
            yield generator.permutation(len(alone)), _handing_on(shop), due
    for weight in PRICES:
        load = shop.loads()
        order = np.lexsort((generator.permutation(len(alone)), -urgency))
        yield order, weight * load / max(1.0, load.max(initial=0.0)), NEVER


def _dues(shop: Workshop, best: int, least: int) -> Iterator[int]:
    """Yield times by which everything is due, each after a pass with the one before.

    Of what could be gained a half, and less wherever that was too much.
    """
    step = (best - least) // 2
    while PART * step > best - least:
        yield best - step
        if shop.finish < best:
            best = shop.finish
            step = min(step, (best - least) // 2)
        else:
            step //= 2


def _handing_on(shop: Workshop) -> FloatArray:
    """Price at which a transfer over the fullest resource costs as much as the shortest route."""
    load = shop.loads()
    full = int(load.argmax())
    hold = shop.net.entry["hold"][shop.net.entry["res"] == full]
    price: FloatArray = load / load[full] * (shop.net.route["length"][:, :-1].min() / hold.min())
    return price


def _port_loads(shop: Workshop) -> FloatArray:
    """Time for which all that leaves a job's source, or reaches who wants it, fills their links."""
    topology, jobs = shop.instance.problem.topology, shop.jobs
    size = np.array(shop.instance.problem.chunks.sizes, dtype=float)[jobs.job["size_index"][:-1]]
    rate = np.array(topology.each_link(lambda link: float(topology.rate(link))))
    urgency = np.zeros(len(size))
    for link_end, first, node in (
        (topology.link_src, jobs.job["source"], jobs.source["node"]),
        (topology.link_dst, jobs.job["want"], jobs.want),
    ):
        job = np.repeat(np.arange(len(size)), np.diff(first))
        count = topology.num_nodes
        whole = np.maximum(np.bincount(link_end, rate, minlength=count), 1.0)
        load = np.bincount(node, size[job], minlength=count) / whole
        np.maximum.at(urgency, job, load[node])
    return urgency


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
    they hold. Chunks of different sizes leave gaps that those after them do not fit, each of which
    is looked at on every link of a way in turn; and each size has tables of its own.
    """
    routes, table = instance.routes, instance.problem.chunks
    # Sums are made backwards: whoever contributes is a destination then.
    ends = np.where(table.reduce, table.source_set, table.destination_set)
    count = np.array([len(nodes) for nodes in table.sets])[ends]
    per_gpu = len(routes) / max(1, instance.problem.topology.num_gpus)
    held = len(routes.res) / max(1, len(routes))
    looks = count.sum() * (8 * per_gpu * (1 + held) + BOOK_STEPS)
    if instance.grid is not None or len(table.sizes) == 1:
        return int(looks)
    # As many bookings as there are on the fullest port.
    into = np.bincount(table.destination_set, count, minlength=len(table.sets))
    out = np.bincount(table.source_set, count, minlength=len(table.sets))
    gaps = int(max(into.max(), out.max())) ** 2
    return int(looks + count.sum() * gaps + STEPS * len(table.sizes) * len(routes.res))


def _scrambled(seed: int) -> int:
    """Return a state for the generator that differs much between seeds and is never zero."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) | 1
