"""GOAL text of a schedule, and the parameters under which LogGOPSim's model is that of teccl.

Every transfer between two GPUs is a send and a receive. Sends on one link require one another, so
that their order is the schedule's; a send requires the receives whose data it carries on, and a
reduction is a computation of no time after its receive. Partial sums are computations, too, each of
which requires the two that it adds, or the one that it adds to the rank's own data.

The simulator charges the time of a message's bytes (G) to one processor at the receiver, so that a
rank could take in one message at a time only. The time that a transfer holds its link is therefore
given as the gap between messages (g), and G is 0: an interface is then a link, and nothing else is
in the way. Where links or chunks differ, a transfer is several messages of that gap.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from teccl.demand import Demand
from teccl.errors import ExportRefused
from teccl.formats.goal.prove import Parameters, finish_time
from teccl.formats.goal.prove.goal_program import MAX_INDEX, Title, parse
from teccl.formats.goal.write.fitting import MAX_INT, GoalFit, MessageCost, fit
from teccl.formats.shared.exports import Export, ExportOptions, OutputFile
from teccl.formats.shared.gpu_sends import GpuSend, gpu_sends, not_expressed
from teccl.keywords import SwitchMode, Transit
from teccl.schedule import Schedule
from teccl.schedule.additions import additions, wanted_sums
from teccl.schedule.timing import send_times
from teccl.units import PICOSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalFile:
    """A schedule as GOAL.

    Parameters
    ----------
    text
        The file.
    parameters
        The model's, in units of `unit_ps`.
    unit_ps
        Picoseconds that one unit of time is.
    allowance_ps
        Most by which rounding in the parameters can delay the finish.
    differences
        Sentences, one for each way in which the simulator's model is not that of the schedule.
    num_nics, num_messages
        Network interfaces of a rank, and messages of all ranks.
    """

    text: str
    parameters: Parameters
    unit_ps: int
    allowance_ps: int
    differences: tuple[str, ...]
    num_nics: int
    num_messages: int


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:  # noqa: ARG001
    """Make the file, execute it and say how to run it.

    Raises
    ------
    ExportRefused
        If interfaces or tags do not suffice, or the execution does not end when it should.
    """
    made = to_goal(schedule)
    finish_ps = finish_time(parse(made.text), made.parameters) * made.unit_ps
    _check_finish(schedule, made, finish_ps)
    binary = path.with_suffix(".bin")
    arguments = " ".join(made.parameters.arguments())
    return Export(
        target="goal",
        files=(OutputFile(path=path, content=made.text),),
        facts={
            "ranks": schedule.problem.topology.num_gpus,
            "messages": made.num_messages,
            "interfaces": made.num_nics,
            "time_unit_ps": made.unit_ps,
            "simulated_s": finish_ps / PICOSECONDS,
            "same_model": not made.differences,
        },
        notes=_notes(schedule, made),
        command=f"txt2bin -i {path} -o {binary} && LogGOPSim -f {binary} {arguments} -b",
    )


def to_goal(schedule: Schedule) -> GoalFile:
    """Return a schedule as GOAL with the parameters to run it under.

    Raises
    ------
    ExportRefused
        If interfaces, tags or sizes do not suffice.
    """
    sends = gpu_sends(schedule)
    costs = _costs(schedule, sends)
    nics = _interfaces(schedule, sends)
    _check_limits(schedule, sends, nics)
    model = fit(costs)
    # Roundings add up along a chain of transfers, each of which holds a link for a while.
    shortest = min((cost.held_ps for cost in costs), default=1)
    steps = min(len(sends), schedule.finish_ps // shortest + 1)
    return GoalFile(
        text=_Text(schedule, sends, nics, model).render(),
        parameters=model.parameters,
        unit_ps=model.unit_ps,
        allowance_ps=steps * model.slack_ps,
        differences=(*model.differences, *_differences(schedule, sends, nics)),
        num_nics=max(nics, default=0) + 1,
        num_messages=sum(model.pieces),
    )


def _costs(schedule: Schedule, sends: Sequence[GpuSend]) -> list[MessageCost]:
    held = send_times(schedule).occupancy_ps
    return [
        MessageCost(int(max(held[s.row], held[s.end])), int(s.arrival_ps - s.start_ps))
        for s in sends
    ]


def _interfaces(schedule: Schedule, sends: Sequence[GpuSend]) -> list[int]:
    """Return the interface of each transfer: one number for the link at both of its ends.

    The simulator charges a message to the interface of the same number at sender and receiver. A
    way through switches ends on another link than it begins on, so both get one number. Numbers
    are a proper colouring: no two links out of a GPU, and no two into it, share one unless ways
    through switches tie them together.
    """
    links = schedule.sends["link"]
    ends = [(int(links[s.row]), int(links[s.end])) for s in sends]
    group = _groups(ends)
    used: dict[tuple[str, int], set[int]] = {}
    members: dict[int, set[tuple[str, int]]] = {}
    for send, (first, _) in zip(sends, ends, strict=True):
        sides = members.setdefault(group[first], set())
        sides |= {("out", send.src), ("in", send.dst)}
    colour: dict[int, int] = {}
    for name in sorted(members):
        taken = set().union(*(used.get(side, set()) for side in members[name]))
        colour[name] = next(c for c in itertools.count() if c not in taken)
        for side in members[name]:
            used.setdefault(side, set()).add(colour[name])
    return [colour[group[first]] for first, _ in ends]


def _groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return for each link the least one that it is tied to."""
    parent: dict[int, int] = {}

    def find(link: int) -> int:
        parent.setdefault(link, link)
        while parent[link] != link:
            parent[link] = parent[parent[link]]
            link = parent[link]
        return link

    for one, other in pairs:
        low, high = sorted((find(one), find(other)))
        parent[high] = low
    return {link: find(link) for link in parent}


def _check_limits(schedule: Schedule, sends: Sequence[GpuSend], nics: Sequence[int]) -> None:
    if max(nics, default=0) > MAX_INDEX:
        raise ExportRefused(
            f"goal: {max(nics) + 1} interfaces are more than {MAX_INDEX + 1}, which the binary "
            "form can number; use a topology with fewer links a GPU"
        )
    largest = max((schedule.problem.chunks.size(send.chunk) for send in sends), default=0)
    if largest > MAX_INT:
        raise ExportRefused(
            f"goal: a chunk has {float(largest):g} bytes, more than {MAX_INT} that the simulator "
            "sends eagerly; cut the data into more chunks"
        )


class _Text:
    """Writes the operations of all ranks in order of time."""

    def __init__(
        self, schedule: Schedule, sends: Sequence[GpuSend], nics: Sequence[int], model: GoalFit
    ) -> None:
        self._schedule = schedule
        self._model = model
        self._sends = sends
        self._nics = nics
        self._lines: list[list[str]] = [[] for _ in range(schedule.problem.topology.num_gpus)]
        self._last_on: dict[tuple[int, int], str] = {}
        self._sums: dict[tuple[int, int], str] = {}
        self._usable: dict[int, str] = {}
        # The operation after which each partial sum is there.
        self._rows: dict[int, str] = {}
        self._tags = _tags(schedule, sends, model.pieces)

    def render(self) -> str:
        """Return the file."""
        events = [(send.start_ps, 1, send.number) for send in self._sends]
        events += [(send.arrival_ps, 0, send.number) for send in self._sends]
        for _, is_send, number in sorted(events):
            if is_send:
                self._send(self._sends[number])
            else:
                self._receive(self._sends[number])
        self._make_results()
        title = _title(self._schedule)
        head = [f"// {title}"] if title else []
        head.append(f"// LogGOPSim {' '.join(self._model.parameters.arguments())}")
        head.append(f"num_ranks {len(self._lines)}")
        ranks = (
            [f"rank {rank} {{", *(lines or ["calc 0"]), "}"]
            for rank, lines in enumerate(self._lines)
        )
        return "\n".join(itertools.chain(head, *ranks)) + "\n"

    def _send(self, send: GpuSend) -> None:
        nic, lines = self._nics[send.number], self._lines[send.src]
        needed = self._needed(send)
        for label, size, tag in self._pieces(send, "s"):
            lines.append(f"{label}: send {size}b to {send.dst} tag {tag} nic {nic}")
            before = self._last_on.get((send.src, nic))
            needed |= {before} if before else set()
            lines += [f"{label} requires {other}" for other in sorted(needed)]
            self._last_on[send.src, nic] = label
            needed = set()

    def _needed(self, send: GpuSend) -> set[str]:
        """Return the operations after which what a transfer carries is there."""
        if send.carries >= 0:
            return set(self._made(send.src, send.carries))
        needed = {self._usable[feed] for feed in send.feeds if not self._sends[feed].reduce}
        # Sums at a rank wait for one another, so that the last one stands for all.
        sums = [feed for feed in send.feeds if self._sends[feed].reduce]
        if sums:
            needed.add(self._usable[max(sums, key=self._when)])
        return needed

    def _made(self, rank: int, row: int) -> list[str]:
        """Return the operation after which a partial sum is there, none for a rank's own data."""
        for part, sides in additions(self._schedule.sums, row, self._rows):
            self._rows[part] = label = f"a{part}"
            self._lines[rank].append(f"{label}: calc 0")
            added = [self._rows[side] for side in sides if side in self._rows]
            self._lines[rank] += [f"{label} requires {other}" for other in added]
        return [self._rows[row]] if row in self._rows else []

    def _make_results(self) -> None:
        """Add up what destinations want."""
        for rank, row in wanted_sums(self._schedule):
            self._made(rank, row)

    def _pieces(self, send: GpuSend, letter: str) -> Iterator[tuple[str, int, int]]:
        """Yield label, bytes and tag of the messages that a transfer consists of."""
        size = self._schedule.problem.chunks.size(send.chunk)
        whole = -(-size.numerator // size.denominator)
        tags = self._tags[send.number]
        for piece, tag in enumerate(tags):
            label = f"{letter}{send.number}" + (f"_{piece}" if len(tags) > 1 else "")
            yield label, whole * (piece + 1) // len(tags) - whole * piece // len(tags), tag

    def _when(self, number: int) -> tuple[int, int]:
        return self._sends[number].arrival_ps, number

    def _receive(self, send: GpuSend) -> None:
        lines = self._lines[send.dst]
        for label, size, tag in self._pieces(send, "r"):
            # Messages over one interface arrive in order, so that the last one stands for all.
            self._usable[send.number] = label
            lines.append(
                f"{label}: recv {size}b from {send.src} tag {tag} nic {self._nics[send.number]}"
            )
        if send.becomes >= 0:
            self._rows[send.becomes] = self._usable[send.number]
        if send.reduce:
            add, key = f"c{send.number}", (send.chunk, send.dst)
            lines += [f"{add}: calc 0", f"{add} requires {self._usable[send.number]}"]
            if key in self._sums:
                lines.append(f"{add} requires {self._sums[key]}")
            self._sums[key] = self._usable[send.number] = add


def _tags(schedule: Schedule, sends: Sequence[GpuSend], pieces: Sequence[int]) -> list[range]:
    """Return the tags of each transfer's messages: modulo the number of chunks, its chunk.

    Tags between two ranks differ, because the simulator takes messages of one tag in any order.
    """
    table = schedule.problem.chunks
    used: dict[tuple[int, int, int], int] = {}
    tags = []
    for send, count in zip(sends, pieces, strict=True):
        if count > math.ceil(table.size(send.chunk)):
            raise ExportRefused(
                f"goal: a chunk of {float(table.size(send.chunk)):g} bytes cannot be {count} "
                "messages, which its slow link takes; use fewer chunks"
            )
        key = (send.chunk, send.src, send.dst)
        first = used.get(key, 0)
        used[key] = first + count
        tags.append(
            range(send.chunk + len(table) * first, send.chunk + len(table) * used[key], len(table))
        )
    if max((found[-1] for found in tags), default=0) > MAX_INT:
        raise ExportRefused(f"goal: {len(table)} chunks are more than tags can number; use fewer")
    return tags


def _title(schedule: Schedule) -> Title | None:
    """Return the comment by which the file can be imported, None for what it cannot express."""
    problem, tenant = schedule.problem, schedule.problem.demand.tenants[0]
    if tenant.matrix is not None or tenant.chunks is not None:
        return None
    plain = Demand.collective(tenant.collective, size=tenant.size, root=tenant.root)
    is_default = problem.switch is SwitchMode.COPY and problem.transit is Transit.STORE_AND_FORWARD
    if problem.demand != plain or not is_default:
        return None
    return Title(
        collective=tenant.collective.value,
        num_chunks=problem.num_chunks,
        root=tenant.root,
        whole_buffer=problem.whole_buffer,
        has_sums=schedule.sums is not None,
    )


def _differences(
    schedule: Schedule, sends: Sequence[GpuSend], nics: Sequence[int]
) -> Iterable[str]:
    """Say where the simulator's model is another than the schedule's."""
    problem, links = schedule.problem, schedule.sends["link"]
    out = {(s.src, nic, int(links[s.row])) for s, nic in zip(sends, nics, strict=True)}
    into = {(s.dst, nic, int(links[s.end])) for s, nic in zip(sends, nics, strict=True)}
    if any(len(side) > len({key[:2] for key in side}) for side in (out, into)):
        yield "links of a GPU that lead to the same switches share an interface, one at a time"
    is_switch = problem.topology.is_switch
    ends = zip(problem.topology.link_src[links], problem.topology.link_dst[links], strict=True)
    if any(is_switch[src] and is_switch[dst] for src, dst in ends):
        yield "links between switches are left out"
    if any(problem.topology.links[link].shares for link in set(links.tolist())):
        yield "shared capacities are left out"
    yield from not_expressed(schedule, sends)


def _check_finish(schedule: Schedule, made: GoalFile, finish_ps: int) -> None:
    """Compare the execution with the replay of the schedule, where the models are the same."""
    from teccl.replay import simulate

    if made.differences:
        return
    expected = simulate(schedule).finish_ps
    if not 0 <= finish_ps - expected <= made.allowance_ps:
        raise ExportRefused(
            f"goal: the file failed its check: it ends after {finish_ps} ps, the schedule after "
            f"{expected} ps"
        )


def _notes(schedule: Schedule, made: GoalFile) -> tuple[str, ...]:
    unit = "a picosecond" if made.unit_ps == 1 else f"{made.unit_ps} ps"
    unit_note = (
        f"times are in units of {unit}; g is the time a transfer holds its link, since G would "
        "let a rank receive one message at a time"
    )
    notes = [*made.differences, unit_note]
    if any(size.denominator != 1 for size in schedule.problem.chunks.sizes):
        notes.append("sizes are rounded up to whole bytes, times are exact")
    if _title(schedule) is None:
        notes.append("the file cannot be imported: a comment cannot say what it is")
    return tuple(notes)
