"""Time and memory to build the time-expanded linear program, by its number of columns."""

import resource
import time

from _table import print_machine, print_table

from teccl import Demand, Topology
from teccl.models.lp.fluid import FluidModel
from teccl.models.lp.fluid_network import fluid_network
from teccl.problem import Problem
from teccl.timegrid import TimeGrid

# Epochs of AllToAll on two NDv2 chassis; 258 is what the paper's table needs at 1 GB.
HORIZONS = (82, 164, 258, 520, 1000, 2420)
# The least of this many builds counts: others may use the machine too.
REPEATS = 3


def main() -> None:
    """Build programs of growing horizons and print a table."""
    problem = Problem(
        topology=Topology.parse("ndv2:chassis=2"),
        demand=Demand.collective("alltoall", size="1GB"),
    )
    network = fluid_network(problem, TimeGrid.build(problem))
    FluidModel.build(network, HORIZONS[0])
    rows = []
    for horizon in HORIZONS:
        wall = cpu = float("inf")
        for _ in range(REPEATS):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            model = FluidModel.build(network, horizon).program
            wall = min(wall, time.perf_counter() - begin)
            cpu = min(cpu, time.process_time() - begin_cpu)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append(
            [
                horizon,
                model.num_columns,
                model.matrix.nnz,
                f"{wall:.2f}",
                f"{cpu:.2f}",
                f"{1e6 * cpu / model.num_columns:.2f}",
                f"{model.num_bytes / 2**20:.0f}",
                f"{peak:.0f}",
            ]
        )
    head = ["epochs", "columns", "entries", "wall s", "CPU s", "CPU us/column", "MB", "peak MB"]
    print_machine()
    print_table("AllToAll, 1 GB, ndv2:chassis=2: building the linear program", head, rows)


if __name__ == "__main__":
    main()
