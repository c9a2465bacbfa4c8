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
