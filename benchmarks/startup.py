"""Start-up time of `import teccl` and `teccl --help`, each in fresh processes on a warm disk.

Run with ``make bench``. The targets are 0.3 s for the import and 0.6 s for the help text.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

RUNS = 10
PACKAGES = ("teccl", "numpy", "scipy", "typer", "rich")


def wall_times(command: list[str], runs: int = RUNS) -> list[float]:
    """Seconds each run takes, after one run that warms the disk and the byte code."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return times[1:]


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Print the table."""
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
