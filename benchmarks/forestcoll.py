"""ForestColl's graphs: throughput of `auto` beside every number of chunks and the known optimum.

``python benchmarks/forestcoll.py [GRAPH...]`` solves an AllGather of 1 GB, without latencies, with
defaults and with 1, 2, 4 ... 512 chunks. The optimum is what ForestColl proves for the graph.
"""

import sys
import time
from pathlib import Path

from _table import print_machine, print_table

import teccl

GRAPHS = Path(__file__).parent / "data" / "forestcoll"
# Algorithm bandwidth in GB/s of the best AllGather there is.
OPTIMUM = {
    "a100x1": 342.857,
    "a100x2": 346.667,
    "a100x4": 266.667,
    "mi250x1": 342.857,
    "mi250x2": 354.133,
    "mi250x4": 341.333,
    "h100x2": 533.333,
}
COUNTS = [2**k for k in range(10)]
SIZE = "1GB"


def measure(graph: str) -> tuple[str, ...]:
    """Return a row: the graph, `auto`, the best given number of chunks, the optimum."""
    topology = teccl.Topology.parse(GRAPHS / f"{graph}.yaml")
    begin = time.process_time()
    auto = teccl.solve(topology, "allgather", size=SIZE)
    seconds = time.process_time() - begin
    given = [teccl.solve(topology, "allgather", size=SIZE, chunks=count) for count in COUNTS]
    best = min(given, key=lambda result: result.finish_ps)
    rates = [1e12 / result.finish_ps for result in (auto, best)]
    return (
        graph,
        str(auto.num_chunks),
        f"{rates[0]:.2f}",
        f"{seconds:.1f}",
        str(best.num_chunks),
        f"{rates[1]:.2f}",
        f"{OPTIMUM[graph]:.2f}",
        f"{auto.finish_ps / best.finish_ps - 1:+.3%}",
        f"{100 * rates[0] / OPTIMUM[graph]:.2f} %",
    )


def main() -> None:
    """Print the table of the graphs that were asked for, or of all."""
    print_machine()
    heads = ("graph", "chunks", "GB/s", "cpu s", "best given", "GB/s", "optimum", "auto", "reached")
    rows = (measure(graph) for graph in sys.argv[1:] or OPTIMUM)
    print_table(f"AllGather of {SIZE} without latencies", heads, rows)


if __name__ == "__main__":
    main()
