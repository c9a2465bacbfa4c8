"""`teccl verify FILE.xml`: prove or refute that a program of a GPU runtime works."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from teccl.cli.errors import CommandFailed, ExitCode

if TYPE_CHECKING:
    from teccl.formats.msccl.prove import Finding, Proof

MAX_ROWS = 20


def is_program(file: str) -> bool:
    """Whether a file's name says that it is a program."""
    return file.lower().endswith(".xml")


def verify_program(file: str, runtime: str | None, *, as_json: bool, quiet: bool) -> None:
    """Judge a program by each runtime it may be meant for; one that runs it is enough."""
    from teccl._collect import collection_paused
    from teccl._files import naming, read_text
    from teccl.cli.output import emit, emit_json
    from teccl.cli.startup import load_numba_alone
    from teccl.errors import ProgramError
    from teccl.formats.msccl.prove import prove_text

    path = Path(file)
    with naming(path, ProgramError), collection_paused():
        text = read_text(path, ProgramError)
        load_numba_alone()
        proofs = prove_text(text, runtime=runtime)
    best = next((proof for proof in proofs if proof.ok), proofs[0])
    if as_json:
        emit_json(_document(best, proofs))
    elif not quiet:
        emit(_text(best, proofs))
    if not best.ok:
        others = f" and {len(best.findings) - 1} more" if len(best.findings) > 1 else ""
        raise CommandFailed(
            ExitCode.FAILED_VERIFICATION,
            f"program {file} does not run on {best.runtime.title}: {best.findings[0]}{others}",
        )


def _document(best: "Proof", proofs: "tuple[Proof, ...]") -> dict[str, Any]:
    return {
        "verified": best.ok,
        "runtime": best.runtime.name,
        "violations": [_finding(finding) for finding in best.findings],
        **best.facts,
        "notes": list(best.notes),
        "runtimes": [
            {
                "runtime": proof.runtime.name,
                "verified": proof.ok,
                "violations": [_finding(finding) for finding in proof.findings],
            }
            for proof in proofs
        ],
    }


def _finding(finding: "Finding") -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "gpu": finding.gpu,
        "thread_block": finding.block,
        "step": finding.step,
        "detail": finding.detail,
    }


def _text(best: "Proof", proofs: "tuple[Proof, ...]") -> str:
    from teccl.cli.output import table

    lines = []
    if best.ok:
        facts = best.facts
        lines.append(
            f"ok on {best.runtime.title}: {facts['collective']} among {facts['num_gpus']} gpus, "
            f"{facts['steps']} steps, up to {facts['thread_blocks']} thread blocks and "
            f"{facts['steps_per_block']} steps each: no deadlock, no race, right result"
        )
    else:
        rows = [(f.kind.value, f.where or "-", f.detail) for f in best.findings[:MAX_ROWS]]
        lines.append(table(("finding", "where", "what is wrong"), rows))
        if len(best.findings) > MAX_ROWS:
            lines.append(f"... and {len(best.findings) - MAX_ROWS} more (--json lists them)")
    lines += [f"note: {note}" for note in best.notes]
    for proof in proofs:
        if proof is not best:
            verdict = "ok" if proof.ok else f"not: {proof.findings[0]}"
            lines.append(f"on {proof.runtime.title} {verdict}")
    return "\n".join(lines)
