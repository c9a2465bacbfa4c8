"""Random calls of every form, on the group under test and on gloo: results must be equal.

Run as a script by each rank: ``cases.py FOLDER FIRST LAST``, with plans in ``FOLDER/plans``. Every
call is made by messages and by rounds.
"""

import random
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tests.torch.programs.member import begin, say

import teccl.torch
from teccl.torch.works import CallWork

DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16)
OPS = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT)
OP_NAMES = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.MIN: "min", dist.ReduceOp.MAX: "max"}
COUNTS = (0, 1, 2, 3, 5, 17, 64, 100, 1000, 4097, 30_000)
LARGE = (262_144, 2_000_000)


class Case:
    """One call: the same on all ranks but for the data."""

    def __init__(self, seed: int, rank: int, size: int, *, is_dense: bool = False) -> None:
        # Gloo itself takes tensors that are not contiguous for contiguous ones.
        self.is_dense = is_dense
        self.rng = random.Random(seed)
        self.rank, self.size, self.seed = rank, size, seed
        self.form = self.rng.choice(sorted(FORMS))
        self.dtype = self.rng.choice(DTYPES)
        self.op = self.rng.choice(OPS)
        self.count = self.rng.choice(LARGE if self.rng.random() < 0.05 else COUNTS)
        if self.dtype.itemsize * self.count * (size if size > 4 else 4) > 2**24:
            self.count = 100_000
        self.root = self.rng.randrange(size)
        self.is_async = self.rng.random() < 0.5
        self.is_strided = self.rng.random() < 0.3
        self.number = 0

    def tensor(self, count: int, *, fill: bool = True) -> torch.Tensor:
        """A tensor of this rank's own data, perhaps not contiguous or without dimension."""
        self.number += 1
        shape = (count,) if count != 1 or self.is_strided else ()
        if not fill:
            data = torch.full((count,), 77)
        else:
            seeded = torch.Generator().manual_seed(self.seed * 1000 + self.rank * 17 + self.number)
            data = torch.randint(1, 4, (count,), generator=seeded)
            if self.dtype.is_floating_point:
                data = data + torch.rand((count,), generator=seeded, dtype=torch.float64)
        data = data.to(self.dtype)
        if self.is_strided and count > 1 and not self.is_dense:
            wide = torch.zeros(count, 2, dtype=self.dtype)
            wide[:, 1] = data
            return wide[:, 1]
        return data.reshape(shape)

    def done(self, work) -> None:
        """Wait for an asynchronous call."""
        if isinstance(work, torch._C.Future):
            work.wait()
        elif self.is_async:
            assert work.wait()
        if isinstance(work, CallWork):
            assert work.is_completed()
            assert work.is_success()
            assert all(torch.is_tensor(tensor) for tensor in work.get_future().wait())


def all_reduce(case: Case, group) -> list:
    tensor = case.tensor(case.count)
    case.done(dist.all_reduce(tensor, op=case.op, group=group, async_op=case.is_async))
    return [tensor]


def all_gather(case: Case, group) -> list:
    tensor = case.tensor(case.count)
    out = [case.tensor(case.count, fill=False) for _ in range(case.size)]
    case.done(dist.all_gather(out, tensor, group=group, async_op=case.is_async))
    return out


def all_gather_into_tensor(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor(case.count).reshape(-1)
    out = torch.empty(case.size * case.count, dtype=case.dtype)
    case.done(dist.all_gather_into_tensor(out, tensor, group=group, async_op=case.is_async))
    return [out]


def all_gather_in_place(case: Case, group) -> list:
    case.is_strided = False
    out = torch.zeros(case.size * case.count, dtype=case.dtype)
    own = out[case.rank * case.count : (case.rank + 1) * case.count]
    own.copy_(case.tensor(case.count).reshape(-1))
    case.done(dist.all_gather_into_tensor(out, own, group=group, async_op=case.is_async))
    return [out]


def reduce_scatter(case: Case, group) -> list:
    tensors = [case.tensor(case.count) for _ in range(case.size)]
    out = case.tensor(case.count, fill=False)
    case.done(dist.reduce_scatter(out, tensors, op=case.op, group=group, async_op=case.is_async))
    return [out]


def reduce_scatter_tensor(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor(case.count * case.size).reshape(-1)
    out = torch.empty(case.count, dtype=case.dtype)
    call = dist.reduce_scatter_tensor
    case.done(call(out, tensor, op=case.op, group=group, async_op=case.is_async))
    return [out]


def all_to_all(case: Case, group) -> list:
    tensors = [case.tensor(case.count) for _ in range(case.size)]
    out = [case.tensor(case.count, fill=False) for _ in range(case.size)]
    case.done(dist.all_to_all(out, tensors, group=group, async_op=case.is_async))
    return out


def all_to_all_single(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor(case.count * case.size).reshape(-1)
    out = torch.empty_like(tensor)
    case.done(dist.all_to_all_single(out, tensor, group=group, async_op=case.is_async))
    return [out]


def all_to_all_splits(case: Case, group) -> list:
    case.is_strided = False
    even = case.rng.random() < 0.5
    parts = [[case.rng.randrange(4) for _ in range(case.size)] for _ in range(case.size)]
    if even:
        parts = [[3] * case.size for _ in range(case.size)]
    sent, got = parts[case.rank], [row[case.rank] for row in parts]
    tensor = case.tensor(sum(sent) + 1).reshape(-1)[: sum(sent)].reshape(-1, 1)
    out = torch.empty(sum(got), 1, dtype=case.dtype)
    case.done(dist.all_to_all_single(out, tensor, got, sent, group=group, async_op=case.is_async))
    return [out]


def broadcast(case: Case, group) -> list:
    tensor = case.tensor(case.count)
    case.done(dist.broadcast(tensor, case.root, group=group, async_op=case.is_async))
    return [tensor]


def reduce(case: Case, group) -> list:
    tensor = case.tensor(case.count)
    case.done(dist.reduce(tensor, case.root, op=case.op, group=group, async_op=case.is_async))
    return [tensor] if case.rank == case.root else []


def gather(case: Case, group) -> list:
    tensor = case.tensor(case.count)
    out = None
    if case.rank == case.root:
        out = [case.tensor(case.count, fill=False) for _ in range(case.size)]
    case.done(dist.gather(tensor, out, dst=case.root, group=group, async_op=case.is_async))
    return out or []


def scatter(case: Case, group) -> list:
    out = case.tensor(case.count, fill=False)
    parts = None
    if case.rank == case.root:
        parts = [case.tensor(case.count) for _ in range(case.size)]
    case.done(dist.scatter(out, parts, src=case.root, group=group, async_op=case.is_async))
    return [out]


def all_reduce_coalesced(case: Case, group) -> list:
    case.is_strided = False
    tensors = [case.tensor(case.count).reshape(-1), case.tensor(case.count + 3)]
    case.done(dist.all_reduce_coalesced(tensors, op=case.op, group=group, async_op=case.is_async))
    return tensors


def functional_all_reduce(case: Case, group) -> list:
    name = OP_NAMES.get(case.op, "product")
    return [functional.all_reduce(case.tensor(case.count), name, group) + 0]


def functional_all_gather(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor(case.count + 1).reshape(-1)
    return [functional.all_gather_tensor(tensor, 0, group) + 0]


def functional_reduce_scatter(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor((case.count + 1) * case.size).reshape(-1)
    name = OP_NAMES.get(case.op, "product")
    return [functional.reduce_scatter_tensor(tensor, name, 0, group) + 0]


def functional_all_to_all(case: Case, group) -> list:
    case.is_strided = False
    tensor = case.tensor((case.count + 1) * case.size).reshape(-1)
    return [functional.all_to_all_single(tensor, None, None, group) + 0]


def functional_broadcast(case: Case, group) -> list:
    return [functional.broadcast(case.tensor(case.count), case.root, group) + 0]


def send_and_recv(case: Case, group) -> list:
    case.is_strided = False
    tensor, out = case.tensor(case.count + 1), case.tensor(case.count + 1, fill=False)
    after, before = (case.rank + 1) % case.size, (case.rank - 1) % case.size
    calls = [
        dist.P2POp(dist.isend, tensor, after, group, tag=3),
        dist.P2POp(dist.irecv, out, before, group, tag=3),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return [out]


FORMS = {
    call.__name__: call
    for call in (
        *(all_reduce, all_gather, all_gather_into_tensor, all_gather_in_place, reduce_scatter),
        *(reduce_scatter_tensor, all_to_all, all_to_all_single, all_to_all_splits, broadcast),
        *(reduce, gather, scatter, all_reduce_coalesced, functional_all_reduce),
        *(functional_all_gather, functional_reduce_scatter, functional_all_to_all),
        *(functional_broadcast, send_and_recv),
    )
}
# Every rank ends with the same bytes.
SAME = ("all_reduce", "all_reduce_coalesced", "functional_all_reduce")


def same_everywhere(tensor: torch.Tensor, gloo) -> bool:
    """Whether all ranks hold the same bytes."""
    every = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(every, tensor, group=gloo)
    raw = [each.contiguous().reshape(-1).view(torch.uint8) for each in every if each.numel()]
    return all(torch.equal(raw[0], each) for each in raw)


def check(seed: int, rank: int, size: int, group, gloo) -> None:
    """Make one call on a group and on gloo and compare."""
    case = Case(seed, rank, size)
    is_lacking = "reduce_scatter" in case.form or case.form == "all_to_all"
    if torch.__version__ < "2.10" and is_lacking:
        # Gloo had none, or took every operation for a sum, so that it cannot tell what is right.
        return
    found = FORMS[case.form](Case(seed, rank, size), group)
    wanted = FORMS[case.form](Case(seed, rank, size, is_dense=True), gloo)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        where = f"case {seed} on rank {rank}: {case.form} of {case.count} {case.dtype} {case.op}"
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        if case.dtype.is_floating_point:
            # Sums are formed in another order than gloo's.
            near = 0.1 if case.dtype is torch.bfloat16 else 1e-5
            assert torch.allclose(a.double(), b.double(), rtol=near, atol=near), where
        else:
            assert torch.equal(a, b), where
        if case.form in SAME:
            assert same_everywhere(a, gloo), where


def compare(group: dist.ProcessGroup, plan: str, seeds: range) -> None:
    """Make calls on a group of all ranks, on one like it that runs rounds, and on gloo."""
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    given = teccl.torch.Options(plan=plan, lowering="rounds")
    rounds = dist.new_group(backend="teccl", pg_options=given)
    for seed in seeds:
        for each in (group, rounds):
            check(seed, rank, size, each, gloo)
    dist.barrier()
    if rank == 0:
        for how in ("schedule", "inner"):
            records = [*teccl.torch.records(group), *teccl.torch.records(rounds)]
            say(how, sum(record.calls for record in records if record.how == how))


def main() -> None:
    plan = f"{sys.argv[1]}/plans"
    begin(plan=plan)
    compare(dist.group.WORLD, plan, range(int(sys.argv[2]), int(sys.argv[3])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
