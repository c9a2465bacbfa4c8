"""NCCL: dumps of the topology that the library found."""
