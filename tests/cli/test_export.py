"""The export command and `verify` of programs, through the command line."""

import json

import pytest
from tests.cli.helpers import assert_refused, run


@pytest.fixture(scope="module")
def schedule(tmp_path_factory):
    """A schedule file of a small AllGather."""
    path = tmp_path_factory.mktemp("export") / "ag.json"
    solved = run("solve", "ring:gpus=4", "allgather", "--size", "1MB", "--chunks", "2", "-o", path)
    assert solved.code == 0
    return path


@pytest.mark.parametrize("target", ["msccl", "rccl"])
def test_export_then_verify(schedule, tmp_path, target):
    """An exported program is verified; the text says how to run it."""
    file = tmp_path / "ag.xml"
    made = run("export", schedule, "--to", target, "--in-place", "-o", file)
    assert (made.code, made.err) == (0, "")
    assert "all_gather_perf" in made.out
    assert "export " in made.out
    judged = run("verify", file, "--runtime", target)
    assert (judged.code, judged.err) == (0, "")
    assert judged.out.startswith("ok on ")


def test_export_as_json(schedule, tmp_path):
    """One object with figures, files, environment and command."""
    file = tmp_path / "ag.xml"
    document = json.loads(run("export", schedule, "--to", "msccl", "-o", file, "--json").out)
    assert document["target"] == "msccl"
    assert document["files"] == [str(file)]
    assert document["verified"] is True
    assert document["environment"]["MSCCL_XML_FILES"] == str(file)
    assert "nowhere; give -o" in run("export", schedule, "--to", "msccl").out
    quiet = run("export", schedule, "--to", "msccl", "--quiet")
    assert (quiet.code, quiet.out) == (0, "")


def test_verify_names_what_is_wrong(schedule, tmp_path):
    """A broken program ends with code 3 and a line with gpu, thread block and step."""
    file = tmp_path / "ag.xml"
    run("export", schedule, "--to", "msccl", "-o", file)
    file.write_text(file.read_text().replace('hasdep="1"', 'hasdep="0"'))
    judged = run("verify", file)
    assert judged.code == 3
    assert "deadlock at gpu" in judged.err
    document = json.loads(run("verify", file, "--json").out)
    assert document["verified"] is False
    assert {"kind", "gpu", "thread_block", "step", "detail"} == set(document["violations"][0])


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "{schedule}"),
        ("export", "{schedule}", "--to", "nccl"),
        ("export", "{schedule}", "--to", "msccl", "-o", "out.txt"),
        ("export", "{schedule}", "--to", "msccl", "--channels", "99"),
        ("export", "{schedule}", "--to", "rccl", "--instances", "32"),
        ("export", "{schedule}", "--to", "msccl", "--min-bytes", "many"),
        ("export", "missing.json", "--to", "msccl"),
        ("verify", "{schedule}", "--runtime", "msccl"),
        ("verify", "missing.xml"),
    ],
)
def test_bad_usage_is_one_line(schedule, arguments):
    """Wrong arguments are refused with code 2."""
    assert_refused(run(*(a.format(schedule=schedule) for a in arguments)))


def test_no_program(tmp_path):
    """A file that is no program is bad input."""
    file = tmp_path / "other.xml"
    file.write_text("<system/>")
    assert_refused(run("verify", file))
