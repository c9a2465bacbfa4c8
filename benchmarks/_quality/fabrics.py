"""Topologies to draw: presets with random parameters, random graphs and staged fabrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from _quality import presets
from _quality.chance import Chance

MIN_GPUS, MAX_GPUS = 4, 128

Links = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A topology as `teccl` takes it, with what the drawing of faults must know about it.

    Parameters
    ----------
    topology
        A preset with parameters, or the document of a topology file.
    preset
        What is known of the preset, None for a document.
    gpus
        Names of the GPUs by rank.
    cables
        Pairs ``A:B`` of nodes with a link, as far as they are known.
    """

    topology: str | dict[str, Any]
    preset: presets.Preset | None
    gpus: tuple[str, ...]
    cables: tuple[str, ...]

    def spare_cables(self) -> list[str]:
        """Cables of which any one may break without cutting off a GPU."""
        if self.preset is not None:
            return list(self.cables) if self.preset.spare_cables else []
        everyone = set(self.gpus)
        return [each for each in self.cables if self._connects(set(each.split(":")), everyone)]

    def spare_gpus(self) -> list[int]:
        """Ranks of which any one may break without cutting off another."""
        if self.preset is not None:
            return list(self.preset.spare_gpus)
        everyone = set(self.gpus)
        return [
            rank for rank, name in enumerate(self.gpus) if self._connects({name}, everyone - {name})
        ]

    def _connects(self, lost: set[str], wanted: set[str]) -> bool:
        """Whether all is within reach without the links of a node, or between two of them."""
        assert isinstance(self.topology, dict)
        arcs = _arcs(self.topology["links"])
        return connects([arc for arc in arcs if not lost <= set(arc)], wanted)


def draw_fabric(chance: Chance, family: str, *, switches: bool = False) -> Fabric:
    """Draw a fabric of a family; `switches` asks for one that has some."""
    if family in GRAPHS:
        document = GRAPHS[family](chance)
        gpus = [node["name"] for node in document["nodes"] if node.get("kind") != "switch"]
        cables = dict.fromkeys(":".join(sorted(arc)) for arc in _arcs(document["links"]))
        return Fabric(topology=document, preset=None, gpus=tuple(gpus), cables=tuple(cables))
    names = [name for name in presets.FAMILIES[family] if not switches or presets.switched(name)]
    preset = presets.draw_preset(chance, chance.choice(names), MIN_GPUS, MAX_GPUS)
    return Fabric(topology=preset.spec, preset=preset, gpus=preset.gpus, cables=preset.cables)


def _arcs(links: Links) -> list[tuple[str, str]]:
    arcs = []
    for link in links:
        arcs.append((link["src"], link["dst"]))
        if link.get("bidirectional"):
            arcs.append((link["dst"], link["src"]))
    return arcs


def connects(arcs: Iterable[tuple[str, str]], wanted: set[str]) -> bool:
    """Whether each of the wanted nodes reaches every other."""
    pairs = list(arcs)
    start = min(wanted)
    return all(
        wanted <= _reached(start, ends) for ends in (pairs, [(dst, src) for src, dst in pairs])
    )


def _reached(start: str, arcs: Iterable[tuple[str, str]]) -> set[str]:
    following: dict[str, list[str]] = {}
    for src, dst in arcs:
        following.setdefault(src, []).append(dst)
    seen, todo = {start}, [start]
    while todo:
        for node in following.get(todo.pop(), ()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen


def _wire(chance: Chance) -> dict[str, str]:
    """Draw a kind of link: its rate and latency."""
    alpha = 0 if chance.coin(0.1) else chance.digits(0.1, 5, 2)
    return {"bandwidth": f"{chance.digits(5, 500, 2):g}GB/s", "alpha": f"{alpha:g}us"}


def _cable(src: str, dst: str, wire: Mapping[str, str], *, both: bool = True) -> dict[str, Any]:
    return {"src": src, "dst": dst, **wire, **({"bidirectional": True} if both else {})}


def _document(gpus: list[str], switches: Iterable[dict[str, Any]], links: Links) -> dict[str, Any]:
    nodes = [{"name": name} for name in gpus] + [{"kind": "switch", **node} for node in switches]
    return {"schema_version": 1, "nodes": nodes, "links": links}


def _gpus(count: int) -> list[str]:
    return [f"gpu{i}" for i in range(count)]


def _mesh_of(chance: Chance, nodes: list[str], degree: int, wires: list[dict[str, str]]) -> Links:
    """Join nodes by a random tree and more cables up to a mean degree, some of them one-way."""
    order = chance.sample(nodes, len(nodes))
    pairs = {(chance.choice(order[:i]), order[i]): True for i in range(1, len(order))}
    for _ in range(max(0, len(nodes) * degree // 2 - len(pairs))):
        src, dst = chance.sample(nodes, 2)
        if (src, dst) not in pairs and (dst, src) not in pairs:
            pairs[src, dst] = not chance.coin(1 / 8)
    return [_cable(*pair, chance.choice(wires), both=both) for pair, both in pairs.items()]


def _direct(chance: Chance) -> dict[str, Any]:
    """GPUs joined at random, each cable of one of up to three kinds."""
    gpus = _gpus(chance.spread_whole(MIN_GPUS, MAX_GPUS))
    wires = [_wire(chance) for _ in range(chance.whole(1, 3))]
    return _document(gpus, (), _mesh_of(chance, gpus, chance.whole(2, 6), wires))


def _switched(chance: Chance) -> dict[str, Any]:
    """GPUs on one or two switches each, the switches joined at random; some can reduce."""
    gpus = _gpus(chance.spread_whole(MIN_GPUS, MAX_GPUS))
    switches = [f"switch{i}" for i in range(chance.spread_whole(1, max(1, len(gpus) // 4)))]
    links = []
    if len(switches) > 1:
        wires = [_wire(chance) for _ in range(2)]
        links = _mesh_of(chance, switches, chance.whole(2, 4), wires)
    wires = [_wire(chance) for _ in range(chance.whole(1, 2))]
    ports = min(len(switches), chance.whole(1, 2))
    for gpu in gpus:
        for switch in chance.sample(switches, ports):
            links.append(_cable(gpu, switch, chance.choice(wires)))
    reduces = {"reduce": True} if chance.coin(1 / 8) else {}
    return _document(gpus, [{"name": name, **reduces} for name in switches], links)


def _mixed(chance: Chance) -> dict[str, Any]:
    """Boxes of GPUs joined directly, and a switch for all; a box may share its network card."""
    total = chance.spread_whole(MIN_GPUS, MAX_GPUS)
    box = chance.whole(2, min(8, total))
    gpus = _gpus(total)
    inner, outer = [_wire(chance) for _ in range(chance.whole(1, 2))], _wire(chance)
    links: Links = []
    shared: dict[str, str] = {}
    shares = chance.coin(1 / 3)
    for b in range(0, total, box):
        inside = gpus[b : b + box]
        if len(inside) > 1:
            links += _mesh_of(chance, inside, chance.whole(2, 4), inner)
        ports = chance.sample(inside, chance.whole(1, len(inside)))
        for gpu in ports:
            nics = {"out": f"nic{b}/out", "in": f"nic{b}/in"}
            for src, dst, nic in ((gpu, "switch", nics["out"]), ("switch", gpu, nics["in"])):
                links.append(_cable(src, dst, outer, both=False))
                if shares:
                    links[-1]["shares"] = [nic]
                    shared[nic] = outer["bandwidth"]
    document = _document(gpus, [{"name": "switch"}], links)
    return {**document, "shared": shared} if shared else document


def _rate(wire: Mapping[str, str]) -> float:
    return float(wire["bandwidth"].removesuffix("GB/s"))


def _uplink(chance: Chance, below: float, links: int, over: int) -> dict[str, str]:
    """Draw the wire of each of so many uplinks that carry what comes from below, or a part."""
    alpha = chance.digits(0.1, 2, 2)
    rate = float(f"{below / links / over:.3g}")
    return {"bandwidth": f"{rate:g}GB/s", "alpha": f"{alpha:g}us"}


def _two_stage(chance: Chance) -> dict[str, Any]:
    """Leaves and spines, oversubscribed one, two or four times."""
    leaves = chance.spread_whole(2, 16)
    below = chance.spread_whole(2, min(16, MAX_GPUS // leaves))
    spines = chance.whole(1, 4)
    gpus, wire = _gpus(leaves * below), _wire(chance)
    up = _uplink(chance, below * _rate(wire), spines, chance.choice((1, 2, 4)))
    links = [_cable(gpu, f"leaf{i // below}", wire) for i, gpu in enumerate(gpus)]
    links += [_cable(f"leaf{a}", f"spine{b}", up) for a in range(leaves) for b in range(spines)]
    names = [f"leaf{i}" for i in range(leaves)] + [f"spine{i}" for i in range(spines)]
    return _document(gpus, [{"name": name} for name in names], links)


def _three_stage(chance: Chance) -> dict[str, Any]:
    """Pods of edge and aggregation switches under cores, each stage oversubscribed or not."""
    pods, edges = chance.whole(2, 4), chance.whole(1, 4)
    below = chance.spread_whole(1 if edges > 1 else 2, min(16, MAX_GPUS // (pods * edges)))
    middles, cores = chance.whole(1, 2), chance.whole(1, 4)
    gpus, wire = _gpus(pods * edges * below), _wire(chance)
    over = chance.choice(((1, 1), (2, 1), (1, 2), (2, 2), (4, 1)))
    up = _uplink(chance, below * _rate(wire), middles, over[0])
    top = _uplink(chance, edges * _rate(up), cores, over[1])
    links = [_cable(gpu, f"edge{i // below}", wire) for i, gpu in enumerate(gpus)]
    for p in range(pods):
        for m in range(middles):
            middle = f"pod{p}/aggregation{m}"
            links += [_cable(f"edge{p * edges + e}", middle, up) for e in range(edges)]
            links += [_cable(middle, f"core{c}", top) for c in range(cores)]
    names = [f"edge{i}" for i in range(pods * edges)]
    names += [f"pod{p}/aggregation{m}" for p in range(pods) for m in range(middles)]
    names += [f"core{c}" for c in range(cores)]
    return _document(gpus, [{"name": name} for name in names], links)


GRAPHS: dict[str, Callable[[Chance], dict[str, Any]]] = {
    "direct": _direct,
    "switched": _switched,
    "mixed": _mixed,
    "two-stage": _two_stage,
    "three-stage": _three_stage,
}
