"""TE-CCL files: inputs are topologies, outputs are schedules."""

from teccl.formats.te_ccl.read.te_ccl_schedules import read_schedule
from teccl.formats.te_ccl.read.te_ccl_topologies import read_topology

__all__ = ["read_schedule", "read_topology"]
