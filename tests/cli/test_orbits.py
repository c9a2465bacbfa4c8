"""Orbits on the command line: planned where asked or where sends are too many to list."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.cli.helpers import assert_refused, run

from teccl import Topology
from teccl.cli import orbits
from teccl.orbit import parse_fabric
from teccl.orbit.fabric_files import save_fabric

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "result.schema.json"
SMALL = ("solve", "torus:dims=4x4", "allgather", "--size", "1MB", "--chunks", "1")


def test_orbits_are_solved_judged_replayed_and_exported(tmp_path, monkeypatch):
    """One small torus through all commands."""
    monkeypatch.chdir(tmp_path)
    made = run(*SMALL, "--orbit", "-o", "orbit.json")
    assert made.code == 0
    assert "yes, in the quotient" in made.out
    judged = run("verify", "orbit.json")
    assert judged.out.startswith("ok: allgather on torus, 16 gpus: 240 sends, 15 of them listed")
    replay = json.loads(run("simulate", "orbit.json", "--json", "-o", "again.json").out)
    assert replay["finish_time_s"] <= replay["scheduled_finish_time_s"]
    assert run("verify", "again.json", "--quiet").code == 0
    assert "gpu0 > gpu4 and images" in run("simulate", "orbit.json").out
    done = run("export", "orbit.json", "--rank", "5", "-o", "rank5.json")
    assert done.code == 0
    program = json.loads((tmp_path / "rank5.json").read_text())
    assert len([s for s in program["steps"] if s["action"] == "copy"]) == 15


def test_the_symmetry_of_a_file_is_found(tmp_path, monkeypatch):
    """GPUs listed in another order and with other names are planned as orbits, or refused."""
    monkeypatch.chdir(tmp_path)
    topology = Topology.parse("dgx-h100:chassis=2")
    order = random.Random(0).sample(range(topology.num_nodes), topology.num_nodes)
    place = {node: i for i, node in enumerate(order)}
    nodes = tuple(replace(topology.nodes[n], name=f"n{i}") for i, n in enumerate(order))
    links = tuple(replace(x, src=place[x.src], dst=place[x.dst]) for x in topology.links)
    replace(topology, nodes=nodes, links=links).save("cluster.yaml")
    request = ("solve", "cluster.yaml", "allgather", "--size", "1MB", "--chunks", "2", "--orbit")
    made = run(*request, "-o", "orbit.json")
    assert made.code == 0
    assert "group 2 x 8" in made.out
    document = json.loads((tmp_path / "orbit.json").read_text())
    schema = json.loads((SCHEMA.parent / "orbit.schema.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert sorted(document["fabric"]["ranks"]) == list(range(16))
    assert run("verify", "orbit.json", "--quiet").code == 0
    assert run("export", "orbit.json", "--rank", "5", "-o", "rank5.json").code == 0
    slow = replace(links[0], bandwidth=links[0].bandwidth / 2)
    replace(topology, nodes=nodes, links=(slow, *links[1:])).save("cluster.yaml")
    refused = run(*request)
    assert refused.code != 0
    assert "no symmetry moves every gpu" in refused.err


def test_plans_are_patched_around_damage(tmp_path, monkeypatch):
    """A plan made before a link failed is the start of the one after, which all commands take."""
    monkeypatch.chdir(tmp_path)
    run(*SMALL, "--orbit", "-o", "orbit.json")
    made = run(*SMALL, "--from", "orbit.json", "--without-link", "gpu0:gpu1", "-o", "patched.json")
    assert made.code == 0
    assert "group 4 x 4, 2 links damaged" in made.out
    assert "orbit-patched" in made.out
    schema = json.loads((SCHEMA.parent / "orbit.schema.json").read_text())
    document = json.loads((tmp_path / "patched.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert run("verify", "patched.json").out.startswith(
        "ok: allgather on torus, 16 gpus: 240 sends"
    )
    assert run("export", "patched.json", "--rank", "5", "-o", "rank5.json").code == 0
    replay = json.loads(run("simulate", "patched.json", "--json").out)
    assert replay["finish_time_s"] == replay["scheduled_finish_time_s"]
    assert 0 < max(link["utilisation"] for link in replay["links"]) <= 1
    assert "kept, around damage" in run("simulate", "patched.json").out
    again = ("--from", "patched.json", "--degrade", "gpu5:*=50%", "--json")
    result = json.loads(run(*SMALL, *again).out)
    assert list(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(result)) == []
    assert result["physical_bound_s"] <= result["finish_time_s"]
    fresh = json.loads(run(*SMALL, "--orbit", "--degrade", "gpu5:*=50%", "--json").out)
    assert fresh["finish_time_s"] == result["finish_time_s"]


def test_fabric_files_are_planned_as_orbits(tmp_path, monkeypatch):
    """A cluster given as orbits is planned like the preset that it came from."""
    monkeypatch.chdir(tmp_path)
    save_fabric(parse_fabric("torus:dims=4x4"), "fabric.json")
    made, same = (
        json.loads(run("solve", spec, *SMALL[2:], *more, "--json").out)
        for spec, more in (("fabric.json", ()), (SMALL[1], ("--orbit",)))
    )
    assert made["finish_time_s"] == same["finish_time_s"]
    assert made["num_sends"] == same["num_sends"] == 240


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "no fabric file that this teccl reads"),
        ({"more": 1}, "unknown key 'more'"),
        ({"fabric": []}, "fabric.json: fabric"),
        ({"fabric": {"name": "x"}}, "group"),
    ],
)
def test_damaged_fabric_files_are_refused(tmp_path, monkeypatch, change, message):
    """The message names the file and what is wrong."""
    monkeypatch.chdir(tmp_path)
    save_fabric(parse_fabric("ring:gpus=4"), "fabric.json")
    document = json.loads((tmp_path / "fabric.json").read_text())
    (tmp_path / "fabric.json").write_text(json.dumps(document | change))
    refused = run("solve", "fabric.json", *SMALL[2:])
    assert refused.code == 2
    assert "fabric.json" in refused.err
    assert message in refused.err


def test_pages_list_what_orbits_stand_for(tmp_path, monkeypatch):
    """A page shows all images of a small orbit, and names what to use for a large one."""
    monkeypatch.chdir(tmp_path)
    run(*SMALL, "--orbit", "-o", "orbit.json")
    assert run("view", "orbit.json").code == 0
    assert (tmp_path / "orbit.html").stat().st_size > 0
    monkeypatch.setattr(orbits, "MOST_SHOWN", 100)
    refused = run("view", "orbit.json")
    assert (refused.code, "stands for 240 sends" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL,), "give --without-link or --degrade"),
        ((*SMALL, "--without-link", "gpu0:gpu9"), "no link between these nodes"),
        (("solve", "ring", *SMALL[2:], "--degrade", "0:1=50%"), "has topology torus, not ring"),
        (("solve", "torus:dims=4x5", *SMALL[2:], "--degrade", "0:1=50%"), "another torus"),
        ((*SMALL[:2], "alltoall", *SMALL[3:], "--degrade", "0:1=50%"), "has collective allgather"),
        ((*SMALL[:4], "2MB", "--degrade", "0:1=50%"), "has size 1MB, not 2MB"),
        ((*SMALL[:-1], "2", "--degrade", "0:1=50%"), "has chunks 1, not 2"),
    ],
)
def test_patches_start_from_the_same_request(tmp_path, monkeypatch, arguments, message):
    """Anything else is refused, and what differs is named."""
    monkeypatch.chdir(tmp_path)
    run(*SMALL, "--orbit", "-o", "orbit.json")
    end = run(*arguments, "--from", "orbit.json", "-o", "patched.json")
    assert (end.code, message in end.err) == (2, True), end.err
    assert not (tmp_path / "patched.json").exists()


def test_large_tori_are_orbits_unasked(tmp_path, monkeypatch):
    """What would have more sends than one wants to list is planned in the quotient."""
    monkeypatch.chdir(tmp_path)
    made = run(
        *("solve", "torus:dims=64x64", "allgather", "--size", "1GB", "--chunks", "1"),
        *("--json", "-o", "orbit.json"),
    )
    result = json.loads(made.out)
    assert (result["status"], result["num_sends"]) == ("optimal", 4096 * 4095)
    assert list(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(result)) == []
    assert (tmp_path / "orbit.json").stat().st_size < 10**6


def test_small_problems_list_their_sends_unless_asked():
    """Below the limit nothing changes."""
    assert "in the quotient" not in run(*SMALL).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL, "--orbit", "--grid"), "--orbit takes no --grid"),
        ((*SMALL, "--orbit", "--from", "x.json"), "--orbit takes no --from"),
        (("solve", "ring", "broadcast", "--size", "1MB", "--orbit"), "--orbit is for allgather"),
        (("solve", "mesh", "allgather", "--size", "1MB", "--orbit"), "plan it without orbits"),
        (("solve", "ring", "allgather", "--orbit"), "needs a size"),
        ((*SMALL[:-1], "x", "--orbit"), "--chunks is 'x'"),
        ((*SMALL, "--orbit", "--switch", "hyper-edge"), "give copy or no-copy"),
    ],
)
def test_what_orbits_do_not_know_is_refused(arguments, message):
    """One line, exit code 2."""
    end = run(*arguments)
    assert end.code == 2
    assert message in end.err
    assert end.err.count("\n") == 1


def test_wrong_orbit_files_fail(tmp_path, monkeypatch):
    """A changed file has exit code 3, and is neither replayed nor exported."""
    monkeypatch.chdir(tmp_path)
    run(*SMALL, "--orbit", "-o", "orbit.json")
    document = json.loads((tmp_path / "orbit.json").read_text())
    document["sends"]["start_ps"][0] += 1
    (tmp_path / "orbit.json").write_text(json.dumps(document, indent=None))
    for command in (("verify",), ("simulate",), ("export",)):
        more = ("--rank", "0") if command == ("export",) else ()
        assert run(*command, "orbit.json", *more).code == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "give --rank R"),
        (("--rank", "16"), "ranks 0 to 15"),
        (("--rank", "0", "--to", "msccl"), "drop --to"),
    ],
)
def test_orbits_are_exported_rank_by_rank(tmp_path, monkeypatch, more, message):
    """Nothing else is written of an orbit file."""
    monkeypatch.chdir(tmp_path)
    run(*SMALL, "--orbit", "-o", "orbit.json")
    end = run("export", "orbit.json", *more)
    assert (end.code, message in end.err) == (2, True)


def test_bounds_of_what_is_too_large_to_list():
    """16 383 of 16 384 blocks must enter a GPU over four links of 50 GB/s; with chunks no less."""
    request = ("bound", "torus:dims=128x128,alpha=0", "allgather", "--size", "16384MB")
    found = json.loads(run(*request, "--json").out)
    assert found["physical_bound_s"] == pytest.approx(16383 * 1e6 / 200e9)
    assert "16383 chunks must cross 4 links into" in found["certificate"]
    both = json.loads(run(*request, "--chunks", "1", "--json").out)
    assert both["chunk_bound_s"] >= both["physical_bound_s"] == found["physical_bound_s"]
    assert "16384 GPUs" in run(*request).out
    assert run(*request[:3]).code == 2


def test_a_file_that_is_not_there_has_no_ranks(tmp_path, monkeypatch):
    """What is wrong is the path, not the option."""
    monkeypatch.chdir(tmp_path)
    for name, message in (("gone.json", "does not exist"), (".", "not a regular file")):
        done = run("export", name, "--rank", "0")
        assert done.code == 2
        assert message in done.err


@pytest.mark.parametrize("option", [("--time-limit", "10s"), ("--gap", "1%")])
def test_limits_do_not_list_all_sends(option):
    """The one plan that there is meets them; a limit that is none is refused."""
    large = ("solve", "dgx-h100:chassis=512", "allgather", "--size", "1GB")
    result = run(*large, *option, "--json")
    assert result.code == 0
    assert json.loads(result.out)["method"].startswith("orbit")
    assert_refused(run(*large, option[0], "soon"))
