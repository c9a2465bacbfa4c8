"""Proof that a program runs: structure, matching, no deadlock, no race, the right result."""

from dataclasses import dataclass, field
from typing import Any

from teccl.errors import ProgramError
from teccl.formats.msccl.prove.actions import actions_of
from teccl.formats.msccl.prove.collectives import settings_of
from teccl.formats.msccl.prove.finding import Finding, FindingKind, Findings
from teccl.formats.msccl.prove.flow import check_deadlock, run_control
from teccl.formats.msccl.prove.machine import Machine, build_machine
from teccl.formats.msccl.prove.memory import check_result
from teccl.formats.msccl.prove.program_tree import Program
from teccl.formats.msccl.prove.races import check_races
from teccl.formats.msccl.prove.reader import read_program
from teccl.formats.msccl.prove.runtimes import FENCED, FIFO_DEPTH, RUNTIMES, Runtime
from teccl.formats.msccl.prove.structure import check_structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was found out about a program on one runtime.

    Parameters
    ----------
    runtime
        For which it was judged.
    findings
        What is wrong; empty for a program that runs.
    notes
        What could not be judged.
    facts
        Figures about the program.
    """

    runtime: Runtime
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the program runs on the runtime."""
        return not self.findings


def prove(program: Program, runtime: Runtime) -> Proof:
    """Judge a program by the rules of one runtime."""
    findings = Findings()
    notes: list[str] = []
    check_structure(program, runtime, findings)
    if all(finding.kind is FindingKind.SYNTAX for finding in findings.all()):
        _prove_run(program, runtime, findings, notes)
    return Proof(
        runtime=runtime,
        findings=findings.all(),
        notes=tuple(notes),
        facts=_facts(program),
    )


def prove_text(text: str, *, runtime: str | None = None) -> tuple[Proof, ...]:
    """Read a program and judge it by each runtime that it may be meant for.

    Parameters
    ----------
    text
        The file's content.
    runtime
        Name of the one runtime to judge by, None for all that would look at the file.

    Raises
    ------
    ProgramError
        If the text is no program, or the runtime is unknown.
    """
    if runtime is not None and runtime not in RUNTIMES:
        raise ProgramError(f"unknown runtime {runtime[:40]!r}; use {' or '.join(RUNTIMES)}")
    program = read_program(text)
    chosen = [RUNTIMES[runtime]] if runtime else _meant_for(program)
    return tuple(prove(program, one) for one in chosen)


def _meant_for(program: Program) -> list[Runtime]:
    """Runtimes whose attributes and names the file uses; the nearest if it uses none's."""
    coll = program.attributes.get("coll", "")
    fits = [
        runtime
        for runtime in RUNTIMES.values()
        if coll in (*runtime.collectives, *runtime.opaque)
        and all(key in program.attributes for key in runtime.required)
    ]
    is_rccl = "outofplace" in program.attributes or coll == "reducescatter"
    if not fits:
        return [RUNTIMES["rccl" if is_rccl else "msccl"]]
    return sorted(fits, key=lambda runtime: (runtime.name == "rccl") != is_rccl)


def _prove_run(program: Program, runtime: Runtime, findings: Findings, notes: list[str]) -> None:
    """Match, run and check the data; each only where what it builds upon holds."""
    machine = build_machine(program, findings)
    settings = settings_of(program, runtime, findings)
    if not all(finding.kind is FindingKind.SYNTAX for finding in findings.all()):
        return
    protocol = program.attributes["proto"]
    depth = FIFO_DEPTH[protocol]
    actions = actions_of(machine)
    run = run_control(actions, depth)
    check_deadlock(machine, run, depth, findings)
    if run.stuck:
        return
    for setting in settings:
        _check_input(machine, setting.in_place, findings)
        check_races(machine, actions, run, setting, findings, fenced=FENCED[protocol])
        check_result(machine, actions, run, setting, findings)
        if setting.collective is None:
            coll = program.attributes["coll"]
            notes.append(f"the result of collective {coll!r} is not known and was not checked")


def _check_input(machine: Machine, in_place: bool, findings: Findings) -> None:
    """Check that the caller's input, which it does not expect to change, is not written."""
    if in_place:
        return
    for block, actions in enumerate(machine.actions):
        for action in actions:
            step = action.step
            if step.dstbuf == "i" and step.type.writes_target:
                findings.add(
                    FindingKind.INPUT_OVERWRITTEN,
                    f"called out of place, {step.type.code} writes the caller's input "
                    f"i[{step.dstoff}]; use o or s",
                    gpu=machine.rank[block],
                    block=machine.block_id[block],
                    step=step.number,
                )


def _facts(program: Program) -> dict[str, Any]:
    blocks = [block for gpu in program.gpus for block in gpu.blocks]
    return {
        "collective": program.attributes.get("coll"),
        "num_gpus": len(program.gpus),
        "chunks": program.number("nchunksperloop"),
        "protocol": program.attributes.get("proto"),
        "channels": len({block.chan for block in blocks}),
        "thread_blocks": max((len(gpu.blocks) for gpu in program.gpus), default=0),
        "steps": sum(len(block.steps) for block in blocks),
        "steps_per_block": max((len(block.steps) for block in blocks), default=0),
        "scratch_chunks": max((gpu.chunks["s"] for gpu in program.gpus), default=0),
    }
