"""An exhaustive search over all interleavings of a small program, written apart from teccl.

It reads the file with the standard library's XML reader and knows nothing but the rules: steps of a
thread block run in order, transfers match by position, a connection holds a few of them, a wait
ends when the other block has published that step number or a later one.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
SENDS, RECEIVES = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrs", "rrc", "rrcs")
READS, WRITES = ("s", "rrs", "rrc", "rrcs", "cpy", "re"), ("r", "rcs", "rrc", "rrcs", "cpy", "re")
REDUCES = ("rrs", "rrc", "rrcs", "re")


class TooLargeError(Exception):
    """The program has too many states to look at all of them."""


class UnequalError(Exception):
    """A send and the receive it matches move different numbers of chunks."""


@dataclass
class Real:
    """A real step with what it waits for."""

    attributes: dict[str, str]
    waits: list[tuple[int, int]]

    def __post_init__(self):
        a = self.attributes
        self.kind, self.count = a["type"], int(a["cnt"])
        self.number, self.publishes = int(a["s"]), a["hasdep"] == "1"
        self.sends, self.receives = self.kind in SENDS, self.kind in RECEIVES
        source = [(a["srcbuf"], int(a["srcoff"]) + k) for k in range(self.count)]
        target = [(a["dstbuf"], int(a["dstoff"]) + k) for k in range(self.count)]
        self.source, self.target = source, target


class Search:
    """All interleavings of one program."""

    def __init__(self, text, *, in_place, max_states=60_000):
        root = ET.fromstring(text)
        self.attributes, self.in_place, self.max_states = root.attrib, in_place, max_states
        self.ranks, self.loop = int(root.get("ngpus")), int(root.get("nchunksperloop"))
        self.coll = root.get("coll").replace("_", "")
        self.rank, self.steps, self.out, self.into = [], [], [], []
        names = {}
        for gpu in root.findall("gpu"):
            blocks = gpu.findall("tb")
            index = {int(b.get("id")): len(self.rank) + i for i, b in enumerate(blocks)}
            for block in blocks:
                here, channel = int(gpu.get("id")), block.get("chan")
                send, recv = int(block.get("send")), int(block.get("recv"))
                self.rank.append(here)
                out = names.setdefault((here, send, channel), len(names)) if send >= 0 else -1
                into = names.setdefault((recv, here, channel), len(names)) if recv >= 0 else -1
                self.out.append(out)
                self.into.append(into)
                waits, steps = [], []
                for step in block.findall("step"):
                    if int(step.get("depid")) >= 0:
                        waits.append((index[int(step.get("depid"))], int(step.get("deps"))))
                    if step.get("type") != "nop":
                        steps.append(Real(dict(step.attrib), waits))
                        waits = []
                self.steps.append(steps)
        self.sender = {c: b for b, c in enumerate(self.out) if c >= 0}
        self.receiver = {c: b for b, c in enumerate(self.into) if c >= 0}

    def cell(self, rank, place):
        """Name a cell so that places that are the same memory have the same name."""
        letter, offset = place
        if self.in_place and letter in "io":
            share = self.loop // self.ranks
            if self.coll == "allgather" and letter == "i":
                return ("o", rank * share + offset)
            if self.coll == "reducescatter" and letter == "o":
                return ("i", rank * share + offset)
            if self.coll not in ("allgather", "reducescatter"):
                return ("o", offset)
        return place

    # Deadlock: positions count single chunks, because a step may be cut into as many transfers.

    def can_hang(self, depth=None):
        """Whether some interleaving stops before the end, at the protocol's queue length."""
        depth = depth or DEPTH[self.attributes["proto"]]
        parts = [[(s, part) for s in steps for part in range(s.count)] for steps in self.steps]
        end = tuple(len(p) for p in parts)
        moved = [self._moved(p) for p in parts]
        published = [self._published(p) for p in parts]

        def enabled(state, b):
            place = state[b]
            if place == end[b]:
                return False
            step, part = parts[b][place]
            if part == 0 and any(published[t][state[t]] < n for t, n in step.waits):
                return False
            if step.receives:
                c = self.into[b]
                sender = self.sender.get(c)
                if sender is None or moved[sender][0][state[sender]] <= moved[b][1][place]:
                    return False
            if step.sends:
                c = self.out[b]
                receiver = self.receiver.get(c)
                got = 0 if receiver is None else moved[receiver][1][state[receiver]]
                if moved[b][0][place] - got >= depth:
                    return False
            return True

        seen, front = {(0,) * len(parts)}, [(0,) * len(parts)]
        while front:
            state = front.pop()
            moves = [b for b in range(len(parts)) if enabled(state, b)]
            if not moves and state != end:
                return True
            for b in moves:
                after = (*state[:b], state[b] + 1, *state[b + 1 :])
                if after not in seen:
                    seen.add(after)
                    front.append(after)
                    if len(seen) > self.max_states:
                        raise TooLargeError
        return False

    @staticmethod
    def _moved(parts):
        """Chunks sent and received before each position."""
        sent, received = [0], [0]
        for step, _ in parts:
            sent.append(sent[-1] + step.sends)
            received.append(received[-1] + step.receives)
        return sent, received

    @staticmethod
    def _published(parts):
        """Progress that others see at each position."""
        seen = [-1]
        for step, part in parts:
            done = part == step.count - 1 and step.publishes
            seen.append(step.number if done else seen[-1])
        return seen

    # Races and results: whole steps, queues of any length.

    def outcome(self):
        """Whether two steps race, and every content that memory can have in the end."""
        end = tuple(len(steps) for steps in self.steps)
        start = (0,) * len(end)
        content = {start: {self._initial()}}
        order, racy = [start], False
        for state in order:
            moves = [b for b in range(len(end)) if self._can_run(state, b)]
            racy |= any(
                self.rank[a] == self.rank[b] and self._conflict(state, a, b)
                for i, a in enumerate(moves)
                for b in moves[i + 1 :]
            )
            if racy:
                return True, set()
            for b in moves:
                after = (*state[:b], state[b] + 1, *state[b + 1 :])
                if after not in content:
                    order.append(after)
                    if len(order) > self.max_states:
                        raise TooLargeError
                contents = content.setdefault(after, set())
                # Without a race so far, memory follows from where the blocks are.
                if not contents:
                    contents |= {self._run(state, b, memory) for memory in content[state]}
        return False, content.get(end, set())

    def _can_run(self, state, b):
        if state[b] == len(self.steps[b]):
            return False
        step = self.steps[b][state[b]]
        for target, number in step.waits:
            done = self.steps[target][: state[target]]
            if not any(s.publishes and s.number >= number for s in done):
                return False
        if step.receives:
            sender = self.sender.get(self.into[b])
            if sender is None:
                return False
            sent = sum(s.sends for s in self.steps[sender][: state[sender]])
            return sent > sum(s.receives for s in self.steps[b][: state[b]])
        return True

    def _touched(self, step, rank):
        reads = {self.cell(rank, p) for p in step.source} if step.kind in READS else set()
        writes = {self.cell(rank, p) for p in step.target} if step.kind in WRITES else set()
        return (reads | writes if step.kind == "re" else reads), writes

    def _conflict(self, state, a, b):
        one, other = self.steps[a][state[a]], self.steps[b][state[b]]
        reads, writes = self._touched(one, self.rank[a])
        reads2, writes2 = self._touched(other, self.rank[b])
        return bool(writes & (reads2 | writes2) or writes2 & reads)

    def _initial(self):
        """Memory and data on its way, as nested tuples so that states can be compared."""
        inputs = self.loop // self.ranks if self.coll == "allgather" else self.loop
        memory = {
            (rank, self.cell(rank, ("i", k))): ((rank, k),)
            for rank in range(self.ranks)
            for k in range(inputs)
        }
        return tuple(sorted(memory.items())), ()

    def _run(self, state, b, before):
        memory, travelling = dict(before[0]), {k: list(v) for k, v in before[1]}
        step, rank = self.steps[b][state[b]], self.rank[b]
        unknown = (("garbage", 0),)

        def load(places):
            return [memory.get((rank, self.cell(rank, p)), unknown) for p in places]

        values = load(step.source) if step.kind in READS else []
        arrived = travelling[self.into[b]].pop(0) if step.receives else []
        if step.receives and len(arrived) != step.count:
            raise UnequalError
        if step.kind == "re":
            arrived = load(step.target)
        if step.kind in REDUCES:
            values = [
                tuple(sorted((*x, *y), key=str)) for x, y in zip(values, arrived, strict=True)
            ]
        elif step.receives:
            values = arrived
        if step.sends:
            travelling.setdefault(self.out[b], []).append(tuple(values))
        if step.kind in WRITES:
            for place, value in zip(step.target, values, strict=True):
                memory[rank, self.cell(rank, place)] = value
        left = tuple(sorted((k, tuple(v)) for k, v in travelling.items() if v))
        return tuple(sorted(memory.items(), key=str)), left

    def is_right(self, memory):
        """Whether a final memory is the collective's result."""
        cells, travelling = dict(memory[0]), memory[1]
        n, loop = self.ranks, self.loop
        share = loop // n
        if travelling:
            return False

        def holds(rank, k, value):
            return cells.get((rank, self.cell(rank, ("o", k)))) == tuple(sorted(value))

        if self.coll == "allgather":
            return all(
                holds(r, k, [(k // share, k % share)]) for r in range(n) for k in range(loop)
            )
        if self.coll == "alltoall":
            return all(
                holds(r, k, [(k // share, r * share + k % share)])
                for r in range(n)
                for k in range(loop)
            )
        if self.coll == "reducescatter":
            return all(
                holds(r, k, [(q, r * share + k) for q in range(n)])
                for r in range(n)
                for k in range(share)
            )
        if self.coll == "allreduce":
            return all(
                holds(r, k, [(q, k) for q in range(n)]) for r in range(n) for k in range(loop)
            )
        if self.coll == "broadcast":
            return any(
                all(holds(r, k, [(root, k)]) for r in range(n) for k in range(loop))
                for root in range(n)
            )
        assert self.coll == "reduce"
        return any(
            all(holds(r, k, [(q, k) for q in range(n)]) for k in range(loop)) for r in range(n)
        )


def runs_well(text, *, in_place):
    """Whether no interleaving hangs, races or ends with a wrong result."""
    search = Search(text, in_place=in_place)
    if search.can_hang():
        return False
    try:
        racy, contents = search.outcome()
    except UnequalError:
        return False
    return not racy and bool(contents) and all(search.is_right(m) for m in contents)
