"""Hostile files for every importer: bombs, damage and lies, seeded; and a program to try them.

``python -m tests.formats.hostile FORMAT COUNT FOLDER`` imports that many files one after another
and prints, as JSON, what became of each, its CPU time and the most memory ever used.
"""

import gzip
import json
import random
import re
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data" / "foreign"
RING = "ring:gpus=4,bandwidth=10GB/s,alpha=1us"


class Target(NamedTuple):
    """An importer: a good file to damage, and how the file is imported."""

    fixture: str
    options: dict[str, str]
    is_schedule: bool = False


TARGETS = {
    "nccl": Target("nccl_nvswitch.xml", {"nodes": "2"}),
    "nvidia-smi": Target(
        "smi_dgx1.txt", {"link_bandwidth": "25GB/s", "nodes": "2", "nic_bandwidth": "100Gb/s"}
    ),
    "te-ccl": Target("te_ccl_ndv2.json", {}),
    "taccl": Target("taccl_two_classes.json", {"chunk_size": "1MB", "nodes": "2"}),
    "msccl-tools": Target("msccl_tools_line.json", {"link_bandwidth": "25GB/s"}),
    "te-ccl schedule": Target(
        "te_ccl_ring_alltoall.json", {"topology": RING, "size": "4MB"}, is_schedule=True
    ),
    "msccl schedule": Target(
        "msccl_ring_allreduce.xml", {"topology": RING, "size": "4MB"}, is_schedule=True
    ),
    "goal schedule": Target(
        "ring_allreduce.goal", {"topology": RING, "size": "4MB"}, is_schedule=True
    ),
}


class Case(NamedTuple):
    """A file: its content, and whether it can only be refused."""

    name: str
    content: bytes
    is_bad: bool


def load(target: str, path: Path) -> None:
    """Import a file as the command line does."""
    _, options, is_schedule = TARGETS[target]
    name = target.removesuffix(" schedule")
    if is_schedule:
        from teccl.formats.reading import import_schedule

        import_schedule(path, name, **options)
    else:
        from teccl.formats.reading import import_topology

        import_topology(path, name, **options)


def bombs(text: str) -> Iterator[Case]:
    """Yield files that are made to use up time or memory, or are no text at all."""
    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    yield Case("entities", f'<!DOCTYPE x [<!ENTITY a0 "b">{entities}]><x>&a11;</x>'.encode(), True)
    outside = '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><system>&f;</system>'
    yield Case("outside", outside.encode(), True)
    for depth in (200, 100_000, 1_000_000):
        yield Case(f"deep-xml-{depth}", b"<pci>" * depth, True)
        yield Case(f"closed-xml-{depth}", b"<a>" * depth + b"</a>" * depth, True)
        yield Case(f"deep-json-{depth}", b'{"links":' + b"[" * depth, True)
        yield Case(f"closed-json-{depth}", b"[" * depth + b"]" * depth, True)
    yield Case("many-elements", b"<system>" + b"<gpu/>" * 2_000_000 + b"</system>", True)
    yield Case("many-lists", b'{"links":[' + b"[]," * 4_000_000 + b"[]]}", True)
    yield Case("many-objects", b'{"7-Flows":[' + b"{}," * 4_000_000 + b"{}]}", True)
    attributes = " ".join(f'a{i}="1"' for i in range(500_000))
    yield Case("many-attributes", f"<system {attributes}/>".encode(), True)
    yield Case("many-lines", b"num_ranks 1\nrank 0 {\n" + b"calc 0\n" * 2_500_000 + b"}\n", True)
    yield Case("long-sums", _sums(20_000).encode(), True)
    yield Case("long-number", b'{"links": ' + b"9" * 1_000_000 + b"}", True)
    yield Case("long-line", b"GPU0\t" * 3_000_000, True)
    yield Case("spaces", b" " * 20_000_000, True)
    yield Case("zeros", bytes(1_000_000), True)
    yield Case("empty", b"", True)
    yield Case("too-large", b"x" * (70 * 2**20), True)
    yield Case("gzip-bomb", gzip.compress(bytes(200 * 2**20), mtime=0), True)
    yield Case("cut-gzip", gzip.compress(text.encode(), mtime=0)[:-9], True)
    yield Case("utf-16", text.encode("utf-16"), True)
    yield Case("utf-32", text.encode("utf-32"), True)
    yield Case("latin-1", text.encode() + "\xe9".encode("latin-1"), True)
    yield Case("surrogate", text.encode() + b"\xed\xa0\x80", True)
    yield Case("nul", text.replace(" ", "\0", 3).encode(), False)
    yield Case("bom", b"\xef\xbb\xbf" + text.encode(), False)


def _sums(count: int) -> str:
    """Return GOAL in which a rank adds up as many messages, each sum with all before it."""
    sends = "".join(f"s{i}: send 500000b to 1 tag {i}\n" for i in range(count))
    sums = "".join(
        f"r{i}: recv 500000b from 0 tag {i}\nc{i}: calc 0\nc{i} requires r{i}\n"
        + (f"c{i} requires c{i - 1}\n" if i else "")
        for i in range(count)
    )
    idle = "rank 2 {\n}\nrank 3 {\n}\n"
    head = "// collective allreduce, chunks 2\nnum_ranks 4\n"
    return f"{head}rank 0 {{\n{sends}}}\nrank 1 {{\n{sums}}}\n{idle}"


_NUMBERS = ("-1", "0", "99999999999999999999", "1e308", "1e-300", "NaN", "Infinity", "2147483648")


def damage(text: str, random_state: random.Random) -> str:
    """Return the text with one thing changed."""
    kind = random_state.randrange(8)
    place = random_state.randrange(max(1, len(text)))
    if kind == 0:
        return text[:place]
    if kind == 1:
        return (
            text[:place] + chr(random_state.choice((0, 9, 34, 38, 60, 91, 123, 233))) + text[place:]
        )
    if kind == 2:
        end = min(len(text), place + random_state.randrange(1, 200))
        return text[:place] + text[end:]
    if kind == 3:
        end = min(len(text), place + random_state.randrange(1, 500))
        return text[:end] + text[place:end] * random_state.choice((1, 5, 500)) + text[end:]
    numbers = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
    words = list(re.finditer(r"[A-Za-z_]{2,}", text))
    if kind in (4, 5) and numbers:
        match = random_state.choice(numbers)
        new = random_state.choice((*_NUMBERS, str(random_state.randrange(10**6))))
    elif words:
        match = random_state.choice(words)
        new = random_state.choice(("", "x", "null", "gpu", "step", "links", match[0] * 300))
    else:
        return text[place:]
    return text[: match.start()] + new + text[match.end() :]


def cases(target: str, count: int) -> Iterator[Case]:
    """Yield bombs and then damaged files, `count` in all."""
    text = (DATA / TARGETS[target].fixture).read_text(encoding="utf-8")
    made = 0
    for case in bombs(text):
        made += 1
        yield case
    for number in range(count - made):
        state = random.Random(number)
        broken = text
        for _ in range(state.choice((1, 1, 2, 5, 20))):
            broken = damage(broken, state)[: 2**22]
        yield Case(f"damage-{number}", broken.encode(), False)


def attempt(target: str, case: Case, folder: Path) -> tuple[str, float]:
    """Import one file; return the outcome, ``ok`` or the error, and CPU seconds."""
    from teccl.errors import InputError

    suffix = Path(TARGETS[target].fixture).suffix
    path = folder / f"hostile{suffix}"
    path.write_bytes(case.content)
    begin = time.process_time()
    try:
        load(target, path)
        outcome = "ok"
    except InputError as problem:
        outcome = str(problem)
    return outcome, time.process_time() - begin


def peak_kib() -> int:
    """Most memory held so far; `getrusage` would count what the parent held before as well."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0])


def main(target: str, count: int, folder: Path) -> None:
    """Try files and print what became of them."""
    load(target, DATA / TARGETS[target].fixture)
    before = peak_kib()
    found = []
    for case in cases(target, count):
        outcome, seconds = attempt(target, case, folder)
        found.append((case.name, outcome, seconds, case.is_bad))
    report = {"cases": found, "before_kib": before, "peak_kib": peak_kib()}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
