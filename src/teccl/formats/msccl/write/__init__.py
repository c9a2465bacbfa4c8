"""MSCCL: programs for the interpreter in the NCCL fork."""

from pathlib import Path

from teccl.demand import Collective
from teccl.errors import ExportError
from teccl.formats.msccl.write.limits import MSCCL
from teccl.formats.msccl.write.rendering import render_program
from teccl.formats.shared.exports import Export, ExportOptions
from teccl.schedule import Schedule


def render(schedule: Schedule, path: Path, options: ExportOptions) -> Export:
    """Make a program for the NCCL fork."""
    collectives = {tenant.collective for tenant in schedule.problem.demand.tenants}
    if options.in_place and Collective.ALLTOALL in collectives:
        raise ExportError("the NCCL fork has no alltoall in place; use --out-of-place")
    environment = {
        "MSCCL_XML_FILES": str(path.absolute()),
        "NCCL_ALGO": "MSCCL,RING,TREE",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV",
    }
    return render_program(schedule, path, options, MSCCL, environment)
