"""MSCCL: programs that the interpreter in the NCCL fork runs."""
