"""Start-up time of `import teccl` and `teccl --help`, each in fresh processes on a warm disk.

Run with ``make bench``. The targets are 0.3 s for the import and 0.6 s for the help text.
``--against FOLDER`` runs a small ``teccl solve`` of this tree and of another's sources in turn, and
prints processor seconds, which hardly depend on what else the machine does, and their ratio.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

RUNS = 10
SOLVE = ("-m", "teccl", "solve", "dgx1", "allgather", "--size", "1MB", "--quiet")
PACKAGES = ("teccl", "numpy", "scipy", "typer", "rich")


def wall_times(command: list[str], runs: int = RUNS) -> list[float]:
    """Seconds each run takes, after one run that warms the disk and the byte code."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return times[1:]


def processor_s(source: Path) -> float:
    """Processor seconds of one solve with the package in a folder of sources."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    # Warm commands find their byte code.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, *SOLVE], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compare(other: Path) -> None:
    """Print processor seconds of both trees, and how they relate."""
    sources = (Path(__file__).parent.parent / "src", other)
    # The first run of each compiles kernels where that has not been done.
    for source in sources:
        processor_s(source)
    runs = [[processor_s(source) for source in sources] for _ in range(RUNS)]
    here, there = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"teccl solve dgx1 allgather: {here:.3f} s, {there:.3f} s in {other}, {here / there:.2f}")


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Print the table, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="sources of another tree")
    asked = parser.parse_args()
    if asked.against is not None:
        compare(asked.against)
        return
    python = sys.executable
    rows: list[tuple[str, float | None, list[str]]] = [
        ("python -c pass", None, [python, "-c", "pass"]),
        ("import teccl", 0.3, [python, "-c", "import teccl"]),
        ("teccl --help", 0.6, [str(Path(python).with_name("teccl")), "--help"]),
    ]
    print(f"machine   {cpu_name()}, {os.cpu_count()} cores, {platform.system()}")
    print(f"python    {platform.python_version()}")
    print("packages  " + ", ".join(f"{name} {version(name)}" for name in PACKAGES))
    print(f"\n{'':<16}{'median s':>10}{'min s':>10}{'max s':>10}{'target s':>10}")
    for label, target, command in rows:
        times = wall_times(command)
        numbers = (statistics.median(times), min(times), max(times))
        shown = "".join(f"{number:>10.3f}" for number in numbers)
        print(f"{label:<16}{shown}{'-' if target is None else target:>10}")


if __name__ == "__main__":
    main()
