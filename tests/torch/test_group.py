"""The process group: synthesis, sub-groups, futures, layers, explanations, a sample of calls."""

import pytest
from tests.torch.ranks import ROOT, Rank, counted, needs_torch, run_ranks
from tests.torch.schedules import solved, write_plan, write_plans

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
    """Three ranks that have made all checks, and calls beside gloo's."""
    folder = tmp_path_factory.mktemp("ranks")
    write_plans(folder / "cases", 3, seed=1)
    write_plan(folder / "plans", [(0, 100_000, solved("ring:gpus=3", "allreduce"))])
    return run_ranks(SCRIPT, 3, folder, "16")


@pytest.mark.parametrize("check", CHECKS)
def test_feature(ranks, check):
    """Each check passes on every rank."""
    for number, rank in enumerate(ranks):
        assert f"passed {check}" in rank.out.splitlines(), f"rank {number}: {rank.err[-2000:]}"


def test_every_check_is_named(ranks):
    """No check of the script is left out here."""
    lines = [line.split() for line in ranks[0].out.splitlines()]
    names = [name for outcome, name in lines if outcome in ("passed", "failed")]
    assert tuple(names) == CHECKS


def test_a_sample_of_calls_equals_gloo(ranks):
    """Random calls on three ranks, by messages and by rounds matched in order alone."""
    found = counted(ranks[0])
    assert found["schedule"] > 8
    assert found["inner"] > 0


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
