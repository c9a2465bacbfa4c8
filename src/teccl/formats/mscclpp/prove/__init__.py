"""Execution plans of MSCCL++: an independent reader and executor of its JSON files.

It judges text and nothing else: it shares no code with what writes such files, so that an export
is proven by what the runtime will read.
"""

from teccl.formats.mscclpp.prove.execution_plan import ExecutionPlan
from teccl.formats.mscclpp.prove.plan_proof import PlanProof, prove_plan, prove_plan_text
from teccl.formats.mscclpp.prove.plan_reader import read_plan

__all__ = ["ExecutionPlan", "PlanProof", "prove_plan", "prove_plan_text", "read_plan"]
