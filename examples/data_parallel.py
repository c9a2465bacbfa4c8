"""Data-parallel training in numpy whose gradients are summed by a teccl schedule.

Every rank has its own part of the data and a copy of a small network. After each step the gradients
are summed over all ranks, once by a schedule and once by the MPI library, and both trainings must
stay the same to the last bit. Start it on as many ranks as the schedule has GPUs:

    teccl solve ring:gpus=4 allreduce --size 4KB -o allreduce.json
    mpiexec -n 4 python -m mpi4py examples/data_parallel.py allreduce.json
"""

import sys
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import teccl
from teccl.runtime.mpi import MpiCollective

INPUTS, HIDDEN, SAMPLES, STEPS, RATE = 8, 32, 64, 30, 0.05
# Gradients are rounded to multiples of this before they are summed, so that sums are exact and do
# not depend on the order in which an algorithm adds.
QUANTUM = 2.0**-12


def make_data(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return this rank's samples of a function that is to be learnt."""
    rng = np.random.default_rng(rank)
    x = rng.uniform(-1, 1, (SAMPLES, INPUTS)).astype(np.float32)
    return x, np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)


def unpack(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both layers as views of one flat vector."""
    return weights[: INPUTS * HIDDEN].reshape(INPUTS, HIDDEN), weights[INPUTS * HIDDEN :, None]


def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the gradient of the mean squared error, and the error."""
    first, second = unpack(weights)
    hidden = np.tanh(x @ first)
    error = hidden @ second - y
    slope = np.empty_like(weights)
    into_first, into_second = unpack(slope)
    into_second[:] = hidden.T @ error
    into_first[:] = x.T @ ((error @ second.T) * (1 - hidden**2))
    slope *= 2 / len(x)
    return np.round(slope / QUANTUM) * QUANTUM, float((error**2).mean())


def train(comm: MPI.Comm, allreduce: Callable[[np.ndarray, np.ndarray], None]) -> np.ndarray:
    """Train with one way to sum gradients and return the weights."""
    x, y = make_data(comm.rank)
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.3, INPUTS * HIDDEN + HIDDEN).astype(np.float32)
    total = np.empty_like(weights)
    for step in range(STEPS):
        slope, error = gradient(weights, x, y)
        allreduce(slope, total)
        weights -= RATE / comm.size * total
        if comm.rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  error on rank 0: {error:.4f}")
    return weights


def main(path: str) -> None:
    """Train twice and compare."""
    comm = MPI.COMM_WORLD
    # The schedule was made for some size; here it carries as many elements as there are weights.
    count = INPUTS * HIDDEN + HIDDEN
    collective = MpiCollective(teccl.Schedule.load(path), comm, count=count, timeout=60)
    ours = train(comm, collective.run)
    theirs = train(comm, comm.Allreduce)
    same = comm.allreduce(np.array_equal(ours, theirs), op=MPI.LAND)
    collective.close()
    if comm.rank == 0:
        print("weights are the same" if same else "weights differ")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
