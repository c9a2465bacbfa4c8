"""Calibration: fits by hand, logs of nccl-tests, and real and emulated links."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.errors import InputError, TopologyError
from teccl.runtime.calibrate import (
    calibration,
    calibration_from_logs,
    plan_emulated,
    plan_pairs,
)
from teccl.runtime.fits import fit_line
from teccl.runtime.nccl_logs import read_log

HEAD = """# nThread 1 nGpus 8 minBytes 1024 maxBytes 1048576 step: 4(factor)
# Collective test starting: {name}_perf
{ranks}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
"""


def write_log(path: Path, name: str, ranks: int, alpha: float, beta: float) -> Path:
    """Write a log whose times are exact, in microseconds."""
    listed = "\n".join(
        f"#  Rank  {r} Group  0 Pid 1 on host device {r} [0x07]" for r in range(ranks)
    )
    lines = []
    for size in (1024, 4096, 16384, 65536, 262144, 1048576):
        time = alpha + beta * size
        lines.append(
            f"{size} {size // 4} float sum -1 {time:.4f} 1.00 2.00 0 {time:.4f} 1.00 2.00 0"
        )
    text = HEAD.format(name=name, ranks=listed) + "\n".join(lines) + "\n# Avg bus bandwidth: 1\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_fit_of_exact_times():
    """A line is found exactly."""
    fit = fit_line([1e3, 1e4, 1e5, 1e6], [2e-6 + s / 10e9 for s in (1e3, 1e4, 1e5, 1e6)])
    assert fit.alpha_s == pytest.approx(2e-6, rel=1e-6)
    assert fit.bandwidth == pytest.approx(10e9, rel=1e-6)


def test_fit_survives_noise_and_outliers():
    """Every tenth time far too long moves the fit by little, and the interval tells how sure."""
    rng = np.random.default_rng(0)
    sizes = np.repeat([1e3, 4e3, 16e3, 64e3, 256e3, 1e6], 20)
    times = (5e-6 + sizes / 12.5e9) * (1 + 0.02 * rng.standard_normal(len(sizes)))
    times[::10] *= 8
    fit = fit_line(sizes, times)
    assert fit.alpha_s == pytest.approx(5e-6, rel=0.03)
    assert fit.bandwidth == pytest.approx(12.5e9, rel=0.03)
    assert abs(fit.alpha_s - 5e-6) < 2 * fit.alpha_error < 0.5e-6


def test_fit_needs_two_sizes():
    """One size says nothing about a slope."""
    with pytest.raises(InputError, match="two sizes"):
        fit_line([5, 5], [1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "ranks", "steps", "volume"),
    [
        ("sendrecv", 2, 1, 1),
        ("all_reduce", 8, 14, 14 / 8),
        ("all_gather", 8, 7, 7 / 8),
        ("reduce_scatter", 4, 3, 3 / 4),
        ("broadcast", 4, 3, 1),
        ("alltoall", 4, 1, 3 / 4),
    ],
)
def test_logs_of_nccl_tests(tmp_path, name, ranks, steps, volume):
    """Alpha and bandwidth of a ring come out of the log of each collective."""
    log = read_log(write_log(tmp_path / "log", name, ranks, alpha=steps * 3.0, beta=volume / 20e3))
    assert (log.ranks, log.steps, log.volume) == (ranks, steps, volume)
    found = calibration_from_logs([(None, log)])
    assert found.links[0].fit.alpha_s == pytest.approx(3e-6, rel=1e-2)
    assert found.links[0].fit.bandwidth == pytest.approx(20e9, rel=1e-2)
    topology = found.topology()
    assert (topology.num_gpus, topology.num_links) == (ranks, ranks * (ranks - 1))
    assert len(topology.shared) == 2 * ranks


def test_logs_of_pairs(tmp_path):
    """Each pair gets its own link, both ways."""
    near = read_log(write_log(tmp_path / "near", "sendrecv", 2, 1.0, 1 / 50e3))
    far = read_log(write_log(tmp_path / "far", "sendrecv", 2, 9.0, 1 / 10e3))
    topology = calibration_from_logs([((0, 1), near), ((1, 2), far)]).topology()
    rates = {topology.link_name(i): float(link.bandwidth) for i, link in enumerate(topology.links)}
    assert rates["gpu0 > gpu1"] == pytest.approx(50e9, rel=0.01)
    assert rates["gpu2 > gpu1"] == pytest.approx(10e9, rel=0.01)
    assert len(rates) == 4


def test_calibrate_from_a_log_feeds_solve(tmp_path, monkeypatch):
    """The file that calibrate writes is a topology that solve takes."""
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "log.txt", "all_reduce", 4, 10.0, 1 / 10e3)
    outcome = run("calibrate", "--log", "log.txt", "-o", "found.yaml")
    assert (outcome.code, outcome.err) == (0, "")
    assert "4 ranks, 12 links" in outcome.out
    assert run("solve", "found.yaml", "allgather", "--size", "1MB", "--effort", "quick").code == 0


def test_a_bandwidth_that_noise_hides_is_noted(tmp_path, monkeypatch):
    """Times that do not grow with the size say nothing about bandwidth."""
    monkeypatch.chdir(tmp_path)
    for beta, is_noted in ((0.0, True), (1 / 10e3, False)):
        write_log(tmp_path / "log.txt", "all_reduce", 2, 10.0, beta)
        outcome = run("calibrate", "--log", "log.txt")
        assert outcome.code == 0
        said = "the bandwidth of 2 links cannot be told from noise, such as gpu0 > gpu1"
        assert (said in outcome.out) == is_noted


@pytest.mark.parametrize(
    ("text", "message"),
    [("hello\n", "no times"), ("1024 256 float sum -1 1.0 1.0 1.0 0\n", "does not name")],
)
def test_foreign_logs_are_refused(tmp_path, text, message):
    """A file that is no log, or does not say of what, is named."""
    (tmp_path / "log").write_text(text, encoding="utf-8")
    outcome = run("calibrate", "--log", tmp_path / "log")
    assert_refused(outcome)
    assert message in outcome.err


def test_pairs_and_groups():
    """All ordered pairs, or three for every two groups, which stand for all."""
    plan, _ = plan_pairs(4, [1, 2])
    assert len(plan.pairs) == 12
    plan, stands_for = plan_pairs(8, [1, 2], group=4)
    assert len(plan.pairs) == 4 * 3
    assert {pair for pairs in stands_for for pair in pairs} == set(plan_pairs(8, [1, 2])[0].pairs)


def test_groups_are_fitted_together():
    """Ranks of a class get one fit from the samples of all pairs measured for it."""
    plan, stands_for = plan_pairs(4, [1000, 10**6], group=2, repeat=3)
    seconds = [
        [
            [2 * (1e-6 + 4e-6 * (a // 2 != b // 2)) + (m + 1) * 0.5e-6 + m * s / 10e9] * 3
            for m, s in plan.kinds(i)
        ]
        for i, (a, b) in enumerate(plan.pairs)
    ]
    found = calibration(plan, {"hosts": ["h"] * 4, "seconds": seconds}, stands_for=stands_for)
    alphas = {(link.src, link.dst): link.fit.alpha_s for link in found.links}
    assert len(alphas) == 12
    assert alphas[0, 1] == pytest.approx(1e-6, rel=1e-3)
    assert alphas[1, 2] == pytest.approx(5e-6, rel=1e-3)
    assert found.overhead_s == pytest.approx(0.5e-6, rel=1e-3)
    assert found.topology().links[0].overhead == Fraction("5e-7")


def test_pairs_of_a_round_share_no_rank():
    """Concurrent pairs never wait for each other."""
    plan, _ = plan_emulated(teccl.Topology.parse("ring:gpus=6"))
    for members in plan.rounds():
        ranks = [rank for i in members for rank in plan.pairs[i]]
        assert len(set(ranks)) == len(ranks)
    assert sorted(i for members in plan.rounds() for i in members) == list(range(12))


def test_switches_cannot_be_calibrated():
    """A ping-pong sees the way, not the links of a switch."""
    with pytest.raises(TopologyError, match="switches"):
        plan_emulated(teccl.Topology.parse("star:gpus=4"))


def test_hosts_become_groups():
    """Ranks of different hosts are of different groups."""
    plan, _ = plan_pairs(2, [1, 1000])
    seconds = [[[2e-6], [3e-6], [20e-6]]] * 2
    topology = calibration(plan, {"hosts": ["a", "b"], "seconds": seconds}).topology()
    assert [node.group for node in topology.nodes] == ["host0", "host1"]
    assert topology.links[0].alpha > Fraction(0)


def test_calibrate_measures_local_ranks(tmp_path, monkeypatch):
    """Ping-pong between local ranks gives a topology with a link each way."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")
    monkeypatch.chdir(tmp_path)
    outcome = run("calibrate", "--ranks", 2, "--repeat", 3, "--sizes", "1KB:64KB", "-o", "t.json")
    assert (outcome.code, outcome.err) == (0, "")
    topology = teccl.Topology.parse("t.json")
    assert (topology.num_gpus, topology.num_links) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring:gpus=2,overhead=0.2us", "dgx1:overhead=0.5us"])
def test_calibrate_recovers_emulated_links(topology):
    """Alpha, bandwidth and overhead of every emulated link come back within 10, 3 and 15 %."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed; pip install 'teccl[mpi]'")
    from teccl.runtime.calibrate import calibrate_ranks

    network = teccl.Topology.parse(topology)
    found = calibrate_ranks(sizes=[], emulate=network, timeout=60)
    fits = {(link.src, link.dst): link.fit for link in found.links}
    for link in network.links:
        fit = fits[link.src, link.dst]
        assert fit.alpha_s == pytest.approx(float(link.alpha), rel=0.1)
        assert fit.bandwidth == pytest.approx(float(link.bandwidth), rel=0.03)
        assert fit.overhead_s == pytest.approx(float(link.overhead), rel=0.15)
