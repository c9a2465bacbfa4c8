"""Ways to break schedules with several partial sums, each with the kinds that may show it."""

import random
from dataclasses import replace

import numpy as np

from teccl.schedule.sends import Schedule
from teccl.schedule.timing import send_times
from teccl.verification import has_same_order

WRONG_CONTENT = {"double-reduction", "unmet-demand"}


class Scene:
    """A correct schedule, and when and of what its partial sums are made, found out plainly."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.sums = schedule.sums
        self.sends = schedule.sends
        topology = schedule.problem.topology
        self.from_gpu = ~topology.is_switch[topology.link_src[self.sends["link"]]]
        self.to_gpu = ~topology.is_switch[topology.link_dst[self.sends["link"]]]
        self.arrival = send_times(schedule).arrival_ps
        self.by = {int(r): i for i, r in enumerate(self.sends["becomes"]) if r >= 0}
        self.root = {
            int(t): i for i, t in enumerate(self.sends["transfer"]) if self.sends["carries"][i] >= 0
        }
        self.made, self.content = {}, {}
        for row in range(len(self.sums)):
            self.visit(row)

    def visit(self, row: int) -> None:
        """Find out about a row and all that it rests on."""
        if row in self.made:
            return
        left, right = int(self.sums["left"][row]), int(self.sums["right"][row])
        if left >= 0:
            self.visit(left)
            self.visit(right)
            self.made[row] = max(self.made[left], self.made[right])
            self.content[row] = self.content[left] | self.content[right]
        elif row in self.by:
            send = self.by[row]
            carried = int(self.sends["carries"][self.root[int(self.sends["transfer"][send])]])
            self.visit(carried)
            self.made[row] = int(self.arrival[send])
            self.content[row] = self.content[carried]
        else:
            self.made[row] = 0
            self.content[row] = frozenset([int(self.sums["node"][row])])

    def neighbours(self, row: int) -> list[int]:
        """Other rows of the same chunk and GPU."""
        same = (self.sums["chunk"] == self.sums["chunk"][row]) & (
            self.sums["node"] == self.sums["node"][row]
        )
        return [int(r) for r in np.flatnonzero(same) if r != row]

    def with_sums(self, **columns) -> Schedule:
        """Return the schedule with some entries of its partial sums changed."""
        sums = self.sums.copy()
        for name, (row, value) in columns.items():
            sums[name][row] = value
        return replace(self.schedule, sums=sums)

    def with_sends(self, row: int, **values) -> Schedule:
        """Return the schedule with one send changed."""
        sends = self.sends.copy()
        for name, value in values.items():
            sends[name][row] = value
        return replace(self.schedule, sends=sends)


def _added(scene: Scene) -> list[int]:
    return np.flatnonzero(scene.sums["left"] >= 0).tolist()


def _leaving(scene: Scene) -> list[int]:
    return np.flatnonzero(scene.from_gpu).tolist()


def add_twice(scene: Scene, rng: random.Random):
    """Let an addition add one of its summands again in place of the other."""
    row = rng.choice(_added(scene))
    other = int(scene.sums["left"][row])
    return scene.with_sums(right=(row, other)), {"double-reduction"}


def add_what_is_in_it(scene: Scene, rng: random.Random):
    """Let an addition take another partial sum that shares a contribution with its first."""
    row = rng.choice(_added(scene))
    left = int(scene.sums["left"][row])
    options = [
        r
        for r in scene.neighbours(left)
        if r < row and r != left and scene.content[r] & scene.content[left]
    ]
    if not options:
        return None
    return scene.with_sums(right=(row, rng.choice(options))), {"double-reduction"}


def leave_out(scene: Scene, rng: random.Random):
    """Mark a partial sum as result that has less in it."""
    row = rng.choice(np.flatnonzero(scene.sums["result"]).tolist())
    options = [r for r in scene.neighbours(row) if scene.content[r] < scene.content[row]]
    sums = scene.sums.copy()
    sums["result"][[row, rng.choice(options)]] = False, True
    return replace(scene.schedule, sums=sums), {"unmet-demand"}


def drop_send(scene: Scene, rng: random.Random):
    """Drop a transfer, so that what it brings never comes."""
    name = rng.choice(np.unique(scene.sends["transfer"]).tolist())
    kept = scene.sends[scene.sends["transfer"] != name]
    kinds = {"wrong-sum", "unmet-demand"}
    return replace(scene.schedule, sends=kept), kinds


def forget_result(scene: Scene, rng: random.Random):
    """Leave a destination without a result."""
    row = rng.choice(np.flatnonzero(scene.sums["result"]).tolist())
    return scene.with_sums(result=(row, False)), {"unmet-demand"}


def send_incomplete(scene: Scene, rng: random.Random):
    """Begin a send before what it carries is complete."""
    options = [r for r in _leaving(scene) if scene.made[int(scene.sends["carries"][r])] > 0]
    if not options:
        return None
    row = rng.choice(options)
    due = scene.made[int(scene.sends["carries"][row])]
    start = due - rng.randint(1, min(due, 1000))
    return scene.with_sends(row, start_ps=start), {"too-early"}


def carry_another(scene: Scene, rng: random.Random):
    """Let a send carry another partial sum of its GPU, with other contributions in it."""
    row = rng.choice(_leaving(scene))
    carried = int(scene.sends["carries"][row])
    options = [r for r in scene.neighbours(carried) if scene.content[r] != scene.content[carried]]
    kinds = WRONG_CONTENT | {"too-early"}
    return scene.with_sends(row, carries=rng.choice(options)), kinds


def carry_from_elsewhere(scene: Scene, rng: random.Random):
    """Let a send carry a partial sum of another GPU."""
    row = rng.choice(_leaving(scene))
    node = scene.sums["node"][scene.sends["carries"][row]]
    options = np.flatnonzero(scene.sums["node"] != node).tolist()
    return scene.with_sends(row, carries=rng.choice(options)), {"wrong-sum"}


def become_another(scene: Scene, rng: random.Random):
    """Let two arrivals become one partial sum."""
    rows = np.flatnonzero(scene.to_gpu).tolist()
    row = rng.choice(rows)
    options = [r for r in scene.neighbours(int(scene.sends["becomes"][row])) if r in scene.by]
    if not options:
        return None
    return scene.with_sends(row, becomes=rng.choice(options)), {"wrong-sum"}


def become_own(scene: Scene, rng: random.Random):
    """Let an arrival become the addition or the own contribution of its GPU."""
    row = rng.choice(np.flatnonzero(scene.to_gpu).tolist())
    options = [r for r in scene.neighbours(int(scene.sends["becomes"][row])) if r not in scene.by]
    return scene.with_sends(row, becomes=rng.choice(options)), {"wrong-sum"} | WRONG_CONTENT


def add_from_elsewhere(scene: Scene, rng: random.Random):
    """Let an addition add a partial sum of another GPU."""
    row = rng.choice(_added(scene))
    options = np.flatnonzero(scene.sums["node"][:row] != scene.sums["node"][row]).tolist()
    if not options:
        return None
    return scene.with_sums(right=(row, rng.choice(options))), {"wrong-sum"}


def say_nothing(scene: Scene, rng: random.Random):
    """Let a send not say what it carries."""
    return scene.with_sends(rng.choice(_leaving(scene)), carries=-1), {"wrong-sum"}


def overwrite_what_is_added(scene: Scene, rng: random.Random):
    """Let something take the slot of a partial sum before it is added."""
    row = rng.choice(_added(scene))
    read = int(scene.sums[rng.choice(["left", "right"])][row])
    options = [
        r
        for r in scene.neighbours(read)
        if r != row and r in scene.by and scene.made[read] < scene.made[r] < scene.made[row]
    ]
    if not options:
        return None
    slot = int(scene.sums["slot"][read])
    return scene.with_sums(slot=(rng.choice(options), slot)), {"slot-overwritten"}


def overwrite_what_is_sent(scene: Scene, rng: random.Random):
    """Let something take the slot of a partial sum before it is sent."""
    carried = scene.sends["carries"].tolist()
    options = [
        (carried[send], row)
        for send in _leaving(scene)
        for row in scene.neighbours(carried[send])
        if row in scene.by
        and scene.made[carried[send]] < scene.made[row] <= scene.sends["start_ps"][send]
    ]
    if not options:
        return None
    read, row = rng.choice(options)
    return scene.with_sums(slot=(row, int(scene.sums["slot"][read]))), {"slot-overwritten"}


def move_own(scene: Scene, rng: random.Random):
    """Keep an own contribution in another slot than the first."""
    own = [r for r in range(len(scene.sums)) if r not in scene.by and scene.sums["left"][r] < 0]
    return scene.with_sums(slot=(rng.choice(own), len(scene.sums) - 1)), {"wrong-sum"}


def claim_falsely(scene: Scene, rng: random.Random):
    """Claim one tree of additions where ranks add in different orders."""
    if scene.schedule.same_order or has_same_order(scene.schedule):
        return None
    return replace(scene.schedule, same_order=True), {"unequal-order"}


def add_in_another_order(scene: Scene, rng: random.Random):
    """Exchange what two additions add in turn at one GPU, though one order is claimed."""
    if not scene.schedule.same_order:
        return None
    options = [r for r in _added(scene) if scene.sums["left"][scene.sums["left"][r]] >= 0]
    if not options:
        return None
    row = rng.choice(options)
    inner = int(scene.sums["left"][row])
    if int(scene.sums["right"][row]) >= inner or inner in scene.sends["carries"]:
        return None
    sums = scene.sums.copy()
    sums["right"][[row, inner]] = sums["right"][[inner, row]]
    return replace(scene.schedule, sums=sums), {"unequal-order"}


def reduce_on_arrival(scene: Scene, rng: random.Random):
    """Ask the receiver to merge what the table adds."""
    name = rng.choice(np.unique(scene.sends["transfer"]).tolist())
    sends = scene.sends.copy()
    sends["reduce"][sends["transfer"] == name] = True
    return replace(scene.schedule, sends=sends), {"wrong-op"}


BREAKING = [
    add_twice,
    add_what_is_in_it,
    leave_out,
    drop_send,
    forget_result,
    send_incomplete,
    carry_another,
    carry_from_elsewhere,
    become_another,
    become_own,
    add_from_elsewhere,
    say_nothing,
    overwrite_what_is_added,
    overwrite_what_is_sent,
    move_own,
    claim_falsely,
    add_in_another_order,
    reduce_on_arrival,
]


def commute(scene: Scene, rng: random.Random):
    """Exchange the summands of some additions."""
    sums = scene.sums.copy()
    rows = [r for r in range(len(sums)) if rng.random() < 0.5]
    sums["left"][rows], sums["right"][rows] = scene.sums["right"][rows], scene.sums["left"][rows]
    return replace(scene.schedule, sums=sums)


def renumber_rows(scene: Scene, rng: random.Random):
    """Number partial sums by when they are made, GPU by GPU in another order."""
    lot = {node: rng.random() for node in set(scene.sums["node"].tolist())}
    order = sorted(
        range(len(scene.sums)), key=lambda r: (lot[int(scene.sums["node"][r])], scene.made[r], r)
    )
    place = np.full(len(order) + 1, -1)
    place[order] = np.arange(len(order))
    sums, sends = scene.sums[order], scene.sends.copy()
    for table, columns in ((sums, ("left", "right")), (sends, ("carries", "becomes"))):
        for column in columns:
            table[column] = place[table[column]]
    return replace(scene.schedule, sums=sums, sends=sends)


def renumber_slots(scene: Scene, rng: random.Random):
    """Give slots other numbers, the first excepted."""
    most = int(scene.sums["slot"].max()) + 1
    names = np.array([0, *rng.sample(range(1, most), most - 1)])
    sums = scene.sums.copy()
    sums["slot"] = names[sums["slot"]]
    return replace(scene.schedule, sums=sums)


def spread_slots(scene: Scene, rng: random.Random):
    """Give everything that is not own a slot of its own."""
    sums = scene.sums.copy()
    is_own = [r not in scene.by and sums["left"][r] < 0 for r in range(len(sums))]
    sums["slot"] = np.where(is_own, 0, np.maximum(np.arange(len(sums)), 1))
    return replace(scene.schedule, sums=sums)


def begin_later(scene: Scene, rng: random.Random):
    """Let everything begin later by the same time."""
    sends = scene.sends.copy()
    sends["start_ps"] += rng.randint(1, 10**6)
    return replace(scene.schedule, sends=sends)


def reorder_rows(scene: Scene, rng: random.Random):
    """List the sends in another order."""
    order = rng.sample(range(len(scene.sends)), len(scene.sends))
    return replace(scene.schedule, sends=scene.sends[order])


def claim_nothing(scene: Scene, rng: random.Random):
    """Claim no order of additions."""
    return replace(scene.schedule, same_order=False)


HARMLESS = [
    commute,
    renumber_rows,
    renumber_slots,
    spread_slots,
    begin_later,
    reorder_rows,
    claim_nothing,
]
