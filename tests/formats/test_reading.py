"""Topologies out of other tools' files, against networks read off the fixtures by hand."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.helpers import assert_refused, run

from teccl.errors import TopologyError
from teccl.formats.reading import import_topology
from teccl.formats.registry import FORMATS, formats_that
from teccl.formats.shared.cluster import assign_nics
from teccl.topology import Topology

DATA = Path(__file__).parents[1] / "data" / "foreign"
GB = 10**9
US = Fraction(1, 10**6)


def links_of(topology: Topology) -> dict[tuple[str, str], tuple[Fraction, Fraction]]:
    """Return rate in GB/s and latency in microseconds of every link, by names."""
    names = [node.name for node in topology.nodes]
    links = {
        (names[link.src], names[link.dst]): (link.bandwidth / GB, link.alpha / US)
        for link in topology.links
    }
    assert len(links) == topology.num_links
    return links


def both_ways(links):
    """Return links with their opposites."""
    return links | {(b, a): value for (a, b), value in links.items()}


def test_the_source_may_have_its_old_name_for_now():
    """Whoever gives it by that is told of the new one."""
    file, name = DATA / "nccl_nvswitch.xml", "nccl"
    with pytest.warns(DeprecationWarning, match="format= is now source="):
        old = import_topology(file, format=name)
    assert old.topology == import_topology(file, source=name).topology


def test_nvswitch_machine_of_an_nccl_dump():
    """18 links of 20.6 GB/s lead each of 8 GPUs of capability 9.0 to one switch."""
    imported = import_topology(DATA / "nccl_nvswitch.xml", "nccl")
    rate = (18 * Fraction("20.6"), Fraction("0.35"))
    assert links_of(imported.topology) == both_ways(
        {(f"gpu{i}", "nvswitch"): rate for i in range(8)}
    )
    assert any("20.6GB/s" in note for note in imported.assumptions)


def test_cluster_on_rails():
    """Two dumps on rails: GPU i of each on leaf i by its own NIC, leaves on a spine at 2 NICs."""
    imported = import_topology(
        DATA / "nccl_nvswitch.xml", "nccl", nodes=2, link_bandwidth="25GB/s", alpha="1us"
    )
    wanted = {(f"leaf{i}", "spine"): (100, Fraction("0.15")) for i in range(8)}
    for c in range(2):
        for i in range(8):
            wanted[f"c{c}/gpu{i}", f"c{c}/nvswitch"] = (450, Fraction("0.5"))
            wanted[f"c{c}/gpu{i}", f"leaf{i}"] = (50, Fraction("0.65"))
    assert links_of(imported.topology) == both_ways(wanted)
    assert imported.topology.nodes[8].group == "c0"


def test_direct_links_of_an_rccl_dump():
    """An xGMI link of an MI200 carries 36 GB/s; a slow second NIC is left out."""
    imported = import_topology(DATA / "rccl_xgmi.xml", "nccl")
    counts = {(0, 1): 4, (1, 2): 1, (2, 3): 4, (0, 3): 1, (0, 2): 2}
    assert links_of(imported.topology) == both_ways(
        {(f"gpu{a}", f"gpu{b}"): (36 * n, Fraction("0.7")) for (a, b), n in counts.items()}
    )


def test_flat_fabric_shares_one_nic():
    """Four GPUs of each machine share its only NIC on the way to the one switch."""
    imported = import_topology(
        DATA / "rccl_xgmi.xml", "nccl", nodes=3, fabric="flat", nic_alpha="2us"
    )
    topology = imported.topology
    links = links_of(topology)
    assert links["c2/gpu3", "fabric"] == links["fabric", "c2/gpu3"] == (25, 2)
    assert topology.shared == {
        f"c{c}/nic0/{way}": 25 * GB for c in range(3) for way in ("out", "in")
    }
    out = [link for link in topology.links if link.shares == ("c1/nic0/out",)]
    assert [topology.nodes[link.src].name for link in out] == [f"c1/gpu{i}" for i in range(4)]
    assert any("left out: 1" in note for note in imported.assumptions)


def test_pcie_machine_of_an_nccl_dump():
    """Without NVLink the PCI tree joins the GPUs; a bridge without partings is no switch."""
    topology = import_topology(DATA / "nccl_pcie.xml", "nccl", socket_bandwidth="10GB/s").topology
    alpha = Fraction("0.35")
    assert links_of(topology) == both_ways(
        {
            ("gpu0", "pcie1"): (12, alpha),
            ("gpu1", "pcie1"): (12, alpha),
            ("pcie1", "cpu0"): (12, alpha),
            ("gpu2", "cpu0"): (12, alpha),
            ("gpu3", "cpu2"): (24, alpha),
            ("cpu0", "cpu2"): (10, alpha),
        }
    )


def test_mesh_of_nvidia_smi_is_the_dgx1_preset():
    """The matrix of a DGX-1 gives the links of the preset, styled head and NICs included."""
    topology = import_topology(
        DATA / "smi_dgx1.txt", "nvidia-smi", link_bandwidth="25GB/s"
    ).topology
    assert links_of(topology) == links_of(Topology.parse("dgx1"))


def test_nics_of_nvidia_smi_join_machines():
    """Two GPUs share each NIC that the matrix shows beside them."""
    options = {"link_bandwidth": "25GB/s", "nodes": 2, "nic_bandwidth": "100Gb/s"}
    topology = import_topology(DATA / "smi_dgx1.txt", "nvidia-smi", **options).topology
    links = links_of(topology)
    assert links["c1/gpu5", "leaf2"][0] == Fraction("12.5")
    assert ("c1/gpu5", "leaf3") not in links
    assert links["leaf2", "spine"][0] == 25


def test_nvidia_smi_finds_a_switch_or_asks():
    """NV18 on all pairs must be a switch; NV4 among four GPUs can be either, so it asks."""
    switched = import_topology(DATA / "smi_nvswitch.txt", "nvidia-smi", link_bandwidth="25GB/s")
    assert links_of(switched.topology)["gpu7", "nvswitch"] == (450, Fraction("0.35"))
    with pytest.raises(TopologyError, match="--links direct or --links switch"):
        import_topology(DATA / "smi_four.txt", "nvidia-smi", link_bandwidth="25GB/s")
    direct = import_topology(
        DATA / "smi_four.txt", "nvidia-smi", link_bandwidth="25GB/s", links="direct"
    )
    assert links_of(direct.topology)["gpu3", "gpu0"] == (100, Fraction("0.7"))
    assert direct.topology.num_links == 12


def test_pcie_of_nvidia_smi():
    """PIX is a common bridge, NODE a common processor, SYS the link between two."""
    topology = import_topology(
        DATA / "smi_pcie.txt", "nvidia-smi", pcie_bandwidth="12GB/s"
    ).topology
    names = sorted("-".join(sorted(ends)) for ends in links_of(topology))
    assert names == sorted(
        2 * ["gpu0-pcie1", "gpu1-pcie1", "cpu0-pcie1", "cpu0-gpu2", "cpu2-gpu3", "cpu0-cpu2"]
    )


@pytest.mark.parametrize(
    ("name", "options", "remedy"),
    [
        ("smi_dgx1.txt", {}, "--link-bandwidth"),
        ("smi_pcie.txt", {}, "--pcie-bandwidth"),
        ("smi_dgx1.txt", {"link_bandwidth": "25GB/s", "nodes": 2}, "--nic-bandwidth"),
    ],
)
def test_nvidia_smi_asks_for_what_the_matrix_cannot_say(name, options, remedy):
    """A missing rate is refused with the option that gives it."""
    with pytest.raises(TopologyError, match=remedy):
        import_topology(DATA / name, "nvidia-smi", **options)


def te_ccl(tmp_path, **values):
    """Import a TE-CCL input with the given topology."""
    path = tmp_path / "input.json"
    path.write_text(json.dumps({"TopologyParams": values}), encoding="utf-8")
    return import_topology(path, "te-ccl")


@pytest.mark.parametrize(
    ("values", "preset"),
    [
        ({"name": "DGX1", "alpha": [0.7e-6]}, "dgx1"),
        ({"name": "NDv2", "chassis": 2}, "ndv2:chassis=2"),
        ({"name": "DGX2", "chassis": 2}, "dgx2:chassis=2"),
    ],
)
def test_te_ccl_topologies_are_the_presets(tmp_path, values, preset):
    """The paper's machines are the presets, though TE-CCL numbers switches among the GPUs."""
    imported = te_ccl(tmp_path, **values).topology
    assert links_of(imported) == links_of(Topology.parse(preset))


def test_te_ccl_keeps_its_node_numbers(tmp_path):
    """Nodes 0 and 17 of DGX2 are the switches, so rank 16 is node 18."""
    topology = te_ccl(tmp_path, name="DGX2").topology
    assert [i for i, node in enumerate(topology.nodes) if node.is_switch] == [0, 17]
    assert topology.nodes[18].name == "c1/gpu0"
    assert topology.gpus[16] == 18


def test_te_ccl_request_is_told():
    """32 GPUs times two chunks of 31.25 KB are an AllGather of 2 MB."""
    imported = import_topology(DATA / "te_ccl_ndv2.json", "te-ccl")
    assert links_of(imported.topology) == links_of(Topology.parse("ndv2:chassis=4"))
    assert any("allgather --size 2MB --chunks 2" in note for note in imported.assumptions)


def test_te_ccl_mesh_wraps_rows(tmp_path):
    """A 2x2 mesh of TE-CCL has the link from the end of row 0 to the start of row 1."""
    links = links_of(te_ccl(tmp_path, name="Mesh", side_length=2, alpha=[0]).topology)
    ends = [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)]
    assert links == both_ways({(f"gpu{a}", f"gpu{b}"): (100, 0) for a, b in ends})


def test_te_ccl_amd_chassis(tmp_path):
    """Each GCD has seven xGMI links; between chassis each pair has a switch below node 0."""
    one = te_ccl(tmp_path, name="AMD", chassis=1, alpha=[1e-6, 2e-6]).topology
    out = [sum(link.bandwidth for link in one.links if link.src == g) / GB for g in range(16)]
    assert set(out) == {350}
    two = te_ccl(tmp_path, name="AMD", chassis=2, alpha=[1e-6, 2e-6]).topology
    links = links_of(two)
    assert two.num_nodes == 49
    assert two.nodes[0].is_switch
    assert links["c1/switch7", "switch"] == links["c1/gpu15", "c1/switch7"] == (25, 2)


def test_taccl_matrices_are_destination_first():
    """Entry [1][0] is the link from GPU 0 to GPU 1: 1 MB in 10 us is 100 GB/s."""
    topology = import_topology(DATA / "taccl_ring.json", "taccl", chunk_size="1MB").topology
    half = Fraction("0.5")
    assert links_of(topology) == {
        ("gpu0", "gpu1"): (100, half),
        ("gpu1", "gpu2"): (50, half),
        ("gpu2", "gpu3"): (40, half),
        ("gpu3", "gpu0"): (25, half),
    }


def test_taccl_classes_of_links():
    """Two classes on eight GPUs are TACCL's NDv2; with nodes its NICs join them."""
    options = {"chunk_size": "1MB", "nodes": 2, "cost_unit": "10ns"}
    topology = import_topology(DATA / "taccl_two_classes.json", "taccl", **options).topology
    links = links_of(topology)
    assert links["c0/gpu0", "c0/gpu1"] == (5000, Fraction("0.005"))
    assert links["c0/gpu0", "c0/gpu2"] == (2500, Fraction("0.005"))
    assert links["c0/gpu3", "leaf0"] == (1250, Fraction("0.0125"))
    assert ("c0/gpu4", "leaf1") in links
    assert topology.shared["c0/nic1/out"] == 1250 * GB


def test_taccl_asks_for_the_chunk_size():
    """Costs mean nothing without the size they are for."""
    with pytest.raises(TopologyError, match="--chunk-size"):
        import_topology(DATA / "taccl_ring.json", "taccl")


def test_msccl_tools_links_are_destination_first():
    """Entry [0][2] = 2 is a double link from GPU 2 to GPU 0; switches are shared capacities."""
    topology = import_topology(
        DATA / "msccl_tools_line.json", "msccl-tools", link_bandwidth="10GB/s", alpha=0
    ).topology
    assert links_of(topology) == {
        ("gpu1", "gpu0"): (10, 0),
        ("gpu2", "gpu0"): (20, 0),
        ("gpu0", "gpu1"): (10, 0),
        ("gpu2", "gpu1"): (10, 0),
        ("gpu1", "gpu2"): (10, 0),
    }
    shares = {(link.src, link.dst): link.shares for link in topology.links}
    assert shares[1, 2] == ("in2#0", "out1#1")
    assert shares[1, 0] == ("out1#1",)
    assert shares[0, 1] == ()
    assert topology.shared == {"in2#0": 10 * GB, "out1#1": 20 * GB}


@pytest.mark.parametrize("format_name", formats_that("reads_topology"))
def test_options_of_other_formats_are_refused(format_name):
    """An option that a format does not read is refused, not ignored."""
    every = {"links": "direct", "chunk_size": "1MB", "nodes": 2, "pcie_bandwidth": "1GB/s"}
    for key, value in every.items():
        if key not in FORMATS[format_name].topology_options:
            with pytest.raises(TopologyError, match=f"has no use for --{key.replace('_', '-')}"):
                import_topology(DATA / "nothing", format_name, **{key: value})


@pytest.mark.parametrize(
    ("distances", "wanted"),
    [
        ([[0, 9], [9, 0]], [(0,), (1,)]),
        ([[0, 0, 0, 0], [0, 0, 0, 0]], [(0, 1), (2, 3)]),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], [(0,), (0,), (1,), (1,)]),
        ([[0, 0, 0], [5, 5, 5]], [(0, 1, 2), ()]),
    ],
)
def test_nics_are_spread(distances, wanted):
    """Equally near NICs are spread evenly, and farther ones are not used."""
    assert assign_nics(len(distances[0]), distances) == wanted


def test_command_line(tmp_path):
    """The command prints what was assumed and saves a file that solve takes."""
    target = tmp_path / "box.yaml"
    outcome = run("topology", "import", "nccl", DATA / "rccl_xgmi.xml", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    assert "assumed: one xGMI link of 910 carries 36GB/s" in outcome.out
    assert run("topology", "check", target).code == 0
    shown = run("topology", "import", "nccl", DATA / "rccl_xgmi.xml", "--json", "--name", "mine")
    document = json.loads(shown.out)
    assert document["topology"]["name"] == "mine"
    assert len(document["assumptions"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("ncl", "x.xml"),
        ("nccl", "missing.xml"),
        ("nccl", DATA / "rccl_xgmi.xml", "--nodes", "0"),
        ("nccl", DATA / "rccl_xgmi.xml", "--nodes", "99999"),
        ("nccl", DATA / "rccl_xgmi.xml", "--nodes", "two"),
        ("nccl", DATA / "rccl_xgmi.xml", "--fabric", "mesh"),
        ("nccl", DATA / "rccl_xgmi.xml", "--nic-bandwidth", "0GB/s"),
        ("nccl", DATA / "rccl_xgmi.xml", "--alpha", "-1us"),
        ("nccl", DATA / "taccl_ring.json"),
        ("taccl", DATA / "rccl_xgmi.xml", "--chunk-size", "1MB"),
        ("te-ccl", DATA / "taccl_ring.json"),
        ("msccl-tools", DATA / "taccl_ring.json", "--link-bandwidth", "1GB/s"),
        ("nvidia-smi", DATA / "taccl_ring.json"),
        ("nccl", DATA / "rccl_xgmi.xml", "-o", "out.txt"),
    ],
)
def test_wrong_requests_are_refused(arguments, tmp_path, monkeypatch):
    """One line on what is wrong, exit code 2, and no file."""
    monkeypatch.chdir(tmp_path)
    command = ("topology", "import", *arguments)
    assert_refused(run(*command, *(() if "-o" in arguments else ("-o", "out.yaml"))))
    assert not list(tmp_path.iterdir())
