"""Topologies by name: ``ndv2:chassis=2``, ``torus:dims=4x4x4`` and others.

A preset is a plain function with keyword parameters that returns a `Topology`; `PRESETS` names
them all, `build_preset` calls one from text.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from teccl._files import shown
from teccl._suggest import did_you_mean
from teccl.errors import TopologyError
from teccl.topology.graph import Topology
from teccl.topology.presets import generic, paper, recent, tiers, vendor
from teccl.topology.presets._wiring import read_latency

__all__ = ["PRESETS", "PresetInfo", "build_preset", "list_presets", "read_spec"]

Builder = Callable[..., Topology]

PRESETS: dict[str, Builder] = {
    "dgx1": paper.dgx1,
    "ndv2": paper.ndv2,
    "dgx2": paper.dgx2,
    "internal1": paper.internal1,
    "internal2": paper.internal2,
    "dgx-a100": vendor.dgx_a100,
    "dgx-h100": vendor.dgx_h100,
    "dgx-h200": vendor.dgx_h200,
    "gb200-nvl72": vendor.gb200_nvl72,
    "mi250": vendor.mi250,
    "mi300x": vendor.mi300x,
    "dgx-b200": recent.dgx_b200,
    "dgx-b300": recent.dgx_b300,
    "gb300-nvl72": recent.gb300_nvl72,
    "h800": recent.h800,
    "h20": recent.h20,
    "p5": recent.p5,
    "a3-ultra": recent.a3_ultra,
    "mi325x": recent.mi325x,
    "mi355x": recent.mi355x,
    "tpu-v5p": recent.tpu_v5p,
    "tpu-v6e": recent.tpu_v6e,
    "trn2": recent.trn2,
    "ring": generic.ring,
    "line": generic.line,
    "fully-connected": generic.fully_connected,
    "star": generic.star,
    "random": generic.random,
    "mesh": generic.mesh,
    "torus": generic.torus,
    "hypercube": generic.hypercube,
    "fat-tree": generic.fat_tree,
    "dragonfly": generic.dragonfly,
    "twisted-torus": recent.twisted_torus,
    "two-tier": recent.two_tier,
    "rail-tree": tiers.rail_tree,
}

# What every preset takes: time for which a transfer holds a link beside its bytes.
OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetInfo:
    """What `teccl topology list` shows of a preset.

    Parameters
    ----------
    name
        As written before the colon.
    summary
        One line.
    parameters
        Default of each parameter, as text.
    """

    name: str
    summary: str
    parameters: Mapping[str, str]


def build_preset(spec: str) -> Topology:
    """Build a topology from ``name`` or ``name:key=value,...``.

    Raises
    ------
    TopologyError
        If there is no such preset or parameter, or a value is out of range.

    Examples
    --------
    >>> build_preset("ndv2:chassis=2")
    Topology('ndv2', 16 gpus, 0 switches, 66 links)
    >>> build_preset("torus:dims=4x4,bandwidth=25GB/s,alpha=0")
    Topology('torus', 16 gpus, 0 switches, 64 links)
    """
    name, parameters = read_spec(spec)
    overhead = parameters.pop(OVERHEAD, None)
    topology = PRESETS[name](**parameters)
    if overhead is None:
        return topology
    return topology.with_overhead(read_latency(name, OVERHEAD, str(overhead)))


def read_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a preset and the parameters that ``name:key=value,...`` gives it.

    Raises
    ------
    TopologyError
        If there is no such preset or parameter.
    """
    name, colon, text = spec.partition(":")
    name = name.strip()
    builder = PRESETS.get(name)
    if builder is None:
        stem, dot, suffix = name.rpartition(".")
        if dot:
            nearest = get_close_matches(suffix.lower(), ("yaml", "yml", "json"), n=1, cutoff=0.5)
            meant = f"; did you mean {stem}.{nearest[0]}?" if nearest else ""
            raise TopologyError(
                f"no preset {shown(name)}, and the name of a topology file ends in .yaml, .yml or "
                f".json{meant}"
            )
        raise TopologyError(
            f"no preset {shown(name)}{did_you_mean(name.lower(), PRESETS)} "
            "(the name of a file ends in .yaml, .yml or .json)"
        )
    parameters: dict[str, Any] = {}
    signature = inspect.signature(builder).parameters
    known = [*signature, OVERHEAD]
    for item in text.split(",") if colon else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise TopologyError(
                f"preset {name}: {shown(item)} is not key=value; known keys: {', '.join(known)}"
            )
        if key not in known:
            raise TopologyError(
                f"preset {name} has no parameter {shown(key)}{did_you_mean(key, known)}"
            )
        if key in parameters:
            raise TopologyError(f"preset {name}: {key} is given twice; give it once")
        parameters[key] = _read_value(
            name, key, value, str if key == OVERHEAD else signature[key].annotation
        )
    return name, parameters


def list_presets() -> dict[str, PresetInfo]:
    """Return a summary of each preset and its parameters with defaults, by name.

    Examples
    --------
    >>> list_presets()["star"].summary
    'GPUs around one switch.'
    """
    return {name: _describe(name, builder) for name, builder in PRESETS.items()}


def _describe(name: str, builder: Builder) -> PresetInfo:
    parameters = inspect.signature(builder).parameters.values()
    return PresetInfo(
        name=name,
        summary=(inspect.getdoc(builder) or "").partition("\n")[0],
        parameters={
            **{parameter.name: _default_text(parameter.default) for parameter in parameters},
            OVERHEAD: "0",
        },
    )


def _default_text(default: object) -> str:
    if default is None:
        return "per link"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _read_value(preset: str, key: str, text: str, kind: Any) -> object:
    """Turn the text of a parameter into what the builder's annotation says that it takes."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise TopologyError(f"preset {preset}: {key} is {shown(text)}; give true or false")
        return text.lower() == "true"
    if str in (kind, *get_args(kind)):
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise TopologyError(f"preset {preset}: {key} is {shown(text)}; give a whole number")
    return int(text)
