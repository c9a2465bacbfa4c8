"""What a collective should take: the bound, our schedule and NCCL's model, size by size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from teccl.demand import Demand, parse_collective
from teccl.errors import InputError
from teccl.nccl.constants import Generation
from teccl.nccl.cost_model import best
from teccl.nccl.shape import CHANNELS, Shape, shape_of
from teccl.result import bus_factor
from teccl.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is known of one size before it is measured.

    Parameters
    ----------
    size_bytes
        As nccl-tests counts it.
    bound_s
        No schedule is faster, into however many equal chunks the data is cut.
    schedule_s
        The schedule that was found, None where none was asked for.
    nccl_s, nccl_choice
        NCCL's model, and the algorithm and protocol it would take; None where it has none.
    binds
        A sentence that says what limits the size.
    bus_factor
        What nccl-tests multiplies algbw by.
    """

    size_bytes: int
    bound_s: float
    schedule_s: float | None
    nccl_s: float | None
    nccl_choice: str | None
    binds: str
    bus_factor: float

    def busbw(self, seconds: float | None) -> float | None:
        """GB/s as nccl-tests prints them in the busbw column."""
        return None if not seconds else self.size_bytes / seconds / 1e9 * self.bus_factor

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data, as ``--json`` prints them."""
        document: dict[str, Any] = {"size_bytes": self.size_bytes, "binds": self.binds}
        times = {"bound": self.bound_s, "schedule": self.schedule_s, "nccl_model": self.nccl_s}
        for name, seconds in times.items():
            document[f"{name}_s"] = seconds
            rate = None if not seconds else self.size_bytes / seconds / 1e9
            document[f"{name}_algbw_GBps"] = rate
            document[f"{name}_busbw_GBps"] = self.busbw(seconds)
        document["nccl_model_choice"] = self.nccl_choice
        return document


def expect(
    topology: Topology,
    collective: str,
    sizes: Sequence[Fraction],
    *,
    generation: Generation | None = None,
    channels: int = CHANNELS,
    solve: bool = True,
    **options: Any,
) -> list[Expectation]:
    """Return what each size should take.

    Parameters
    ----------
    sizes
        In bytes.
    generation, channels
        Of the GPUs and of NCCL, for its model.
    solve
        Whether to find schedules too.
    options
        Passed to `teccl.solve`.
    """
    try:
        shape = shape_of(topology, generation=generation, channels=channels)
    except InputError:
        if generation is not None:
            raise
        shape = None
    return list(_expectations(topology, collective, sizes, shape, options if solve else None))


def _expectations(
    topology: Topology,
    collective: str,
    sizes: Sequence[Fraction],
    shape: Shape | None,
    options: dict[str, Any] | None,
) -> Iterator[Expectation]:
    from teccl.bounds import summarise
    from teccl.problem import Problem
    from teccl.synthesis import solve

    kind = parse_collective(collective)
    for size in sizes:
        if size.denominator != 1:
            raise InputError(f"size {float(size):g}B is no whole number of bytes; round it")
        demand = Demand.collective(collective, size=size)
        problem = Problem(topology=topology, demand=demand)
        result = None if options is None else solve(topology, demand=demand, **options)
        bound = None if result is None else result.bound
        bound = bound or summarise(problem)
        model = None if shape is None else best(kind, float(size), shape)
        yield Expectation(
            size_bytes=int(size),
            bound_s=bound.physical_ps / 1e12,
            schedule_s=None if result is None else result.finish_time_s,
            nccl_s=None if model is None or shape is None else model.seconds(float(size), shape),
            nccl_choice=None if model is None else model.name,
            binds=bound.certificate,
            bus_factor=float(bus_factor(demand.tenants[0], topology.num_gpus)),
        )
