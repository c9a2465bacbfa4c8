"""Programs that take a simulator's place in tests: the same arguments, files and last lines.

LogGOPSim's stand-in executes the text by the model in the package. ASTRA-sim's reads the files that
its arguments name, and executes the traces with an executor of the tests.
"""

import json
import re
import sys
from pathlib import Path

import teccl

ROOT = Path(__file__).parents[2]


def install(folder, name, function):
    """Write an executable that calls a function of this module with its arguments."""
    path = folder / name
    paths = [str(ROOT), str(Path(teccl.__file__).parents[1])]
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {paths!r}\n"
        f"from tests.simulators.stand_ins import {function}\nsys.exit({function}(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def txt2bin(arguments):
    """Copy the text."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    Path(options["-o"]).write_text(Path(options["-i"]).read_text(encoding="utf-8"))


def loggopsim(arguments):
    """Execute a file and print the latest finish, as batch mode does."""
    from teccl.formats.goal.prove import Parameters, finish_time
    from teccl.formats.goal.prove.goal_program import parse

    assert arguments[-1] == "-b"
    options = dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
    model = Parameters(*(int(options[f"-{name}"]) for name in "LogGOS"))
    finish = finish_time(parse(Path(options["-f"]).read_text()), model)
    sys.stdout.write(f"Maximum finishing time at host 0: {finish} ({finish / 1e9} s)\n")


def astrasim(arguments):
    """Execute the traces that the files name on the network that they describe."""
    from fractions import Fraction

    from tests.formats.chakra.chakra_executor import Execution, Network, read

    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    text = Path(given["network-configuration"]).read_text()
    values = dict(re.findall(r"(\w+): \[ (\S+) \]", text))
    system = json.loads(Path(given["system-configuration"]).read_text())
    assert json.loads(Path(given["remote-memory-configuration"]).read_text())
    (prefix,) = next(v for key, v in system.items() if key.endswith("-custom"))
    count = int(values["npus_count"])
    traces = [Path(f"{prefix}.{rank}.et").read_bytes() for rank in range(count)]
    for rank in range(count):
        (node,) = read(Path(f"{given['workload-configuration']}.{rank}.et").read_bytes())
        assert node.kind == 7
    # One cycle is one picosecond, and the simulator calls it a nanosecond.
    rate = Fraction(float(values["bandwidth"]) * 2**30 / 1e9).limit_denominator(10**6) * 10**12
    network = Network(rate, round(float(values["latency"])), values["topology"] == "Switch")
    finish = Execution(traces, network, 1, 0).run()
    for rank in range(count):
        sys.stdout.write(
            f"[workload] [info] sys[{rank}] finished, {finish} cycles, exposed 0 cycles.\n"
        )


def late(arguments):
    """Print a finish that no schedule here has."""
    sys.stdout.write("Maximum finishing time at host 0: 999999999999 (1 s)\n")


def silent(arguments):
    """Print nothing that is looked for."""
    sys.stdout.write("hello\n")


def broken(arguments):
    """Fail with a reason."""
    sys.stdout.write("cannot read the file\n")
    return 7


def endless(arguments):
    """Never end."""
    import time

    time.sleep(1000)
