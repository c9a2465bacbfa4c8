"""Where ranks sit: groups of ranks placed on GPUs so that their collectives meet few full links."""

from teccl.placement.groups import Axis, parse_groups
from teccl.placement.search import Placement, place

__all__ = ["Axis", "Placement", "parse_groups", "place"]
