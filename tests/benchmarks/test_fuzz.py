"""The fuzzer: what it draws, whom it believes, what it makes smaller, and a sample of its cases."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _fuzz.child import outcome
from _fuzz.demands import COLLECTIVES
from _fuzz.draw import _OPTIONS, METHODS, draw_case
from _fuzz.interpret import faults
from _fuzz.run import Runner, is_fault
from _fuzz.shrink import shrink

import teccl

SAMPLE = 16


# A tenant that wants nothing, and epochs that are short beside latencies and slow links.
FOUND = sorted(Path(__file__).with_name("found").glob("*.json"))


def limited(case: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Give a case so much time."""
    case["keywords"]["time_limit"] = seconds
    return case


def test_a_case_follows_from_its_seed_and_index() -> None:
    """Cases are the same however often they are drawn, and all differ."""
    cases = [draw_case(3, index) for index in range(20)]
    assert cases == [draw_case(3, index) for index in range(20)]
    assert len({json.dumps(case["topology"]) for case in cases}) == 20


def test_everything_is_drawn() -> None:
    """Every option, method, collective and kind of network has its turn."""
    cases = [draw_case(0, index) for index in range(400)]
    assert set().union(*(case["keywords"] for case in cases)) == {*_OPTIONS, "method", "time_limit"}
    assert {case["keywords"]["method"] for case in cases} == set(METHODS)
    tenants = [tenant for case in cases for tenant in case["demand"]["collectives"]]
    named = {tenant.get("collective") for tenant in tenants}
    assert named == {None, *COLLECTIVES} - {"alltoallv"}
    assert {"matrix", "chunks", "ready", "ranks", "root"} <= set().union(*tenants)
    pieces = [piece for tenant in tenants for piece in tenant.get("chunks", ())]
    assert {"reduce", "size"} <= set().union(*pieces)
    links = [link for case in cases for link in case["topology"]["links"]]
    assert {"shares", "profile", "overhead", "bidirectional"} <= set().union(*links)


@pytest.mark.parametrize("index", range(SAMPLE))
def test_a_sample_has_no_faults(index: int) -> None:
    """What is solved is right, what is not is refused in one line."""
    record = outcome(limited(draw_case(11, index), 1))
    assert not is_fault(record), record


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path: Path) -> None:
    """Cases that ended badly once do so no more."""
    record = outcome(limited(json.loads(path.read_text()), 2))
    assert not is_fault(record), record


@pytest.mark.slow
def test_limits_that_were_overrun_are_kept() -> None:
    """Such cases also end in time, once kernels are compiled."""
    with Runner() as runner:
        for path in FOUND:
            case = limited(json.loads(path.read_text()), 2)
            runner.run(case)
            record = runner.run(case)
            assert not is_fault(record), record


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_cases_have_no_faults(seed: int) -> None:
    """The same for hundreds of cases, each with its whole time."""
    with Runner() as runner:
        found = [runner.run(draw_case(seed, index)) for index in range(300)]
    assert not [record for record in found if is_fault(record)]


def test_a_process_that_dies_is_a_fault() -> None:
    """A crash is told, and the next case has a new process."""
    case = {**draw_case(0, 0), "keywords": {"time_limit": 5, "chunks": 1}}
    with Runner() as runner:
        os.kill(runner._start().pid, signal.SIGKILL)
        assert runner.run(case)["outcome"] == "crash"
        assert runner.run(case)["outcome"] == "solved"


def test_shrinking_keeps_what_fails() -> None:
    """What is left is a link with a profile, and little else."""
    case = next(
        case
        for case in (draw_case(0, index) for index in range(100))
        if any("profile" in link for link in case["topology"]["links"])
    )

    def fails(candidate: dict[str, Any]) -> bool:
        return any("profile" in link for link in candidate["topology"]["links"])

    small = shrink(case, fails)
    (link,) = small["topology"]["links"]
    assert (link["bandwidth"], link["alpha"], "shares" in link) == ("10GB/s", "0", False)
    assert set(small["keywords"]) == {"time_limit"}


def _later(document: dict[str, Any]) -> None:
    first = min(document["sends"], key=lambda send: send["start_ps"])
    first["start_ps"] += 10**9


def _earlier(document: dict[str, Any]) -> None:
    max(document["sends"], key=lambda send: send["start_ps"])["start_ps"] = 0


def _dropped(document: dict[str, Any]) -> None:
    document["sends"].pop()


def _twice(document: dict[str, Any]) -> None:
    document["sends"].append({**document["sends"][0], "transfer": 999})


def _finish(document: dict[str, Any]) -> None:
    document["finish_ps"] -= 1


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("topology", ["ring:gpus=4", "star:gpus=4"])
@pytest.mark.parametrize("damage", [_later, _earlier, _dropped, _twice, _finish])
def test_the_interpretation_finds_what_is_wrong(
    tmp_path: Path, topology: str, collective: str, damage: Callable[[dict[str, Any]], None]
) -> None:
    """Sends that are late, early, gone or there twice, and a wrong finish are noticed."""
    path = tmp_path / "schedule.json"
    result = teccl.solve(topology, collective, size="1MB", chunks=1, effort="quick")
    assert result.schedule is not None
    result.schedule.save(path)
    assert faults(path) == []
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    assert faults(path)
