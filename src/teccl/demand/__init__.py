"""Demands: which data must reach which GPU."""

from teccl.demand.tenants import (
    MAX_CHUNKS,
    Block,
    Collective,
    Demand,
    ExplicitChunk,
    Tenant,
    parse_collective,
)

__all__ = [
    "MAX_CHUNKS",
    "Block",
    "Collective",
    "Demand",
    "ExplicitChunk",
    "Tenant",
    "parse_collective",
]
