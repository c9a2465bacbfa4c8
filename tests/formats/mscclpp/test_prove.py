"""The executor of MSCCL++ plans, on a plan written by hand and broken in known ways."""

import copy
import json

import pytest

from teccl.errors import ProgramError
from teccl.formats.msccl.prove.finding import FindingKind
from teccl.formats.mscclpp.prove import prove_plan_text, read_plan


def operand(letter, index, size=1):
    return {"type": letter, "index": index, "size": size}


def remote(buffer, index, size=1):
    return {"buffer_id": buffer, "index": index, "size": size}


def channel(name, kind="memory"):
    return {"name": name, "channel_ids": [0], "channel_type": kind}


def two_ranks(kind="memory"):
    """Return an AllGather of one chunk each between two ranks, out of place.

    Each copies its own chunk, tells the other that it has begun, puts its chunk into the other's
    output and signals; then it waits for the other's.
    """

    def gpu(rank):
        put = {
            "name": "put" if kind == "memory" else "pwsf",
            "src_buff": [operand("i", 0)],
            "dst_buff": [remote(0, rank)],
            "channel_type": kind,
        }
        if kind == "port":
            put["channel_ids"] = [0]
        ops = [
            {"name": "copy", "src_buff": [operand("i", 0)], "dst_buff": [operand("o", rank)]},
            channel("rlxsignal", kind),
            channel("rlxwait", kind),
            {"name": "nop"},
            put,
            {"name": "nop"},
            *([channel("signal", kind)] if kind == "memory" else []),
            channel("wait", kind),
        ]
        return {
            "id": rank,
            "input_chunks": 1,
            "output_chunks": 2,
            "scratch_chunks": 1,
            "threadblocks": [
                {
                    "id": 0,
                    "ops": ops,
                    "channels": [{"channel_type": kind, "channel_ids": [0]}],
                    "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": [0]}],
                }
            ],
            "channels": [{"channel_type": kind, "connected_to": [1 - rank]}],
            "remote_buffers": [{"rank": 1 - rank, "type": "o", "access_channel_types": [kind]}],
            "semaphores": [],
        }

    return {
        "name": "two",
        "collective": "allgather",
        "protocol": "Simple",
        "inplace": False,
        "gpus": [gpu(0), gpu(1)],
    }


def kinds(plan):
    """Return the kinds of what is wrong with a plan."""
    return {finding.kind for finding in prove_plan_text(json.dumps(plan)).findings}


def ops_of(plan, rank=0):
    return plan["gpus"][rank]["threadblocks"][0]["ops"]


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_a_good_plan_passes(kind):
    """The plan by hand is right on both kinds of channel."""
    proof = prove_plan_text(json.dumps(two_ranks(kind)))
    assert proof.ok, proof.findings
    assert proof.facts["operations_per_block"] == (8 if kind == "memory" else 7)


def drop(name, rank=0, place=0):
    """Return a change that removes an operation."""

    def change(plan):
        ops = ops_of(plan, rank)
        del ops[[i for i, op in enumerate(ops) if op["name"] == name][place]]

    return change


def change_op(which, **values):
    """Return a change of an operation's fields."""

    def change(plan):
        next(op for op in ops_of(plan) if op["name"] == which).update(values)

    return change


def swap(first, second):
    """Return a change that exchanges two operations."""

    def change(plan):
        ops = ops_of(plan)
        names = [op["name"] for op in ops]
        i, j = names.index(first), names.index(second)
        ops[i], ops[j] = ops[j], ops[i]

    return change


def set_gpu(**values):
    """Return a change of a GPU's fields."""

    def change(plan):
        plan["gpus"][0].update(values)

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (drop("wait"), FindingKind.UNMATCHED),
        (drop("signal"), FindingKind.DEADLOCK),
        (drop("rlxsignal"), FindingKind.DEADLOCK),
        (drop("rlxwait"), FindingKind.RACE),
        (drop("nop"), FindingKind.RACE),
        (drop("nop", place=1), FindingKind.RACE),
        (drop("copy"), FindingKind.WRONG_RESULT),
        (drop("put"), FindingKind.WRONG_RESULT),
        (swap("put", "signal"), FindingKind.RACE),
        (swap("rlxsignal", "wait"), FindingKind.DEADLOCK),
        (change_op("put", src_buff=[operand("o", 1)]), FindingKind.RACE),
        (change_op("put", src_buff=[operand("s", 0)]), FindingKind.WRONG_RESULT),
        (change_op("put", dst_buff=[remote(0, 1)]), FindingKind.RACE),
        (change_op("put", dst_buff=[remote(0, 2)]), FindingKind.BOUNDS),
        (change_op("put", dst_buff=[remote(3, 0)]), FindingKind.BOUNDS),
        (change_op("put", dst_buff=[remote(0, 0, 2)]), FindingKind.COUNT_MISMATCH),
        (change_op("put", channel_type="port"), FindingKind.ATTRIBUTE),
        (change_op("copy", dst_buff=[operand("i", 0)]), FindingKind.INPUT_OVERWRITTEN),
        (change_op("copy", name="get"), FindingKind.ATTRIBUTE),
        (change_op("signal", channel_ids=[1]), FindingKind.BOUNDS),
        (change_op("signal", channel_ids=[0] * 9), FindingKind.LIMIT),
        (change_op("signal", channel_ids=[0, 0]), FindingKind.UNMATCHED),
        (set_gpu(input_chunks=0), FindingKind.LIMIT),
        (set_gpu(output_chunks=3), FindingKind.ATTRIBUTE),
        (set_gpu(id=1), FindingKind.ATTRIBUTE),
        (set_gpu(channels=[]), FindingKind.PEER),
        (set_gpu(remote_buffers=[]), FindingKind.BOUNDS),
    ],
)
def test_broken_plans_are_caught(change, kind):
    """Each change has the effect that it must have by construction."""
    plan = two_ranks()
    change(plan)
    assert kind in kinds(plan)


def test_the_last_put_of_a_port_must_be_flushed():
    """Without the flush the call may end while the network reads the input."""
    plan = two_ranks("port")
    change_op("pwsf", name="pws")(plan)
    assert kinds(plan) == {FindingKind.RACE}


def test_too_many_operations():
    """A thread block holds 64 operations."""
    plan = two_ranks()
    ops_of(plan).extend({"name": "nop"} for _ in range(56))
    assert kinds(plan) == set()
    ops_of(plan).append({"name": "nop"})
    assert kinds(plan) == {FindingKind.LIMIT}


def test_blocks_that_share_a_channel():
    """Two blocks that wait on one channel take each other's signals."""
    plan = two_ranks()
    for gpu in plan["gpus"]:
        second = copy.deepcopy(gpu["threadblocks"][0])
        second["id"] = 1
        gpu["threadblocks"].append(second)
    assert FindingKind.PEER in kinds(plan)


@pytest.mark.parametrize("synchronised", [True, False])
def test_semaphores_order_blocks(synchronised):
    """A block that sends what another copied must acquire what that one releases."""
    plan = two_ranks()
    for rank, gpu in enumerate(plan["gpus"]):
        gpu["semaphores"] = [{"init_value": 0}]
        ops = ops_of(plan, rank)
        copied = ops.pop(0)
        put = next(op for op in ops if op["name"] == "put")
        put["src_buff"] = [operand("o", rank)]
        place = ops.index(put)
        if synchronised:
            acquire = {"name": "sem_acquire", "semaphore_ids": [0]}
            ops[place:place] = [acquire, {"name": "nop"}]
        release = [{"name": "nop"}, {"name": "sem_release", "semaphore_ids": [0]}]
        gpu["threadblocks"].append(
            {
                "id": 1,
                "ops": [copied, *release],
                "channels": [],
                "remote_buffer_refs": [],
            }
        )
    assert (FindingKind.RACE not in kinds(plan)) == synchronised


def test_barriers_order_blocks():
    """A barrier among both blocks does what a semaphore does."""
    plan = two_ranks()
    for rank, gpu in enumerate(plan["gpus"]):
        ops = ops_of(plan, rank)
        copied = ops.pop(0)
        put = next(op for op in ops if op["name"] == "put")
        put["src_buff"] = [operand("o", rank)]
        barrier = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
        ops.insert(ops.index(put), barrier)
        block = {"id": 1, "ops": [copied, barrier], "channels": [], "remote_buffer_refs": []}
        gpu["threadblocks"].append(block)
    assert kinds(plan) == set()
    plan["gpus"][0]["threadblocks"][1]["ops"].pop()
    assert FindingKind.DEADLOCK in kinds(plan)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"gpus": []}',
        '{"gpus": [1], "name": "x", "collective": "y", "protocol": "Simple", "inplace": true}',
        '{"gpus": [{}], "name": 3}',
        '{"gpus": ' + "[" * 3000 + "]" * 3000 + "}",
    ],
)
def test_what_is_no_plan_is_refused(text):
    """Damaged files are a clear error."""
    with pytest.raises(ProgramError):
        read_plan(text)
