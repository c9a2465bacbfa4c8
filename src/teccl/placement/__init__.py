"""Where ranks sit: groups of ranks placed on GPUs so that their collectives meet few full links."""

from teccl.placement.exchanging import Placement, place
from teccl.placement.groups import Axis, parse_groups
from teccl.placement.joint import joint_demand

__all__ = ["Axis", "Placement", "joint_demand", "parse_groups", "place"]
