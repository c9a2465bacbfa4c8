"""RCCL: programs for the interpreter in AMD's library."""

from dataclasses import replace
from pathlib import Path

from teccl.formats.msccl.write.limits import RCCL
from teccl.formats.msccl.write.rendering import render_program
from teccl.formats.shared.exports import Export, ExportOptions
from teccl.schedule import Schedule

_FOLDER_NOTE = (
    "RCCL reads every file of MSCCL_ALGO_DIR and stops at the first bad one; "
    "keep only programs there"
)


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:
    """Make a program for RCCL."""
    environment = {
        "MSCCL_ALGO_DIR": str(path.absolute().parent),
        "RCCL_MSCCL_FORCE_ENABLE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV",
    }
    made = render_program(schedule, path, options, RCCL, environment)
    return replace(made, notes=(*made.notes, _FOLDER_NOTE))
