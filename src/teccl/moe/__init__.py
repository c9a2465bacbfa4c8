"""Mixture-of-experts traffic: expert choices of tokens as demands for dispatch and combine."""

from teccl.moe.demands import Traffic
from teccl.moe.expert_homes import place_experts
from teccl.moe.token_choices import Routing
from teccl.moe.traces import read_routing

__all__ = ["Routing", "Traffic", "place_experts", "read_routing"]
