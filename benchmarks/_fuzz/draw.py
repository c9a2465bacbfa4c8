"""Draws a case by seed: a network, a demand and the options of `solve`."""

from typing import Any

from _quality.chance import Chance

from _fuzz.demands import draw_demand
from _fuzz.networks import draw_network

Case = dict[str, Any]

# Every case has a time limit, so that whatever runs much longer is a fault.
TIME_LIMIT_S = 5
# Most often what users ask for: auto, then the models, then baselines, which refuse a lot.
METHODS = (
    *("auto",) * 8,
    *("construct", "milp", "lp", "astar") * 2,
    *("ring", "recursive-doubling", "binomial-tree", "double-binary-tree", "shortest-path"),
)
# Values of each option beside its default, and how often it has one.
_OPTIONS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "chunks": (0.5, (1, 2, 3, 4, "auto")),
    "max_chunks": (0.1, (1, 2, 8)),
    "effort": (0.4, ("quick", "quick", "thorough")),
    "gap": (0.1, ("1%", "20%")),
    "chunk_tolerance": (0.1, ("0", "5%", "50%")),
    "grid": (0.1, (True,)),
    "epoch": (0.1, ("fastest", "slowest", "1us", "50ns")),
    "epoch_multiplier": (0.07, (2, "1/2", 3)),
    "horizon": (0.07, (1, 4, 12, "auto")),
    "switch": (0.25, ("no-copy", "hyper-edge")),
    "transit": (0.2, ("cut-through",)),
    "buffer": (0.2, ("none", 1, 2, 5)),
    "copy": (0.12, (False,)),
    "objective": (0.05, ("paper",)),
    "warm_start": (0.1, (False,)),
    "solver": (0.15, ("cpsat", "highs")),
    "seed": (0.2, (1, 2)),
    "any_order": (0.1, (True,)),
    "overhead": (0.05, ("1us", "1/7us", "10ns")),
    # Changes of the first link, in one direction or both, and of all links of a node.
    "without_links": (0.04, ("{src}:{dst}", "{src}>{dst}", "{src}:*")),
    "degrade": (0.07, ("{src}:{dst}=50%", "{src}>{dst}=1/3", "{src}:*=7%")),
    "threads": (0.1, (1, 2)),
    # A schedule that a short search with the same options made.
    "from_schedule": (0.1, (True,)),
}
_CHANGES = ("without_links", "degrade")


def draw_case(seed: int, index: int) -> Case:
    """Draw one case; it depends on nothing but these two."""
    chance = Chance("fuzz", seed, index)
    network = draw_network(chance)
    num_gpus = sum(node.get("kind") != "switch" for node in network["nodes"])
    keywords: dict[str, Any] = {"time_limit": TIME_LIMIT_S, "method": chance.choice(METHODS)}
    for name, (probability, values) in _OPTIONS.items():
        value, is_given = chance.choice(values), chance.coin(probability)
        if is_given:
            keywords[name] = value.format(**network["links"][0]) if name in _CHANGES else value
    # A number of chunks and the most of them exclude each other, which one case in many may show.
    if isinstance(keywords.get("chunks"), int) and chance.coin(0.9):
        keywords.pop("max_chunks", None)
    return {
        "key": f"{seed}-{index}",
        "topology": network,
        "demand": draw_demand(chance, num_gpus),
        "keywords": keywords,
    }
