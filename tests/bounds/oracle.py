r"""The least finish of tiny problems, by 0-1 programs written from the rules alone.

======  =====================================================================================
symbol  meaning
======  =====================================================================================
m, h    chunk; hop (a link, or a whole circuit where switches pass data on at once)
k, K    epoch (or exact unit of time); horizon, at whose start everything must be usable
F       1 if chunk m starts on hop h in k
P       for sums that several want: 1 if what m carries on h in k contains a contribution
======  =====================================================================================

Data that is copied may be sent on by a GPU from its arrival on and must leave a switch at the very
epoch of its arrival. A sum for one destination is an in-tree: every GPU sends at most once, after
all that it receives. For sums that several want, sends may carry any union of contributions, even
of one twice over; that is easier than a real sum, so the optimum found is a lower one.
"""

from collections import defaultdict
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from tests.bounds.clock import Clock, Hop

from teccl.problem import SwitchMode
from teccl.schedule.sends import Schedule, send_array

if TYPE_CHECKING:
    from fractions import Fraction

FAR = 10**6


class Start(NamedTuple):
    """A chunk that starts on a hop."""

    chunk: int
    hop: Hop
    time: int


class OutOfTimeError(Exception):
    """The program could not be decided within the limit."""


class Program:
    """Columns from 0 to a limit, mostly 1, and rows as inequalities."""

    def __init__(self) -> None:
        self.whole: list[bool] = []
        self.limit: list[int] = []
        self.entries: list[tuple[int, int, float]] = []
        self.upper: list[float] = []

    def column(self, *, whole: bool = True, limit: int = 1) -> int:
        self.whole.append(whole)
        self.limit.append(limit)
        return len(self.whole) - 1

    def at_most(self, terms: list[tuple[int, int]], bound: int) -> None:
        """Add the row: sum of factor times column is at most a bound."""
        row = len(self.upper)
        self.entries += [(row, column, factor) for column, factor in terms]
        self.upper.append(bound)

    def solve(self, seconds: float) -> np.ndarray | None:
        """Values of the columns, None if there are none."""
        if not self.entries:
            return np.zeros(len(self.whole)) if min(self.upper, default=0) >= 0 else None
        rows, columns, factors = zip(*self.entries, strict=True)
        shape = (len(self.upper), len(self.whole))
        matrix = csr_array((factors, (rows, columns)), shape=shape)
        result = milp(
            np.zeros(len(self.whole)),
            constraints=LinearConstraint(matrix, -np.inf, np.array(self.upper)),
            integrality=np.array(self.whole, dtype=int),
            bounds=Bounds(0, np.array(self.limit)),
            options={"time_limit": seconds},
        )
        if result.status == 2:
            return None
        if result.x is None:
            raise OutOfTimeError
        return np.asarray(result.x)


class Oracle:
    """Whether a problem can be finished by a horizon, and the least one."""

    def __init__(self, clock: Clock, *, seconds: float = 60.0) -> None:
        self.clock, self.seconds = clock, seconds
        self.problem = clock.problem
        topology = self.problem.topology
        self.is_switch = [node.is_switch for node in topology.nodes]
        self.reduces = [node.reduce for node in topology.nodes]
        self.hops = [clock.hops(size) for size in self.problem.chunks.sizes]
        self.ways = [_distances(hops, topology.num_nodes) for hops in self.hops]

    def optimum(self, *, start: int = 0, limit: int = 40) -> int | None:
        """Least horizon from `start` on that suffices, None if none up to the limit does."""
        horizons = range(start, limit + 1)
        return next((k for k in horizons if self.starts(k) is not None), None)

    def starts(self, horizon: int) -> list[Start] | None:
        """Sends that finish by a horizon, None if there are none."""
        attempt = Attempt(self, horizon)
        values = attempt.program.solve(self.seconds)
        if values is None:
            return None
        return [Start(m, hop, k) for (m, hop, k), c in attempt.sends.items() if values[c] > 0.5]


class Attempt:
    """The program for one horizon."""

    def __init__(self, oracle: Oracle, horizon: int) -> None:
        self.oracle, self.horizon = oracle, horizon
        self.problem, self.program = oracle.problem, Program()
        self.sends: dict[tuple[int, Hop, int], int] = {}
        table = self.problem.chunks
        for m in range(len(table)):
            self.leaving: dict[tuple[int, int], list[int]] = defaultdict(list)
            self.arriving: dict[tuple[int, int], list[int]] = defaultdict(list)
            self.on_hop: dict[Hop, list[tuple[int, int]]] = defaultdict(list)
            if not table.reduce[m]:
                self._add_sends(m)
                self._copy_rows(m)
            elif len(table.destinations(m)) == 1:
                self._add_sends(m)
                self._sum_rows(m)
            else:
                self._union_rows(m, self._add_sends(m))
        self._capacity_rows()

    def _add_sends(self, m: int) -> list[tuple[Hop, int, int]]:
        """Add F for all hops and times that can matter: after the first holder, before the end."""
        table, oracle = self.problem.chunks, self.oracle
        way = oracle.ways[table.size_index[m]]
        sources, wanted = table.sources(m).tolist(), table.destinations(m).tolist()
        added = []
        for hop in oracle.hops[table.size_index[m]]:
            first = min(oracle.clock.ready(m, s) + way[s][hop.src] for s in sources)
            after = max(delay + min(way[end][t] for t in wanted) for end, delay in hop.ends)
            if self._is_useless(m, hop):
                continue
            limit = self._copies(hop)
            for k in range(first, self.horizon - after + 1):
                column = self.program.column(limit=limit)
                self.sends[m, hop, k] = column
                added.append((hop, k, column))
                self.leaving[hop.src, k].append(column)
                self.on_hop[hop].append((k, column))
                for end, delay in hop.ends:
                    self.arriving[end, k + delay].append(column)
        return added

    def _copies(self, hop: Hop) -> int:
        """How often a chunk may start on a hop in one epoch: again and again where none copies."""
        once = self.problem.copy and not any(self.oracle.is_switch[end] for end, _ in hop.ends)
        return 1 if once else max(self.oracle.clock.limit(e) for e, _ in hop.links)

    def _is_useless(self, m: int, hop: Hop) -> bool:
        """Whether a hop leads back to the only holder, or would count a contribution twice."""
        table = self.problem.chunks
        ends = [end for end, _ in hop.ends]
        if table.reduce[m]:
            return len(ends) > 1 and len(table.destinations(m)) == 1
        return ends == table.sources(m).tolist()

    def _arrived(self, node: int, until: int) -> list[int]:
        return [c for k in range(until + 1) for c in self.arriving.get((node, k), ())]

    def _own(self, m: int, node: int, k: int) -> bool:
        """Whether a node may send its own data of a chunk."""
        is_source = node in self.problem.chunks.sources(m)
        return bool(is_source and self.oracle.clock.ready(m, node) <= k)

    def _copy_rows(self, m: int) -> None:
        r"""GPU: sends on each hop until k <= arrivals until k <= 1. Switch: F(k) <= arrivals at k.

        A GPU gains nothing from sending a chunk to another twice or from receiving it twice; into
        a switch it may have to send it again, for another output.
        """
        table, program = self.problem.chunks, self.program
        sources, wanted = set(table.sources(m).tolist()), set(table.destinations(m).tolist())
        self._passing_rows()
        if not self.problem.copy:
            self._move_rows(m)
            return
        for hop, columns in self.on_hop.items():
            if self.oracle.is_switch[hop.src]:
                continue
            into_switch = any(self.oracle.is_switch[end] for end, _ in hop.ends)
            if not into_switch:
                program.at_most([(c, 1) for _, c in columns], 1)
            for k, column in columns:
                if not self._own(m, hop.src, k):
                    sent = [(c, 1) for time, c in columns if time <= k]
                    sent = [(column, 1)] if into_switch else sent
                    held = self._arrived(hop.src, k)
                    program.at_most([*sent, *((c, -self._copies(hop)) for c in held)], 0)
        for node in {end for end, _ in self.arriving} | wanted:
            arrivals = self._arrived(node, self.horizon)
            if not self.oracle.is_switch[node]:
                program.at_most([(c, 1) for c in arrivals], 1)
            if node in wanted - sources:
                program.at_most([(c, -1) for c in arrivals], -1)

    def _move_rows(self, m: int) -> None:
        """Where nothing is copied a GPU sends on what it received, less what it keeps."""
        table = self.problem.chunks
        sources, wanted = set(table.sources(m).tolist()), set(table.destinations(m).tolist())
        for node in set(range(len(self.oracle.is_switch))) - sources:
            if self.oracle.is_switch[node]:
                continue
            sent: list[tuple[int, int]] = []
            for k in range(self.horizon + 1):
                sent += [(c, 1) for c in self.leaving.get((node, k), ())]
                held = [(c, -1) for c in self._arrived(node, k)]
                kept = 1 if k == self.horizon and node in wanted else 0
                self.program.at_most([*sent, *held], -kept)

    def _passing_rows(self) -> None:
        """What leaves a switch has arrived at that moment; without copy one for one."""
        may_copy = self.problem.switch is SwitchMode.COPY and self.problem.copy
        for (node, k), columns in self.leaving.items():
            if self.oracle.is_switch[node]:
                held = [(c, -1) for c in self.arriving.get((node, k), ())]
                for group in [[c] for c in columns] if may_copy else [columns]:
                    self.program.at_most([*((c, 1) for c in group), *held], 0)

    def _sum_rows(self, m: int) -> None:
        """Add the in-tree of a sum: a GPU sends once, after all arrivals; switches pass on."""
        table, topology = self.problem.chunks, self.problem.topology
        (root,) = table.destinations(m).tolist()
        for node in range(topology.num_nodes):
            out = {k: self.leaving.get((node, k), []) for k in range(self.horizon + 1)}
            if self.oracle.is_switch[node]:
                self._pass_rows(node, out)
            elif node == root:
                self._none([c for columns in out.values() for c in columns])
            else:
                self._node_sum_rows(m, node, out)

    def _pass_rows(self, node: int, out: dict[int, list[int]]) -> None:
        """What arrives at a switch leaves at once, apart or, where it reduces, as one."""
        for k, columns in out.items():
            arrivals = self.arriving.get((node, k), [])
            leave = [(c, 1) for c in columns]
            self.program.at_most([*leave, *((c, -1) for c in arrivals)], 0)
            groups = [[c] for c in arrivals] if self.oracle.reduces[node] else [arrivals]
            for group in groups:
                self.program.at_most([*((c, 1) for c in group), *((c, -1) for c, _ in leave)], 0)

    def _node_sum_rows(self, m: int, node: int, out: dict[int, list[int]]) -> None:
        columns = [c for each in out.values() for c in each]
        self.program.at_most([(c, 1) for c in columns], 1)
        if node in self.problem.chunks.sources(m):
            self._none([c for k, each in out.items() if not self._own(m, node, k) for c in each])
            self.program.at_most([(c, -1) for c in columns], -1)
        else:
            for k, each in out.items():
                held = [(c, -1) for c in self._arrived(node, k)]
                self.program.at_most([*((c, 1) for c in each), *held], 0)
        for hop, starts in self.on_hop.items():
            for end, delay in hop.ends:
                # A GPU sends once, a switch passes on whatever comes.
                several = self.oracle.is_switch[hop.src]
                for k, column in starts if end == node else ():
                    comes = [(c, 1) for time, c in starts if time >= k]
                    comes = [(column, 1)] if several else comes
                    later = [(c, -1) for t, each in out.items() if t >= k + delay for c in each]
                    self.program.at_most([*comes, *later], 0)

    def _none(self, columns: list[int]) -> None:
        if columns:
            self.program.at_most([(c, 1) for c in columns], 0)

    def _union_rows(self, m: int, sends: list[tuple[Hop, int, int]]) -> None:
        """Add P for each contribution: it is sent only where it is, and reaches all who want it."""
        table, program = self.problem.chunks, self.program
        inner = self._switch_choices(sends)
        for s in table.sources(m).tolist():
            carries = {column: program.column(whole=False) for _, _, column in sends}
            for column, share in carries.items():
                program.at_most([(share, 1), (column, -1)], 0)
            for hop, k, column in sends:
                share = carries[column]
                if self.oracle.is_switch[hop.src]:
                    chosen = []
                    for entry, choice in inner[column]:
                        part = program.column(whole=False)
                        program.at_most([(part, 1), (carries[entry], -1)], 0)
                        if choice is not None:
                            program.at_most([(part, 1), (choice, -1)], 0)
                        chosen.append((part, -1))
                    program.at_most([(share, 1), *chosen], 0)
                elif not (hop.src == s and self._own(m, s, k)):
                    held = [(carries[c], -1) for c in self._arrived(hop.src, k)]
                    program.at_most([(share, 1), *held], 0)
            for t in set(table.destinations(m).tolist()) - {s}:
                held = [(carries[c], -1) for c in self._arrived(t, self.horizon)]
                program.at_most(held, -1)

    def _switch_choices(self, sends: list[tuple[Hop, int, int]]) -> dict[int, list]:
        """For every send out of a switch, what it may be made of: one send, or several summed."""
        choices: dict[int, list] = {}
        fed: dict[int, list[int]] = defaultdict(list)
        for hop, k, column in sends:
            if not self.oracle.is_switch[hop.src]:
                continue
            entries = self.arriving.get((hop.src, k), [])
            if self.oracle.reduces[hop.src] and self.problem.switch is SwitchMode.COPY:
                choices[column] = [(entry, None) for entry in entries]
                continue
            choices[column] = [(entry, self.program.column()) for entry in entries]
            if not self.oracle.reduces[hop.src]:
                self.program.at_most([(choice, 1) for _, choice in choices[column]], 1)
            most = self._copies(hop)
            for entry, choice in choices[column]:
                # What leaves as often as that has come as often.
                taken = self.program.column(whole=False, limit=most)
                self.program.at_most([(column, 1), (choice, most), (taken, -1)], most)
                fed[entry].append(taken)
        if self.problem.switch is not SwitchMode.COPY:
            for entry, picks in fed.items():
                self.program.at_most([*((c, 1) for c in picks), (entry, -1)], 0)
        return choices

    def _capacity_rows(self) -> None:
        """No link or shared capacity bears more than its limit in any epoch."""
        loads: dict[tuple[int | str, int], list[tuple[int, Fraction]]] = defaultdict(list)
        for (_, hop, k), column in self.sends.items():
            for use in hop.uses:
                for time in range(k + use.offset, k + use.offset + use.span):
                    loads[use.place, time].append((column, use.load))
        for (place, _), terms in loads.items():
            scale = lcm(*(load.denominator for _, load in terms))
            row: dict[int, int] = defaultdict(int)
            for column, load in terms:
                row[column] += int(load * scale)
            limit = self.oracle.clock.limit(place) * scale
            if sum(load * self.program.limit[column] for column, load in row.items()) > limit:
                self.program.at_most(list(row.items()), limit)


def _distances(hops: list[Hop], num_nodes: int) -> list[list[int]]:
    """Least time from node to node over hops."""
    way = [[0 if a == b else FAR for b in range(num_nodes)] for a in range(num_nodes)]
    for hop in hops:
        for end, delay in hop.ends:
            way[hop.src][end] = min(way[hop.src][end], delay)
    for via in range(num_nodes):
        for a in range(num_nodes):
            for b in range(num_nodes):
                way[a][b] = min(way[a][b], way[a][via] + way[via][b])
    return way


def to_schedule(oracle: Oracle, starts: list[Start]) -> Schedule:
    """The schedule of an exact solution without sums that several want."""
    clock, problem = oracle.clock, oracle.problem
    assert clock.exact
    rows = [
        (start.chunk, use.place, start.time + use.offset, number)
        for number, start in enumerate(_without_losses(oracle, starts))
        for use in start.hop.uses
        if isinstance(use.place, int)
    ]
    chunk, link, time, number = (np.array(column) for column in zip(*rows, strict=True))
    unit_ps = clock.whole(clock.unit * 10**12)
    transfer = np.array(_transfers(oracle, _without_losses(oracle, starts)))[number]
    sends = send_array(
        chunk, link, time * unit_ps, transfer=transfer, reduce=problem.chunks.reduce[chunk]
    )
    return Schedule(problem=problem, sends=sends, method="oracle")


def _passages(oracle: Oracle, starts: list[Start]) -> list[tuple[list[int], list[int]]]:
    """Numbers of the sends that enter and leave a switch with a chunk at a time."""
    into: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    out: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i, (m, hop, k) in enumerate(starts):
        for end, delay in hop.ends:
            if oracle.is_switch[end]:
                into[m, end, k + delay].append(i)
        if oracle.is_switch[hop.src]:
            out[m, hop.src, k].append(i)
    return [(into[key], out[key]) for key in into]


def _joints(oracle: Oracle, starts: list[Start]) -> list[tuple[int, int]]:
    """Pairs of a send into a switch and one that carries the same data out of it."""
    joints = []
    for into, out in _passages(oracle, starts):
        if not out:
            continue
        m, hop, _ = starts[out[0]]
        if oracle.problem.chunks.reduce[m] and oracle.reduces[hop.src]:
            joints += [(a, out[min(i, len(out) - 1)]) for i, a in enumerate(into)]
        elif len(into) < len(out):
            joints += [(into[0], b) for b in out]
        else:
            joints += list(zip(into, out, strict=False))
    return joints


def _without_losses(oracle: Oracle, starts: list[Start]) -> list[Start]:
    """Drop sends that enter a switch and go nowhere."""
    while True:
        joined = {a for a, _ in _joints(oracle, starts)}
        kept = [
            start
            for i, start in enumerate(starts)
            if i in joined or not any(oracle.is_switch[end] for end, _ in start.hop.ends)
        ]
        if len(kept) == len(starts):
            return kept
        starts = kept


def _transfers(oracle: Oracle, starts: list[Start]) -> list[int]:
    """Number of the transfer of each send: those joined at switches have one."""
    label = list(range(len(starts)))
    for _ in starts:
        for a, b in _joints(oracle, starts):
            label[a] = label[b] = min(label[a], label[b])
    return label
