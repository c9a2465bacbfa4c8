"""The process group beyond single calls: synthesis, sub-groups, futures, layers, explanations."""

import pytest
from tests.torch.ranks import ROOT, Rank, needs_torch, run_ranks
from tests.torch.schedules import solved, write_plan

pytestmark = needs_torch()
SCRIPT = ROOT / "tests" / "torch" / "programs" / "features.py"
CHECKS = (
    *("plan_covers_its_sizes", "larger_sizes_are_synthesised", "equal_sizes_share_a_synthesis"),
    *("sub_groups_have_schedules_of_their_own", "averages_are_passed_on"),
    *("futures_have_callbacks", "calls_overlap_in_order", "options_may_be_left_out"),
    *("objects_travel", "gradients_flow_through_leaves", "tensor_parallel_layers_train"),
    *("strict_groups_refuse_the_inner_one", "coalesced_calls_are_made_as_one"),
    *("functional_forms_are_coalesced", "exchanges_take_every_type"),
    *("wrong_options_are_refused", "explanations_are_tables"),
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[Rank]:
    """Four ranks that have made all checks."""
    folder = tmp_path_factory.mktemp("ranks")
    write_plan(folder / "plans", [(0, 100_000, solved("ring:gpus=4", "allreduce"))])
    return run_ranks(SCRIPT, 4, folder)


@pytest.mark.parametrize("check", CHECKS)
def test_feature(ranks, check):
    """Each check passes on every rank."""
    for number, rank in enumerate(ranks):
        assert f"passed {check}" in rank.out.splitlines(), f"rank {number}: {rank.err[-2000:]}"


def test_every_check_is_named(ranks):
    """No check of the script is left out here."""
    names = [line.split()[1] for line in ranks[0].out.splitlines()]
    assert tuple(names) == CHECKS


class Inner:
    """An inner group that refuses every call, as gloo does lists of wrong sizes."""

    def gather(self, *_):
        raise RuntimeError("invalid tensor size")

    scatter = gather


@pytest.mark.parametrize("call", ["gather", "scatter"])
def test_lists_of_wrong_sizes_never_meet_a_schedule(tmp_path, call):
    """Messages would not fit what receives them; the inner group says what is wrong."""
    import torch
    import torch.distributed as dist

    from teccl.torch.choice import Choice
    from teccl.torch.failures import Faults
    from teccl.torch.group import TecclProcessGroup
    from teccl.torch.plans import read_plans

    plan = write_plan(tmp_path / "plan", [(0, 1000, solved("ring:gpus=2", call, root=0))])
    choice = Choice(read_plans([plan]), None, ranks=(0, 1), devices=["cpu"], strict=False)
    faults = Faults(None, 0, (0, 1), 1.0)
    group = TecclProcessGroup(0, 2, inner=Inner(), choice=choice, runner=None, faults=faults)
    options = {"gather": dist.GatherOptions, "scatter": dist.ScatterOptions}[call]()
    options.rootRank = 0
    many, one = [[torch.ones(3), torch.ones(5)]], [torch.ones(4)]
    with pytest.raises(RuntimeError, match="invalid tensor size"):
        getattr(group, call)(*((many, one) if call == "gather" else (one, many)), options)
    assert [record.how for record in group.records()] == ["inner"]
