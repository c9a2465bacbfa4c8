"""Orbits: schedules of fabrics with a symmetry, planned, judged and kept as one chunk an orbit."""

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
