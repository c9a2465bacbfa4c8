"""Rule: every destination of a copied chunk receives it, unless it is a source."""

import numpy as np

from teccl._arrays import NEVER, IntArray
from teccl.verification.arrivals import FirstArrivals
from teccl.verification.case import Case
from teccl.verification.violation import ViolationKind
from teccl.verification.wanted import wanted_pairs


def check(case: Case) -> None:
    """Check every wanted pair of a copied chunk and a GPU."""
    sends, findings = case.sends, case.findings
    arrivals = FirstArrivals.of(sends, case.timeline)
    kind = ViolationKind.UNMET_DEMAND
    for chunk, node in wanted_pairs(sends, np.flatnonzero(~case.problem.chunks.reduce)):
        wanted = ~sends.is_source(chunk, node)
        missing = wanted & (arrivals.at(sends.keys(chunk, node)) == NEVER)

        def add(i: int, chunk: IntArray = chunk, node: IntArray = node) -> None:
            detail = f"never reaches {case.node_name(node[i])}, which wants it"
            findings.add(kind, detail, chunk=int(chunk[i]))

        findings.add_each(kind, np.flatnonzero(missing), add)
        if findings.is_full(kind):
            return
