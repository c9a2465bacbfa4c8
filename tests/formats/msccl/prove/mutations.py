"""Mutations of good programs, each kind with an effect that is known by construction."""

import random
import xml.etree.ElementTree as ET
from collections.abc import Callable

Mutation = Callable[[ET.Element, random.Random], bool]


def to_text(root):
    """Write a program the way the runtimes read it."""
    ET.indent(root, space="  ")
    return ET.tostring(root, encoding="unicode") + "\n"


def all_steps(root):
    return [(g, b, s) for g in root.iter("gpu") for b in g.iter("tb") for s in b.iter("step")]


def _some(rng, items):
    return rng.choice(items) if items else None


def drop_dependency(root, rng):
    """Harmful in files whose dependencies are minimal: two accesses lose their order."""
    found = []
    for _, block, step in all_steps(root):
        steps = list(block)
        at = steps.index(step)
        after_nop = at > 0 and steps[at - 1].get("type") == "nop"
        if int(step.get("depid")) >= 0 and step.get("type") != "nop" and not after_nop:
            found.append(step)
    step = _some(rng, found)
    if step is None:
        return False
    step.set("depid", "-1")
    step.set("deps", "-1")
    return True


def clear_last_publisher(root, rng):
    """Harmful: somebody waits for a step that nobody publishes any more."""
    found = []
    for gpu in root.iter("gpu"):
        for block in gpu.iter("tb"):
            publishing = [s for s in block if s.get("hasdep") == "1"]
            if publishing:
                found.append(publishing[-1])
    step = _some(rng, found)
    if step is None:
        return False
    step.set("hasdep", "0")
    return True


def swap_receives(root, rng):
    """Harmful: two chunks change places, or a sum misses its contribution."""
    found = []
    for _, block, step in all_steps(root):
        steps = list(block)
        at = steps.index(step)
        if at + 1 == len(steps):
            continue
        other = steps[at + 1]
        kinds = {step.get("type"), other.get("type")}
        if kinds == {"r"} and step.get("cnt") == other.get("cnt"):
            found.append((step, other))
    pair = _some(rng, found)
    if pair is None:
        return False
    one, other = pair
    for key in ("dstbuf", "dstoff"):
        a, b = one.get(key), other.get(key)
        one.set(key, b)
        other.set(key, a)
    return True


def change_count(root, rng):
    """Harmful: both ends of a connection no longer agree, or chunks lie outside."""
    step = _some(rng, [s for _, b, s in all_steps(root) if s.get("type") in ("s", "r", "rrc")])
    if step is None:
        return False
    step.set("cnt", str(int(step.get("cnt")) + rng.choice([1, 2])))
    return True


def change_received_offset(root, rng):
    """Harmful: data ends where it must not, or beyond the buffer."""
    step = _some(rng, [s for _, _, s in all_steps(root) if s.get("type") == "r"])
    if step is None:
        return False
    step.set("dstoff", str(int(step.get("dstoff")) + rng.choice([-1, 1])))
    return True


def change_sent_offset(root, rng):
    """Harmful: other data is sent, or from beyond the buffer."""
    step = _some(rng, [s for _, _, s in all_steps(root) if s.get("type") == "s"])
    if step is None:
        return False
    step.set("srcoff", str(int(step.get("srcoff")) + rng.choice([-1, 1])))
    return True


def change_peer(root, rng):
    """Harmful: a connection is declared at one end only."""
    ranks = int(root.get("ngpus"))
    gpu, block = _some(rng, [(g, b) for g in root.iter("gpu") for b in g.iter("tb")])
    keys = [key for key in ("send", "recv") if int(block.get(key)) >= 0]
    if not keys:
        return False
    key = rng.choice(keys)
    others = [r for r in range(ranks) if r not in (int(gpu.get("id")), int(block.get(key)))]
    if not others:
        return False
    block.set(key, str(rng.choice(others)))
    return True


def change_channel(root, rng):
    """Harmful: a connection is declared at one end only."""
    found = [b for b in root.iter("tb") if int(b.get("send")) >= 0 or int(b.get("recv")) >= 0]
    block = _some(rng, found)
    if block is None:
        return False
    block.set("chan", str(int(root.get("nchannels"))))
    root.set("nchannels", str(int(root.get("nchannels")) + 1))
    return True


def change_source_buffer(root, rng):
    """Harmful: a send reads what nobody wrote, or other data, or beyond the buffer."""
    step = _some(rng, [s for _, _, s in all_steps(root) if s.get("type") == "s"])
    if step is None:
        return False
    step.set("srcbuf", "s")
    step.set("srcoff", str(int(step.get("srcoff")) + 1))
    return True


def delete_block(root, rng):
    """Harmful: the other end of its connection has nobody to talk to."""
    found = [
        (g, b)
        for g in root.iter("gpu")
        for b in g.iter("tb")
        if int(b.get("send")) >= 0 or int(b.get("recv")) >= 0
    ]
    pair = _some(rng, found)
    if pair is None:
        return False
    pair[0].remove(pair[1])
    return True


def change_remark(root, rng):
    """Harmless: the peer's side of an address is there for people only."""
    kinds = {"s": ("dstbuf", "dstoff"), "r": ("srcbuf", "srcoff")}
    step = _some(rng, [s for _, _, s in all_steps(root) if s.get("type") in kinds])
    if step is None:
        return False
    letter, offset = kinds[step.get("type")]
    step.set(letter, "s")
    step.set(offset, str(rng.randrange(1000)))
    return True


def publish_more(root, rng):
    """Harmless: others wait for steps that are published already."""
    step = _some(rng, [s for _, _, s in all_steps(root) if s.get("hasdep") == "0"])
    if step is None or step.get("type") == "nop":
        return False
    step.set("hasdep", "1")
    return True


def rename_channel(root, rng):
    """Harmless: a connection moves to a free channel at both ends."""
    block = _some(rng, [b for b in root.iter("tb") if int(b.get("send")) >= 0])
    gpu = next(g for g in root.iter("gpu") if block in list(g))
    peer = next(g for g in root.iter("gpu") if g.get("id") == block.get("send"))
    other = next(
        b
        for b in peer.iter("tb")
        if b.get("recv") == gpu.get("id") and b.get("chan") == block.get("chan")
    )
    if int(block.get("recv")) >= 0 or int(other.get("send")) >= 0:
        return False
    for end in (block, other):
        end.set("chan", root.get("nchannels"))
    root.set("nchannels", str(int(root.get("nchannels")) + 1))
    return True


def reorder_blocks(root, rng):
    """Harmless: blocks of a gpu may stand in any order in the file."""
    gpu = rng.choice(list(root.iter("gpu")))
    blocks = list(gpu)
    rng.shuffle(blocks)
    for block in list(gpu):
        gpu.remove(block)
    gpu.extend(blocks)
    return True


HARMFUL: tuple[Mutation, ...] = (
    drop_dependency,
    clear_last_publisher,
    swap_receives,
    change_count,
    change_received_offset,
    change_sent_offset,
    change_peer,
    change_channel,
    change_source_buffer,
    delete_block,
)
HARMLESS: tuple[Mutation, ...] = (change_remark, publish_more, rename_channel, reorder_blocks)
