"""Random correct schedules for every mode, by construction and brute force.

Nothing here is shared with the checker: lengths, loads and waiting chunks are counted plainly.
"""

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from tests.verification.helpers import CHUNK, US, net, wants

from teccl.demand import Demand
from teccl.problem import Problem, SwitchMode, Transit
from teccl.schedule.sends import Schedule, send_array
from teccl.timegrid import TimeGrid
from teccl.topology import Topology


def ps(value: Fraction) -> int:
    return -int(-value // 1)


class Planner:
    """Places transfers one after another wherever they fit."""

    def __init__(self, problem: Problem, rng: random.Random, *, slack: int = 0) -> None:
        self.problem, self.rng, self.slack = problem, rng, slack
        self.topology = problem.topology
        self.rows: list[tuple] = []
        self.link_uses = defaultdict(list)
        self.shared_uses = defaultdict(list)
        self.transfers = 0
        self.switches = self.topology.num_switches > 0
        self.hyper = self.switches and problem.switch is SwitchMode.HYPER_EDGE
        self.circuit = self.switches and not self.hyper and problem.transit is Transit.CUT_THROUGH
        self.out_links = defaultdict(list)
        for number, link in enumerate(self.topology.links):
            self.out_links[link.src].append(number)

    def rate(self, number: int) -> Fraction:
        link = self.topology.links[number]
        return min([link.bandwidth, *(self.topology.shared[name] for name in link.shares)])

    def alpha(self, number: int) -> int:
        return ps(self.topology.links[number].alpha * 10**12)

    def is_switch(self, node: int) -> bool:
        return self.topology.nodes[node].is_switch

    def idle(self) -> int:
        """Some useless waiting, so that a replay has something to gain."""
        return self.rng.choice([0, 0, 1, 2, 5]) * self.slack

    def length(self, number: int, start: int) -> int:
        """Picoseconds of a chunk on a link from a start on, rate step by rate step."""
        link = self.topology.links[number]
        if not link.profile:
            return ps(Fraction(CHUNK) / self.rate(number) * 10**12)
        begins = [Fraction(0), *(begin * 10**12 for begin, _ in link.profile)]
        rates = [link.bandwidth, *(value for _, value in link.profile)]
        ceiling = min([self.topology.shared[name] for name in link.shares], default=max(rates))
        now, missing = Fraction(start), Fraction(CHUNK)
        for i, value in enumerate(rates):
            speed = min(value, ceiling) / 10**12
            until = begins[i + 1] if i + 1 < len(begins) else now + missing / speed
            if until <= now:
                continue
            until = min(until, now + missing / speed)
            missing -= speed * (until - now)
            now = until
        assert missing == 0
        return ps(now) - start

    def shape(self, hops, base: int):
        """(link, start, held, arrival, rate, alphas) of hops given as (link, parent)."""
        slowest = min(self.rate(link) for link, _ in hops)
        placed = []
        roots = [i for i, (_, parent) in enumerate(hops) if parent is None]
        for link, parent in hops:
            alpha = way = self.alpha(link)
            start, speed = base, slowest if self.circuit or self.hyper else self.rate(link)
            if parent is not None:
                _, begun, was_held, _, _, before = placed[parent]
                alpha_in = self.alpha(hops[parent][0])
                start = begun + (
                    0 if self.hyper else alpha_in if self.circuit else was_held + alpha_in
                )
                way = before + alpha
            held = ps(Fraction(CHUNK) / speed * 10**12)
            if not (self.circuit or self.hyper):
                held = self.length(link, start)
            if parent is None and len(roots) > 1:
                # Roots that merge reach their switch together, at the base.
                start -= alpha if self.circuit else held + alpha
            arrival = start + held + (way if self.hyper else alpha)
            placed.append((link, start, held, arrival, speed, way))
        return placed

    def clash(self, placed) -> int:
        """How far to move a shape so that it passes the first thing in its way, 0 if it fits."""
        added = defaultdict(list)
        for link, begin, held, _, speed, _ in placed:
            end = begin + held
            if begin < 0:
                return -begin
            for name in self.topology.links[link].shares:
                for other in self.shared_uses[name]:
                    if begin < other[1] and other[0] < end:
                        return other[1] - begin
            near = [u for u in self.link_uses[link] + added[link] if begin < u[1] and u[0] < end]
            loads = [
                sum(u[2] for u in near if u[0] <= moment < u[1])
                for moment in [begin, *(u[0] for u in near if u[0] > begin)]
            ]
            room = self.rate(link) if self.circuit else speed
            if loads and max(loads) + speed > room:
                return min(u[1] for u in near) - begin
            added[link].append((begin, end, speed))
        return 0

    def commit(self, chunk: int, placed, *, reduce: bool = False) -> dict[int, int]:
        """Add a transfer; returns the arrival at each GPU it reaches."""
        reached = {}
        for link, begin, held, arrival, speed, _ in placed:
            self.link_uses[link].append((begin, begin + held, speed))
            for name in self.topology.links[link].shares:
                self.shared_uses[name].append((begin, begin + held))
            self.rows.append((chunk, link, begin, self.transfers, reduce))
            node = self.topology.links[link].dst
            if not self.is_switch(node):
                reached[node] = arrival
        self.transfers += 1
        return reached

    def send(self, chunk: int, hops, not_before: int, *, reduce: bool = False) -> dict[int, int]:
        """Add one transfer at the earliest base at which it fits, or a little later."""
        base = not_before + self.idle()
        while move := self.clash(self.shape(hops, base)):
            base += move
        return self.commit(chunk, self.shape(hops, base), reduce=reduce)

    def walk(self, node: int, stop) -> list | None:
        """Random way from a GPU through switches to a GPU for which `stop` holds."""
        hops, seen, parent = [], {node}, None
        while True:
            links = [e for e in self.out_links[node] if self.topology.links[e].dst not in seen]
            if not links:
                return None
            link = self.rng.choice(links)
            hops.append((link, parent))
            parent = len(hops) - 1
            node = self.topology.links[link].dst
            seen.add(node)
            if not self.is_switch(node):
                return hops if stop(node) else None

    def branch(self, hops: list, stop) -> list:
        """Let switches on a way copy to further GPUs."""
        if self.problem.switch is not SwitchMode.COPY or not self.problem.copy:
            return hops
        used = {self.topology.links[link].dst for link, _ in hops}
        shares = [name for link, _ in hops for name in self.topology.links[link].shares]
        for i, (link, _) in enumerate(list(hops)):
            switch = self.topology.links[link].dst
            if not self.is_switch(switch):
                continue
            for out in self.out_links[switch]:
                end = self.topology.links[out].dst
                names = self.topology.links[out].shares
                free = end not in used and not set(names) & set(shares)
                if free and not self.is_switch(end) and stop(end) and self.rng.random() < 0.6:
                    hops = [*hops, (out, i)]
                    used.add(end)
                    shares += names
        return hops

    def schedule(self, **options) -> Schedule:
        chunk, link, start, transfer, reduce = zip(*self.rows, strict=True)
        sends = send_array(chunk, link, start, transfer=transfer, reduce=reduce)
        return Schedule(problem=self.problem, sends=sends, **options)

    def ready(self, chunk: int, node: int) -> int:
        table = self.problem.chunks
        tenant = self.problem.demand.tenants[table.tenant[chunk]]
        rank = list(self.topology.gpus).index(node)
        return ps(tenant.ready.get(rank, Fraction(0)) * 10**12)

    def bad_shape(self, hops) -> bool:
        """Whether a transfer would get in its own way on a capacity that its hops share."""
        names = [name for link, _ in hops for name in self.topology.links[link].shares]
        return len(names) != len(set(names))


def flood(problem: Problem, rng: random.Random, *, slack: int = 0) -> Schedule:
    """Copy chunks from holders to others at random until every demand is met."""
    planner = Planner(problem, rng, slack=slack)
    table = problem.chunks
    gpus = set(problem.topology.gpus.tolist())
    todo = []
    held = {}
    for chunk in range(len(table)):
        held[chunk] = {int(n): planner.ready(chunk, int(n)) for n in table.sources(chunk)}
        wanted = set(table.destinations(chunk).tolist()) - set(held[chunk])
        todo.append(wanted)
    while any(todo):
        chunk = rng.choice([c for c, wanted in enumerate(todo) if wanted])
        holder = rng.choice(sorted(held[chunk]))
        targets = gpus if rng.random() < 0.3 else todo[chunk]
        fresh = lambda node: node in targets and node not in held[chunk]  # noqa: B023, E731
        hops = planner.walk(holder, fresh)
        if hops is None:
            fresh = lambda node: node not in held[chunk]  # noqa: B023, E731
            hops = planner.walk(holder, fresh)
        if hops is None or planner.bad_shape(hops):
            continue
        hops = planner.branch(hops, fresh)
        reached = planner.send(chunk, hops, held[chunk][holder])
        held[chunk].update(reached)
        todo[chunk] -= set(reached)
    return planner.schedule()


def routes(
    problem: Problem, rng: random.Random, *, slack: int = 0, rigid: bool = False
) -> Schedule:
    """Send every wanted copy its own way from the source, forwarded by GPUs.

    With `rigid` a GPU forwards at the instant of arrival.
    """
    planner = Planner(problem, rng, slack=slack)
    table = problem.chunks
    for chunk in range(len(table)):
        source = int(table.sources(chunk)[0])
        for target in sorted(set(table.destinations(chunk).tolist()) - {source}):
            legs = None
            while legs is None:
                legs = _legs(planner, source, target)
            time = planner.ready(chunk, source)
            if not rigid:
                for hops in legs:
                    time = max(planner.send(chunk, hops, time).values())
                continue
            _send_rigidly(planner, chunk, legs, time)
    return planner.schedule()


def _legs(planner: Planner, source: int, target: int):
    """Random simple way over GPUs, one list of hops per stretch between GPUs, or None."""
    legs, node, seen = [], source, {source}
    while node != target:
        hops = planner.walk(node, lambda end: end not in seen)
        if hops is None or planner.bad_shape(hops):
            return None
        legs.append(hops)
        node = planner.topology.links[hops[-1][0]].dst
        seen.add(node)
    return legs


def _send_rigidly(planner: Planner, chunk: int, legs, time: int) -> None:
    base = time + planner.idle()
    while True:
        shapes, at = [], base
        for hops in legs:
            shapes.append(planner.shape(hops, at))
            at = max(row[3] for row in shapes[-1])
        move = max(planner.clash(placed) for placed in shapes)
        if not move:
            break
        base += move
    for placed in shapes:
        planner.commit(chunk, placed)


def reductions(problem: Problem, rng: random.Random, *, slack: int = 0) -> Schedule:
    """Reduce every chunk along a random tree to a root, then copy it to the destinations."""
    planner = Planner(problem, rng, slack=slack)
    table = problem.chunks
    for chunk in range(len(table)):
        wanted = sorted(table.destinations(chunk).tolist())
        root = rng.choice(wanted)
        ready = _reduce_to(planner, chunk, root)
        held = {root: ready}
        missing = set(wanted) - {root}
        while missing:
            holder = rng.choice(sorted(held))
            fresh = lambda node: node in missing  # noqa: B023, E731
            hops = planner.walk(holder, fresh)
            if hops is None or planner.bad_shape(hops):
                continue
            hops = planner.branch(hops, fresh)
            reached = planner.send(chunk, hops, held[holder])
            held.update(reached)
            missing -= set(reached)
    return planner.schedule()


def _reduce_to(planner: Planner, chunk: int, root: int) -> int:
    """Merge all contributions at a root; returns when the sum is complete."""
    sources = set(planner.problem.chunks.sources(chunk).tolist())
    way, order = _tree_to(planner, root, sources)
    full = {node: planner.ready(chunk, node) if node in sources else 0 for node in order}
    merged = _merge_at_switch(planner, chunk, root, way, full)
    for node in reversed(order):
        if node == root or node in merged:
            continue
        reached = planner.send(chunk, way[node], full[node], reduce=True)
        ((parent, time),) = reached.items()
        full[parent] = max(full[parent], time)
    return full[root]


def _tree_to(planner: Planner, root: int, sources: set[int]):
    """Ways towards a root: hops from each node of a random tree to its parent."""
    while True:
        way, order = {}, [root]
        for _ in range(400):
            node = planner.rng.choice(sorted(planner.topology.gpus.tolist()))
            if node in order:
                continue
            hops = planner.walk(node, lambda end, order=order: end in order)
            if hops is not None and not planner.bad_shape(hops):
                way[node] = hops
                order.append(node)
            if sources <= set(order):
                return _pruned(planner, root, way, order, sources)


def _pruned(planner: Planner, root: int, way, order, sources):
    """Drop relays that no source needs; order is from the root outwards."""
    parent = {node: planner.topology.links[hops[-1][0]].dst for node, hops in way.items()}
    needed = {root}
    for node in sources:
        while node not in needed:
            needed.add(node)
            node = parent[node]  # noqa: PLW2901
    return way, [node for node in order if node in needed]


def _merge_at_switch(planner: Planner, chunk: int, root: int, way, full) -> set[int]:
    """Combine leaves that reach the root through one reducing switch into a single transfer."""
    if planner.hyper or planner.topology.has_profiles:
        return set()
    inner = {planner.topology.links[hops[-1][0]].dst for hops in way.values()}
    groups = defaultdict(list)
    for node, hops in way.items():
        ends = [planner.topology.links[link].dst for link, _ in hops]
        if node in full and node not in inner and len(hops) == 2 and ends[1] == root:
            groups[ends[0]].append(node)
    for switch, members in groups.items():
        ways_in = [way[node][0][0] for node in members]
        hops = [(link, None) for link in ways_in] + [(way[members[0]][1][0], 0)]
        reduces = planner.topology.nodes[switch].reduce
        if len(members) > 1 and reduces and not planner.bad_shape(hops):
            lead = -min(row[1] for row in planner.shape(hops, 0))
            time = max(full[node] for node in members) + lead
            reached = planner.send(chunk, hops, time, reduce=True)
            full[root] = max(full[root], reached[root])
            return set(members)
    return set()


def exchanges(gpus: int, rng: random.Random, *, slack: int = 0) -> Schedule:
    """Recursive doubling AllReduce on fully connected GPUs (a power of two)."""
    names = [f"g{i}" for i in range(gpus)]
    links = [
        f"{a}-{b} 1 {Fraction(rng.randrange(4), 4)}" for i, a in enumerate(names) for b in names[:i]
    ]
    topology = net(" ".join(names), ", ".join(links))
    problem = Problem(topology=topology, demand=Demand.collective("allreduce", size=gpus * CHUNK))
    planner = Planner(problem, rng, slack=slack)
    link_of = {(e.src, e.dst): i for i, e in enumerate(topology.links)}
    for chunk in range(gpus):
        time = [0] * gpus
        for bit in range(gpus.bit_length() - 1):
            for a in range(gpus):
                b = a ^ (1 << bit)
                if a > b:
                    continue
                base = max(time[a], time[b])
                while True:
                    pair = [
                        planner.shape([(link_of[ends], None)], base) for ends in ((a, b), (b, a))
                    ]
                    move = max(planner.clash(placed) for placed in pair)
                    if not move:
                        break
                    base += move
                arrived = {}
                for placed in pair:
                    arrived |= planner.commit(chunk, placed, reduce=True)
                time[a], time[b] = arrived[a], arrived[b]
    return planner.schedule()


def add_profiles(topology: Topology, rng: random.Random) -> Topology:
    """Let the bandwidth of some links change twice."""
    links = []
    for link in topology.links:
        steps = ((Fraction(rng.randrange(1, 9), 2 * 10**6), 4), (Fraction(9, 10**6), 1))
        profile = tuple(
            (begin, link.bandwidth * Fraction(rng.randrange(1, 9), part)) for begin, part in steps
        )
        links.append(replace(link, profile=profile) if rng.random() < 0.5 else link)
    return replace(topology, links=tuple(links))


def random_network(
    rng: random.Random, *, quantised: bool = False, reduce: bool = False, most_switches: int = 2
) -> Topology:
    """A few GPUs, every other reachable, perhaps through switches, perhaps sharing capacity."""
    gpus = rng.randrange(3, 6)
    switches = min(rng.choice([0, 1, 1, 2]), most_switches)
    rates = ["1", "1/2"] if quantised else ["1", "2", "1/2", "3", "4/7"]
    alphas = ["0", "1", "2"] if quantised else ["0", "1/4", "1", "37/100"]
    names = [f"g{i}" for i in range(gpus)]
    hubs = [f"s{i}" for i in range(switches)]
    is_star = switches > 0 and rng.random() < 0.5
    pairs = [(names[i], names[(i + 1) % gpus]) for i in range(gpus)] if not is_star else []
    for hub in hubs:
        everyone = is_star and hub == hubs[0]
        joined = names if everyone else rng.sample(names, rng.randrange(2, gpus + 1))
        pairs += [(hub, name) for name in joined]
    if switches == 2:
        pairs.append((hubs[0], hubs[1]))
    shares = ["", "", "", "", " /nic"] if rng.random() < 0.4 else [""]
    # Only links that leave GPUs share, so that a way through switches never needs a share twice.
    links = [
        f"{a}>{b} {rng.choice(rates)} {rng.choice(alphas)}"
        + (rng.choice(shares) if a in names else "")
        for pair in pairs
        for a, b in (pair, pair[::-1])
    ]
    plus = "+" if reduce else ""
    text = f"{' '.join(names)} | {' '.join(hub + plus for hub in hubs)}"
    return net(text, ", ".join(links), {"nic": "1"})


MODES = {
    "store-and-forward": {},
    "no-copy switches": {"switch": SwitchMode.NO_COPY},
    "cut-through": {"transit": Transit.CUT_THROUGH},
    "cut-through, no-copy switches": {
        "transit": Transit.CUT_THROUGH,
        "switch": SwitchMode.NO_COPY,
    },
    "hyper-edge": {"switch": SwitchMode.HYPER_EDGE},
}


def random_demand(rng: random.Random, gpus: int, *, reduce: bool, several: bool) -> Demand:
    """A collective or an explicit demand, perhaps with ready times, perhaps of two tenants."""
    if reduce:
        name = rng.choice(["allreduce", "reducescatter", "reduce"])
        count = 1 if name == "reduce" else gpus
    else:
        name = rng.choice(["allgather", "broadcast", "alltoall", "scatter"])
        count = 1 if name == "broadcast" else gpus
    ready = {rng.randrange(gpus): Fraction(rng.randrange(3), 10**6)}
    first = Demand.collective(name, size=count * CHUNK, ready=ready)
    if not several:
        return first
    extra = [
        (tuple(rng.sample(range(gpus), 1 + rng.randrange(2))), (rng.randrange(gpus),))
        for _ in range(2)
    ]
    return Demand(tenants=(*first.tenants, wants(*extra, name="other")))


def random_schedule(seed: int) -> Schedule:
    """A correct schedule of a kind that the seed chooses."""
    rng = random.Random(seed)
    kind = rng.choice(
        ["flood", "flood", "routes", "no copy", "unbuffered", "reduce", "reduce", "exchange"]
    )
    mode = MODES[rng.choice(list(MODES))]
    quantised = rng.random() < 0.4
    slack = rng.choice([0, US]) if quantised else rng.choice([0, 1, 12_345])
    if kind == "exchange":
        return exchanges(rng.choice([2, 4]), rng, slack=slack)
    topology = random_network(rng, quantised=quantised, reduce=rng.random() < 0.7)
    if mode in ({}, {"switch": SwitchMode.NO_COPY}) and not quantised and rng.random() < 0.3:
        topology = add_profiles(topology, rng)
    reduce = kind == "reduce"
    several = kind == "flood" and rng.random() < 0.3
    demand = random_demand(rng, topology.num_gpus, reduce=reduce, several=several)
    problem = Problem(topology=topology, demand=demand, **mode)
    if kind == "no copy":
        problem = replace(problem, copy=False)
    if kind == "unbuffered":
        problem = replace(problem, buffer=0)
    if reduce:
        schedule = reductions(problem, rng, slack=slack)
    elif kind == "flood":
        schedule = flood(problem, rng, slack=slack)
    else:
        schedule = routes(problem, rng, slack=slack, rigid=kind == "unbuffered")
    if kind in {"flood", "routes", "reduce"} and rng.random() < 0.5:
        schedule = with_buffer(schedule, most_waiting(schedule))
    return on_grid(schedule) if quantised else schedule


def on_grid(schedule: Schedule) -> Schedule:
    """Epochs of a schedule all of whose times are whole microseconds."""
    rows = schedule.sends.copy()
    rows["epoch"] = rows["start_ps"] // US
    grid = TimeGrid(problem=schedule.problem, epoch=Fraction(1, 10**6))
    return replace(schedule, sends=rows, grid=grid)


def with_buffer(schedule: Schedule, buffer: int | None) -> Schedule:
    problem = replace(schedule.problem, buffer=buffer)
    return replace(schedule, problem=problem)


def most_waiting(schedule: Schedule) -> int:
    """Largest number of received chunks that wait at a GPU at once, counted plainly."""
    problem, topology = schedule.problem, schedule.problem.topology
    arrivals = arrival_times(schedule)
    visits = defaultdict(list)
    for i, row in enumerate(schedule.sends):
        chunk, link = int(row["chunk"]), topology.links[row["link"]]
        combines = bool(problem.chunks.reduce[chunk])
        own = set(problem.chunks.sources(chunk).tolist())
        for node, time, is_forward in (
            (link.src, int(row["start_ps"]), True),
            (link.dst, arrivals[i], False),
        ):
            if not topology.nodes[node].is_switch and (combines or node not in own):
                replaces = not combines or not row["reduce"]
                visits[node, chunk].append((time, is_forward, replaces))
    most = 0
    for node in {node for node, _ in visits}:
        spans = _spans(visits, node)
        for moment, _ in spans:
            most = max(most, sum(begin <= moment < end for begin, end in spans))
    return most


def _spans(visits, node: int) -> list[tuple[int, int]]:
    """Intervals during which chunks wait at a GPU, one per chunk and arrival."""
    spans = []
    for (where, _), events in visits.items():
        if where != node:
            continue
        origin, until = None, None
        for time, is_forward, replaces in sorted(events):
            if is_forward:
                until = time if origin is not None else None
            elif origin is None or replaces:
                if until is not None:
                    spans.append((origin, until))
                origin, until = time, None
        if until is not None:
            spans.append((origin, until))
    return [(begin, end) for begin, end in spans if begin < end]


def arrival_times(schedule: Schedule) -> list[int]:
    """Arrival of each row, recomputed hop by hop from the planner's rules."""
    planner = Planner(schedule.problem, random.Random(0))
    topology, rows = schedule.problem.topology, schedule.sends
    groups = defaultdict(list)
    for i, row in enumerate(rows):
        groups[int(row["transfer"])].append(i)
    arrivals = [0] * len(rows)
    for members in groups.values():
        slowest = min(planner.rate(int(rows[i]["link"])) for i in members)
        into = {topology.links[rows[i]["link"]].dst: i for i in members}
        for i in members:
            number = int(rows[i]["link"])
            speed = slowest if planner.circuit or planner.hyper else planner.rate(number)
            held = ps(Fraction(CHUNK) / speed * 10**12)
            if not (planner.circuit or planner.hyper):
                held = planner.length(number, int(rows[i]["start_ps"]))
            way = planner.alpha(number)
            before = into.get(topology.links[number].src)
            while planner.hyper and before is not None:
                way += planner.alpha(int(rows[before]["link"]))
                before = into.get(topology.links[rows[before]["link"]].src)
            arrivals[i] = int(rows[i]["start_ps"]) + held + way
    return arrivals
