"""Races: what orders two accesses to a chunk, and what does not."""

import random
import xml.etree.ElementTree as ET
from functools import cache

import pytest
from tests.formats.msccl.prove import mutations

import teccl
from teccl.formats.msccl.prove import prove_text
from teccl.formats.writing import export

SCHEDULES = ["dgx1", "ndv2:chassis=2", "torus:dims=3x3"]
UNFENCED = ["LL", "LL128"]
NOTHING, FIRST = 'depid="-1" deps="-1"', 'depid="0" deps="0"'


def there_and_back(protocol, *, waits):
    """An AllReduce of one chunk between two GPUs, in place.

    GPU 0 sends its chunk from one thread block and stores the sum in another, which may wait for
    the first; without that only the messages there and back stand between the two.
    """
    wait = FIRST if waits else NOTHING

    def step(kind, wait=NOTHING, shows=0):
        return (
            f'<step s="0" type="{kind}" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" '
            f'{wait} hasdep="{shows}"/>'
        )

    return (
        f'<algo name="x" proto="{protocol}" nchannels="1" nchunksperloop="1" ngpus="2" '
        'coll="allreduce" inplace="1" outofplace="0" minBytes="0" maxBytes="1024">\n'
        '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">\n'
        f'<tb id="0" send="1" recv="-1" chan="0">{step("s", shows=int(waits))}</tb>\n'
        f'<tb id="1" send="-1" recv="1" chan="0">{step("r", wait)}</tb>\n'
        "</gpu>\n"
        '<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">\n'
        f'<tb id="0" send="-1" recv="0" chan="0">{step("rrc", shows=1)}</tb>\n'
        f'<tb id="1" send="0" recv="-1" chan="0">{step("s", FIRST)}</tb>\n'
        "</gpu>\n"
        "</algo>\n"
    )


def kinds(text, runtime):
    (proof,) = prove_text(text, runtime=runtime)
    return {finding.kind.value for finding in proof.findings}


@cache
def program(topology, target, protocol, in_place):
    result = teccl.solve(topology, "allreduce", size="1MB", chunks=1, effort="quick")
    return export(result.schedule, to=target, protocol=protocol, in_place=in_place).files[0].content


@pytest.mark.parametrize("runtime", ["msccl", "rccl"])
@pytest.mark.parametrize("protocol", ["Simple", *UNFENCED])
def test_messages_order_memory_with_a_fence_only(protocol, runtime):
    """Two accesses with only messages between them are ordered by Simple and by no other."""
    expected = set() if protocol == "Simple" else {"race"}
    assert kinds(there_and_back(protocol, waits=False), runtime) == expected


@pytest.mark.parametrize("protocol", ["Simple", *UNFENCED])
def test_dependencies_order_memory_with_every_protocol(protocol):
    """The same program with the dependency written out is good everywhere."""
    assert not kinds(there_and_back(protocol, waits=True), "rccl")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("topology", SCHEDULES)
def test_exports_write_what_the_protocol_needs(topology, in_place):
    """LL programs have dependencies that Simple ones leave to messages, which LL may not."""
    simple, fast = (program(topology, "msccl", name, in_place) for name in ("Simple", "LL"))
    assert fast.count('depid="-1"') < simple.count('depid="-1"')
    assert not kinds(fast, "msccl")
    assert kinds(simple.replace('proto="Simple"', 'proto="LL"'), "msccl") == {"race"}
    assert not kinds(fast.replace('proto="LL"', 'proto="Simple"'), "msccl")


@pytest.mark.parametrize("protocol", UNFENCED)
def test_no_dependency_of_an_unfenced_program_is_idle(protocol):
    """A program that loses any of its dependencies is refused."""
    rng = random.Random(3)
    for topology in SCHEDULES:
        for _ in range(8):
            root = ET.fromstring(program(topology, "rccl", protocol, True))
            assert mutations.drop_dependency(root, rng)
            assert "race" in kinds(mutations.to_text(root), "rccl")
