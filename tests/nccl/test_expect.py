"""What a collective should take, by bound, schedule and NCCL's model."""

import json

from tests.cli.helpers import assert_refused, run
from tests.test_schemas import assert_fits


def test_figures_agree_with_each_other():
    """The bound is no later than the schedule, and busbw is algbw by the factor of nccl-tests."""
    options = ("--sizes", "64KB,1MB", "--effort", "quick", "--json")
    outcome = run("expect", "dgx-h100", "allreduce", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert_fits("expect", json.loads(outcome.out))
    sizes = json.loads(outcome.out)["sizes"]
    assert [size["size_bytes"] for size in sizes] == [64000, 1000000]
    for size in sizes:
        assert size["bound_s"] <= size["schedule_s"] < size["nccl_model_s"]
        assert size["schedule_busbw_GBps"] == 1.75 * size["schedule_algbw_GBps"]
        assert size["binds"]


def test_without_a_model_the_column_is_empty():
    """NCCL's model knows no AllToAll and no such machine; bound and schedule remain."""
    outcome = run("expect", "ring:gpus=4,bandwidth=7GB/s", "alltoall", "--sizes", "1KB", "--json")
    assert_fits("expect", json.loads(outcome.out))
    (size,) = json.loads(outcome.out)["sizes"]
    assert size["nccl_model_s"] is None
    assert size["schedule_s"] >= size["bound_s"]


def test_the_table_names_what_binds():
    """Bounds only, for people."""
    outcome = run("expect", "dgx-h100", "allgather", "--sizes", "1MB", "--no-schedule")
    assert outcome.code == 0
    assert "875KB must cross" in outcome.out
    assert "not a measurement" in outcome.out


def test_an_unknown_gpu_is_refused():
    """One line with the names there are."""
    outcome = run("expect", "dgx-h100", "allgather", "--sizes", "1MB", "--gpu", "kepler")
    assert_refused(outcome)
    assert "hopper" in outcome.err


def test_sweep_and_compare_show_the_model():
    """A column and a line, where the model knows the machine, honestly named."""
    options = ("--no-store", "--jobs", 1)
    swept = run("sweep", "dgx-h100", "allreduce", "--sizes", "1MB", "--effort", "quick", *options)
    assert "NCCL model (us)" in swept.out
    assert "27.411" in swept.out
    common = ("allreduce", "--size", "1MB", "--methods", "ring", *options)
    compared = run("compare", "dgx-h100", *common)
    assert "NCCL's model takes 27.411 us by ring ll; a model, not a measurement" in compared.out
    other = run("compare", "mi300x", *common)
    assert "NCCL" not in other.out


def test_a_part_of_a_byte_is_refused():
    """Sizes are those of nccl-tests, which are whole."""
    outcome = run("expect", "dgx-h100", "allgather", "--sizes", "1.5B", "--no-schedule")
    assert_refused(outcome)
    assert "1.5B" in outcome.err
