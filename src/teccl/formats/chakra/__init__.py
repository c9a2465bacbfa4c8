"""Chakra: execution traces that ASTRA-sim runs."""
