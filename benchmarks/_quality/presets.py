"""Presets to draw: their parameters, and which of their links and GPUs may break.

What is known here of a preset is its name, its parameters and the names of its nodes, so that what
is drawn does not depend on the code that is measured.
"""

from dataclasses import dataclass
from math import prod

from _quality.chance import Chance

# GPUs of one chassis.
MACHINES = {
    "dgx1": 8,
    "ndv2": 8,
    "dgx2": 16,
    "internal1": 4,
    "internal2": 2,
    "dgx-a100": 8,
    "dgx-h100": 8,
    "dgx-h200": 8,
    "gb200-nvl72": 72,
    "mi250": 16,
    "mi300x": 8,
}
NETWORKS = (
    "ring",
    "line",
    "fully-connected",
    "star",
    "random",
    "mesh",
    "torus",
    "hypercube",
    "fat-tree",
    "dragonfly",
)
FAMILIES = {"machine": tuple(MACHINES), "network": NETWORKS}
_WITHOUT_SWITCHES = (
    *("dgx1", "ndv2", "mi250", "mi300x"),  # the last three have some from two chassis on
    *("ring", "line", "fully-connected", "random", "mesh", "torus", "hypercube"),
)
_REDUCING = ("dgx-a100", "dgx-h100", "dgx-h200", "gb200-nvl72")
_UPLINKED = ("dgx-a100", "dgx-h100", "dgx-h200", "mi300x")


def switched(name: str) -> bool:
    """Whether a preset has switches whatever its parameters are."""
    return name not in _WITHOUT_SWITCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A preset with parameters.

    Parameters
    ----------
    spec
        As `teccl` takes it.
    gpus, cables
        As in a `Fabric`.
    spare_cables, spare_gpus
        Whether any one of the cables, and which GPUs, may break without cutting off another GPU.
    """

    name: str
    spec: str
    gpus: tuple[str, ...]
    cables: tuple[str, ...]
    spare_cables: bool
    spare_gpus: tuple[int, ...]


def draw_preset(chance: Chance, name: str, low: int, high: int) -> Preset:
    """Draw the parameters of a preset so that it has from `low` to `high` GPUs."""
    draw = _draw_machine if name in MACHINES else _draw_network
    return draw(chance, name, low, high)


def _spec(name: str, parameters: dict[str, object]) -> str:
    given = ",".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}:{given}" if given else name


def _alpha(chance: Chance) -> dict[str, object]:
    """Draw the latency of all links: the preset's own, none or any."""
    kind = chance.choice(("own", "own", "zero", "any"))
    if kind == "own":
        return {}
    return {"alpha": "0" if kind == "zero" else f"{chance.digits(0.1, 5, 2):g}us"}


def _bandwidth(chance: Chance) -> dict[str, object]:
    return {"bandwidth": f"{chance.digits(5, 500, 2):g}GB/s"} if chance.coin(0.5) else {}


def _draw_machine(chance: Chance, name: str, low: int, high: int) -> Preset:
    size = MACHINES[name]
    parameters: dict[str, object] = {}
    chassis = 1
    if name != "dgx1":
        chassis = chance.spread_whole(-(-low // size), max(1, high // size))
        parameters["chassis"] = chassis
    if name in _REDUCING:
        parameters["nvls"] = chance.choice(("false", "true"))
    if name == "internal1":
        parameters |= _bandwidth(chance)
    parameters |= _alpha(chance)
    prefix = "" if name == "dgx1" else "c{}/"
    gpus = tuple(f"{prefix.format(c)}gpu{i}" for c in range(chassis) for i in range(size))
    uplinked = chassis > 1 and name in _UPLINKED
    # GPUs 0 and 1 of an NDv2 are its only ways out; all else can do without any one GPU.
    gateways = (0, 1) if name == "ndv2" and chassis > 1 else ()
    return Preset(
        name=name,
        spec=_spec(name, parameters),
        gpus=gpus,
        cables=tuple(_machine_cable(name, gpu, uplinked=uplinked) for gpu in gpus),
        spare_cables=uplinked or name in ("dgx1", "ndv2", "internal1", "internal2", "mi250"),
        spare_gpus=tuple(rank for rank in range(len(gpus)) if rank % size not in gateways),
    )


def _machine_cable(name: str, gpu: str, *, uplinked: bool) -> str:
    """One cable of a GPU: to a neighbour, its switch or its leaf."""
    box, _, place = gpu.rpartition("gpu")
    index = int(place)
    if name in ("dgx1", "ndv2"):
        return f"{gpu}:{box}gpu{(0, 4)[index >= 4] + (1, 3, 3, 2)[index % 4]}"
    if name == "mi250":
        return f"{gpu}:{box}gpu{index ^ 1}"
    if name in ("internal1", "internal2"):
        return f"{gpu}:switch"
    if uplinked:
        return f"{gpu}:leaf{index}"
    return f"{gpu}:{box}gpu{(index + 1) % 8}" if name == "mi300x" else f"{gpu}:{box}nvswitch"


def _dims(chance: Chance, high: int) -> tuple[int, ...]:
    """Draw two or three dimensions."""
    first = chance.spread_whole(2, high // 4)
    second = chance.spread_whole(2, min(16, high // first))
    third = high // (first * second)
    if third >= 2 and chance.coin(0.4):
        return first, second, chance.spread_whole(2, min(8, third))
    return first, second


def _draw_network(chance: Chance, name: str, low: int, high: int) -> Preset:
    parameters, count = _network_size(chance, name, low, high)
    cable = {
        "star": lambda i: f"gpu{i}:switch",
        "hypercube": lambda i: f"gpu{i}:gpu{i ^ 1}",
        "ring": lambda i: f"gpu{i}:gpu{(i + 1) % count}",
        "fully-connected": lambda i: f"gpu{i}:gpu{(i + 1) % count}",
        "line": lambda i: f"gpu{i}:gpu{i + 1 if i + 1 < count else i - 1}",
    }.get(name, lambda _: "")
    if name in ("mesh", "torus"):
        last = int(str(parameters["dims"]).rpartition("x")[2])
        cable = lambda i: f"gpu{i}:gpu{i + 1 if (i + 1) % last else i - 1}"  # noqa: E731
    gpus = tuple(f"gpu{i}" for i in range(count))
    return Preset(
        name=name,
        spec=_spec(name, {**parameters, **_bandwidth(chance), **_alpha(chance)}),
        gpus=gpus,
        cables=tuple(filter(None, map(cable, range(count)))),
        spare_cables=name not in ("line", "star"),
        spare_gpus=(0, count - 1) if name == "line" else tuple(range(count)),
    )


def _network_size(chance: Chance, name: str, low: int, high: int) -> tuple[dict[str, object], int]:
    """Draw what gives a generic network its size."""
    if name in ("mesh", "torus"):
        dims = _dims(chance, high)
        return {"dims": "x".join(map(str, dims))}, prod(dims)
    if name == "hypercube":
        dimension = chance.whole(2, 7)
        return {"dimension": dimension}, 2**dimension
    if name == "fat-tree":
        ports = chance.choice((4, 6, 8))
        return {"k": ports}, ports**3 // 4
    if name == "dragonfly":
        groups, routers = chance.whole(2, 6), chance.whole(2, 4)
        hosts = chance.whole(1, min(5, high // (groups * routers)))
        return {"groups": groups, "routers": routers, "gpus": hosts}, groups * routers * hosts
    count = chance.spread_whole(low, high)
    if name != "random":
        return {"gpus": count}, count
    degree = chance.whole(2, min(6, count - 1))
    count += count * degree % 2  # two ends a cable; `high` is even
    return {"gpus": count, "degree": degree, "seed": chance.whole(0, 999)}, count
