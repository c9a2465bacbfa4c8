"""Drawings: everything is on them, readable, and the same every time."""

import math
import runpy
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from teccl.drawing import MAX_DRAWN_NODES, draw_dot, draw_svg, save_drawing
from teccl.errors import TopologyError
from teccl.topology import Link, Node, NodeKind, Topology
from teccl.topology.presets import PRESETS, build_preset

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
RATE = Fraction(10**9)
DRAWN = [*PRESETS, "ndv2:chassis=2", "dgx2:chassis=3", "gb200-nvl72:chassis=2", "mesh:dims=3x3x3"]


def texts(svg: str) -> list[str]:
    """All text of a drawing, without its tool tips."""
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def lines(svg: str) -> list[ET.Element]:
    """The lines between nodes."""
    groups = [g for g in ET.fromstring(svg).iter(f"{SVG}g") if g.get("stroke")]
    return [path for group in groups for path in group.iter(f"{SVG}path")]


def gpu_places(svg: str) -> list[tuple[float, float]]:
    """Centres of the GPUs."""
    circles = ET.fromstring(svg).iter(f"{SVG}circle")
    return [(float(circle.get("cx", 0)), float(circle.get("cy", 0))) for circle in circles]


def pair(*links: Link, names: tuple[str, str] = ("a", "b")) -> Topology:
    """Two GPUs and the given links."""
    return Topology(name="pair", nodes=tuple(Node(name=name) for name in names), links=links)


@pytest.mark.parametrize("spec", DRAWN)
def test_every_node_is_drawn(spec):
    """A drawing has a shape with the full name as its tool tip for each node."""
    topology = build_preset(spec)
    groups = [g for g in ET.fromstring(draw_svg(topology)).iter(f"{SVG}g") if not g.get("stroke")]
    titles = [title.text for group in groups for title in group.findall(f"{SVG}title")]
    assert titles == [node.name for node in topology.nodes]


@pytest.mark.parametrize("spec", DRAWN)
def test_every_link_is_drawn(spec):
    """Lines without an arrow count for two links, arrows for one."""
    topology = build_preset(spec)
    drawn = sum(1 if line.get("marker-end") else 2 for line in lines(draw_svg(topology)))
    assert drawn == topology.num_links


@pytest.mark.parametrize("spec", DRAWN)
def test_gpus_do_not_cover_each_other(spec):
    """Any two GPUs are at least a diameter apart."""
    places = gpu_places(draw_svg(build_preset(spec)))
    gaps = [math.dist(a, b) for i, a in enumerate(places) for b in places[:i]]
    assert min(gaps) >= 34


@pytest.mark.parametrize("spec", DRAWN)
def test_gpus_are_on_the_page(spec):
    """No GPU is cut off at an edge."""
    svg = draw_svg(build_preset(spec))
    root = ET.fromstring(svg)
    _, _, width, height = (float(number) for number in root.get("viewBox", "").split())
    moved = next(g.get("transform", "") for g in root.iter(f"{SVG}g") if g.get("transform"))
    dx, dy = (float(number) for number in moved[len("translate(") : -1].split(","))
    for x, y in gpu_places(svg):
        assert 17 <= x + dx <= width - 17
        assert 17 <= y + dy <= height - 17


def test_legend_counts_links_by_kind():
    """The legend gives bandwidth, latency and number of links of each kind."""
    assert [text for text in texts(draw_svg(build_preset("ndv2:chassis=2"))) if "GB/s" in text] == [
        "50GB/s, 0.7us: 32 links",
        "25GB/s, 0.7us: 32 links",
        "12.5GB/s, 1.3us: 2 links",
    ]


def test_kinds_of_links_have_their_own_colours():
    """Links that differ in bandwidth or only in latency differ in colour."""
    root = ET.fromstring(draw_svg(build_preset("internal1")))
    colours = [group.get("stroke") for group in root.iter(f"{SVG}g") if group.get("stroke")]
    assert len(colours) == len(set(colours)) == 2


def test_many_kinds_of_links_share_the_last_colour():
    """When the colours run out the slowest kinds are one line of the legend."""
    topology = pair(*(Link(src=0, dst=1, bandwidth=RATE * i) for i in range(1, 13)))
    assert texts(draw_svg(topology))[-1] == "5 slower kinds, 5GB/s and less: 5 links"


def test_title_counts_the_topology():
    """The title has the name and the counts."""
    title = "dgx2: 32 GPUs, 2 switches, 80 links"
    assert texts(draw_svg(build_preset("dgx2:chassis=2")))[0] == title


def test_one_way_links_have_arrows():
    """A link without its reverse ends in an arrow; a pair of links does not."""
    arrows = [line.get("marker-end") for line in lines(draw_svg(build_preset("ndv2:chassis=2")))]
    assert Counter(arrows) == {None: 32, "url(#arrow2)": 2}


def test_a_slower_way_back_is_a_line_of_its_own():
    """Links that are not equal both ways are drawn as two arrows."""
    topology = pair(Link(src=0, dst=1, bandwidth=RATE), Link(src=1, dst=0, bandwidth=RATE / 2))
    drawn = lines(draw_svg(topology))
    assert [bool(line.get("marker-end")) for line in drawn] == [True, True]
    assert drawn[0].get("d") != drawn[1].get("d")


def test_parallel_links_do_not_cover_each_other():
    """Three equal links between two nodes are three different lines."""
    both = [Link(src=a, dst=b, bandwidth=RATE) for a, b in ((0, 1), (1, 0))]
    paths = {line.get("d") for line in lines(draw_svg(pair(*both * 3)))}
    assert len(paths) == 3


def test_groups_are_framed_and_named():
    """Each chassis has a frame with its name, and nodes show their name inside it."""
    shown = texts(draw_svg(build_preset("dgx-h100:chassis=2")))
    assert {"c0", "c1", "gpu7", "nvswitch", "leaf7", "spine"} <= set(shown)
    assert "c0/gpu7" not in shown


def test_mesh_is_a_grid():
    """A two-dimensional mesh stands in rows and columns, in rank order."""
    places = gpu_places(draw_svg(build_preset("mesh:dims=2x3")))
    rows = [y for _, y in places]
    columns = [x for x, _ in places]
    assert rows[:3] == [rows[0]] * 3
    assert rows[3] > rows[0]
    assert columns[:3] == columns[3:] == sorted(set(columns))


def test_wrap_around_links_run_around_the_nodes_between():
    """In a torus the eight links across the edges are curves, all others straight."""
    kinds = Counter("Q" in line.get("d", "") for line in lines(draw_svg(build_preset("torus"))))
    assert kinds == {False: 24, True: 8}


def test_three_dimensional_grid_has_planes():
    """A cube's planes stand behind each other, moved by the same step."""
    places = gpu_places(draw_svg(build_preset("hypercube")))
    moves = {
        (round(b[0] - a[0]), round(b[1] - a[1]))
        for a, b in zip(places[:4], places[4:], strict=True)
    }
    assert len(moves) == 1


@pytest.mark.parametrize("name", ["<b>&\"'", "a]]>b", "-->", "😀", "日本語", "\\N"])
def test_names_are_escaped(name):
    """Names with characters that mean something in XML come out as they are."""
    topology = Topology(
        name=name,
        nodes=(Node(name=name, group=name), Node(name="b", kind=NodeKind.SWITCH, group=name)),
        links=(Link(src=0, dst=1, bandwidth=RATE),),
    )
    root = ET.fromstring(draw_svg(topology))
    assert {name, f"{name}: 1 GPU, 1 switch, 1 link"} <= {e.text for e in root.iter()}


def test_long_names_are_cut():
    """A long name is cut in the picture and whole in the tool tip."""
    topology = pair(names=("a" * 150, "b"))
    svg = draw_svg(topology)
    assert "aaaaa…" in texts(svg)
    assert "a" * 150 in svg


@pytest.mark.parametrize(
    "nodes",
    [
        (Node(name="a"),),
        (Node(name="a"), Node(name="s", kind=NodeKind.SWITCH)),
        (Node(name="a"), Node(name="s", kind=NodeKind.SWITCH, group="g")),
        (Node(name="a", group="g"), Node(name="b")),
    ],
)
def test_topology_without_links_is_drawn(nodes):
    """Nodes that nothing joins are drawn too."""
    svg = draw_svg(Topology(name="lonely", nodes=nodes, links=()))
    assert {node.name for node in nodes} <= set(texts(svg))


def test_drawing_loads_nothing():
    """A drawing names no address but the one of the SVG format itself."""
    svg = draw_svg(build_preset("dgx-a100:chassis=2"))
    assert svg.count("http") == svg.count('xmlns="http://www.w3.org/2000/svg"') == 1
    assert "href" not in svg
    assert "<script" not in svg


def test_too_many_nodes_are_refused():
    """A picture of too many nodes is refused with what to do instead."""
    with pytest.raises(TopologyError, match=r"^[^\n]*401 nodes are too many[^\n]*\.dot file$"):
        draw_svg(build_preset(f"line:gpus={MAX_DRAWN_NODES + 1}"))


def test_too_many_links_are_refused():
    """A picture of too many links is refused with what to do instead."""
    with pytest.raises(TopologyError, match=r"^[^\n]*links are too many[^\n]*\.dot file$"):
        draw_svg(build_preset("fully-connected:gpus=200"))


def test_dot_has_every_node_and_link():
    """Graphviz gets each node once and each pair of links as one line without arrow heads."""
    topology = build_preset("ndv2:chassis=2")
    rows = [line.strip() for line in draw_dot(topology).splitlines()]
    edges = [row for row in rows if "->" in row]
    assert sum(row.startswith("n") and "[label=" in row for row in rows) == 16
    assert Counter("dir=none" in edge for edge in edges) == {True: 32, False: 2}
    assert sum(row.startswith("subgraph cluster_") for row in rows) == 2


def test_dot_quotes_names():
    """Quotes and backslashes in names do not end Graphviz's strings."""
    topology = pair(names=('say "hi"', "back\\slash"))
    text = draw_dot(topology)
    assert 'n0 [label="say \\"hi\\""];' in text
    assert 'n1 [label="back\\\\slash"];' in text


def test_dot_has_no_limit():
    """Graphviz takes topologies that are too large for a picture."""
    assert draw_dot(build_preset("ring:gpus=1000")).count("->") == 1000


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", "<svg "), ("a.SVG", "<svg "), ("a.dot", "digraph ")]
)
def test_file_name_chooses_the_format(tmp_path, name, start):
    """The ending of the file name says what is written."""
    save_drawing(build_preset("ring"), tmp_path / name)
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("name", ["a.png", "a", "a.svg.gz", "svg", "a.svg\n"])
def test_other_endings_are_refused(tmp_path, name):
    """Another ending is refused in one line, and no file is written."""
    with pytest.raises(TopologyError, match=r"^drawing [^\n]*\.svg[^\n]*\.dot[^\n]*$"):
        save_drawing(build_preset("ring"), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_file_is_refused(tmp_path):
    """A path that cannot be written ends in one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TopologyError, match=r"^file [^\n]*cannot be written"):
        save_drawing(build_preset("ring"), tmp_path / "file" / "a.svg")


def test_drawing_ignores_the_order_of_links():
    """The colours and the legend do not depend on which link comes first."""
    topology = build_preset("ndv2:chassis=2")
    turned = replace(topology, links=topology.links[::-1])
    assert texts(draw_svg(turned)) == texts(draw_svg(topology))


def test_drawings_in_the_docs_are_current(tmp_path):
    """The drawings in the docs are what their script makes now, to the byte."""
    runpy.run_path(str(DOCS / "make_presets.py"))["main"](tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made.keys() == {f"{name}.svg" for name in PRESETS}
    folder = DOCS / "img" / "presets"
    assert made == {path.name: path.read_bytes() for path in folder.iterdir()}
