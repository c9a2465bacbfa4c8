"""Lowering: from a schedule's sends to the thread blocks of MSCCL and RCCL programs.

Transfers between GPUs -> levels of a global order -> operations on contiguous chunks ->
thread blocks on channels -> dependencies -> text. Each step is a module.
"""
