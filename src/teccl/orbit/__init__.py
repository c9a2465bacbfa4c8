"""Orbits: schedules of fabrics with a symmetry, planned, judged and kept as one chunk an orbit.

Names are loaded when they are asked for: every `teccl solve` looks here whether a fabric is large.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teccl.orbit.damage import Damage
    from teccl.orbit.expansion import expand
    from teccl.orbit.fabric import CapacityOrbit, Fabric, LinkOrbit, NodeOrbit
    from teccl.orbit.judge import verify_orbit
    from teccl.orbit.patched import PatchedSchedule
    from teccl.orbit.presets import parse_fabric
    from teccl.orbit.problem import FabricProblem
    from teccl.orbit.result import OrbitResult
    from teccl.orbit.schedule import ORBIT_DTYPE, OrbitSchedule, orbit_array
    from teccl.orbit.solving import mend_orbit, solve_orbit

_HOMES = {
    "ORBIT_DTYPE": "schedule",
    "CapacityOrbit": "fabric",
    "Damage": "damage",
    "Fabric": "fabric",
    "FabricProblem": "problem",
    "LinkOrbit": "fabric",
    "NodeOrbit": "fabric",
    "OrbitResult": "result",
    "OrbitSchedule": "schedule",
    "PatchedSchedule": "patched",
    "expand": "expansion",
    "mend_orbit": "solving",
    "orbit_array": "schedule",
    "parse_fabric": "presets",
    "solve_orbit": "solving",
    "verify_orbit": "judge",
}

__all__ = [
    "ORBIT_DTYPE",
    "CapacityOrbit",
    "Damage",
    "Fabric",
    "FabricProblem",
    "LinkOrbit",
    "NodeOrbit",
    "OrbitResult",
    "OrbitSchedule",
    "PatchedSchedule",
    "expand",
    "mend_orbit",
    "orbit_array",
    "parse_fabric",
    "solve_orbit",
    "verify_orbit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"teccl.orbit.{_HOMES[name]}"), name)
