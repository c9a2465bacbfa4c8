"""Ranks of a torch program in processes of their own, and what each of them printed."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = "PyTorch is not installed (pip install torch==2.13.0+cpu, as make setup does)"
TIMEOUT_S = 240.0


def needs_torch() -> pytest.MarkDecorator:
    """Skip where there is no torch, saying how to get it."""
    from importlib.util import find_spec

    return pytest.mark.skipif(find_spec("torch") is None, reason=INSTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank that has ended."""

    code: int
    out: str
    err: str


class Ranks:
    """Processes that run one script, which finds its rank in the environment.

    The script may call `begin()` of `tests.torch.programs.member` to join a group.
    """

    def __init__(self, script: Path, size: int, folder: Path, *arguments: str, **variables: str):
        self.folder, self.size = folder, size
        self._files = []
        self.processes = []
        for rank in range(size):
            out = (folder / f"out-{rank}").open("w+")
            err = (folder / f"err-{rank}").open("w+")
            self._files.append((out, err))
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "TECCL_STORE": str(folder / "studies.sqlite"),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "PYTHONWARNINGS": "ignore",
                "OMP_NUM_THREADS": "1",
                **variables,
            }
            for name in [n for n, value in environment.items() if value == ""]:
                del environment[name]
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, str(script), str(folder), *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=folder,
                )
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def wait(self, timeout: float = TIMEOUT_S) -> list[Rank]:
        """Wait for all ranks and return what they left."""
        until = time.monotonic() + timeout
        try:
            for process in self.processes:
                process.wait(max(0.1, until - time.monotonic()))
        finally:
            self.end()
        found = []
        for process, (out, err) in zip(self.processes, self._files, strict=True):
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read())
                file.close()
            found.append(Rank(code=process.returncode, out=texts[0], err=texts[1]))
        return found


def run_ranks(
    script: Path, size: int, folder: Path, *arguments: str, **variables: str
) -> list[Rank]:
    """Run a script on some ranks; all must succeed."""
    found = Ranks(script, size, folder, *arguments, **variables).wait()
    for rank, each in enumerate(found):
        assert each.code == 0, f"rank {rank} ended with {each.code}: {each.err[-3000:]}"
    return found


def counted(rank: Rank) -> dict[str, int]:
    """Calls that a rank counted, by what made them."""
    lines = [line.split() for line in rank.out.splitlines()]
    return {line[0]: int(line[1]) for line in lines if line[0] in ("schedule", "inner")}
