"""Pick the best of 200 candidate wirings for an AllGather, then schedule it well.

Every candidate joins 16 GPUs with four cables each. `teccl.evaluate` ranks them by a verified
schedule for three sizes; only the winner gets the full search.
"""

import argparse
import math
import time

import teccl
from teccl.studies import Evaluation

SIZES = ("64KB", "1MB", "64MB")


def score(found: Evaluation) -> float:
    """Return the geometric mean of the finish times, in seconds."""
    times = found.finish_times_s
    if not found.is_feasible:
        return math.inf
    return math.exp(sum(math.log(t) for t in times if t) / len(times))


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    count = parser.parse_args().candidates
    specs = [f"random:gpus=16,degree=4,seed={seed}" for seed in range(count)]
    teccl.evaluate(specs[0], "allgather", SIZES)  # loads the compiled kernels
    begin = time.perf_counter()
    scores = {spec: score(teccl.evaluate(spec, "allgather", SIZES)) for spec in specs}
    seconds = time.perf_counter() - begin
    best = min(scores, key=lambda spec: scores[spec])
    worst = max(scores, key=lambda spec: scores[spec])
    print(f"{count} candidates in {seconds:.1f} s, {count / seconds:.0f} a second")
    print(f"best {best}: {scores[best] * 1e6:.2f} us, worst {scores[worst] * 1e6:.2f} us")
    for size in SIZES:
        print(teccl.solve(best, "allgather", size=size))


if __name__ == "__main__":
    main()
