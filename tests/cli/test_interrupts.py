"""Ctrl-C at any moment of commands that take long: each ends in order and leaves nothing behind."""

import math
import signal
import threading
import time
from pathlib import Path

import pytest
from interrupts import COMMANDS, SOLVED, interrupted
from tests.cli.helpers import run

from teccl.cli import interrupt
from teccl.cli.interrupt import stopping_on_interrupt
from teccl.progress import CancelToken


def test_what_nobody_hears_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that does not ask whether to go on is broken off."""
    monkeypatch.setattr(interrupt, "UNHEARD_S", 0.01)

    def work() -> None:
        with stopping_on_interrupt(CancelToken()):
            signal.raise_signal(signal.SIGINT)
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_search_that_hears_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has asked is left to hand out what there is."""
    monkeypatch.setattr(interrupt, "UNHEARD_S", 0.01)
    token = CancelToken()
    with stopping_on_interrupt(token):
        signal.raise_signal(signal.SIGINT)
        assert token.is_cancelled
        time.sleep(0.05)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_threads_leave_signals_alone() -> None:
    """Off the main thread no handler is installed."""
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with stopping_on_interrupt(CancelToken()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_interrupts_leave_nothing_behind(number: int, ignored: bool, tmp_path: Path) -> None:
    """Code 0 with something to show, 130 without; no process, no file, no traceback."""
    if "schedule.json" in COMMANDS[number]:
        assert run(*SOLVED, "-o", tmp_path / "schedule.json", "-q").code == 0
    ending = interrupted(COMMANDS[number], 3 + 1.7 * number, tmp_path, ignored=ignored)
    allowed = (0, -signal.SIGTERM) if ignored else (0, 130)
    assert ending is None or ending.faults(allowed, limit_s=math.inf) == []
