"""Placement: planted orders are found again, and natural order is never undercut."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.helpers import assert_refused, run

import teccl
from teccl.errors import DemandError, ExportRefused
from teccl.placement import parse_groups, place
from teccl.placement.groups import members, traffic_of
from teccl.placement.rankfiles import FORMATS, seats

HEAVY = "tp=allreduce:512MB,dp=allreduce:8MB"
# Networks of nodes, and groups of which the first fill a node each.
PLANTED = [
    ("dgx-h100:chassis=2", "tp=8,dp=2"),
    ("dgx-a100:chassis=3", "tp=8,dp=3"),
    ("mi300x:chassis=2", "tp=8,dp=2"),
    ("dgx-h100:chassis=4", "tp=8,dp=4"),
]


def shuffled(name: str, seed: int) -> teccl.Topology:
    """A network whose GPUs come in another order."""
    topology = teccl.Topology.parse(name)
    number = np.arange(topology.num_nodes)
    number[topology.gpus] = np.random.default_rng(seed).permutation(topology.gpus)
    nodes = [topology.nodes[i] for i in np.argsort(number)]
    links = [replace(e, src=int(number[e.src]), dst=int(number[e.dst])) for e in topology.links]
    return replace(topology, nodes=tuple(nodes), links=tuple(links))


def check_planted(name: str, groups: str, seed: int) -> None:
    """Find nodes again, and an order that is as fast as the planted one."""
    axes = parse_groups(groups, HEAVY)
    planted = place(teccl.Topology.parse(name), axes)
    found = place(shuffled(name, seed), axes)
    hosts = [host for host, _ in seats(found)]
    assert all(len({hosts[rank] for rank in group}) == 1 for group in members(axes, 0))
    assert found.finish_s <= 1.02 * planted.natural_finish_s
    assert found.gain > 1.5


@pytest.mark.parametrize(("name", "groups"), PLANTED[:2])
def test_planted_orders_are_found_again(name: str, groups: str) -> None:
    """Tensor groups come to sit in one node each, whatever the order of GPUs."""
    check_planted(name, groups, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "groups"), PLANTED)
def test_twenty_planted_orders_are_found_again(name: str, groups: str, seed: int) -> None:
    """The same on every network with five shuffles."""
    check_planted(name, groups, seed)


@pytest.mark.parametrize("name", ["dgx-h100:chassis=2", "ring:gpus=16"])
def test_planted_pipelines_are_found_again(name: str) -> None:
    """In a pipeline it counts who comes after whom, not only who is in it."""
    axes = parse_groups("pp=16")
    planted = place(teccl.Topology.parse(name), axes)
    found = place(shuffled(name, 0), axes)
    assert found.gain > 1.5
    assert found.finish_s <= 1.02 * planted.finish_s


def test_a_demand_tells_ranks_of_one_group_apart() -> None:
    """Where one group has all ranks, further traffic decides who sits where."""
    near = np.kron(np.eye(2), np.full((8, 8), 10**8)).astype(int)
    np.fill_diagonal(near, 0)
    demand = teccl.Demand.collective("alltoallv", matrix=near.tolist())
    axes = parse_groups("ep=16", "ep=alltoall:1MB")
    found = place(shuffled("dgx-h100:chassis=2", 3), axes, demand=demand)
    hosts = [host for host, _ in seats(found)]
    assert len(set(hosts[:8])) == len(set(hosts[8:])) == 1


def random_case(seed: int) -> tuple[teccl.Topology, str]:
    """A network in random order and groups that fit it."""
    random = np.random.default_rng(seed)
    names = ["dgx-h100:chassis=2", "torus:dims=4x4", "mi250", f"random:gpus=16,seed={seed}"]
    name = names[random.integers(len(names))]
    groups = random.choice(["tp=4,dp=4", "tp=2,pp=2,dp=4", "ep=8,dp=2", "pp=4,tp=4", "cp=16"])
    return shuffled(name, seed), str(groups)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 20))]
)
def test_natural_order_is_never_better(seed: int) -> None:
    """A placement is a permutation, and by its schedules not slower than natural order."""
    topology, groups = random_case(seed)
    found = place(topology, parse_groups(groups))
    assert sorted(found.gpu) == list(range(16))
    assert found.finish_s <= found.natural_finish_s


def test_groups_along_axes_by_hand() -> None:
    """The first axis varies fastest with the rank."""
    axes = parse_groups("tp=2,pp=3")
    assert members(axes, 0).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert members(axes, 1).tolist() == [[0, 2, 4], [1, 3, 5]]
    pipeline = traffic_of(axes, 1)
    assert pipeline[0, 2] == pipeline[2, 0] == 64_000_000
    assert pipeline[0, 4] == pipeline[0, 1] == 0


@pytest.mark.parametrize(
    ("groups", "traffic", "words"),
    [
        ("tp", "", "not a pair"),
        ("tp=8,tp=2", "", "appears twice"),
        ("tp=0", "", "not a whole number"),
        ("tp=x", "", "not a whole number"),
        ("xy=8", "", "no usual traffic"),
        ("tp=8", "dp=allreduce:1MB", "which is no group"),
        ("tp=8", "tp=alreduce:1MB", "did you mean"),
        ("tp=8", "tp=allreduce", "SIZE"),
        ("tp=8", "tp=allreduce:1MB:-1", "positive size and weight"),
        ("tp=8", "tp=allreduce:1MB:1e-12", "a weight from 1e-09"),
        ("tp=8", "tp=allreduce:20000000TB", "at most 9007199254740992B"),
    ],
)
def test_wrong_groups_are_refused(groups: str, traffic: str, words: str) -> None:
    """Each message names what is wrong and what to write."""
    with pytest.raises(DemandError, match=words):
        parse_groups(groups, traffic)


def test_groups_must_fill_the_network() -> None:
    """Products that are no number of GPUs are refused."""
    with pytest.raises(DemandError, match="12 ranks; dgx-h100 has 8 GPUs"):
        place(teccl.Topology.parse("dgx-h100"), parse_groups("tp=4,dp=3"))


def test_rank_files_name_hosts_and_devices() -> None:
    """Every format lists what a launcher needs, for natural order by hand."""
    axes = parse_groups("tp=8,dp=2", HEAVY)
    found = place(teccl.Topology.parse("dgx-h100:chassis=2"), axes)
    natural = replace(found, gpu=tuple(range(16)))
    assert FORMATS["mpirun"](natural).splitlines()[9] == "rank 9=c1 slot=1"
    assert FORMATS["nccl"](natural).splitlines()[1] == "0,c0,0"
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in FORMATS["torchrun"](natural)
    mixed = replace(found, gpu=(8, *range(1, 8), 0, *range(9, 16)))
    with pytest.raises(ExportRefused, match="mixes hosts"):
        FORMATS["torchrun"](mixed)


def test_the_command_prints_and_writes(tmp_path: Path, monkeypatch) -> None:
    """Mapping, gain and rank file in one command; wrong input writes nothing."""
    monkeypatch.chdir(tmp_path)
    arguments = ("place", "dgx-h100:chassis=2", "--groups", "tp=8,dp=2", "--traffic", HEAVY)
    outcome = run(*arguments, "-o", "ranks.txt", "--json")
    assert outcome.code == 0, outcome
    assert json.loads(outcome.out)["gain"] >= 1
    assert len(Path("ranks.txt").read_text().splitlines()) == 16
    assert_refused(run("place", "dgx-h100", "-o", "none.txt"))
    assert_refused(run(*arguments, "--to", "slurm", "-o", "none.txt"))
    assert_refused(run(*arguments, "-o", "none.txt", "--demand-out", "./none.txt"))
    assert_refused(run(*arguments, "-o", "none.json", "--demand-out", "none.json"))
    assert_refused(run(*arguments, "-o", "none.txt", "--demand-out", "none.csv"))
    assert [path.name for path in Path().iterdir()] == ["ranks.txt"]
