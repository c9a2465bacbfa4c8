"""Proof that a plan runs: structure, matching signals, no deadlock, no race, the right result."""

from dataclasses import dataclass, field
from typing import Any

from teccl.formats.msccl.prove.collectives import Setting
from teccl.formats.msccl.prove.finding import Finding, FindingKind, Findings
from teccl.formats.mscclpp.prove.execution import execute
from teccl.formats.mscclpp.prove.execution_plan import ExecutionPlan
from teccl.formats.mscclpp.prove.plan_reader import read_plan
from teccl.formats.mscclpp.prove.plan_structure import check_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProof:
    """What was found out about a plan.

    Parameters
    ----------
    findings
        What is wrong; empty for a plan that runs.
    facts
        Figures about the plan.
    """

    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the plan runs."""
        return not self.findings


def prove_plan_text(text: str, source: str = "plan") -> PlanProof:
    """Read a plan and judge it.

    Raises
    ------
    ProgramError
        If the text is no plan.
    """
    return prove_plan(read_plan(text, source))


def prove_plan(plan: ExecutionPlan) -> PlanProof:
    """Judge a plan."""
    findings = Findings()
    check_plan(plan, findings)
    setting = _setting(plan, findings) if not findings else None
    if setting is not None:
        execute(plan, setting, findings)
    return PlanProof(findings=findings.all(), facts=_facts(plan))


def _setting(plan: ExecutionPlan, findings: Findings) -> Setting | None:
    """Return how the collective is called, after checking that buffers have its sizes."""
    ranks, chunks = len(plan.gpus), plan.gpus[0].chunks
    loop = max(chunks["i"], chunks["o"])
    share = {"i": loop, "o": loop}
    if plan.collective == "allgather":
        share["i"] = loop // ranks
    elif plan.collective == "reducescatter":
        share["o"] = loop // ranks
    if plan.collective != "allreduce" and loop % ranks:
        detail = f"buffers of {loop} chunks do not divide among {ranks} ranks"
        findings.add(FindingKind.ATTRIBUTE, detail)
    for rank, gpu in enumerate(plan.gpus):
        for letter, wanted in share.items():
            if gpu.chunks[letter] != wanted:
                detail = f"buffer {letter} has {gpu.chunks[letter]} chunks; {wanted} are needed"
                findings.add(FindingKind.ATTRIBUTE, detail, gpu=rank)
    if findings:
        return None
    return Setting(collective=plan.collective, ranks=ranks, loop=loop, in_place=plan.in_place)


def _facts(plan: ExecutionPlan) -> dict[str, Any]:
    blocks = [block for gpu in plan.gpus for block in gpu.blocks]
    return {
        "collective": plan.collective,
        "num_gpus": len(plan.gpus),
        "protocol": plan.protocol,
        "thread_blocks": max((len(gpu.blocks) for gpu in plan.gpus), default=0),
        "operations": sum(len(block.ops) for block in blocks),
        "operations_per_block": max((len(block.ops) for block in blocks), default=0),
        "scratch_chunks": max(gpu.chunks["s"] for gpu in plan.gpus),
    }
