"""Agreement: all ranks compare at start what they were given, so that none runs something else."""

import json
from datetime import timedelta
from typing import Any

from teccl.errors import RunError, TecclError


def agree(
    store: Any,
    rank: int,
    ranks: tuple[int, ...],
    mine: dict[str, str],
    *,
    problem: TecclError | None,
    timeout: timedelta,
) -> None:
    """Compare with the first rank, and learn whether any rank differs or has a problem.

    Parameters
    ----------
    store
        A store that all ranks of the group reach.
    rank, ranks
        This rank in the group, and the ranks of the world that the group has.
    mine
        What must be equal, by name.
    problem
        What this rank could not read, None if nothing.

    Raises
    ------
    TecclError
        The rank's own problem, or a `RunError` that says which rank differs in what.
    """
    said = json.dumps({"problem": None if problem is None else str(problem), "mine": mine})
    if rank == 0:
        store.set("agree/first", said)
    first = json.loads(_wait(store, "agree/first", timeout, {"agree/first": ranks[0]}))
    fault = None if problem is None else str(problem)
    if fault is None and first["problem"] is None:
        different = [name for name, value in mine.items() if first["mine"].get(name) != value]
        if different:
            name = different[0]
            fault = (
                f"rank {ranks[rank]} has another {name} than rank {ranks[0]} "
                f"({mine[name][:16]} and {str(first['mine'].get(name))[:16]}); give all ranks the "
                "same"
            )
    if fault is not None:
        store.set("agree/fault", fault)
    store.set(f"agree/told/{rank}", "told")
    if store.add("agree/count", 1) == len(ranks):
        store.set("agree/done", "done")
    _wait(store, "agree/done", timeout, {f"agree/told/{i}": each for i, each in enumerate(ranks)})
    if problem is not None:
        raise problem
    if store.check(["agree/fault"]):
        raise RunError(f"the process group cannot start: {store.get('agree/fault').decode()}")


def _wait(store: Any, key: str, timeout: timedelta, signs: dict[str, int]) -> str:
    """Return what a key holds once it is there.

    Parameters
    ----------
    signs
        Ranks of the world by the key that each sets when it comes so far.

    Raises
    ------
    RunError
        If it is not there in time; says which ranks did not come so far.
    """
    try:
        store.wait([key], timeout)
    except RuntimeError:
        late = [str(rank) for sign, rank in signs.items() if not store.check([sign])]
        raise RunError(
            f"rank {' and '.join(late) or 'unknown'} did not start within "
            f"{timeout.total_seconds():g} s; look whether it died, or give a longer timeout"
        ) from None
    answer: str = store.get(key).decode()
    return answer
