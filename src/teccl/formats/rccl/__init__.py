"""RCCL: MSCCL programs for the interpreter in AMD's library, read and proven as those of MSCCL."""
