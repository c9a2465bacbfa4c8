"""Small linear programs: both ways to HiGHS."""

import subprocess
import sys

# In a process of its own, because OR-tools fails where highspy is loaded.
COMPARISON = """
import highspy, sys
import numpy as np
from scipy.sparse import csr_array
from teccl.bounds.linear_programs import least_cost
random = np.random.default_rng(5)
solved = 0
for _ in range(40):
    rows, columns = random.integers(2, 9, 2)
    matrix = csr_array(random.integers(-3, 9, (rows, columns)).astype(float))
    high = random.integers(1, 20, rows).astype(float)
    low = np.where(random.random(rows) < 0.2, high, -np.inf)
    most = np.where(random.random(columns) < 0.5, 3.0, np.inf)
    program = (random.integers(-2, 9, columns).astype(float), matrix, low, high, most)
    sys.modules["highspy"] = highspy
    quick = least_cost(*program)
    del sys.modules["highspy"]
    usual = least_cost(*program)
    assert (quick is None) == (usual is None)
    if usual is not None:
        solved += 1
        assert np.isclose(quick.values @ program[0], usual.values @ program[0])
        assert np.isclose(quick.duals @ high, usual.duals @ high)
print(solved)
"""


def test_highspy_and_scipy_find_the_same_optimum() -> None:
    """Commands and the library prove the same bounds."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARISON], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 20
