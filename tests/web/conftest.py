"""The app as a process of its own, and a browser."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest


@dataclass(frozen=True)
class Server:
    """A running app."""

    process: subprocess.Popen[str]
    address: str
    token: str

    @property
    def root(self) -> str:
        return self.address.partition("/start")[0]

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    def client(self, **headers: str) -> httpx.Client:
        """A client that has the token."""
        known = {"Authorization": f"Bearer {self.token}", **headers}
        return httpx.Client(base_url=self.root, headers=known, timeout=60, trust_env=False)

    def stranger(self, **headers: str) -> httpx.Client:
        """A client without the token."""
        return httpx.Client(base_url=self.root, headers=headers, timeout=60, trust_env=False)


def start_server(folder: Path) -> Server:
    """Start the app with its files below a folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "teccl", "ui", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    line = process.stdout.readline()
    found = re.search(r"(http://127\.0\.0\.1:\d+/start\?token=(\S+))", line)
    assert found, line + process.stderr.read()
    return Server(process, found[1], found[2])


def stop_server(server: Server) -> None:
    """Interrupt the app as Ctrl-C does, and see that it ends in peace."""
    server.process.send_signal(signal.SIGINT)
    _, errors = server.process.communicate(timeout=30)
    assert (server.process.returncode, errors) == (0, "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One app for a module's tests."""
    started = start_server(tmp_path_factory.mktemp("ui"))
    yield started
    stop_server(started)
