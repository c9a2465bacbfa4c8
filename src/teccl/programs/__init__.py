"""Programs of GPU runtimes: an independent reader and executor of MSCCL and RCCL XML.

It judges text and nothing else: it shares no code with what writes such files, so that an export
is proven by what the runtime will read.
"""

from teccl.programs.finding import Finding, FindingKind
from teccl.programs.model import Program
from teccl.programs.proof import Proof, prove, prove_text
from teccl.programs.reader import read_program
from teccl.programs.runtimes import RUNTIMES, Runtime

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
