"""TACCL: topologies with their costs."""
