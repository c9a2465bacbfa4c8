"""LogGOPSim: GOAL text, made binary by its ``txt2bin``, under parameters that match the model."""

import re
from pathlib import Path

from teccl.errors import SimulationFailed
from teccl.formats.goal.write import to_goal
from teccl.schedule import Schedule
from teccl.simulators import Outcome
from teccl.simulators.limited_runs import find_program, run_program

_FINISH = re.compile(r"Maximum finishing time at host \d+: (\d{1,20})\b", re.ASCII)


def run(schedule: Schedule, program: Path, folder: Path, time_limit: float) -> Outcome:
    """Simulate a schedule in a folder.

    ``txt2bin`` is taken from beside the simulator, or else from the search path.

    Raises
    ------
    SimulatorError
        If ``txt2bin`` is not there.
    SimulationFailed
        If a program fails, or prints no finish.
    """
    beside = program.with_name("txt2bin")
    name = beside if beside.is_file() else "txt2bin"
    converter = find_program(name, "LogGOPSim's txt2bin, which lies beside it")
    made = to_goal(schedule)
    text, binary = folder / "schedule.goal", folder / "schedule.bin"
    text.write_text(made.text, encoding="utf-8")
    run_program([str(converter), "-i", str(text), "-o", str(binary)], folder, time_limit)
    # Batch mode prints one line with the latest finish, however many ranks there are.
    command = [str(program), "-f", str(binary), *made.parameters.arguments(), "-b"]
    found = _FINISH.search(run_program(command, folder, time_limit))
    if found is None:
        raise SimulationFailed(f"{program.name} printed no finishing time; is it LogGOPSim?")
    note = (
        f"a unit of the simulator's time is {made.unit_ps} ps, g is a transfer's time on its link"
    )
    return Outcome(
        finish_ps=int(found[1]) * made.unit_ps,
        allowance_ps=made.allowance_ps,
        differences=made.differences,
        notes=(note,),
        command=tuple(command),
    )
