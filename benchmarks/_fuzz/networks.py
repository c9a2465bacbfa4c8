"""Networks to draw: a few GPUs and switches, odd rates, capacities, changes and overheads."""

from typing import Any

from _quality.chance import Chance

RATES = (
    *("10GB/s", "25GB/s", "50GB/s", "100Gb/s", "7GB/s", "3.3GB/s", "1/3GB/s", "46GB/s"),
    *("3.7Gb/s", "0.9GiB/s", "999MB/s"),
)
LATENCIES = ("0", "0.7us", "1us", "1.3us", "1/3us", "5us", "50ns")
OVERHEADS = ("1us", "0.3us", "1/7us", "10ns")
STARTS_US = (0, 0.5, 1, 3, 10, 100)


def draw_network(chance: Chance) -> dict[str, Any]:
    """Draw what a topology file holds; most networks are connected both ways."""
    gpus = [f"gpu{i}" for i in range(chance.whole(2, 6))]
    switches = [f"sw{i}" for i in range(chance.choice((0, 0, 1, 1, 2, 3)))]
    nodes: list[dict[str, Any]] = [{"name": name} for name in gpus]
    for name in switches:
        node: dict[str, Any] = {"name": name, "kind": "switch"}
        if chance.coin(0.15):
            node["reduce"] = True
        nodes.insert(chance.whole(0, len(nodes)), node)
    links = _draw_links(chance, gpus, switches)
    document: dict[str, Any] = {"name": "drawn", "nodes": nodes, "links": links}
    if chance.coin(0.25):
        _share(chance, document)
    if chance.coin(0.15):
        _change_rates(chance, links)
    if chance.coin(0.15):
        _add_overheads(chance, links)
    return document


def _draw_links(chance: Chance, gpus: list[str], switches: list[str]) -> list[dict[str, Any]]:
    """Join all nodes by a tree or a ring, then add links one way or both."""
    order = chance.sample([*gpus, *switches], len(gpus) + len(switches))
    same = _draw_kind(chance) if chance.coin(0.5) else None
    if switches and chance.coin(0.4):
        order = [*switches, *gpus]
        pairs = [(switches[i], switches[i + 1]) for i in range(len(switches) - 1)]
        pairs += [(gpu, chance.choice(switches)) for gpu in gpus]
    elif chance.coin(0.5):
        pairs = list(zip(order, [*order[1:], order[0]], strict=True))
    else:
        pairs = [(node, chance.choice(order[:i])) for i, node in enumerate(order) if i]
    one_way = chance.coin(0.15)
    links = [_link(a, b, same or _draw_kind(chance), both=not one_way) for a, b in pairs]
    for _ in range(chance.whole(0, len(order))):
        a, b = chance.sample(order, 2)
        links.append(_link(a, b, same or _draw_kind(chance), both=chance.coin(0.5)))
    return links


def _draw_kind(chance: Chance) -> tuple[str, str]:
    return chance.choice(RATES), chance.choice(LATENCIES)


def _link(src: str, dst: str, kind: tuple[str, str], *, both: bool) -> dict[str, Any]:
    link: dict[str, Any] = {"src": src, "dst": dst, "bandwidth": kind[0], "alpha": kind[1]}
    return {**link, "bidirectional": True} if both else link


def _share(chance: Chance, document: dict[str, Any]) -> None:
    """Let some links share one or two capacities."""
    links = document["links"]
    document["shared"] = {}
    for name in ("card", "bus")[: chance.whole(1, 2)]:
        document["shared"][name] = chance.choice(RATES)
        for link in chance.sample(links, chance.whole(1, min(4, len(links)))):
            link.setdefault("shares", []).append(name)


def _add_overheads(chance: Chance, links: list[dict[str, Any]]) -> None:
    """Let transfers cost something beside their bytes, on all links alike or on some."""
    overhead = chance.choice(OVERHEADS)
    chosen = links if chance.coin(0.5) else chance.sample(links, chance.whole(1, len(links)))
    for link in chosen:
        link["overhead"] = overhead


def _change_rates(chance: Chance, links: list[dict[str, Any]]) -> None:
    """Let some links change their rate while time passes."""
    for link in chance.sample(links, chance.whole(1, min(3, len(links)))):
        starts = sorted({chance.choice(STARTS_US) for _ in range(chance.whole(1, 2))})
        link["profile"] = [[f"{start:g}us", chance.choice(RATES)] for start in starts]
