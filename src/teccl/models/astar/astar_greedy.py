"""What is left of a schedule, chunk by chunk along the ways that arrive first.

No model is solved, so this ends soon. It completes rounds that were stopped and carries on those
that a solver brought nowhere: what it makes is right, not short.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from teccl.models.astar.astar_round import AstarState
from teccl.models.milp.arcs import NEVER, Arcs

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Flow = tuple[int, int, int]


class GreedyStep(NamedTuple):
    """Arcs that start together, each the next one's stem, and the epoch in which they do."""

    chain: tuple[int, ...]
    epoch: int


class Label(NamedTuple):
    """A chunk at a node from a moment on, by a step (None: without one) from another label."""

    moment: int
    order: int
    node: int
    step: GreedyStep | None
    before: "Label | None"

    def steps(self) -> list[GreedyStep]:
        """Return the steps that lead here, the last first."""
        label, found = self, []
        while label.step is not None and label.before is not None:
            found.append(label.step)
            label = label.before
        return found


def greedy_flows(
    arcs: Arcs,
    state: AstarState,
    *,
    begin: int,
    length: int,
    pause: Callable[[], None],
    first_only: bool = False,
) -> list[Flow]:
    """Deliver what is missing, always next what can arrive first.

    Parameters
    ----------
    arcs
        Those of a window, with what its places have free.
    begin, length
        The window's first epoch, and epochs of it in which GPUs may start.
    pause
        Called before each look for a way; it may raise.
    first_only
        Whether one delivery is enough.

    Returns
    -------
    list
        Chunk, arc and epoch of every flow, epochs counted from the start of the schedule. What
        the window is too short for is left.
    """
    laying = _Laying.of(arcs, state, begin=begin, length=length)
    # Links fill up, so that what is missing arrives no earlier than when it was last looked at.
    queue = [(0, m) for m in np.flatnonzero(state.missing.any(axis=1)).tolist()]
    while queue:
        pause()
        _, m = heapq.heappop(queue)
        label = laying.soonest(m)
        if label is None:
            continue
        if not queue or (label.moment, m) <= queue[0]:
            laying.lay(m, label.steps())
            if first_only:
                break
            if not laying.missing[m].any():
                continue
        heapq.heappush(queue, (label.moment, m))
    return laying.flows


@dataclass(slots=True, kw_only=True)
class _Laying:
    """What is where when, and what places have free, while flows are laid; epochs of a window."""

    arcs: Arcs
    begin: int
    length: int
    free: IntArray
    has: IntArray
    missing: BoolArray
    uses: dict[int, list[int]]
    users: dict[int, list[int]]
    moves: dict[int, list[tuple[int, ...]]]
    open: dict[int, BoolArray] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    started: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))

    @staticmethod
    def of(arcs: Arcs, state: AstarState, *, begin: int, length: int) -> "_Laying":
        """Begin with what a state has."""
        uses: dict[int, list[int]] = defaultdict(list)
        users: dict[int, list[int]] = defaultdict(list)
        for use, arc in enumerate(arcs.use_arc.tolist()):
            uses[arc].append(use)
            users[int(arcs.use_place[use])].append(arc)
        moves: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for arc in np.flatnonzero(arcs.end >= 0).tolist():
            chain = [arc]
            while arcs.parent[chain[-1]] >= 0:
                chain.append(int(arcs.parent[chain[-1]]))
            moves[int(arcs.src[arc])].append(tuple(reversed(chain)))
        return _Laying(
            arcs=arcs,
            begin=begin,
            length=min(length, arcs.limit.shape[1]),
            free=arcs.limit.copy(),
            has=np.where(state.has_from < NEVER, np.maximum(state.has_from - begin, 0), NEVER),
            missing=state.missing.copy(),
            uses=uses,
            users=users,
            moves=moves,
        )

    def soonest(self, m: int) -> Label | None:
        """Find where a chunk is missing and can be first, None if it is nowhere in time."""
        order = itertools.count()
        heap = [
            Label(moment, next(order), node, None, None) for node, moment in self._whereabouts(m)
        ]
        heapq.heapify(heap)
        closed: set[tuple[int, int]] = set()
        while heap:
            label = heapq.heappop(heap)
            passes = bool(self.arcs.is_switch[label.node])
            if passes and label.step is not None and label.before is not None:
                # Later a switch may have an output free that it has not now.
                again = GreedyStep(label.step.chain, label.step.epoch + 1)
                self._push(heap, order, m, again, label.before)
            # GPUs keep what they get, so that only the first moment counts there.
            key = (label.node, label.moment if passes else -1)
            if key in closed:
                continue
            if self.missing[m, label.node]:
                if self._fit_together(m, label.steps()):
                    return label
                continue
            closed.add(key)
            for chain in self.moves[label.node]:
                self._push(heap, order, m, GreedyStep(chain, label.moment), label)
        return None

    def lay(self, m: int, steps: list[GreedyStep]) -> None:
        """Take what steps hold, and note where they bring the chunk."""
        for chain, epoch in steps:
            for arc in self._new(m, chain, epoch):
                for place, first, last, load in self._holds(arc, epoch):
                    self.free[place, first:last] -= load
                    for user in self.users[place]:
                        self.open.pop(user, None)
                self.flows.append((m, arc, epoch + self.begin))
                self.started[m].add((arc, epoch))
            node = int(self.arcs.end[chain[-1]])
            if not self.arcs.is_switch[node]:
                arrival = epoch + int(self.arcs.delay[chain[-1], epoch])
                self.has[m, node] = min(int(self.has[m, node]), arrival)
                self.missing[m, node] = False

    def _whereabouts(self, m: int) -> list[tuple[int, int]]:
        """Nodes that have a chunk or copy it on, and when."""
        arcs = self.arcs
        found = [(n, int(self.has[m, n])) for n in np.flatnonzero(self.has[m] < NEVER).tolist()]
        for arc, epoch in sorted(self.started[m]):
            node = int(arcs.end[arc])
            if node >= 0 and arcs.splits[node]:
                found.append((node, epoch + int(arcs.delay[arc, epoch])))
        return found

    def _push(
        self,
        heap: list[Label],
        order: "itertools.count[int]",
        m: int,
        step: GreedyStep,
        before: Label,
    ) -> None:
        """Add the label of a step at the first moment from its epoch on at which it fits."""
        last = step.chain[-1]
        node = int(self.arcs.end[last])
        if self.has[m, node] < NEVER and not self.missing[m, node]:
            return
        fits = self._fits(m, step.chain)
        if self.arcs.is_switch[before.node]:
            # What a switch does not pass on at once it never passes on.
            if step.epoch > before.moment or not fits[step.epoch : step.epoch + 1].any():
                return
            epoch = step.epoch
        else:
            later = fits[step.epoch : self.length]
            if not later.any():
                return
            epoch = step.epoch + int(later.argmax())
        arrival = epoch + int(self.arcs.delay[last, epoch])
        heapq.heappush(
            heap, Label(arrival, next(order), node, GreedyStep(step.chain, epoch), before)
        )

    def _new(self, m: int, chain: tuple[int, ...], epoch: int) -> list[int]:
        """Arcs of a chain that do not start then for the same chunk anyway, as stems may."""
        return [
            arc
            for arc in chain
            if len(chain) == 1 or arc == chain[-1] or (arc, epoch) not in self.started[m]
        ]

    def _fits(self, m: int, chain: tuple[int, ...]) -> BoolArray:
        """By epoch, whether a chain can start, stems that start anyway apart."""
        fits = self._open(chain[-1])
        for arc in chain[:-1]:
            stem = self._open(arc).copy()
            stem[[epoch for other, epoch in self.started[m] if other == arc]] = True
            fits = fits & stem
        return fits

    def _open(self, arc: int) -> BoolArray:
        """By epoch, whether an arc can start: its places have room, and it arrives in time."""
        known = self.open.get(arc)
        if known is not None:
            return known
        arcs = self.arcs
        horizon = arcs.limit.shape[1]
        epochs = np.arange(horizon)
        fits: BoolArray = epochs + arcs.delay[arc] <= horizon
        for use in self.uses[arc]:
            full = self.free[arcs.use_place[use]] < arcs.use_load[use]
            count = np.concatenate([[0], np.cumsum(full)])
            first = np.clip(epochs + int(arcs.use_offset[use]), 0, horizon)
            last = np.clip(first + arcs.use_span[use], 0, horizon)
            fits &= count[last] == count[first]
        self.open[arc] = fits
        return fits

    def _fit_together(self, m: int, steps: list[GreedyStep]) -> bool:
        """Whether steps do not take from each other what places have free."""
        taken: dict[int, IntArray] = {}
        for chain, epoch in steps:
            for arc in self._new(m, chain, epoch):
                for place, first, last, load in self._holds(arc, epoch):
                    left = taken.setdefault(place, self.free[place].copy())
                    left[first:last] -= load
        return all((left >= 0).all() for left in taken.values())

    def _holds(self, arc: int, epoch: int) -> list[tuple[int, int, int, int]]:
        """Places that an arc holds, from when to when, and how much of them."""
        arcs = self.arcs
        held = []
        for use in self.uses[arc]:
            first = epoch + int(arcs.use_offset[use])
            last = first + int(arcs.use_span[use, epoch])
            held.append((int(arcs.use_place[use]), max(first, 0), last, int(arcs.use_load[use])))
        return held
