"""What a group can do beyond single calls; each rank runs all checks and says which passed.

At last it makes random calls, with plans in ``FOLDER/cases``: ``features.py FOLDER CALLS``.
"""

import sys
import traceback
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tests.torch.programs.cases import compare
from tests.torch.programs.member import begin, say
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import teccl.torch
from teccl.errors import RunError

rank, size, folder = begin(plan=[sys.argv[1] + "/plans"], topology="fully-connected:gpus=3")
LAST = size - 1


def records(**wanted) -> list[teccl.torch.Record]:
    return [
        record
        for record in teccl.torch.records()
        if all(getattr(record, name) == value for name, value in wanted.items())
    ]


def plan_covers_its_sizes() -> None:
    tensor = torch.full((100,), float(rank))
    dist.all_reduce(tensor)
    assert tensor.eq(sum(range(size))).all()
    assert records(collective="allreduce", size_bytes=400, detail="schedule0.json.gz")


def larger_sizes_are_synthesised() -> None:
    tensor = torch.full((30_000,), rank, dtype=torch.int32)
    dist.all_reduce(tensor)
    assert tensor.eq(sum(range(size))).all()
    (record,) = records(collective="allreduce", size_bytes=120_000)
    assert record.how == "schedule"
    assert "131072B, synthesised" in record.detail


def equal_sizes_share_a_synthesis() -> None:
    dist.all_reduce(torch.ones(26_000))
    (record,) = records(collective="allreduce", size_bytes=104_000)
    (other,) = records(collective="allreduce", size_bytes=120_000)
    assert record.detail == other.detail


def sub_groups_have_schedules_of_their_own() -> None:
    every = [(ranks, dist.new_group(ranks, backend="teccl")) for ranks in ([0, 1], [2, 0])]
    for ranks, mine in every:
        if rank not in ranks:
            continue
        tensor = torch.full((50_000,), float(rank))
        dist.all_reduce(tensor, group=mine)
        assert tensor.eq(sum(ranks)).all()
        out = torch.empty(2 * 7, dtype=torch.int64)
        dist.all_gather_into_tensor(out, torch.full((7,), rank), group=mine)
        members = dist.get_process_group_ranks(mine)
        assert out.tolist() == [members[0]] * 7 + [members[1]] * 7
        assert [r.how for r in teccl.torch.records(mine)] == ["schedule", "schedule"]


def averages_are_passed_on() -> None:
    tensor = torch.full((64,), float(rank))
    if torch.__version__ < "2.10":
        # Gloo had no averages yet; what it says is passed on, too.
        with pytest.raises(RuntimeError, match="AVG with Gloo"):
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    else:
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert tensor.eq(sum(range(size)) / size).all()
    (record,) = records(collective="allreduce", size_bytes=256, how="inner")
    assert record.detail == "AVG of float32 is the inner group's own"


def futures_have_callbacks() -> None:
    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.then(lambda done: done.value()[0] * 2).wait().eq(2 * size).all()


def calls_overlap_in_order() -> None:
    tensors = [torch.full((500,), float(i + rank)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait(timedelta(seconds=60))
        assert tensors[i].eq(size * i + sum(range(size))).all()


def options_may_be_left_out() -> None:
    world, one = dist.group.WORLD, torch.full((3,), float(rank))
    total, every = torch.full((3,), float(sum(range(size)))), torch.empty(size * 3)
    whose = torch.arange(size).repeat_interleave(3)
    for name in ("_allgather_base", "all_gather_single"):
        getattr(world, name)(every.zero_(), one).wait()
        assert every.eq(whose).all()
    parts = [torch.empty(3) for _ in range(size)]
    world.allgather([parts], [one]).wait()
    assert torch.cat(parts).eq(whose).all()
    for name in ("_reduce_scatter_base", "reduce_scatter_single"):
        out = torch.empty(3)
        getattr(world, name)(out, one.repeat(size)).wait()
        assert out.eq(total).all()
    for name in ("alltoall_base", "all_to_all_single"):
        getattr(world, name)(every.zero_(), one.repeat(size), [], []).wait()
        assert every.eq(whose).all()
    tensor = one.clone()
    world.allreduce([tensor]).wait()
    assert tensor.eq(total).all()
    world.broadcast([tensor.fill_(rank)]).wait()
    assert tensor.eq(0).all()
    world.barrier().wait()


def coalesced_calls_are_made_as_one() -> None:
    total = float(sum(range(size)))
    for device in (None, torch.device("cpu")):
        sums = [torch.full((n,), float(rank)) for n in (10, 7)]
        with dist._coalescing_manager(device=device, async_ops=True) as works:
            for tensor in sums:
                dist.all_reduce(tensor)
        works.wait()
        assert all(tensor.eq(total).all() for tensor in sums)
        every = [torch.empty(size * n) for n in (10, 7)]
        with dist._coalescing_manager(device=device):
            for out in every:
                dist.all_gather_into_tensor(out, torch.full((len(out) // size,), float(rank)))
        parts = [torch.empty(n) for n in (10, 7)]
        with dist._coalescing_manager(device=device):
            for part, out in zip(parts, every, strict=True):
                dist.reduce_scatter_tensor(part, out)
        assert all(part.eq(size * rank).all() for part in parts)


def functional_forms_are_coalesced() -> None:
    one = torch.full((5,), float(rank))
    found = functional.all_reduce_coalesced([one, one[:2]], "sum", dist.group.WORLD)
    assert all((tensor + 0).eq(sum(range(size))).all() for tensor in found)
    found = functional.all_gather_into_tensor_coalesced([one, one[:2]], dist.group.WORLD)
    assert [len(tensor + 0) for tensor in found] == [5 * size, 2 * size]
    whole = [tensor + 0 for tensor in found]
    found = functional.reduce_scatter_tensor_coalesced(whole, "sum", [0, 0], dist.group.WORLD)
    assert all((tensor + 0).eq(size * rank).all() for tensor in found)


def exchanges_take_every_type() -> None:
    for dtype in (torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.complex64):
        sent = (torch.arange(3 * size) + rank).remainder(5).to(dtype)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        parts = [(torch.arange(3) + 3 * rank + r).remainder(5).to(dtype) for r in range(size)]
        assert torch.equal(got, torch.cat(parts))
        # In place, which needs the data kept aside.
        dist.all_to_all_single(sent, sent)
        assert torch.equal(sent, got)
    assert {record.how for record in records(collective="alltoall")} == {"schedule"}


def objects_travel() -> None:
    every = [None] * size
    dist.all_gather_object(every, {"rank": rank})
    assert every == [{"rank": r} for r in range(size)]
    box = ["from the last"] if rank == LAST else [None]
    dist.broadcast_object_list(box, src=LAST)
    assert box == ["from the last"]


def gradients_flow_through_leaves() -> None:
    tensor = torch.ones(100, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    assert tensor.requires_grad


def tensor_parallel_layers_train() -> None:
    losses = []
    for parallel in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
        if parallel:
            mesh = init_device_mesh("cpu", (size,))
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            model = parallelize_module(model, mesh, plan)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
        for _ in range(5):
            loss = model(data).pow(2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses.append(float(loss))
    assert abs(losses[0] - losses[1]) < 1e-5


def strict_groups_refuse_the_inner_one() -> None:
    options = teccl.torch.Options(plan=sys.argv[1] + "/plans", strict=True)
    strict = dist.new_group(backend="teccl", pg_options=options)
    dist.all_reduce(torch.ones(100), group=strict)
    with pytest.raises(RunError, match="120000 bytes are outside the plan's 0 to 99999"):
        dist.all_reduce(torch.ones(30_000), group=strict)
    alone = [dist.new_group([r], backend="teccl", pg_options=options) for r in range(size)]
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=alone[rank])
    assert tensor.eq(1).all()


def wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="use messages or rounds"):
        teccl.torch.Options(lowering="streams")
    with pytest.raises(ValueError, match="effort 'qick' is unknown; use quick, normal, thorough"):
        teccl.torch.Options(effort="qick")


def explanations_are_tables() -> None:
    lines = teccl.torch.explain().splitlines()
    assert lines[0].split() == ["group", "collective", "size", "calls", "ran", "by", "detail"]
    assert any("schedule0.json.gz" in line for line in lines)


CHECKS = (
    *(plan_covers_its_sizes, larger_sizes_are_synthesised, equal_sizes_share_a_synthesis),
    *(sub_groups_have_schedules_of_their_own, averages_are_passed_on, futures_have_callbacks),
    *(
        calls_overlap_in_order,
        options_may_be_left_out,
        objects_travel,
        gradients_flow_through_leaves,
    ),
    *(tensor_parallel_layers_train, strict_groups_refuse_the_inner_one),
    *(coalesced_calls_are_made_as_one, functional_forms_are_coalesced, exchanges_take_every_type),
    *(wrong_options_are_refused, explanations_are_tables),
)

if __name__ == "__main__":
    for each in CHECKS:
        try:
            each()
        except Exception:  # noqa: BLE001, the test reads which check failed
            traceback.print_exc()
            say("failed", each.__name__)
        else:
            say("passed", each.__name__)
    dist.barrier()
    cases = sys.argv[1] + "/cases"
    given = teccl.torch.Options(plan=cases)
    compare(dist.new_group(backend="teccl", pg_options=given), cases, range(int(sys.argv[2])))
    dist.destroy_process_group()
