"""Draws problems by seed over the whole space a user can ask for.

Family, collective and size decade are drawn uniformly and independently, and nothing is drawn
again: faults are taken from those that leave every rank within reach.
"""

from typing import Any

from _quality.chance import Chance
from _quality.demands import (
    COLLECTIVES,
    DECADES,
    draw_ranks,
    draw_size,
    draw_tenant,
)
from _quality.fabrics import GRAPHS, Fabric, draw_fabric
from _quality.options import NEED_SWITCHES, OPTIONS, Draft, draw_options
from _quality.presets import FAMILIES as PRESETS
from _quality.problem import Problem

SETS = ("plain", "options")
FAMILIES = (*PRESETS, *GRAPHS, "degraded", "sub-group")


def draw_problem(set_name: str, seed: int, index: int) -> Problem:
    """Draw one problem; it depends on nothing but these three."""
    key = f"{set_name}-{seed}-{index}"
    chance = Chance("quality", key)
    family, collective = chance.choice(FAMILIES), chance.choice(COLLECTIVES)
    decade = chance.whole(0, len(DECADES) - 1)
    size = draw_size(chance, decade)
    options = draw_options(chance) if set_name == "options" else ()
    family, fabric = _draw_fabric(chance, family, options)
    ranks, faults = list(range(len(fabric.gpus))), dict[str, Any]()
    if family == "degraded":
        ranks, faults = _draw_faults(chance, fabric)
    elif family == "sub-group":
        ranks = draw_ranks(chance, len(ranks))
    tenants = [draw_tenant(chance, collective, size, ranks, len(fabric.gpus))]
    draft = Draft(
        chance=chance, fabric=fabric, ranks=ranks, size=size, tenants=tenants, keywords=faults
    )
    for option in options:
        OPTIONS[option](draft)
    demand = _demand(draft)
    return Problem(
        key=key,
        set=set_name,
        family=family,
        collective=collective,
        decade=DECADES[decade],
        num_gpus=len(fabric.gpus),
        options=options,
        topology=fabric.topology,
        demand=demand,
        keywords=draft.keywords if demand else {**_given(tenants[0]), **draft.keywords},
    )


def _draw_fabric(chance: Chance, family: str, options: tuple[str, ...]) -> tuple[str, Fabric]:
    """Draw a fabric that can have the options; profiles need a file, switch modes switches."""
    families: list[str] = [*PRESETS, *GRAPHS]
    if "profile" in options:
        families = list(GRAPHS)
    switches = any(option in NEED_SWITCHES for option in options)
    if switches:
        families = [name for name in families if name != "direct"]
    if family in ("degraded", "sub-group"):
        return family, draw_fabric(chance, chance.choice(families), switches=switches)
    family = family if family in families else chance.choice(families)
    return family, draw_fabric(chance, family, switches=switches)


def _draw_faults(chance: Chance, fabric: Fabric) -> tuple[list[int], dict[str, Any]]:
    """Draw a slow cable or GPU, one that is gone, or both; a GPU that is gone takes no part."""
    ranks = list(range(len(fabric.gpus)))
    slow = chance.choice(("cable", "gpu", "nothing"))
    gone = chance.choice(("cable", "gpu")) if slow == "nothing" or chance.coin(0.5) else "nothing"
    faults: dict[str, Any] = {}
    if slow != "nothing":
        nodes = [f"{name}:*" for name in fabric.gpus]
        where = chance.choice((fabric.cables if slow == "cable" else ()) or nodes)
        faults["degrade"] = [f"{where}={10 * chance.whole(1, 9)}%"]
    cables = fabric.spare_cables() if gone == "cable" else []
    gpus = fabric.spare_gpus() if gone != "nothing" else []
    if cables:
        faults["without_links"] = [chance.choice(cables)]
    elif gpus:
        lost = chance.choice(gpus)
        faults["without_links"] = [f"{fabric.gpus[lost]}:*"]
        ranks.remove(lost)
    return ranks, faults


def _demand(draft: Draft) -> dict[str, Any] | None:
    """Return the demand file, None where flags say as much."""
    if len(draft.tenants) == 1 and "matrix" not in draft.tenants[0]:
        return None
    return {"schema_version": 1, "collectives": draft.tenants}


def _given(tenant: dict[str, Any]) -> dict[str, Any]:
    """Return a collective's size, ranks and root as keywords of `solve`."""
    return {name: tenant[name] for name in ("size", "ranks", "root") if name in tenant}
