"""Programs of GPU runtimes: an independent reader and executor of MSCCL and RCCL XML.

It judges text and nothing else: it shares no code with what writes such files, so that an export
is proven by what the runtime will read.
"""

from teccl.formats.msccl.prove.finding import Finding, FindingKind
from teccl.formats.msccl.prove.program_tree import Program
from teccl.formats.msccl.prove.proof import Proof, prove, prove_text
from teccl.formats.msccl.prove.reader import read_program
from teccl.formats.msccl.prove.runtimes import RUNTIMES, Runtime

__all__ = [
    "RUNTIMES",
    "Finding",
    "FindingKind",
    "Program",
    "Proof",
    "Runtime",
    "prove",
    "prove_text",
    "read_program",
]
