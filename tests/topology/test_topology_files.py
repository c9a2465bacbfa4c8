"""Topology files: exact both ways, and refused in one line when something is wrong."""

import gzip
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import yaml
from tests.sampling import thinned

from teccl.errors import TopologyError
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.topology.presets import PRESETS, build_preset
from teccl.topology.topology_files import load_topology, topology_from_dict, topology_to_dict

RATE = Fraction(10**9)
SPECS = [
    *PRESETS,
    "ndv2:chassis=2",
    "ndv2:chassis=3",
    "dgx2:chassis=2",
    "dgx-h100:chassis=2,nvls=true",
    "mi250:chassis=2",
    "ring:alpha=1/3us,bandwidth=100/7GB/s",
]
PAIR = {"nodes": 2, "links": [{"src": 0, "dst": 1, "bandwidth": "25GB/s"}]}


def everything() -> Topology:
    """A topology that uses every feature at once."""
    profile = ((Fraction(0), RATE / 3), (Fraction(1, 3), RATE), (Fraction(7, 10**7), RATE * 2))
    links = (
        Link(src=0, dst=2, bandwidth=RATE / 7, alpha=Fraction(1, 3), shares=("nic", "bus")),
        Link(src=2, dst=1, bandwidth=RATE, profile=tuple(sorted(profile))),
        Link(src=2, dst=1, bandwidth=RATE),
        Link(src=2, dst=1, bandwidth=RATE),
        Link(src=1, dst=0, bandwidth=Fraction(1), alpha=Fraction(1, 10**12), shares=("bus",)),
    )
    nodes = (
        Node(name="a: b", group="yes"),
        Node(name="- 日本 #1"),
        Node(name="null", kind=NodeKind.SWITCH, group="1e3x", reduce=True),
    )
    shared = {"nic": Fraction(25, 2) * RATE, "bus": RATE / 3}
    return Topology(name="1.5", nodes=nodes, links=links, shared=shared)


def write(tmp_path, text: str, name: str = "t.yaml"):
    """A file with the given text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("spec", "ending"),
    thinned(product(SPECS, ["yaml", "yml", "json", "yaml.gz", "json.gz"]), 3),
)
def test_presets_survive_a_file(tmp_path, spec, ending):
    """Writing and reading gives an equal topology, in every format."""
    topology = build_preset(spec)
    path = tmp_path / f"t.{ending}"
    topology.save(path)
    assert Topology.parse(path) == topology


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_every_feature_survives_a_file(tmp_path, ending):
    """Profiles, shared capacities, parallel links, odd names and odd fractions come back exact."""
    topology = everything()
    topology.save(tmp_path / f"t.{ending}")
    assert load_topology(tmp_path / f"t.{ending}") == topology


@pytest.mark.parametrize("ending", ["yaml", "json", "json.gz"])
def test_equal_topologies_give_equal_bytes(tmp_path, ending):
    """A file depends on the topology only."""
    everything().save(tmp_path / f"one.{ending}")
    everything().save(tmp_path / f"two.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_gzip_files_are_gzip(tmp_path):
    """A name that ends in .gz gives a compressed file."""
    build_preset("ring").save(tmp_path / "t.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    assert document["name"] == "ring"


def test_plain_data_is_json():
    """A topology as plain data passes through JSON unchanged, as schedules embed it."""
    topology = everything()
    assert topology_from_dict(json.loads(json.dumps(topology_to_dict(topology)))) == topology


def test_number_of_nodes_makes_gpus():
    """`nodes: 2` are gpu0 and gpu1, and ranks serve as ends."""
    topology = topology_from_dict(PAIR)
    assert [node.name for node in topology.nodes] == ["gpu0", "gpu1"]
    assert topology.links == (Link(src=0, dst=1, bandwidth=25 * RATE),)


def test_ranks_in_links_skip_switches():
    """A number as the end of a link is a rank."""
    document = {
        "nodes": [{"name": "s", "kind": "switch"}, {"name": "a"}],
        "links": [{"src": 0, "dst": "s", "bandwidth": "1GB/s"}],
    }
    assert topology_from_dict(document).links[0].src == 1


def test_bidirectional_makes_both_links():
    """`bidirectional` adds the reverse with the same figures."""
    entry = {
        "src": "gpu0",
        "dst": "gpu1",
        "bandwidth": "25GB/s",
        "alpha": "0.7us",
        "bidirectional": True,
        "shares": "nic",
        "profile": [["1us", "50GB/s"]],
    }
    there, back = topology_from_dict(
        {"nodes": 2, "links": [entry], "shared": {"nic": "30GB/s"}}
    ).links
    assert back == replace(there, src=there.dst, dst=there.src)
    assert there.shares == ("nic",)


def test_zero_needs_no_unit():
    """A bare 0 is a latency and the start of a profile."""
    entry = {**PAIR["links"][0], "alpha": 0, "profile": [[0, "1GB/s"]]}
    link = topology_from_dict({"nodes": 2, "links": [entry]}).links[0]
    assert (link.alpha, link.profile) == (0, ((0, RATE),))


def test_name_defaults_to_the_file(tmp_path):
    """A file without a name is called like the file."""
    assert load_topology(write(tmp_path, yaml.safe_dump(PAIR), "mine.yaml")).name == "mine"


def test_file_without_ending_is_yaml(tmp_path):
    """A path without a known ending is read as YAML."""
    path = write(tmp_path, yaml.safe_dump(PAIR), "mine")
    assert Topology.parse(path).num_links == 1


def test_byte_order_mark_is_ignored(tmp_path):
    """Files saved by editors that add a byte order mark are read."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(PAIR), encoding="utf-8-sig")
    assert load_topology(path).num_gpus == 2


def linked(**changes: object) -> dict[str, object]:
    """The pair with its link changed; None removes a key."""
    entry = {**PAIR["links"][0], **changes}
    return {**PAIR, "links": [{key: value for key, value in entry.items() if value is not None}]}


@pytest.mark.parametrize(
    ("document", "fragments"),
    [
        (None, ["is empty", "mapping"]),
        ([], ["is []", "mapping"]),
        ("text", ["'text'", "mapping"]),
        ({}, ["lacks key 'nodes'"]),
        ({"nodes": 2}, ["lacks key 'links'"]),
        ({**PAIR, "link": []}, ["'link'", "did you mean 'links'"]),
        ({**PAIR, 5: 1}, ["unknown key 5"]),
        ({**PAIR, "schema_version": 2}, ["schema_version 2", "reads 1"]),
        ({**PAIR, "schema_version": True}, ["schema_version True"]),
        ({**PAIR, "schema_version": "1"}, ["schema_version '1'"]),
        ({**PAIR, "name": 5}, ["name is 5", "text"]),
        ({**PAIR, "name": ""}, ["topology name ''"]),
        ({**PAIR, "nodes": 0}, ["nodes is 0"]),
        ({**PAIR, "nodes": -1}, ["nodes is -1"]),
        ({**PAIR, "nodes": True}, ["nodes is True"]),
        ({**PAIR, "nodes": 1.5}, ["nodes is 1.5", "list"]),
        ({**PAIR, "nodes": 10**9}, ["nodes is 1000000000"]),
        ({**PAIR, "nodes": []}, ["no nodes"]),
        ({**PAIR, "nodes": ["a", "b"]}, ["nodes[0] is 'a'", "mapping"]),
        ({**PAIR, "nodes": [{"kind": "gpu"}]}, ["nodes[0] lacks key 'name'"]),
        ({**PAIR, "nodes": [{"name": 3}]}, ["nodes[0]: name is 3"]),
        ({**PAIR, "nodes": [{"name": "3"}]}, ["'3'", "rank number"]),
        ({**PAIR, "nodes": [{"name": "a", "kind": "cpu"}]}, ["kind is 'cpu'", "gpu or switch"]),
        ({**PAIR, "nodes": [{"name": "a", "kind": ["gpu"]}]}, ["kind is ['gpu']"]),
        ({**PAIR, "nodes": [{"name": "a", "grp": "x"}]}, ["'grp'", "did you mean 'group'"]),
        ({**PAIR, "nodes": [{"name": "a", "group": 1}]}, ["group is 1"]),
        ({**PAIR, "nodes": [{"name": "a", "reduce": "yes"}]}, ["reduce is 'yes'", "true or false"]),
        ({**PAIR, "nodes": [{"name": "a", "reduce": True}]}, ["node a", "gpu with reduce"]),
        ({**PAIR, "nodes": [{"name": "a"}, {"name": "a"}]}, ["'a' appears twice"]),
        ({**PAIR, "nodes": [{"name": "a", "kind": "switch"}], "links": []}, ["switches only"]),
        ({**PAIR, "links": {}}, ["links is {}", "list"]),
        ({**PAIR, "links": None}, ["links is None", "list"]),
        ({**PAIR, "links": [[0, 1]]}, ["links[0] is [0, 1]", "mapping"]),
        (linked(src=None), ["links[0] lacks key 'src'"]),
        (linked(bandwidth=None), ["links[0] lacks key 'bandwidth'"]),
        (linked(bandwith="1GB/s"), ["'bandwith'", "did you mean 'bandwidth'"]),
        (linked(src="gpu7"), ["links[0]: src", "no node 'gpu7'"]),
        (linked(src=7), ["links[0]: src", "rank 7"]),
        (linked(src=-1), ["links[0]: src", "-1"]),
        (linked(src=True), ["links[0]: src is True"]),
        (linked(src=[0]), ["links[0]: src is [0]"]),
        (linked(dst=0), ["gpu0 > gpu0", "own node"]),
        (linked(bandwidth=25), ["links[0]: bandwidth '25'", "unit"]),
        (linked(bandwidth="0GB/s"), ["gpu0 > gpu1 has bandwidth 0"]),
        (linked(bandwidth=0), ["gpu0 > gpu1 has bandwidth 0"]),
        (linked(bandwidth="-1GB/s"), ["bandwidth '-1GB/s'", "negative"]),
        (linked(bandwidth="inf"), ["bandwidth 'inf'"]),
        (linked(bandwidth=float("inf")), ["bandwidth 'inf'"]),
        (linked(bandwidth="25 GB"), ["bandwidth '25 GB'", "unit"]),
        (linked(bandwidth="1/0GB/s"), ["bandwidth '1/0GB/s'", "zero"]),
        (linked(bandwidth=True), ["links[0]: bandwidth", "True"]),
        (linked(bandwidth=["25GB/s"]), ["bandwidth ['25GB/s']"]),
        (linked(alpha=5), ["links[0]: alpha '5'", "unit"]),
        (linked(alpha="-1us"), ["alpha '-1us'", "negative"]),
        (linked(alpha="2000h"), ["alpha '2000h'", "53 days"]),
        (linked(alpha=float("nan")), ["alpha 'nan'"]),
        (linked(bidirectional=1), ["bidirectional is 1", "true or false"]),
        (linked(profile={"0": "1GB/s"}), ["profile is {'0': '1GB/s'}", "list"]),
        (linked(profile=[["0"]]), ["profile[0] is ['0']", "[start, bandwidth]"]),
        (linked(profile=[["1us", "0GB/s"]]), ["profile", "bandwidth 0"]),
        (linked(profile=[["1us", "1GB/s"], ["1us", "2GB/s"]]), ["profile", "increasing"]),
        (linked(profile=[[1, "1GB/s"]]), ["profile[0] start '1'", "unit"]),
        (linked(shares=["nic"]), ["'nic'", "does not define"]),
        (linked(shares=[1]), ["shares is 1"]),
        (linked(shares={"nic": 1}), ["shares is {'nic': 1}", "list"]),
        ({**linked(shares=["nic", "nic"]), "shared": {"nic": "1GB/s"}}, ["twice"]),
        ({**PAIR, "shared": ["nic"]}, ["shared is ['nic']", "mapping"]),
        ({**PAIR, "shared": {"nic": 5}}, ["shared nic '5'", "unit"]),
        ({**PAIR, "shared": {"nic": "0GB/s"}}, ["shared capacity nic", "bandwidth 0"]),
        ({**PAIR, "shared": {5: "1GB/s"}}, ["shared is 5"]),
    ],
)
def test_malformed_documents(tmp_path, document, fragments):
    """A wrong document is refused in one line that names the place and what to do."""
    path = write(tmp_path, yaml.safe_dump(document))
    with pytest.raises(TopologyError) as caught:
        load_topology(path)
    message = str(caught.value)
    assert "\n" not in message
    assert [text for text in fragments if text not in message] == []


@pytest.mark.parametrize(
    ("name", "text", "fragments"),
    [
        ("t.yaml", "nodes: [", ["t.yaml", "not valid YAML"]),
        ("t.yaml", "nodes: 2\nnodes: 3\nlinks: []", ["'nodes' appears twice"]),
        ("t.yaml", "a: &x [1]\nb: *x", ["aliases"]),
        ("t.yaml", "nodes: !!python/object/apply:os.getcwd []", ["not valid YAML"]),
        ("t.yaml", "nodes: 2\nlinks: []\n---\nnodes: 3", ["YAML"]),
        ("t.yaml", "", ["is empty", "mapping"]),
        ("t.yaml", "[" * 3000, ["t.yaml"]),
        ("t.json", "{", ["t.json", "not valid JSON at line 1"]),
        ("t.json", '{"nodes": 2, "nodes": 3, "links": []}', ["'nodes' appears twice"]),
        ("t.json", '{"nodes": NaN, "links": []}', ["NaN"]),
        ("t.json", '{"nodes": 2, "links": []} extra', ["not valid JSON"]),
        ("t.json", "nodes: 2\nlinks: []", ["not valid JSON"]),
        ("t.json", "[" * 100_000, ["nested too deeply"]),
        ("t.json", '{"nodes": ' + "9" * 5000 + "}", ["too many digits"]),
    ],
)
def test_damaged_files(tmp_path, name, text, fragments):
    """A file that is no document is refused in one line."""
    with pytest.raises(TopologyError) as caught:
        load_topology(write(tmp_path, text, name))
    message = str(caught.value)
    assert "\n" not in message
    assert [part for part in fragments if part not in message] == []


def test_missing_file_is_refused(tmp_path):
    """A file that is not there is named."""
    with pytest.raises(TopologyError, match=r"none\.yaml does not exist"):
        Topology.parse(str(tmp_path / "none.yaml"))


def test_folder_is_refused(tmp_path):
    """A folder is not read as a file."""
    with pytest.raises(TopologyError, match="is not a regular file"):
        Topology.parse(tmp_path)


def test_binary_file_is_refused(tmp_path):
    """Bytes that are no text are refused."""
    (tmp_path / "t.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(TopologyError, match="not UTF-8"):
        load_topology(tmp_path / "t.yaml")


def test_damaged_gzip_is_refused(tmp_path):
    """A truncated compressed file is refused."""
    whole = gzip.compress(json.dumps(PAIR).encode())
    (tmp_path / "t.json.gz").write_bytes(whole[:-9])
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(tmp_path / "t.json.gz")


def test_unwritable_file_is_refused(tmp_path):
    """A path below a file cannot be written, and one line says so."""
    write(tmp_path, "", "file")
    with pytest.raises(TopologyError, match=r"^file [^\n]*cannot be written"):
        build_preset("ring").save(tmp_path / "file" / "t.yaml")


@pytest.mark.parametrize(
    "bandwidth", ["1e40GB/s", "1e-40GB/s", "1/999999999999999999999999999999GB/s"]
)
def test_bandwidths_out_of_range_are_refused(bandwidth):
    """No file holds what no topology accepts."""
    with pytest.raises(TopologyError, match="give one from 1B/s to 1e18 B/s"):
        topology_from_dict(linked(bandwidth=bandwidth))


@pytest.mark.parametrize("bandwidth", ["1B/s", "1e9GB/s", "1000000007/999999937B/s"])
def test_extreme_bandwidths_survive(tmp_path, bandwidth):
    """What a topology accepts, its file holds exactly."""
    topology = topology_from_dict(linked(bandwidth=bandwidth))
    topology.save(tmp_path / "t.yaml")
    assert load_topology(tmp_path / "t.yaml").links == topology.links
