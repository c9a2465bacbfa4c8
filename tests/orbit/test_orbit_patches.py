"""Patched orbit schedules: mended around damage, judged as if every send were listed."""

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.orbit.drawing import draw_problem, draw_schedule
from tests.sampling import counts, thinned

from teccl.demand import Collective
from teccl.errors import InputError, MethodError, ScheduleError, TopologyError
from teccl.orbit import Damage, PatchedSchedule, expand, mend_orbit, parse_fabric, verify_orbit
from teccl.orbit.fabric import Fabric
from teccl.orbit.files import orbit_from_dict, orbit_to_dict
from teccl.orbit.patched import ADDED_DTYPE, REMOVED_DTYPE
from teccl.orbit.plan.interleaving import interleaved
from teccl.orbit.plan.mending import mended
from teccl.orbit.problem import FabricProblem
from teccl.orbit.ranks import rank_program
from teccl.orbit.schedule import ORBIT_DTYPE, OrbitSchedule
from teccl.orbit.solving import solve_orbit
from teccl.units import picoseconds
from teccl.verification import verify
from teccl.verification.violation import ViolationKind

PLANNED = ("allgather", "reducescatter", "allreduce", "alltoall")
SMALL = [
    *("torus:dims=3x4", "torus:dims=2x2x3", "ring:gpus=6", "dgx-h100:chassis=3", "star:gpus=5"),
    *("gb200-nvl72:chassis=2", "hypercube:dimension=3", "fully-connected:gpus=5"),
    *("twisted-torus:dims=2x2x4", "dgx-b300:chassis=2,planes=2"),
]
QUICK, FULL = 20, 300


def draw_damage(rng: random.Random, fabric: Fabric) -> Damage:
    """Damage of a few random links, each down or slower."""
    links = rng.sample(range(fabric.num_links), min(rng.choice([1, 1, 2, 4]), fabric.num_links))
    slower = {link: fabric.link_at(link).bandwidth / rng.choice([2, 3]) for link in links}
    return Damage(fabric=fabric, rates={x: rng.choice([None, slower[x]]) for x in links})


def drawn(seed: int) -> PatchedSchedule | None:
    """A random schedule of a random fabric, patched around damage; None where that is refused."""
    rng = random.Random(seed)
    problem = draw_problem(rng)
    bare = tuple(replace(link, shares=()) for link in problem.fabric.links)
    whole = replace(problem.fabric, links=bare, shared=())
    problem = replace(problem, fabric=whole, groups=None)
    schedule = draw_schedule(rng, problem)
    if verify_orbit(schedule):
        return None
    try:
        return mended(schedule, draw_damage(rng, problem.fabric))
    except MethodError:
        return None


def is_correct_when_listed(schedule: PatchedSchedule) -> bool:
    """What the general judge says of the schedule with all sends, and that its finish agrees."""
    try:
        whole = expand(schedule)
    except InputError:
        return False
    assert len(whole) == schedule.num_sends
    plain = replace(schedule, claimed_finish_ps=None)
    correct = not verify(whole)
    if not any("damaged" in str(each) for each in verify_orbit(schedule)):
        assert replace(whole, claimed_finish_ps=None).finish_ps == plain.finish_ps
    return correct


def assert_agrees(schedule: PatchedSchedule) -> bool:
    """Assert that the judge says of a patch what it says of all sends; return the verdict.

    It refuses images that stay on slow links, some of which would do, and does not look at how much
    later they end.
    """
    found = verify_orbit(schedule)
    correct = is_correct_when_listed(schedule)
    assert correct or found
    slow = [each for each in found if "damaged" in str(each)]
    others = [each for each in found if each not in slow]
    late = [each for each in others if each.kind is ViolationKind.WRONG_FINISH]
    assert not correct or others == (late if slow else []), found[:3]
    return not found


def check_draws(wanted: int, seed: int) -> None:
    """Assert that so many patches of random schedules are correct."""
    count = 0
    while count < wanted:
        seed += 1
        schedule = drawn(seed)
        if schedule is not None and len(schedule.removed):
            assert assert_agrees(schedule), seed
            count += 1


def test_patches_are_correct_with_all_sends_listed():
    """Random plans, mended around random damage, are what the general judge accepts."""
    check_draws(QUICK, 0)


@pytest.mark.slow
def test_patches_are_correct_by_hundreds():
    """The same 300 times."""
    check_draws(FULL, 10_000)


@pytest.mark.parametrize(("spec", "collective"), thinned(product(SMALL, PLANNED), 3))
def test_plans_are_mended_on_presets(spec, collective):
    """Plans of presets, too, unless a GPU is cut off."""
    rng, fabric = random.Random(f"{spec} {collective}"), parse_fabric(spec)
    plan = solve_orbit(fabric, collective, size="1MB", chunks=rng.choice([1, 2])).schedule
    for _ in range(2):
        try:
            result = mend_orbit(plan, draw_damage(rng, fabric))
        except MethodError:
            continue
        assert is_correct_when_listed(result.schedule)
        assert result.bound.physical_ps <= result.schedule.finish_ps


def test_a_weak_gpu_gets_sums_while_it_sends_its_contributions():
    """What comes to it and what it sends overlap; one after the other would take far longer."""
    fabric = parse_fabric("dgx-h100:chassis=6")
    damage = Damage.of(fabric, down=["c1/gpu2:c1/nvswitch"])
    ends = {}
    for collective in ("reducescatter", "allgather", "allreduce"):
        plan = solve_orbit(fabric, collective, size="1GB", chunks=4).schedule
        result = mend_orbit(plan, damage)
        assert is_correct_when_listed(result.schedule)
        ends[collective] = result.schedule.finish_ps
    assert ends["allreduce"] < 0.7 * (ends["reducescatter"] + ends["allgather"])


@pytest.mark.parametrize("count", counts(8, 30))
def test_overlapping_halves_take_the_times_of_the_plan_from_the_whole_fabric(count):
    """The links of the first chunk may be slow, those of its images are not."""
    fabric = parse_fabric("ring:gpus=6")
    plan = solve_orbit(fabric, "allreduce", size="1MB", chunks=1).schedule
    slow = fabric.link_at(0).bandwidth / 3
    for seed in range(count):
        down = random.Random(seed).sample(range(6, 12), 2)
        damage = Damage(fabric=fabric, rates={0: slow, 1: slow, **dict.fromkeys(down)})
        assert is_correct_when_listed(mend_orbit(plan, damage).schedule)


@pytest.mark.parametrize("spec", ["torus:dims=3x4", "dgx-h100:chassis=3", "star:gpus=5"])
@pytest.mark.parametrize(("pieces", "room"), [(1, 0.0), (4, 0.25), (2, 1.5)])
def test_pieces_one_after_the_other_are_a_plan(spec, pieces, room):
    """Sums are complete before they are copied, and room is what links are not held for."""
    plan = solve_orbit(parse_fabric(spec), "allreduce", size="64MB", chunks=2).schedule
    made = interleaved(plan, pieces, room)
    assert not verify_orbit(made)
    assert made.problem.num_chunks == 2 * pieces
    held = np.bincount(made.fabric.link_orbit(made.sends["link"]), weights=made.held_ps)
    assert made.finish_ps >= (1 + 0.9 * room) * held.max()


def test_a_weak_gpu_uses_both_directions_all_the_time():
    """With half its NVLink a GPU holds an AllReduce up by far less than half by half.

    A patched plan, whose sums and copies have links at the same time, is patched again.
    """
    fabric = parse_fabric("dgx-h100:chassis=8")
    damage = Damage.of(fabric, slower={"c1/gpu2:c1/nvswitch": Fraction(1, 2)})
    plan = solve_orbit(fabric, "allreduce", size="1GB", chunks=4)
    made = mend_orbit(plan.schedule, damage)
    halves = [
        mend_orbit(solve_orbit(fabric, each, size="1GB", chunks=4).schedule, damage)
        for each in ("reducescatter", "allgather")
    ]
    uncut = mended(plan.schedule, damage, cut=False)
    assert uncut.problem.num_chunks == 4
    assert made.schedule.problem.num_chunks > 4
    assert made.schedule.finish_ps < 0.85 * sum(half.schedule.finish_ps for half in halves)
    assert made.schedule.finish_ps < uncut.finish_ps
    other = Damage.of(fabric, down=["c3/gpu0:leaf0"])
    again = mend_orbit(made.schedule, other)
    assert is_correct_when_listed(again.schedule)


def test_the_load_is_that_of_the_busiest_link_of_each_orbit():
    """Removed images and added sends count where they are."""
    fabric = parse_fabric("dgx-h100:chassis=3")
    plan = solve_orbit(fabric, "allgather", size="1MB", chunks=1).schedule
    made = mend_orbit(plan, Damage.of(fabric, slower={"c0/gpu1:leaf1": Fraction(1, 2)})).schedule
    whole = expand(made)
    size, links = made.problem.chunk_bytes, whole.problem.topology.links
    held = np.array([picoseconds(x.overhead) + picoseconds(size / x.bandwidth) for x in links])
    busy = np.bincount(whole.sends["link"], minlength=len(links)) * held
    most = np.zeros(len(fabric.links))
    np.maximum.at(most, fabric.link_orbit(np.arange(fabric.num_links)), busy)
    assert made.load() == pytest.approx(most / made.finish_ps)


def _edit(
    table: str, column: str, value: Callable[[random.Random, int], int]
) -> Callable[..., None]:
    def mutate(rng: random.Random, patch: Any) -> None:
        values = patch[table][column]
        if values:
            row = rng.randrange(len(values))
            values[row] = value(rng, values[row])

    return mutate


def _drop(table: str) -> Callable[..., None]:
    def mutate(rng: random.Random, patch: Any) -> None:
        count = len(patch[table]["element"])
        row = rng.randrange(count) if count else None
        for column in patch[table].values():
            if row is not None:
                del column[row]

    return mutate


def _repeat(rng: random.Random, patch: Any) -> None:
    row = rng.randrange(len(patch["added"]["link"]))
    for column in patch["added"].values():
        column.append(column[row])


def _copy(rng: random.Random, patch: Any) -> None:
    """Let a send go on to another link as well, as a switch does that copies."""
    row = rng.randrange(len(patch["added"]["link"]))
    for name, column in patch["added"].items():
        column.append(column[row] + (rng.choice([1, 2, 3]) if name == "link" else 0))


def _slower(rng: random.Random, patch: Any) -> None:
    rng.choice(patch["damage"])["bandwidth"] = "9KB/s"


def _down(rng: random.Random, patch: Any) -> None:
    rng.choice(patch["damage"])["bandwidth"] = None


def _elsewhere(rng: random.Random, patch: Any) -> None:
    rng.choice(patch["damage"])["link"] += rng.choice([-1, 1])


MUTATIONS: dict[str, Callable[[random.Random, Any], None]] = {
    "keep": _drop("removed"),
    "lose": _drop("added"),
    "repeat": _repeat,
    "copy": _copy,
    "other image": _edit("removed", "element", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "other transfer": _edit("removed", "transfer", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "earlier": _edit("added", "start_ps", lambda rng, x: max(0, x - rng.randrange(1, 10**6))),
    "later": _edit("added", "start_ps", lambda rng, x: x + rng.randrange(1, 10**6)),
    "link": _edit("added", "link", lambda rng, x: max(0, x + rng.choice([-2, -1, 1, 2]))),
    "chunk": _edit("added", "chunk", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "element": _edit("added", "element", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "mix": _edit("added", "transfer", lambda rng, x: max(0, x + rng.choice([-1, 1]))),
    "op": _edit("added", "reduce", lambda _, x: 1 - x),
    "slower": _slower,
    "down": _down,
    "elsewhere": _elsewhere,
}
# After these no file is correct.
FATAL = ("repeat",)


def check_mutations(wanted: int, seed: int) -> None:
    """Change files of patches until so many wrong ones were caught."""
    count = 0
    while count < wanted:
        seed += 1
        rng, schedule = random.Random(seed), drawn(seed)
        if schedule is None or not len(schedule.added):
            continue
        for name, mutate in MUTATIONS.items():
            document = orbit_to_dict(schedule)
            mutate(rng, document["patch"])
            if document == orbit_to_dict(schedule):
                continue
            try:
                correct = assert_agrees(orbit_from_dict(document))
            except InputError:
                correct = False
            assert not correct or name not in FATAL, name
            count += not correct


def test_changed_patches_are_caught():
    """A patch that does not stand for a correct schedule any more is refused or judged wrong."""
    check_mutations(QUICK, 20_000)


@pytest.mark.slow
def test_changed_patches_are_caught_by_hundreds():
    """The same for 300 wrong files."""
    check_mutations(FULL, 30_000)


def patched_by_hand(
    plan: OrbitSchedule, removed: list[tuple[int, int]], added: list[tuple[int, ...]]
) -> PatchedSchedule:
    """A plan without some images of transfers and with some sends; nothing is damaged."""
    return PatchedSchedule(
        base=replace(plan, bound=None, claimed_finish_ps=None),
        damage=Damage(fabric=plan.fabric, rates={}),
        removed=np.array(removed, dtype=REMOVED_DTYPE),
        added=np.array(added, dtype=ADDED_DTYPE),
    )


def test_a_sum_that_a_switch_copies_counts_twice():
    """GPU 4 sends to GPUs 0 and 3 at once, and GPU 3 passes on to GPU 0 what it got."""
    fabric = parse_fabric("star:gpus=5")
    plan = solve_orbit(fabric, "reducescatter", size="1MB", chunks=1).schedule
    sends, arrival = plan.sends, plan.arrival_ps
    sender = fabric.link_ends(sends["link"])[0]
    transfer = {gpu: int(sends["transfer"][sender == gpu][0]) for gpu in (3, 4)}
    ends = np.stack(fabric.link_ends(np.arange(fabric.num_links)), axis=1).tolist()
    to, back = (
        [ends.index(pair) for pair in pairs] for pairs in ([[3, 5], [4, 5]], [[5, 0], [5, 3]])
    )
    hop, late = int(arrival[0] - sends["start_ps"][0]), plan.finish_ps
    once = [
        *((0, 0, to[1], 0, late, 1), (0, 0, back[0], 0, late + hop, 1)),
        *((0, 0, to[0], 1, late + 2 * hop, 1), (0, 0, back[0], 1, late + 3 * hop, 1)),
    ]
    removed = [(transfer[gpu], 0) for gpu in (3, 4)]
    assert assert_agrees(patched_by_hand(plan, removed, once))
    twice = [*once, (0, 0, back[1], 0, late + hop, 1)]
    assert not assert_agrees(patched_by_hand(plan, removed, twice))


def test_a_very_late_transfer_hides_no_overlap():
    """Times near the largest that a file may have are compared as all others."""
    fabric = parse_fabric("torus:dims=2x3x3")
    plan = solve_orbit(fabric, "allgather", size="1MB", chunks=1).schedule
    late = plan.sends[-1:].copy()
    late["start_ps"], late["transfer"] = 2**62 - 10**12, plan.sends["transfer"].max() + 1
    base = replace(plan, sends=np.concatenate([plan.sends, late]), claimed_finish_ps=None)
    removed = [(int(late["transfer"][0]), element) for element in range(fabric.group.order)]
    for send in plan.sends:
        again = (int(send["chunk"]), 0, int(send["link"]), 0, int(send["start_ps"]), 0)
        assert not assert_agrees(patched_by_hand(base, removed, [again]))


def test_images_that_touch_no_damage_stay():
    """What is listed grows with the GPUs, and all other images are those of the plan."""
    fabric = parse_fabric("dgx-h100:chassis=16")
    plan = solve_orbit(fabric, "alltoall", size="1GB", chunks=1).schedule
    patched = mend_orbit(plan, Damage.of(fabric, down=["c3/gpu2:leaf2"])).schedule
    assert np.array_equal(patched.base.sends, plan.sends)
    assert len(patched.removed) < 6 * fabric.num_gpus
    assert len(patched.added) < 30 * fabric.num_gpus


@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "alltoall"])
def test_a_lost_rail_costs_what_it_must(collective):
    """A chassis with seven of eight rails is served within two percent of the bound."""
    fabric = parse_fabric("dgx-h100:chassis=32")
    plan = solve_orbit(fabric, collective, size="1GB").schedule
    result = mend_orbit(plan, Damage.of(fabric, down=["c3/gpu2:leaf2"]))
    assert result.physical_gap < 0.02
    assert result.bound.physical_ps > 1.1 * plan.bound.physical_ps


def test_programs_of_ranks_are_those_of_all_sends():
    """Every message that a rank of a patched schedule has, and no other."""
    fabric = parse_fabric("dgx-h100:chassis=3")
    plan = solve_orbit(fabric, "allreduce", size="1MB", chunks=1).schedule
    patched = mend_orbit(plan, Damage.of(fabric, down=["c1/gpu2:leaf2"])).schedule
    whole = expand(patched)
    topology = whole.problem.topology
    links = [topology.links[i] for i in whole.sends["link"].tolist()]
    for rank in (0, 9, 10):
        steps = list(rank_program(patched, rank))
        sent = sorted(step.time_ps for step in steps if step.action == "send")
        listed = whole.sends["start_ps"].tolist()
        ends = zip(links, listed, strict=True)
        assert sent == sorted(start for link, start in ends if link.src == rank)
        come = [step for step in steps if step.action != "send"]
        assert len(come) == sum(link.dst == rank for link in links)
        assert [step.time_ps for step in steps] == sorted(step.time_ps for step in steps)


def test_the_same_damage_gives_the_same_patch():
    """Nothing depends on time."""
    fabric = parse_fabric("torus:dims=5x6")
    plan = solve_orbit(fabric, "allgather", size="1MB", chunks=1).schedule
    damage = Damage.of(fabric, down=["gpu0:gpu1"], slower={"gpu7:*": Fraction(1, 2)})
    files = [orbit_to_dict(mend_orbit(plan, damage).schedule) for _ in range(2)]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("down", "slower", "message"),
    [
        (["gpu0:gpu99"], {}, "no node 'gpu99'"),
        (["gpu0"], {}, "write A:B"),
        (["gpu0:gpu7"], {}, "no link between"),
        ([], {"gpu0:gpu1": Fraction(3, 2)}, "not between 0 and 1"),
        ([], {"gpu0:gpu1": Fraction(0)}, "not between 0 and 1"),
    ],
)
def test_damage_of_links_that_are_not_there_is_refused(down, slower, message):
    """The message names what is wrong."""
    with pytest.raises(TopologyError, match=message):
        Damage.of(parse_fabric("torus:dims=4x4"), down=down, slower=slower)


def test_links_are_named_as_everywhere():
    """Both ways, one way, all of a node, by name or rank; what is down is not slow."""
    fabric = parse_fabric("torus:dims=4x4")
    assert len(Damage.of(fabric, down=["gpu0:gpu1"]).rates) == 2
    assert len(Damage.of(fabric, down=["0>1"]).rates) == 1
    assert len(Damage.of(fabric, slower={"gpu5:*": Fraction(1, 2)}).rates) == 8
    both = Damage.of(fabric, down=["0:1"], slower={"0:1": Fraction(1, 2)})
    assert list(both.rates.values()) == [None, None]
    assert not Damage.of(fabric, slower={"0:1": Fraction(1)}).rates


@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_a_gpu_that_is_cut_off_is_refused(collective):
    """No plan is patched that cannot be."""
    fabric = parse_fabric("torus:dims=4x4")
    plan = solve_orbit(fabric, collective, size="1MB", chunks=1).schedule
    with pytest.raises(MethodError, match="do not join"):
        mend_orbit(plan, Damage.of(fabric, down=["gpu5:*"]))


def test_a_link_that_takes_longer_than_can_be_counted_is_refused():
    """Times are whole picoseconds of 64 bits; the plan of the whole fabric has room for them."""
    fabric = parse_fabric("torus:dims=4x4")
    plan = solve_orbit(fabric, "allgather", size="100TB", chunks=1).schedule
    with pytest.raises(ScheduleError, match="take too long on damaged link 0"):
        mend_orbit(plan, Damage(fabric=fabric, rates={0: Fraction(1)}))
    document = orbit_to_dict(plan)
    damage = [{"link": 0, "bandwidth": "1B/s"}]
    none = {key: [] for key in ("transfer", "element")}
    added = none | {key: [] for key in ("chunk", "link", "start_ps", "reduce")}
    document["patch"] = {"damage": damage, "removed": none, "added": added}
    with pytest.raises(ScheduleError, match="take too long on damaged link 0"):
        orbit_from_dict(document)


def test_more_chunks_at_ranks_than_can_be_counted_are_refused():
    """A number of 64 bits tells each chunk at each rank apart, or verdicts would mix them up."""
    fabric = parse_fabric("torus:dims=1000x1000,alpha=0")
    for pieces, fits in ((1, True), (16, False)):
        problem = FabricProblem(
            fabric=fabric,
            collective=Collective.ALLTOALL,
            size=Fraction(10**6),
            num_chunks=pieces,
        )
        plan = OrbitSchedule(problem=problem, sends=np.zeros(0, dtype=ORBIT_DTYPE))
        parts = {
            "base": plan,
            "damage": Damage(fabric=fabric, rates={0: None}),
            "removed": np.zeros(0, dtype=REMOVED_DTYPE),
            "added": np.zeros(0, dtype=ADDED_DTYPE),
        }
        if fits:
            assert len(PatchedSchedule(**parts)) == 0
        else:
            with pytest.raises(ScheduleError, match="16 pieces are too many"):
                PatchedSchedule(**parts)
