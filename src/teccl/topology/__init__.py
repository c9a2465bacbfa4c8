"""Topologies: GPUs, switches, links, and where they come from."""

from teccl.topology.graph import Link, Node, NodeKind, Topology

__all__ = ["Link", "Node", "NodeKind", "Topology"]
