"""What `auto` gives for well-known machines becomes programs: how many fit."""

import re
from dataclasses import replace

import pytest
from tests.formats.msccl.interpreter import Interpreter
from tests.formats.schedules import solved

import teccl
from teccl.errors import ExportRefused
from teccl.formats.msccl.prove import prove_text
from teccl.formats.msccl.write.limits import RCCL
from teccl.formats.rccl import write
from teccl.formats.writing import export

TOPOLOGIES = (
    *("dgx1", "ndv2:chassis=2", "ndv2:chassis=4", "dgx2:chassis=2", "torus:dims=4x4"),
    *("dgx-h100:chassis=2", "mi250"),
)
COLLECTIVES = ("allgather", "alltoall", "reducescatter", "allreduce")
MOST_REFUSED = {"msccl": 6, "rccl": 16}


def runs(text: str, target: str, seed: int = 0) -> None:
    """Assert that a program passes the proof and an interpreter that shares nothing with it."""
    (proof,) = prove_text(text, runtime=target)
    assert proof.ok, proof.findings[0]
    Interpreter(text, target, seed).run()


def exported(schedule, target: str) -> tuple[str | None, str]:
    """Return the program, or None and why not."""
    try:
        return export(schedule, to=target).files[0].content, ""
    except ExportRefused as refusal:
        return None, str(refusal)


@pytest.mark.parametrize("target", MOST_REFUSED)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("in_place", [False, True])
def test_an_interpreter_runs_programs(collective, target, in_place):
    """Programs run on another executor of the runtimes' rules, whatever block goes first."""
    if (target, in_place, collective) == ("msccl", True, "alltoall"):
        pytest.skip("the NCCL fork has no such call")
    schedule = solved("dgx1", collective, chunks=3)
    text = export(schedule, to=target, in_place=in_place).files[0].content
    for seed in range(3):
        runs(text, target, seed)


def test_the_interpreter_finds_what_is_wrong():
    """A wrong address gives a wrong sum, a lost send a hang, an early wait may do no harm."""
    text = export(solved("ring:gpus=4", "allreduce", chunks=2), to="msccl").files[0].content
    Interpreter(text, "msccl", 0).run()
    with pytest.raises(AssertionError):
        Interpreter(text.replace('srcoff="0"', 'srcoff="1"', 1), "msccl", 0).run()
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if 'type="s"' in line)
    lost = re.sub('type="s"(.*)cnt="[0-9]+"', r'type="nop"\1cnt="0"', lines[place])
    lines[place] = lost
    with pytest.raises(AssertionError):
        Interpreter("\n".join(lines), "msccl", 0).run()


def refused_then_fits(topology: str, collective: str, target: str, **options) -> None:
    """Assert that a schedule is refused, and fits with the chunks that are named."""
    schedule = solved(topology, collective, **options)
    text, reason = exported(schedule, target)
    assert text is None
    chunks = int(re.search(r"RCCL (?:takes|keeps) \d+; solve with --max-chunks (\d+)", reason)[1])
    assert chunks < schedule.problem.num_chunks
    text, reason = exported(solved(topology, collective, max_chunks=chunks), target)
    assert text is not None, reason


def test_a_refusal_names_chunks_that_fit(monkeypatch):
    """A runtime that takes little gets programs of fewer chunks."""
    small = replace(RCCL, steps=10, blocks=12)
    monkeypatch.setattr(write, "RCCL", small)
    refused_then_fits("dgx1", "allreduce", "rccl", chunks=32)


@pytest.mark.slow
def test_far_too_many_chunks_are_refused():
    """The same with the runtime's own limits."""
    refused_then_fits("random:gpus=20,degree=4", "allreduce", "rccl", chunks=128)


@pytest.mark.slow
def test_what_auto_gives_fits():
    """Programs for 56 schedules run; the few refused ones do with the chunks that are named."""
    refused = dict.fromkeys(MOST_REFUSED, 0)
    for topology in TOPOLOGIES:
        for collective in COLLECTIVES:
            for size in ("1MB", "256MB"):
                schedule = teccl.solve(topology, collective, size=size).schedule
                for target in MOST_REFUSED:
                    case = f"{topology} {collective} {size} {target}"
                    text, reason = exported(schedule, target)
                    if text is None:
                        refused[target] += 1
                        chunks = int(re.search(r"--max-chunks (\d+)", reason)[1])
                        fewer = teccl.solve(topology, collective, size=size, max_chunks=chunks)
                        text, reason = exported(fewer.schedule, target)
                        assert text is not None, f"{case}: {reason}"
                    runs(text, target)
    assert all(refused[target] <= most for target, most in MOST_REFUSED.items()), refused
