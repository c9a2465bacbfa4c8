"""Topologies as files of simulators: ns-3's, SimAI's and htsim's text, and what they refuse."""

import json

import pytest
from tests.cli.helpers import assert_refused, run

from teccl import Topology
from teccl.errors import ExportError
from teccl.formats.registry import FORMATS, formats_that
from teccl.formats.writing import export_topology


def text_of(topology, target):
    (file,) = export_topology(Topology.parse(topology), to=target).files
    return file.content


def test_ns3_by_hand():
    """Counts, the switch, one line a wire: two-way, in Gb/s and ms."""
    assert text_of("star:gpus=2,bandwidth=50GB/s,alpha=0.5us", "ns3") == (
        "3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n"
    )


def test_ns3_wires_are_as_many_as_pairs_of_links():
    """Parallel links stay parallel wires, and every link is half of one."""
    topology = Topology.parse("dgx-h100:chassis=2")
    header, _, *wires = text_of("dgx-h100:chassis=2", "ns3").splitlines()
    assert header == f"{topology.num_nodes} {topology.num_switches} {len(wires)}"
    assert 2 * len(wires) == topology.num_links


def test_simai_tells_nvswitches_from_the_network():
    """Servers are groups, and a switch with neighbours of its own group only is an NVSwitch."""
    topology = Topology.parse("dgx-h100:chassis=2")
    header, switches, *wires = text_of("dgx-h100:chassis=2", "simai").splitlines()
    nodes, per_server, inner, outer, count, kind = header.split()
    assert (int(nodes), int(per_server)) == (topology.num_nodes, 8)
    assert int(inner) == 2
    assert int(inner) + int(outer) == topology.num_switches == len(switches.split())
    assert (int(count), kind) == (len(wires), "NONE")
    near = {line.split()[0] for line in wires if line.split()[1] in switches.split()[:2]}
    assert near == {str(rank) for rank in range(16)}


def leaf_spine(leaves=2, spines=2, gpus=2, bundle=1):
    """A leaf-spine network as a topology file."""
    nodes = [{"name": f"g{i}"} for i in range(leaves * gpus)]
    nodes += [{"name": f"l{i}", "kind": "switch"} for i in range(leaves)]
    nodes += [{"name": f"s{i}", "kind": "switch"} for i in range(spines)]
    ends = [(f"g{i}", f"l{i // gpus}") for i in range(leaves * gpus)]
    ends += [
        (f"l{i}", f"s{j}") for i in range(leaves) for j in range(spines) for _ in range(bundle)
    ]
    links = [
        {"src": a, "dst": b, "bandwidth": "25GB/s", "alpha": "1us"}
        for one, other in ends
        for a, b in ((one, other), (other, one))
    ]
    return {"schema_version": 1, "name": "tree", "nodes": nodes, "links": links}


@pytest.fixture
def saved(tmp_path):
    def save(document):
        path = tmp_path / "tree.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return save


def test_htsim_tiers(saved):
    """Two tiers with what leads down from each, and bundles of parallel links."""
    text = text_of(saved(leaf_spine(leaves=3, spines=2, gpus=4, bundle=2)), "htsim")
    assert text == (
        "Nodes 12\nTiers 2\nPodsize 12\n\n"
        "Tier 0\nDownlink_speed_Gbps 200\nDownlink_Latency_ns 1000\nRadix_Down 4\nRadix_Up 4\n\n"
        "Tier 1\nDownlink_speed_Gbps 200\nDownlink_Latency_ns 1000\nRadix_Down 6\nBundle 2\n"
    )


def test_htsim_takes_trees_only(saved):
    """Neither rings, nor trees with a wire missing."""
    with pytest.raises(ExportError, match="no leaf-spine"):
        text_of("ring:gpus=4", "htsim")
    document = leaf_spine()
    del document["links"][-2:]
    with pytest.raises(ExportError, match="no leaf-spine"):
        text_of(saved(document), "htsim")


@pytest.mark.parametrize("target", ["ns3", "simai"])
def test_wires_are_two_way(target, saved):
    """A link without an equal one back is named."""
    document = leaf_spine()
    del document["links"][-1]
    with pytest.raises(ExportError, match="from l1 to s1, 25GB/s and 1us, has no equal one back"):
        text_of(saved(document), target)


@pytest.mark.parametrize("target", formats_that("writes_topology"))
def test_the_command(target, saved, tmp_path):
    """Every target writes its file and refuses names of other endings."""
    tree, output = saved(leaf_spine()), tmp_path / f"x{FORMATS[target].suffixes[0]}"
    outcome = run("topology", "export", tree, "--to", target, "-o", output)
    assert (outcome.code, outcome.err) == (0, "")
    assert output.stat().st_size > 20
    document = json.loads(run("topology", "export", tree, "--to", target, "--json").out)
    assert document["target"] == target
    bad = run("topology", "export", tree, "--to", target, "-o", tmp_path / "x.pdf")
    assert_refused(bad)


def test_unknown_targets(tmp_path):
    """The nearest one is offered."""
    assert_refused(run("topology", "export", "dgx1"))
    assert_refused(run("topology", "export", "dgx1", "--to", "htsin"))
