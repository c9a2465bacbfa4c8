"""Chakra traces read from their published schema, and executed as ASTRA-sim does.

It shares no code with the exporter: bytes are decoded here, and nodes are issued as soon as what
they depend on is done, in an order that a seed shuffles. A link serves one message after the other
as they come, a message is there a latency after its last byte left, and goes on from a switch when
it is there; a computation takes a tick. Time is a pair of picoseconds and ticks, so that ticks
decide what comes first and never add up to a picosecond.
"""

import heapq
import random
from fractions import Fraction
from typing import NamedTuple

COMPUTE, SEND, RECEIVE = 4, 5, 6


class Damaged(Exception):  # noqa: N818, it says what is wrong with a file
    """Bytes that are no trace."""


class Node(NamedTuple):
    """What the executor needs of a node."""

    number: int
    kind: int
    waits: tuple[int, ...]
    values: dict[str, int]


def varint(data, place):
    """Return a number of seven bits a byte, and where it ends."""
    value, shift = 0, 0
    while True:
        if place >= len(data) or shift > 63:
            raise Damaged("a number is cut off")
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
        if data[place - 1] < 128:
            return value, place


def fields(data):
    """Yield number and value of the fields of a message."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = varint(data, place)
        elif wire == 2:
            length, place = varint(data, place)
            if place + length > len(data):
                raise Damaged("a field is cut off")
            value, place = data[place : place + length], place + length
        else:
            raise Damaged(f"wire type {wire} is not used by traces")
        yield number, value


def packed(value):
    """Return the numbers of a repeated field, packed or one of several."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found


def attribute(data):
    """Return name and number of an attribute, the number None if it is something else."""
    name, number = "", None
    for field, value in fields(data):
        if field == 1:
            name = bytes(value).decode("utf-8", errors="replace")
        elif field in (7, 9) and isinstance(value, int):
            number = value
    return name, number


def read(data):
    """Return the nodes of a trace."""
    messages, place = [], 0
    while place < len(data):
        length, place = varint(data, place)
        if place + length > len(data):
            raise Damaged("a message is cut off")
        messages.append(data[place : place + length])
        place += length
    if not messages:
        raise Damaged("it is empty")
    nodes = []
    for message in messages[1:]:
        number, kind, waits, values = 0, 0, [], {}
        for field, value in fields(message):
            if field in (1, 3) and not isinstance(value, int):
                raise Damaged("a number is something else")
            if field == 1:
                number = value
            elif field == 3:
                kind = value
            elif field in (4, 5):
                waits += packed(value)
            elif field == 10:
                if isinstance(value, int):
                    raise Damaged("an attribute is a number")
                name, amount = attribute(value)
                if amount is not None:
                    values[name] = amount
        nodes.append(Node(number, kind, tuple(waits), values))
    return nodes


class Network(NamedTuple):
    """Links by their ends, GPUs by rank and the switch as -1: bytes a second, latency in ps."""

    rate: Fraction
    alpha_ps: int
    has_switch: bool

    def route(self, src, dst):
        """Return the links that a message takes."""
        return [(src, -1), (-1, dst)] if self.has_switch else [(src, dst)]


class Execution:
    """Runs the traces of all ranks."""

    def __init__(self, traces, network, parts, seed):
        self.network, self.parts = network, parts
        self.shuffle = random.Random(seed)
        self.nodes = [{node.number: node for node in read(data)} for data in traces]
        self.left = [{n.number: len(set(n.waits)) for n in each.values()} for each in self.nodes]
        self.followers = [{} for _ in traces]
        for rank, each in enumerate(self.nodes):
            for node in each.values():
                for before in set(node.waits):
                    self.followers[rank].setdefault(before, []).append(node.number)
        self.free, self.arrived, self.posted, self.events = {}, set(), {}, []
        self.count, self.done, self.finish = 0, 0, (0, 0)

    def run(self):
        """Return the picoseconds until the last node is done."""
        for rank, each in enumerate(self.left):
            self.issue(rank, [n for n, left in each.items() if not left], (0, 0))
        while self.events:
            now, _, action, *rest = heapq.heappop(self.events)
            getattr(self, action)(now, *rest)
        if self.done != sum(len(each) for each in self.nodes):
            raise Damaged("something waits for ever")
        return self.finish[0]

    def at(self, time, action, *rest):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, action, *rest))

    def issue(self, rank, numbers, now):
        self.shuffle.shuffle(numbers)
        for number in numbers:
            node = self.nodes[rank][number]
            values = node.values
            if node.kind == COMPUTE:
                self.at((now[0], now[1] + 1), "end", rank, number)
            elif node.kind == SEND:
                key = (rank, values["comm_dst"], values["comm_tag"])
                self.hop(now, self.network.route(rank, values["comm_dst"]), number, key)
            elif node.kind == RECEIVE:
                key = (values["comm_src"], rank, values["comm_tag"])
                if key in self.arrived:
                    self.at(now, "end", rank, number)
                else:
                    self.posted[key] = number
            else:
                raise Damaged(f"node of type {node.kind}")

    def hop(self, now, way, number, key):
        size = Fraction(self.nodes[key[0]][number].values["comm_size"], self.parts)
        held = -(-size * 10**12 // self.network.rate)
        start = max(now, self.free.get(way[0], (0, 0)))
        self.free[way[0]] = (start[0] + held, start[1])
        there = (start[0] + held + self.network.alpha_ps, start[1])
        if len(way) > 1:
            self.at(there, "hop", way[1:], number, key)
        else:
            self.at(there, "arrive", number, key)

    def arrive(self, now, number, key):
        self.end(now, key[0], number)
        self.arrived.add(key)
        if key in self.posted:
            self.end(now, key[1], self.posted.pop(key))

    def end(self, now, rank, number):
        self.done += 1
        self.finish = max(self.finish, now)
        ready = []
        for follower in self.followers[rank].get(number, ()):
            self.left[rank][follower] -= 1
            if not self.left[rank][follower]:
                ready.append(follower)
        self.issue(rank, ready, now)
