"""What a job's own process does: solve, save the schedule and its report, tell about it."""

import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from teccl.errors import TecclError
from teccl.progress import CancelToken, Progress

# News that come faster than this are dropped, unless they tell of a better schedule.
_MIN_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to solve, as keywords of `teccl.solve`.

    Parameters
    ----------
    topology
        A preset, or the path of an uploaded file.
    folder
        Where the schedule and the report are left.
    """

    topology: str
    collective: str
    folder: Path
    keywords: dict[str, Any] = field(default_factory=dict)


def work(order: Order, connection: Connection) -> None:
    """Carry out an order; every end is told through the connection."""
    # Ctrl-C in the terminal is the server's matter, which cancels its jobs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        # A group of its own, so that it can be ended together with the solvers that it starts.
        os.setsid()
    token = CancelToken()
    threading.Thread(target=_listen, args=(connection, token), daemon=True).start()
    try:
        connection.send(("done", _solve(order, _teller(connection), token)))
    except TecclError as problem:
        connection.send(("failed", {"error": str(problem)}))
    except MemoryError:
        connection.send(("failed", {"error": "out of memory; use a smaller problem"}))
    except Exception as problem:  # noqa: BLE001, the page gets a line, the terminal nothing
        reason = f"internal error, {type(problem).__name__}: {str(problem)[:300]}; please report it"
        connection.send(("failed", {"error": reason}))


def _solve(order: Order, tell: Any, token: CancelToken) -> dict[str, Any]:
    from teccl.report import write_report
    from teccl.synthesis import solve

    keywords = {**order.keywords, "progress": tell, "cancel": token}
    result = solve(order.topology, order.collective, **keywords)
    if result.schedule is not None:
        tell(Progress(phase="report", incumbent_s=result.finish_time_s), force=True)
        result.schedule.save(order.folder / "schedule.json.gz")
        write_report(
            result.schedule,
            order.folder / "report.html",
            solve_seconds=result.solve_seconds,
            tried=result.tried,
        )
    return result.to_dict()


def _listen(connection: Connection, token: CancelToken) -> None:
    """Cancel when told to; end when nobody is there any more."""
    try:
        connection.recv()
        token.cancel()
        connection.recv()
    except (EOFError, OSError):
        os._exit(1)


def _teller(connection: Connection) -> Any:
    best: float | None = None
    last = 0.0

    def tell(event: Progress, *, force: bool = False) -> None:
        nonlocal best, last
        is_better = event.incumbent_s is not None and (best is None or event.incumbent_s < best)
        if not (force or is_better or time.monotonic() - last >= _MIN_INTERVAL_S):
            return
        best = event.incumbent_s if is_better else best
        last = time.monotonic()
        connection.send(("progress", asdict(event)))

    return tell
