"""A runtime for programs, written apart from teccl: limits, thread blocks in any order, real sums.

It reads a file with the standard library's XML reader and runs its thread blocks, each time another
of those that can go on, on random numbers. A connection holds as many chunks as the protocol's
queue has room for; a step of several chunks moves them one by one.
"""

import random
import xml.etree.ElementTree as ET
from collections import defaultdict, deque

DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
# Steps of a block, blocks of a gpu, channels, highest id that can be waited for.
LIMITS = {"msccl": (256, 216, 32, 127), "rccl": (64, 64, 128, 63)}
NODES, PEERS, COUNT, OFFSET = 4095, 32, 71, 32767


def check_limits(root, runtime):
    """Assert every limit of a runtime."""
    steps, blocks, channels, target = LIMITS[runtime]
    gpus = root.findall("gpu")
    assert sorted(int(gpu.get("id")) for gpu in gpus) == list(range(int(root.get("ngpus"))))
    for gpu in gpus:
        tbs = gpu.findall("tb")
        assert len(tbs) <= blocks
        assert [int(tb.get("id")) for tb in tbs] == list(range(len(tbs)))
        assert 1 + len(gpus) + len(tbs) + sum(len(tb) for tb in tbs) <= NODES
        for way in ("send", "recv"):
            ends = [(tb.get("chan"), tb.get(way)) for tb in tbs if tb.get(way) != "-1"]
            assert len(ends) == len(set(ends))
            assert max(sum(c == chan for c, _ in ends) for chan, _ in ends) <= PEERS
        for tb in tbs:
            assert 0 <= int(tb.get("chan")) < min(channels, int(root.get("nchannels")))
            assert len(tb) <= steps
            for place, step in enumerate(tb):
                assert int(step.get("s")) == place
                assert int(step.get("depid")) <= target
                assert len(step.attrib) <= 16
                if step.get("type") != "nop":
                    assert 1 <= int(step.get("cnt")) <= COUNT
                    assert max(int(step.get("srcoff")), int(step.get("dstoff"))) <= OFFSET


class Block:
    """A thread block and where it is."""

    def __init__(self, rank, tb):
        self.rank = rank
        chan, send, recv = tb.get("chan"), int(tb.get("send")), int(tb.get("recv"))
        self.out = (rank, send, chan) if send >= 0 else None
        self.into = (recv, rank, chan) if recv >= 0 else None
        self.steps = [dict(step.attrib) for step in tb]
        self.place = self.part = 0
        self.published = -1


def held(memory, cell):
    """What a place in memory holds; reading what nobody wrote is the program's fault."""
    assert cell in memory, f"reads {cell}, which nobody wrote"
    return memory[cell]


class Interpreter:
    """Runs one program."""

    def __init__(self, text, runtime, seed):
        root = ET.fromstring(text)
        check_limits(root, runtime)
        self.random = random.Random(seed)
        self.ranks, self.loop = int(root.get("ngpus")), int(root.get("nchunksperloop"))
        self.coll = root.get("coll").replace("_", "")
        self.in_place = root.get("inplace") == "1"
        self.depth = DEPTH[root.get("proto")]
        share = self.loop // self.ranks
        inputs = share if self.coll == "allgather" else self.loop
        self.given = [
            [self.random.getrandbits(60) for _ in range(inputs)] for _ in range(self.ranks)
        ]
        self.memory = [
            {self.cell(rank, "i", k): value for k, value in enumerate(values)}
            for rank, values in enumerate(self.given)
        ]
        self.queues = defaultdict(deque)
        self.blocks = {
            (int(gpu.get("id")), int(tb.get("id"))): Block(int(gpu.get("id")), tb)
            for gpu in root.findall("gpu")
            for tb in gpu.findall("tb")
        }

    def cell(self, rank, buffer, offset):
        """A place in memory; in place, input and output overlap."""
        if self.in_place and buffer != "s":
            share = self.loop // self.ranks
            if self.coll == "allgather" and buffer == "i":
                return "o", rank * share + offset
            if self.coll == "reducescatter" and buffer == "o":
                return "i", rank * share + offset
            if self.coll not in ("allgather", "reducescatter"):
                return "o", offset
        return buffer, offset

    def run(self):
        """Run to the end and assert that the result is right."""
        ready = list(self.blocks)
        waiting = defaultdict(list)
        while ready:
            at = self.random.randrange(len(ready))
            ready[at], ready[-1] = ready[-1], ready[at]
            name = ready.pop()
            missing, done = self.advance(name)
            for event in done:
                ready += waiting.pop(event, ())
            if missing is not None:
                waiting[missing].append(name)
        assert all(block.place == len(block.steps) for block in self.blocks.values())
        assert not any(self.queues.values())
        for rank in range(self.ranks):
            for k, value in self.wanted(rank).items():
                assert self.memory[rank][self.cell(rank, "o", k)] == value

    def advance(self, name):
        """Run a block until it waits; return what for, and what others may have waited for."""
        block, done = self.blocks[name], []
        while block.place < len(block.steps):
            step = block.steps[block.place]
            depid = int(step["depid"])
            if depid >= 0 and not block.part:
                target = (block.rank, depid)
                if self.blocks[target].published < int(step["deps"]):
                    return ("progress", target), done
            while block.part < int(step["cnt"]):
                missing = self.move(block, step, done)
                if missing is not None:
                    return missing, done
                block.part += 1
            if step["hasdep"] == "1":
                block.published = block.place
                done.append(("progress", name))
            block.place, block.part = block.place + 1, 0
        return None, done

    def move(self, block, step, done):
        """Do a step for one of its chunks; return what it waits for if it cannot."""
        kind, memory = step["type"], self.memory[block.rank]
        receives, sends = kind[0] == "r" and kind != "re", kind[-1] == "s"
        if receives and not self.queues[block.into]:
            return "data", block.into
        if sends and len(self.queues[block.out]) >= self.depth:
            return "room", block.out
        source, target = (
            self.cell(block.rank, step[f"{side}buf"], int(step[f"{side}off"]) + block.part)
            for side in ("src", "dst")
        )
        if receives:
            value = self.queues[block.into].popleft()
            done.append(("room", block.into))
            if kind.startswith("rr"):
                value += held(memory, source)
        else:
            value = held(memory, source) + (held(memory, target) if kind == "re" else 0)
        if sends:
            self.queues[block.out].append(value)
            done.append(("data", block.out))
        if kind not in ("s", "rrs"):
            memory[target] = value
        return None

    def wanted(self, rank):
        """What the output must hold."""
        share, given = self.loop // self.ranks, self.given
        if self.coll == "allgather":
            return {k: given[k // share][k % share] for k in range(self.loop)}
        if self.coll == "alltoall":
            here = rank * share
            return {k: given[k // share][here + k % share] for k in range(self.loop)}
        first, count = (rank * share, share) if self.coll == "reducescatter" else (0, self.loop)
        return {k: sum(own[first + k] for own in given) for k in range(count)}
