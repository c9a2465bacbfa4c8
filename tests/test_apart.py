"""Searches that are left behind: what they had found is handed out, whatever keeps them busy."""

import threading
from functools import partial
from typing import Any

import pytest

import teccl
from teccl.construct.baselines import build_baseline
from teccl.progress import CancelToken
from teccl.result import Status
from teccl.synthesis import solving
from teccl.synthesis.apart import Ending, run_apart
from teccl.synthesis.search import Search

DONE = Ending(Status.FEASIBLE, "")


def test_work_that_ends_is_waited_for() -> None:
    """Its ending comes back, and so does what it raises."""
    assert run_apart(lambda: DONE, CancelToken(), 0.1) is DONE
    with pytest.raises(ZeroDivisionError):
        run_apart(lambda: 1 // 0, CancelToken(), 0.1)  # type: ignore[arg-type, return-value]


def test_work_that_does_not_end_is_left_behind() -> None:
    """After a cancel it has its time, then nobody waits for it."""
    release, token = threading.Event(), CancelToken()
    token.cancel()

    def work() -> Ending:
        release.wait()
        return DONE

    assert run_apart(work, token, 0.05) is None
    release.set()


@pytest.mark.parametrize("finds", [True, False])
def test_a_search_in_compiled_code_hands_out_its_best(
    monkeypatch: pytest.MonkeyPatch, finds: bool
) -> None:
    """A kernel that does not return loses nothing that was found before."""
    release, token = threading.Event(), CancelToken(patience_s=0.05)

    def stubborn(search: Search) -> None:
        if finds:
            search.offer(build_baseline("ring", search.request.problem(1)))
        token.cancel()
        release.wait()

    monkeypatch.setitem(solving.METHODS, "ring", stubborn)
    options: dict[str, Any] = {"method": "ring", "chunks": 1, "cancel": token}
    result = teccl.solve("ring:gpus=4", "allgather", size="1MB", **options)
    release.set()
    assert result.status is Status.INTERRUPTED
    assert result.verified is finds


def test_a_patient_token_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without patience given the search stays in the caller's thread."""
    seen: list[threading.Thread] = []

    def note(search: Search) -> None:
        seen.append(threading.current_thread())
        search.offer(build_baseline("ring", search.request.problem(1)))

    monkeypatch.setitem(solving.METHODS, "ring", note)
    solve = partial(teccl.solve, "ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
    assert solve(cancel=CancelToken()).verified
    assert solve(cancel=CancelToken(patience_s=1)).verified
    assert [thread is threading.current_thread() for thread in seen] == [True, False]
