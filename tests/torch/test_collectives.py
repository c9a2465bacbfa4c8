"""Every collective and call form gives what gloo gives, whatever schedule runs it."""

import pytest
from tests.torch.ranks import ROOT, counted, needs_torch, run_ranks
from tests.torch.schedules import write_plans

pytestmark = needs_torch()
CASES = ROOT / "tests" / "torch" / "programs" / "cases.py"


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_many_calls_equal_gloo(gpus, tmp_path):
    """A hundred and twenty-five random calls for each number of ranks, by messages and rounds."""
    write_plans(tmp_path / "plans", gpus, seed=gpus)
    ranks = run_ranks(CASES, gpus, tmp_path, str(1000 * gpus), str(1000 * gpus + 125))
    assert counted(ranks[0])["schedule"] > 100
