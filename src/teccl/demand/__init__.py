"""Demands: which data must reach which GPU."""

from teccl.demand.tenants import (
    MAX_CHUNKS,
    UNNAMED,
    Block,
    Demand,
    ExplicitChunk,
    Tenant,
    parse_collective,
)
from teccl.keywords import Collective

__all__ = [
    "MAX_CHUNKS",
    "UNNAMED",
    "Block",
    "Collective",
    "Demand",
    "ExplicitChunk",
    "Tenant",
    "parse_collective",
]
