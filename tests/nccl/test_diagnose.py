"""Diagnosis of logs made by hand: the right finding first, or a clear error."""

import json

import pytest
from tests.cli.helpers import assert_refused, run
from tests.nccl.logs import END, head, modelled, table
from tests.test_schemas import assert_fits

from teccl import Topology
from teccl.nccl import shape_of

ONE, TWO = "dgx-h100", "dgx-h100:chassis=2"
NODE, PAIR = (shape_of(Topology.parse(name)) for name in (ONE, TWO))
USING = "host0:1:2 [0] NCCL INFO NET/IB : Using "
CARDS = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8))


def diagnosed(tmp_path, text: str, topology: str, *options) -> dict:
    """What the command says of a log."""
    (tmp_path / "log.txt").write_text(text)
    outcome = run("diagnose", tmp_path / "log.txt", "--topology", topology, "--json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert_fits("diagnose", document)
    return document["logs"][0]


def first(document: dict) -> str:
    return document["findings"][0]["kind"]


def test_a_healthy_log(tmp_path):
    """Ten per cent above the model is healthy, and no size is far off."""
    text = head(8) + "\n" + table(modelled(NODE, large=1.1, small=1.1), 8) + END
    found = diagnosed(tmp_path, text, ONE)
    assert first(found) == "healthy"
    assert not any(size["far_off"] for size in found["sizes"])


def test_half_of_the_network_cards(tmp_path):
    """Large sizes twice as long over two nodes."""
    text = head(16) + "\n" + table(modelled(PAIR, large=2.0), 16) + END
    found = diagnosed(tmp_path, text, TWO)
    assert first(found) == "nics"
    assert "half of the network cards" in found["findings"][0]["text"]
    assert found["sizes"][-1]["far_off"]


def test_cards_that_the_debug_output_lists(tmp_path):
    """Four cards named are the evidence, whatever the times."""
    cards = " ".join(CARDS.split()[:4])
    text = f"{USING}{cards}\n" + head(16) + "\n" + table(modelled(PAIR, large=2.0), 16) + END
    found = diagnosed(tmp_path, text, TWO)
    assert first(found) == "nics"
    assert "mlx5_3" in found["findings"][0]["evidence"]


def test_one_slow_link(tmp_path):
    """Small sizes as expected, large ones all slower by a factor that no card explains."""
    text = head(8) + "\n" + table(modelled(NODE, large=1.6), 8) + END
    assert first(diagnosed(tmp_path, text, ONE)) == "slow-link"


def test_a_wrong_protocol(tmp_path):
    """A protocol that the environment fixes is named before what follows from it."""
    line = "host0:1:2 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
    text = line + head(8) + "\n" + table(modelled(NODE, large=3.0), 8) + END
    found = diagnosed(tmp_path, text, ONE)
    assert first(found) == "protocol"
    assert "LL" in found["findings"][0]["evidence"]


def test_wrong_units(tmp_path):
    """Times in milliseconds do not agree with the bandwidths beside them."""
    text = head(8) + "\n" + table(modelled(NODE), 8, unit=1e3) + END
    found = diagnosed(tmp_path, text.replace(" 0.00 ", " 0.01 "), ONE)
    assert [each["kind"] for each in found["findings"]] == ["units"]


def test_a_truncated_log(tmp_path):
    """What is there is healthy; that the end is missing is the finding."""
    lines = table(modelled(NODE), 8).splitlines()[:5]
    found = diagnosed(tmp_path, head(8) + "\n" + "\n".join(lines) + "\n", ONE)
    assert first(found) == "truncated"
    assert len(found["sizes"]) == 5
    assert not found["complete"]


def test_a_log_of_rccl_tests(tmp_path):
    """Without NCCL's model the bound is what is expected: here 1.1 times its time."""
    from teccl import Demand
    from teccl.bounds import summarise
    from teccl.problem import Problem

    topology = Topology.parse("mi300x")
    times = {}
    for size in (2**20, 2**24, 2**28):
        demand = Demand.collective("allreduce", size=size)
        bound = summarise(Problem(topology=topology, demand=demand))
        times[size] = 1.1 * bound.physical_ps / 1e12
    text = "# rccl-tests version\n" + head(8) + "\n" + table(times, 8) + END
    found = diagnosed(tmp_path, text, "mi300x")
    assert first(found) == "healthy"
    assert found["sizes"][0]["expected_s"] == found["sizes"][0]["bound_s"]


@pytest.mark.parametrize("text", ["", "garbage\n\x00\x01", "1 2 3 4 5 6 7\n", "[ 1, 2 ]"])
def test_garbage_is_refused(tmp_path, text):
    """A file that is no log is named on one line and nothing is written."""
    (tmp_path / "log.txt").write_text(text)
    page = tmp_path / "page.html"
    assert_refused(run("diagnose", tmp_path / "log.txt", "--topology", ONE, "-o", page))
    assert not page.exists()


def test_wrong_values_come_before_everything(tmp_path):
    """Results that are wrong make times worthless."""
    text = head(8) + "\n" + table(modelled(NODE, large=1.6), 8, wrong=3) + END
    found = diagnosed(tmp_path, text, ONE)
    assert [each["kind"] for each in found["findings"]] == ["wrong-values"]


def test_faster_than_the_bound(tmp_path):
    """A log that beats the bound ran on something else."""
    text = head(8) + "\n" + table(modelled(NODE, large=0.2, small=0.01), 8) + END
    assert first(diagnosed(tmp_path, text, ONE)) == "impossible"


def test_far_paths(tmp_path):
    """Cards that are reached through the host are named where large sizes are slow."""
    line = "host0:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 4, bw 20/20, type NVL/PHB\n"
    text = line + f"{USING}{CARDS}\n" + head(16) + "\n" + table(modelled(PAIR, large=1.5), 16) + END
    assert "paths" in [each["kind"] for each in diagnosed(tmp_path, text, TWO)["findings"]]


def test_a_dip_between_two_sizes(tmp_path):
    """One size slower than both neighbours points at a change of protocol."""
    times = modelled(NODE)
    times[2**25] *= 3
    text = head(8) + "\n" + table(times, 8) + END
    assert "switch-over" in [each["kind"] for each in diagnosed(tmp_path, text, ONE)["findings"]]


def test_debug_output_alone(tmp_path):
    """Without sizes there is nothing to compare."""
    assert first(diagnosed(tmp_path, f"{USING}{CARDS}\n", TWO)) == "no-sizes"


def test_another_number_of_ranks_is_refused(tmp_path):
    """The topology must be the one that the test ran on."""
    (tmp_path / "log.txt").write_text(head(4) + "\n" + table(modelled(NODE), 4) + END)
    outcome = run("diagnose", tmp_path / "log.txt", "--topology", ONE)
    assert_refused(outcome)
    assert "4 ranks" in outcome.err


def test_the_page_has_the_curves(tmp_path):
    """Measured, expected and the bound are drawn, findings escaped, in one file."""
    (tmp_path / "log.txt").write_text(head(8) + "\n" + table(modelled(NODE), 8) + END)
    page = tmp_path / "page.html"
    assert run("diagnose", tmp_path / "log.txt", "--topology", ONE, "-o", page).code == 0
    text = page.read_text()
    assert text.count("<polyline") == 3
    assert "<script" not in text
