"""Orbits: schedules of fabrics with a symmetry, planned, judged and kept as one chunk an orbit."""

from teccl.orbit.expansion import expand
from teccl.orbit.fabric import CapacityOrbit, Fabric, LinkOrbit, NodeOrbit
from teccl.orbit.judge import verify_orbit
from teccl.orbit.presets import parse_fabric
from teccl.orbit.problem import FabricProblem
from teccl.orbit.schedule import ORBIT_DTYPE, OrbitSchedule, orbit_array

__all__ = [
    "ORBIT_DTYPE",
    "CapacityOrbit",
    "Fabric",
    "FabricProblem",
    "LinkOrbit",
    "NodeOrbit",
    "OrbitSchedule",
    "expand",
    "orbit_array",
    "parse_fabric",
    "verify_orbit",
]
