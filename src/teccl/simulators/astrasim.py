"""ASTRA-sim with its congestion-aware analytical network: Chakra traces as a custom collective.

ASTRA-sim counts whole nanoseconds and whole bytes. It is told times in picoseconds, which it takes
for nanoseconds, and sizes in parts of a byte, so that nothing is lost by rounding.
"""

import re
from collections import Counter
from math import lcm
from pathlib import Path

from teccl.errors import SimulationFailed
from teccl.formats.astra_sim.write import Scale, configure
from teccl.formats.chakra.write import make_traces, trace_files
from teccl.formats.shared.gpu_sends import gpu_sends, not_expressed
from teccl.keywords import Transit
from teccl.schedule import Schedule
from teccl.schedule.timing import send_times
from teccl.simulators import Outcome
from teccl.simulators.limited_runs import run_program

_FINISH = re.compile(r"finished, (\d{1,20}) cycles", re.ASCII)
_MAX_SIZE = 2**62


def run(schedule: Schedule, program: Path, folder: Path, time_limit: float) -> Outcome:
    """Simulate a schedule in a folder.

    Raises
    ------
    SimulationFailed
        If the network is none that ASTRA-sim can build, it fails, or prints no finish.
    """
    sizes = schedule.problem.chunks.sizes
    parts = lcm(*(size.denominator for size in sizes))
    if max(sizes) * parts > _MAX_SIZE:
        parts = 1
    traces = make_traces(schedule, parts)
    scale = Scale(tick_ps=1, parts=parts)
    system = folder / "schedule.json"
    made = configure(schedule, system, scale)
    if made.shape is None:
        raise SimulationFailed(
            f"ASTRA-sim cannot build {schedule.problem.topology.name}: its analytical network has "
            "equal links between GPUs, or around one switch"
        )
    for file in (*made.files, *trace_files(traces, folder / "schedule")):
        content = file.content.encode() if isinstance(file.content, str) else file.content
        file.path.write_bytes(content)
    command = [str(program), *made.arguments]
    found = _FINISH.findall(run_program(command, folder, time_limit))
    num_ranks = schedule.problem.topology.num_gpus
    if len(found) < num_ranks:
        raise SimulationFailed(
            f"{program.name} printed {len(found)} finishing times for {num_ranks} ranks; is it "
            "AstraSim_Analytical_Congestion_Aware?"
        )
    return Outcome(
        finish_ps=max(int(cycles) for cycles in found),
        allowance_ps=_allowance(schedule),
        differences=tuple(_differences(schedule)),
        notes=_notes(made.shape.value, parts),
        command=tuple(command),
    )


def _allowance(schedule: Schedule) -> int:
    """Return what ticks can add up to along a chain of sends that each hold a link for a while.

    The schedule's times are rounded up to a picosecond; a send's end and arrival are cut to one,
    one separates it from the next on its link, and one is added for each sum that it waits for.
    """
    held = send_times(schedule).occupancy_ps
    shortest = int(held.min(initial=schedule.finish_ps))
    steps = min(len(held), schedule.finish_ps // max(1, shortest) + 1)
    return int(steps) * (4 + max(_additions(schedule).values(), default=0))


def _additions(schedule: Schedule) -> Counter[tuple[int, int]]:
    """Count what is added to each chunk at each node."""
    sends, sums = schedule.sends, schedule.sums
    merging = sends[sends["reduce"]]
    nodes = schedule.problem.topology.link_dst[merging["link"]]
    found = Counter(zip(merging["chunk"].tolist(), nodes.tolist(), strict=True))
    if sums is not None:
        added = sums[sums["left"] >= 0]
        found.update(zip(added["chunk"].tolist(), added["node"].tolist(), strict=True))
    return found


def _differences(schedule: Schedule) -> list[str]:
    found = list(not_expressed(schedule, gpu_sends(schedule)))
    is_default = schedule.problem.transit is Transit.STORE_AND_FORWARD
    if schedule.problem.topology.num_switches and not is_default:
        found.append("ASTRA-sim stores a message in a switch before it forwards it")
    return found


def _notes(network: str, parts: int) -> tuple[str, ...]:
    units = (
        f"network {network}, rates in GB of 2^30 bytes; a cycle is 1 ps, times are cut to whole "
        "cycles, and one is added for every reduction and between two sends that become ready "
        "together"
    )
    notes = [units]
    if parts > 1:
        notes.append(f"sizes and rates are {parts} times as large, so that sizes are whole")
    return tuple(notes)
