"""Topology text of the ns-3 network that ASTRA-sim and its relatives use."""
