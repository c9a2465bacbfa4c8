"""msccl-tools: topologies as link matrices."""
