"""Running: execute a schedule file or measure links on ranks of torch, local or launched ones."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from teccl.errors import ScheduleError, VerificationError
from teccl.runtime.calibrate import Calibration, calibration, plan_pairs
from teccl.runtime.measure import RunOptions
from teccl.runtime.messages import active_ranks
from teccl.schedule import Schedule
from teccl.torch.local_ranks import launch, launched_rank

DEFAULT_RANKS = 2
# Without a limit of the user's, as torch has it for its own groups.
_TIMEOUT_S = 1800.0


def run_file(
    path: str | Path, options: RunOptions, *, ranks: int | None = None
) -> dict[str, Any] | None:
    """Run a schedule file and return the report as plain data.

    Parameters
    ----------
    ranks
        How many local ranks to start; None for those the schedule uses. Under ``torchrun`` the
        ranks are there already.

    Returns
    -------
    dict or None
        The report; None on all ranks but the first under ``torchrun``.

    Raises
    ------
    TecclError
        If the file is wrong, torch is missing, or the run failed.
    """
    if options.emulate:
        raise ScheduleError("the back end torch does not emulate links; use --backend mpi")
    timeout = options.timeout or _TIMEOUT_S
    rank = launched_rank()
    if rank is not None:
        from teccl.torch.measuring import measure
        from teccl.torch.rank_worker import in_world

        found = in_world(lambda: measure(Schedule.load(path), options), timeout=timeout)
        return found.to_dict() if rank == 0 else None
    from teccl.verification import verify

    schedule = Schedule.load(path)
    faults = verify(schedule)
    if faults:
        raise VerificationError(f"schedule {path} failed verification: {faults[0]}", faults)
    job = {
        "task": "measure",
        "schedule": str(Path(path).resolve()),
        "options": asdict(options),
    }
    report: dict[str, Any] = launch(job, _number_of_ranks(schedule, ranks), timeout=timeout)
    return report


def _number_of_ranks(schedule: Schedule, ranks: int | None) -> int:
    from teccl.torch.measuring import check_schedule

    number = len(active_ranks(schedule)) if ranks is None else ranks
    check_schedule(schedule, number)
    return number


def calibrate_ranks(
    *,
    sizes: Sequence[int],
    ranks: int | None = None,
    repeat: int = 10,
    group: int | None = None,
    timeout: float | None = None,
) -> Calibration | None:
    """Measure links between ranks by ping-pong over torch's point-to-point calls and fit them.

    Parameters
    ----------
    sizes
        Bytes of the messages.
    ranks
        Local ranks to start, None for two. Under ``torchrun`` the ranks are there already.
    repeat
        Exchanges that are timed at each size.
    group
        Measure a few pairs for every two groups of so many ranks; None for all pairs.
    timeout
        Seconds without progress after which a rank gives up.

    Returns
    -------
    Calibration or None
        The fits; None on all ranks but the first under ``torchrun``.
    """
    limit = timeout or _TIMEOUT_S
    rank = launched_rank()
    if rank is not None:
        from teccl.torch.link_times import measure_links
        from teccl.torch.rank_worker import in_world

        number = int(os.environ["WORLD_SIZE"])
        plan, stands_for = plan_pairs(number, sizes, group=group, repeat=repeat)
        found = in_world(lambda: measure_links(plan), timeout=limit)
        if rank:
            return None
    else:
        number = ranks or DEFAULT_RANKS
        plan, stands_for = plan_pairs(number, sizes, group=group, repeat=repeat)
        found = launch({"task": "calibrate", "plan": plan.to_dict()}, number, timeout=limit)
    return calibration(plan, found, stands_for=stands_for)
