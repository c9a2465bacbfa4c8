"""The judge of orbits: its verdict, finish and load are those of the schedule with all images."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.orbit.drawing import draw_problem, draw_schedule

from teccl.errors import InputError
from teccl.orbit.expansion import expand
from teccl.orbit.files import orbit_from_dict, orbit_to_dict
from teccl.orbit.judge import verify_orbit
from teccl.orbit.schedule import OrbitSchedule
from teccl.schedule.timing import send_times
from teccl.verification import verify

QUICK, FULL = 30, 300


def drawn(seed: int) -> OrbitSchedule:
    """One random schedule of a random symmetric problem."""
    rng = random.Random(seed)
    return draw_schedule(rng, draw_problem(rng))


def assert_agrees(schedule: OrbitSchedule) -> bool:
    """Assert that the quotient says of a schedule what its expansion does; return the verdict."""
    whole = expand(schedule)
    found, expected = verify_orbit(schedule), verify(whole)
    assert bool(found) == bool(expected), (found[:3], expected[:3])
    plain, listed = (
        replace(schedule, claimed_finish_ps=None),
        replace(whole, claimed_finish_ps=None),
    )
    assert plain.finish_ps == listed.finish_ps
    links = np.arange(schedule.fabric.num_links)
    load = plain.load()[schedule.fabric.link_orbit(links)]
    assert np.allclose(load, listed.utilisation())
    assert plain.bytes_on_wire == listed.bytes_on_wire
    if len(plain):
        path = plain.critical_path()
        assert plain.arrival_ps[path[-1]] == send_times(listed).arrival_ps.max()
    return not found


def check_draws(seeds: range) -> None:
    """Assert agreement on many schedules, most of which are correct and some are not."""
    verdicts = [assert_agrees(drawn(seed)) for seed in seeds]
    assert sum(verdicts) > 0.8 * len(verdicts)


def test_quotient_agrees_with_expansion():
    """Verdict, finish, load and critical end equal those of all images together."""
    check_draws(range(QUICK))


@pytest.mark.slow
def test_quotient_agrees_with_expansion_on_hundreds():
    """The same on 300 problems."""
    check_draws(range(1000, 1000 + FULL))


def test_some_draws_use_links_that_stay_in_place():
    """A link that a subgroup leaves in place carries several images at once, which is refused."""
    kinds = {v.kind.value for seed in range(120) for v in verify_orbit(drawn(seed))}
    assert "overlap" in kinds


def _drop(rng: random.Random, document: Any) -> None:
    row = rng.randrange(len(document["sends"]["link"]))
    for column in document["sends"].values():
        del column[row]


def _repeat(rng: random.Random, document: Any) -> None:
    row = rng.randrange(len(document["sends"]["link"]))
    for column in document["sends"].values():
        column.append(column[row])


def _set(column: str, value: Callable[[random.Random, int], int]) -> Callable[..., None]:
    def mutate(rng: random.Random, document: Any) -> None:
        values = document["sends"][column]
        row = rng.randrange(len(values))
        values[row] = value(rng, values[row])

    return mutate


def _finish(rng: random.Random, document: Any) -> None:
    document["finish_ps"] += rng.choice([-1, 1])


def _bound(rng: random.Random, document: Any) -> None:
    limit = document["finish_ps"] + 10**9 + rng.randrange(10)
    document["bound"] = {"physical_ps": limit, "chunk_ps": None, "certificate": "a guess"}


def _slower(rng: random.Random, document: Any) -> None:
    used = document["fabric"]["links"]
    rng.choice(used)["bandwidth"] = "7KB/s"


def _larger(_: random.Random, document: Any) -> None:
    document["size"] = "77MB"


def _elsewhere(rng: random.Random, document: Any) -> None:
    link = rng.choice(document["fabric"]["links"])
    sizes = document["fabric"]["nodes"][link["dst"]]["moduli"]
    link["offset"] = [rng.randrange(m) for m in sizes]


def _still(rng: random.Random, document: Any) -> None:
    node = rng.choice(document["fabric"]["nodes"])
    node["moduli"] = [1] * len(node["moduli"])


def _collective(rng: random.Random, document: Any) -> None:
    others = {"allgather", "reducescatter", "allreduce", "alltoall"} - {document["collective"]}
    document["collective"] = rng.choice(sorted(others))


def _groups(rng: random.Random, document: Any) -> None:
    if rng.random() < 0.5:
        document.pop("groups", None)
    else:
        document["groups"] = {"size": rng.choice([2, 3, 4]), "stride": rng.choice([1, 2, 3])}


MUTATIONS: dict[str, Callable[[random.Random, Any], None]] = {
    "drop": _drop,
    "repeat": _repeat,
    "earlier": _set("start_ps", lambda rng, x: max(0, x - rng.randrange(1, 10**6))),
    "later": _set("start_ps", lambda rng, x: x + rng.randrange(1, 10**6)),
    "link": _set("link", lambda rng, x: max(0, x + rng.choice([-3, -2, -1, 1, 2, 3]))),
    "chunk": _set("chunk", lambda rng, x: max(0, x + rng.choice([-2, -1, 1, 2]))),
    "transfer": _set("transfer", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "reduce": _set("reduce", lambda _, x: 1 - x),
    "finish": _finish,
    "bound": _bound,
    "slower": _slower,
    "larger": _larger,
    "elsewhere": _elsewhere,
    "still": _still,
    "collective": _collective,
    "groups": _groups,
}
# After these no file is correct, whatever it was.
FATAL = ("repeat", "finish", "bound", "larger")


def caught(schedule: OrbitSchedule, name: str, rng: random.Random) -> bool | None:
    """Whether a changed file is refused or judged wrong; None where nothing changed.

    What is not caught must be correct with every image listed, too.
    """
    before = orbit_to_dict(schedule)
    document = orbit_to_dict(schedule)
    MUTATIONS[name](rng, document)
    if document == before:
        return None
    try:
        changed = orbit_from_dict(document)
    except InputError:
        return True
    return not assert_agrees(changed)


def check_mutations(wanted: int) -> None:
    """Change correct files until enough wrong ones were caught; fatal changes always are."""
    count, seed = 0, 5000
    while count < wanted:
        seed += 1
        rng, schedule = random.Random(seed), drawn(seed)
        if verify_orbit(schedule):
            continue
        for name in MUTATIONS:
            verdict = caught(schedule, name, rng)
            assert verdict is not False or name not in FATAL, name
            count += bool(verdict)


def test_changed_files_are_caught():
    """A file that does not stand for a correct schedule any more is refused or judged wrong."""
    check_mutations(QUICK)


@pytest.mark.slow
def test_changed_files_are_caught_by_hundreds():
    """The same for 300 wrong files."""
    check_mutations(FULL)
