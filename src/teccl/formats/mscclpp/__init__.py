"""MSCCL++: execution plans."""
