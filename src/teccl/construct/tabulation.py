"""Tabulation: an instance as the tables that the kernels of insertion take."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from teccl.construct.instance import Instance, IntArray, Routes, starts_of, timed_routes
from teccl.construct.params import NEVER
from teccl.construct.passages import may_join
from teccl.keywords import SwitchMode, Transit
from teccl.problem import Problem
from teccl.units import PICOSECONDS

if TYPE_CHECKING:
    from teccl.construct.labels import JobTables
    from teccl.construct.timetable import NetworkTables, Records

# Nodes up to which distances between all of them are computed, to aim searches.
MAX_AIMED = 1024
# A distance that nothing has.
FAR = 2**60


def job_tables(instance: Instance) -> tuple["JobTables", IntArray]:
    """Return what is to be delivered and the chunk of each."""
    from teccl.construct.labels import JOB, SOURCE, JobTables

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
    return JobTables(job=job, source=held, want=want), chunk


def _packed(lists: list[list[int]]) -> tuple[IntArray, IntArray]:
    """Return lists as one CSR list."""
    counts = np.array([len(each) for each in lists], dtype=np.int64)
    values = np.array([value for each in lists for value in each], dtype=np.int64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), values


def network_tables(instance: Instance, *, single: bool) -> "NetworkTables":
    """Return an instance's routes as the kernels take them."""
    from teccl.construct.timetable import NetworkTables

    problem, routes, topology = instance.problem, instance.routes, instance.problem.topology
    timed = [routes]
    if instance.grid is None and len(problem.chunks.sizes) > 1:
        each = np.arange(len(routes))
        sizes = range(len(problem.chunks.sizes))
        timed = [timed_routes(instance, each, np.full_like(each, size)) for size in sizes]
    steps = rate_steps(problem) if topology.has_profiles else None
    length = np.stack([each.length for each in timed])
    if steps is not None:
        length = _shortest_lengths(instance, steps)
    limit, load = _loads(instance)
    return NetworkTables(
        route=_route_table(routes, length),
        entry=_entry_table(timed, load),
        hop=_hop_table(instance),
        limit=limit,
        **_fans(instance),
        distance=_distances(routes.src, routes.dst, length, topology.num_nodes),
        **(steps or _no_steps()),
        buffer=-1 if problem.buffer is None else problem.buffer,
        single=single,
        due=NEVER,
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


def diameter(net: "NetworkTables") -> int:
    """Most routes on a shortest way between nodes that have one."""
    from teccl.construct.timetable import all_distances

    num, routes = net.distance.shape[1], net.route[0, :-1]
    if num > MAX_AIMED:
        return num
    hops = all_distances(routes["src"], routes["dst"], np.ones_like(routes["src"]), num, FAR)
    return int(hops[hops < FAR].max(initial=1))


def rate_steps(problem: Problem) -> dict[str, Any] | None:
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
    link["alpha"][:-1], link["overhead"][:-1] = topology.alpha_ps, topology.overhead_ps
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
    link = steps["link"][:-1]
    hops = -(-steps["units"][:, None] // fastest) + link["alpha"] + link["overhead"]
    lengths: IntArray = np.add.reduceat(hops[:, routes.links], routes.link_start[:-1], axis=1)
    return lengths
