"""Broken programs are told from good ones: by construction, and by all interleavings."""

import random
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest
from tests.formats.msccl.prove import exhaustive, mutations
from tests.formats.schedules import solved

from teccl.formats.msccl.prove import prove_text
from teccl.formats.writing import export

HERE = Path(__file__).parent
# Large enough to have nops, channels, relays, reductions in scratch and merged steps.
LARGER = [
    ("dgx1", "allgather", 4, "msccl", False),
    ("dgx1", "allreduce", 2, "rccl", True),
    ("torus:dims=3x3", "reducescatter", 3, "msccl", False),
    ("torus:dims=3x3", "alltoall", 2, "rccl", False),
    ("ndv2:chassis=2", "allreduce", 1, "msccl", False),
    ("star:gpus=6", "allgather", 2, "rccl", True),
    ("mesh:dims=2x3", "broadcast", 3, "msccl", False),
    ("ring:gpus=5", "reduce", 3, "rccl", False),
]
SMALL = [
    ("line:gpus=2", "allreduce", 2, "msccl", False),
    ("line:gpus=3", "allgather", 1, "rccl", False),
    ("line:gpus=3", "reducescatter", 1, "msccl", False),
    ("line:gpus=3", "alltoall", 1, "msccl", False),
    ("line:gpus=3", "allreduce", 1, "rccl", True),
    ("line:gpus=4", "broadcast", 2, "rccl", False),
    ("line:gpus=4", "reduce", 1, "msccl", False),
    ("star:gpus=3", "allgather", 1, "msccl", True),
]


@cache
def program(topology, collective, chunks, target, in_place):
    """The text of an exported program."""
    made = export(solved(topology, collective, chunks=chunks), to=target, in_place=in_place)
    return made.files[0].content


def is_good(text, target):
    (proof,) = prove_text(text, runtime=target)
    return proof.ok


def mutated(text, mutation, rng):
    """The mutated text, None if there is nothing to mutate."""
    root = ET.fromstring(text)
    return mutations.to_text(root) if mutation(root, rng) else None


def check_known_effects(count, seed):
    """Mutate larger programs and compare with what each kind is known to do."""
    rng = random.Random(seed)
    kinds = [(m, True) for m in mutations.HARMFUL] + [(m, False) for m in mutations.HARMLESS]
    done = 0
    while done < count:
        mutation, harmful = kinds[done % len(kinds)]
        case = rng.choice(LARGER)
        text = mutated(program(*case), mutation, rng)
        if text is None:
            continue
        done += 1
        assert is_good(text, case[3]) is not harmful, (mutation.__name__, case)
    return done


def check_against_search(count, seed):
    """Mutate small programs in any way and compare with a search over all interleavings."""
    rng = random.Random(seed)
    kinds = mutations.HARMFUL + mutations.HARMLESS + ANY
    bases = [(program(*case), case[3], case[4]) for case in SMALL]
    bases += [(ring(4, fused=f), "rccl", True) for f in (False, True)]
    done, bad = 0, 0
    while done < count:
        text, target, in_place = rng.choice(bases)
        changed = mutated(text, rng.choice(kinds), rng)
        if changed is None:
            continue
        (proof,) = prove_text(changed, runtime=target)
        if any(f.kind.value in STATIC for f in proof.findings):
            continue
        try:
            truth = exhaustive.runs_well(changed, in_place=in_place)
        except exhaustive.TooLargeError:
            continue
        done += 1
        bad += not truth
        assert proof.ok is truth, (changed, [str(f) for f in proof.findings])
    assert 0 < bad < done
    return done


# What is refused without running: a search over interleavings has nothing to say about it.
STATIC = ("syntax", "attribute", "limit", "peer", "bounds", "dependency", "input-overwritten")


def swap_any_steps(root, rng):
    """Swap two neighbouring steps of a block, whatever they are."""
    block = rng.choice([b for b in root.iter("tb") if len(b) > 1] or [None])
    if block is None:
        return False
    at = rng.randrange(len(block) - 1)
    steps = list(block)
    steps[at], steps[at + 1] = steps[at + 1], steps[at]
    for step in list(block):
        block.remove(step)
    for number, step in enumerate(steps):
        step.set("s", str(number))
        block.append(step)
    return True


def clear_any_publisher(root, rng):
    """Clear hasdep anywhere: a later step may publish enough."""
    steps = [s for s in root.iter("step") if s.get("hasdep") == "1"]
    if not steps:
        return False
    rng.choice(steps).set("hasdep", "0")
    return True


def move_dependency(root, rng):
    """Wait for another step of the same block: too early, too late or as good."""
    steps = [s for s in root.iter("step") if int(s.get("depid")) >= 0]
    if not steps:
        return False
    step = rng.choice(steps)
    step.set("deps", str(max(0, int(step.get("deps")) + rng.choice([-1, 1]))))
    return True


def add_dependency(root, rng):
    """Wait for some step more: useless, or a circle."""
    gpu = rng.choice(list(root.iter("gpu")))
    steps = [s for s in gpu.iter("step") if s.get("depid") == "-1" and s.get("type") != "nop"]
    others = [b for b in gpu.iter("tb") if len(b)]
    if not steps or len(others) < 2:
        return False
    step, block = rng.choice(steps), rng.choice(others)
    if step in list(block):
        return False
    target = rng.choice(list(block))
    target.set("hasdep", "1")
    step.set("depid", block.get("id"))
    step.set("deps", target.get("s"))
    return True


ANY = (swap_any_steps, clear_any_publisher, move_dependency, add_dependency)


def ring(ranks, *, fused):
    """An in-place ring AllGather with one block per gpu, written by hand."""
    head = (
        f'<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="{ranks}" '
        f'ngpus="{ranks}" coll="allgather" inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
    )
    lines = [head]
    for rank in range(ranks):
        lines.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="{ranks}" s_chunks="0">')
        before, after = (rank - 1) % ranks, (rank + 1) % ranks
        lines.append(f'<tb id="0" send="{after}" recv="{before}" chan="0">')
        kinds = ["s"] + (["rcs"] * (ranks - 2) if fused else ["r", "s"] * (ranks - 2)) + ["r"]
        hop = 0
        for number, kind in enumerate(kinds):
            hop += kind.startswith("r")
            chunk = (rank - hop) % ranks
            lines.append(
                f'<step s="{number}" type="{kind}" srcbuf="o" srcoff="{chunk}" dstbuf="o" '
                f'dstoff="{chunk}" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
            )
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"]) + "\n"


@pytest.mark.parametrize("case", LARGER + SMALL, ids=str)
def test_exported_programs_are_good(case):
    """The programs that the other tests break are good to begin with."""
    assert is_good(program(*case), case[3])


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_small_programs_survive_all_interleavings(case):
    """What the proof accepts runs well in every interleaving."""
    try:
        assert exhaustive.runs_well(program(*case), in_place=case[4])
    except exhaustive.TooLargeError:
        pytest.skip("too many interleavings")


@pytest.mark.parametrize("fused", [False, True])
def test_rings_need_two_places(fused):
    """A ring of plain steps runs with one place per connection, a fused one needs two."""
    text = ring(4, fused=fused)
    assert is_good(text, "rccl")
    search = exhaustive.Search(text, in_place=True)
    assert not search.can_hang(depth=2)
    assert search.can_hang(depth=1) is fused


def test_known_effects():
    """Harmful mutations are found and harmless ones pass."""
    assert check_known_effects(28, seed=1) == 28


def test_agreement_with_search():
    """On small programs the verdict is that of a search over all interleavings."""
    assert check_against_search(20, seed=2) == 20


@pytest.mark.slow
def test_known_effects_in_full():
    """The same for 500 mutations."""
    assert check_known_effects(500, seed=3) == 500


@pytest.mark.slow
def test_agreement_with_search_in_full():
    """The same for 500 mutations."""
    assert check_against_search(500, seed=4) == 500
