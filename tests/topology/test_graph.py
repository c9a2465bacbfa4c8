"""Topology, Node and Link: finding, changing and checking."""

import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

from teccl.errors import TopologyError
from teccl.topology import Link, Node, NodeKind, Topology

RATE = Fraction(10**9)


def build(names: str | list[str], *ends: tuple[int, int], **link: object) -> Topology:
    """GPUs with the given names and equal links between the given indices."""
    return Topology(
        name="test",
        nodes=tuple(Node(name=name) for name in names),
        links=tuple(Link(src=a, dst=b, bandwidth=RATE, **link) for a, b in ends),
    )


@pytest.fixture(scope="module")
def square() -> Topology:
    """Four GPUs in a ring; links 0 to 7 are ab, ba, bc, cb, cd, dc, da, ad."""
    return build("abcd", (0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3))


@pytest.fixture(scope="module")
def star() -> Topology:
    """A switch listed first, then three GPUs."""
    nodes = (Node(name="hub", kind=NodeKind.SWITCH), *(Node(name=name) for name in "abc"))
    ends = [(i, 0) for i in (1, 2, 3)] + [(0, i) for i in (1, 2, 3)]
    links = tuple(Link(src=a, dst=b, bandwidth=RATE) for a, b in ends)
    return Topology(name="star", nodes=nodes, links=links)


def test_repr_is_short(star):
    """A topology prints its name and counts."""
    assert repr(star) == "Topology('star', 3 gpus, 1 switches, 6 links)"


def test_ranks_skip_switches(star):
    """Rank numbers count GPUs only, in the order of the nodes."""
    assert star.gpus.tolist() == [1, 2, 3]
    assert [star.find_node(rank) for rank in (0, 1, 2)] == [1, 2, 3]


def test_arrays_are_read_only(square):
    """The arrays of a topology cannot be changed."""
    with pytest.raises(ValueError, match="read-only"):
        square.link_src[0] = 3


def test_topology_is_frozen(square):
    """The fields of a topology cannot be replaced in place."""
    with pytest.raises(FrozenInstanceError):
        square.name = "other"


def test_link_arrays_follow_the_links(square):
    """`link_src` and `link_dst` list the ends of the links in order."""
    assert list(zip(square.link_src, square.link_dst, strict=True)) == [
        (link.src, link.dst) for link in square.links
    ]


def test_alpha_in_picoseconds_rounds_up():
    """A latency of a third of a picosecond counts as one."""
    topology = build("ab", (0, 1), alpha=Fraction(1, 3 * 10**12))
    assert topology.alpha_ps.tolist() == [1]


def test_topologies_pickle(square):
    """A topology survives pickling, as process pools need it."""
    copy = pickle.loads(pickle.dumps(square))
    assert copy == square
    assert np.array_equal(copy.link_src, square.link_src)


def test_equal_topologies_have_equal_hashes():
    """The order in which shared capacities are listed does not matter."""
    nodes = (Node(name="a"), Node(name="b"))
    capacities = {"x": RATE, "y": RATE * 2}
    first = Topology(name="t", nodes=nodes, links=(), shared=capacities)
    second = Topology(name="t", nodes=nodes, links=(), shared=dict(reversed(capacities.items())))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a:b", (0, 1)),
        ("b:a", (0, 1)),
        ("a>b", (0,)),
        ("b>a", (1,)),
        ("a:*", (0, 1, 6, 7)),
        ("a>*", (0, 7)),
        ("0:1", (0, 1)),
        ("0>1", (0,)),
        ("a:1", (0, 1)),
        ("3:*", (4, 5, 6, 7)),
        (" 0 : 1 ", (0, 1)),
    ],
)
def test_links_are_found(square, spec, expected):
    """A:B is both directions, A>B one, A:* all links of a node; ranks serve as names."""
    assert square.find_links(spec) == expected


def test_rank_numbers_in_links_skip_switches(star):
    """A number is a rank, not the index of a node."""
    assert star.find_links("0>hub") == (0,)


def test_parallel_links_are_found_together():
    """A:B names all links between two nodes."""
    assert build("ab", (0, 1), (0, 1), (1, 0)).find_links("a:b") == (0, 1, 2)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("x:y:z", (0, 1)),
        ("z:x:y", (0, 1)),
        ("x:y>z", (0,)),
        ("z>x:y", (1,)),
        ("x:y:*", (0, 1, 2)),
        ("x:y:p>q", (2,)),
        ("x:y>p>q", (2,)),
        ("p>q:*", (2,)),
    ],
)
def test_names_may_hold_separators(spec, expected):
    """Names with ':' and '>' inside are found where one reading fits."""
    topology = build(["x:y", "z", "p>q"], (0, 1), (1, 0), (0, 2))
    assert topology.find_links(spec) == expected


@pytest.mark.parametrize(
    ("spec", "fragments"),
    [
        ("a", ["'a'", "A:B"]),
        ("", ["''", "A:B"]),
        ("a:c", ["'a:c'", "no link"]),
        ("a>c", ["'a>c'", "no link"]),
        ("a:x", ["no node 'x'"]),
        ("x>a", ["no node 'x'"]),
        (":", ["no node ''"]),
        ("a:9", ["rank 9", "0 to 3"]),
        ("a:" + "9" * 5000, ["rank 99", "0 to 3"]),
        ("a:\n", ["no node ''"]),
    ],
)
def test_unknown_links_are_refused(square, spec, fragments):
    """A link that does not exist is refused in one line with the reason."""
    with pytest.raises(TopologyError) as caught:
        square.find_links(spec)
    assert "\n" not in str(caught.value)
    assert [text for text in fragments if text not in str(caught.value)] == []


def test_unknown_node_suggests_the_nearest():
    """A misspelt name is answered with the nearest one."""
    with pytest.raises(TopologyError, match="did you mean 'c0/gpu1'"):
        Topology.parse("ndv2").find_node("c0/gup1")


def test_without_links_removes_what_is_named(square):
    """Named links go, the others and all nodes stay."""
    left = square.without_links(["a:b", "c>d"])
    assert left.nodes == square.nodes
    assert left.links == tuple(square.links[i] for i in (2, 3, 5, 6, 7))


def test_without_links_may_remove_a_link_twice(square):
    """Two specifications that name the same link do not disturb each other."""
    assert square.without_links(["a:b", "a>b", "b:*"]).num_links == 4


def test_without_links_refuses_unknown_links(square):
    """Removing what is not there is an error, not a silent success."""
    with pytest.raises(TopologyError, match="no link"):
        square.without_links(["a:b", "a:c"])


def test_degraded_scales_the_named_links(square):
    """Only the named direction slows down."""
    slow = square.degraded({"a>b": Fraction(1, 2)})
    assert [link.bandwidth / RATE for link in slow.links] == [Fraction(1, 2), *[1] * 7]


def test_degradations_of_one_link_multiply(square):
    """A link named by two specifications is slowed by both."""
    slow = square.degraded({"a>b": Fraction(1, 2), "a:*": Fraction(1, 5)})
    assert slow.links[0].bandwidth == RATE / 10
    assert slow.links[1].bandwidth == RATE / 5


def test_degraded_scales_the_profile():
    """A profile slows down with its link."""
    start = Fraction(1, 10**6)
    topology = build("ab", (0, 1), profile=((start, RATE * 3),))
    assert topology.degraded({"a:b": Fraction(1, 3)}).links[0].profile == ((start, RATE),)


def test_degraded_scales_the_rate_a_shared_capacity_leaves():
    """Half of a link that a shared capacity already slows is half of what it had."""
    link = Link(src=0, dst=1, bandwidth=RATE * 4, shares=("nic",))
    topology = replace(build("ab"), links=(link,), shared={"nic": RATE})
    slow = topology.degraded({"a:b": Fraction(1, 2)})
    assert slow.rate(slow.links[0]) == RATE / 2


@pytest.mark.parametrize("factor", [Fraction(0), Fraction(-1, 2)])
def test_degraded_refuses_factors_that_are_not_positive(square, factor):
    """A link that is down is not a slow link."""
    with pytest.raises(TopologyError, match=r"a:b[^\n]*not positive[^\n]*--without-link"):
        square.degraded({"a:b": factor})


def test_transposed_turns_every_link(square):
    """All links point the other way and keep their place and figures."""
    turned = square.transposed()
    assert [(x.src, x.dst) for x in turned.links] == [(x.dst, x.src) for x in square.links]
    assert turned.transposed() == square


def test_shared_capacity_limits_the_rate():
    """A transfer gets the slower of the link and its shared capacities."""
    links = (
        Link(src=0, dst=1, bandwidth=RATE * 4, shares=("nic", "bus")),
        Link(src=1, dst=0, bandwidth=RATE, shares=("bus",)),
    )
    shared = {"nic": RATE * 2, "bus": RATE * 3}
    topology = replace(build("ab"), links=links, shared=shared)
    assert topology.rates == (RATE * 2, RATE)


def test_rate_steps_begin_at_zero():
    """A profile that starts later is preceded by the link's bandwidth."""
    topology = build("ab", (0, 1), profile=((Fraction(1), RATE * 3), (Fraction(2), RATE * 5)))
    steps = ((0, RATE), (1, RATE * 3), (2, RATE * 5))
    assert topology.rate_steps(topology.links[0]) == steps


def test_rate_steps_take_a_profile_from_zero_on():
    """A profile that starts at zero replaces the link's bandwidth."""
    topology = build("ab", (0, 1), profile=((Fraction(0), RATE * 3),))
    assert topology.rate_steps(topology.links[0]) == ((0, RATE * 3),)


def test_link_name_reads_as_an_arrow(star):
    """Messages print links by the names of their ends."""
    assert star.link_name(0) == "a > hub"


def test_parse_returns_a_topology_as_it_is(square):
    """A topology parses to itself."""
    assert Topology.parse(square) is square


@pytest.mark.parametrize("name", ["", " ", "7", "a\nb", "a\tb", "x" * 201, "\x00", 5, None])
def test_bad_names_are_refused(name):
    """Names are short printable text that no rank number can be mistaken for."""
    with pytest.raises(TopologyError, match=r"^node [^\n]+$"):
        Node(name=name)


def test_bad_group_is_refused():
    """The group follows the rules for names."""
    with pytest.raises(TopologyError, match="group of node a"):
        Node(name="a", group="")


def test_reducing_gpu_is_refused():
    """Only switches can be told to reduce."""
    with pytest.raises(TopologyError, match="node a is a gpu with reduce"):
        Node(name="a", reduce=True)


def test_topology_without_nodes_is_refused():
    """There is at least one GPU."""
    with pytest.raises(TopologyError, match="no nodes"):
        Topology(name="t", nodes=(), links=())


def test_topology_of_switches_is_refused():
    """Switches alone have nothing to send."""
    with pytest.raises(TopologyError, match="switches only"):
        Topology(name="t", nodes=(Node(name="s", kind=NodeKind.SWITCH),), links=())


def test_duplicate_names_are_refused():
    """Two nodes cannot have one name."""
    with pytest.raises(TopologyError, match="'a' appears twice"):
        build("aba")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"src": 0, "dst": 2}, "link 0 names node 2"),
        ({"src": -1, "dst": 0}, "link 0 names node -1"),
        ({"src": 1, "dst": 1}, "link b > b leads to its own node"),
        ({"bandwidth": Fraction(0)}, "link a > b has bandwidth 0"),
        ({"bandwidth": Fraction(-1)}, "link a > b has bandwidth -1"),
        ({"bandwidth": float("inf")}, "link a > b has bandwidth inf"),
        ({"alpha": Fraction(-1)}, "link a > b has alpha -1"),
        ({"alpha": float("nan")}, "link a > b has alpha nan"),
        ({"alpha": Fraction(10**9)}, "link a > b has alpha 1000000000"),
        ({"profile": ((Fraction(0), Fraction(0)),)}, "profile of link a > b has bandwidth 0"),
        ({"profile": ((Fraction(-1), RATE),)}, "profile of link a > b has a negative start"),
        ({"profile": ((Fraction(2), RATE), (Fraction(1), RATE))}, "not in increasing order"),
        ({"profile": ((Fraction(1), RATE), (Fraction(1), RATE))}, "not in increasing order"),
        (
            {"shares": ("nick",)},
            "shares 'nick', which `shared` does not define; did you mean 'nic'",
        ),
        ({"shares": ("nic", "nic")}, "names a shared capacity twice"),
    ],
)
def test_bad_links_are_refused(link, message):
    """A wrong link is refused in one line that names it."""
    figures = {"src": 0, "dst": 1, "bandwidth": RATE, **link}
    with pytest.raises(TopologyError) as caught:
        replace(build("ab"), links=(Link(**figures),), shared={"nic": RATE})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bandwidth", [Fraction(0), Fraction(-1), 1.5])
def test_bad_shared_capacity_is_refused(bandwidth):
    """A shared capacity has a positive bandwidth."""
    with pytest.raises(TopologyError, match="shared capacity nic has bandwidth"):
        replace(build("ab"), shared={"nic": bandwidth})
