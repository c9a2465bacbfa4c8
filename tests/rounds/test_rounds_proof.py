"""The proof of rounds is tested by breaking them: every fault is found."""

import random
from dataclasses import replace

import pytest
from tests.rounds.numbers import is_right
from tests.torch.schedules import COLLECTIVES, has_root, random_schedule, solved

from teccl.errors import VerificationError
from teccl.rounds.executable import Executable, full_count
from teccl.rounds.round_steps import RankRounds
from teccl.rounds.rounds_proof import prove
from teccl.schedule import Schedule


def lowered(schedule: Schedule) -> tuple[list[RankRounds], int]:
    """Rounds of all ranks for a number of elements with which no chunk is empty."""
    executable, count = Executable.of(schedule), 2 * full_count(schedule)
    ranks = range(schedule.problem.topology.num_gpus)
    return [executable.rank_rounds(rank, count) for rank in ranks], count


def with_round(rank: RankRounds, index: int, **changes) -> RankRounds:
    rounds = list(rank.rounds)
    rounds[index] = replace(rounds[index], **changes)
    return replace(rank, rounds=tuple(rounds))


def swapped_sends(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Swap two sends of one round to the same peer, so that receivers take one for the other."""
    choices = [
        (r, i, j)
        for r, each in enumerate(rank.rounds)
        for i in range(len(each.sends))
        for j in range(i)
        if each.sends[i].peer == each.sends[j].peer and each.sends[i].place != each.sends[j].place
    ]
    if not choices:
        return None
    r, i, j = rng.choice(choices)
    sends = list(rank.rounds[r].sends)
    sends[i], sends[j] = sends[j], sends[i]
    return with_round(rank, r, sends=tuple(sends))


def dropped_round(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Leave a rank out of a round."""
    busy = [i for i, each in enumerate(rank.rounds) if each.sends or each.receives]
    if not busy:
        return None
    gone = rng.choice(busy)
    return replace(rank, rounds=(*rank.rounds[:gone], *rank.rounds[gone + 1 :]))


def wrong_offset(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Send or receive one element further on."""
    choices = [
        (r, kind, i)
        for r, each in enumerate(rank.rounds)
        for kind in ("sends", "receives")
        for i in range(len(getattr(each, kind)))
    ]
    if not choices:
        return None
    r, kind, i = rng.choice(choices)
    calls = list(getattr(rank.rounds[r], kind))
    place = calls[i].place
    calls[i] = calls[i]._replace(place=place._replace(start=place.start + 1, stop=place.stop + 1))
    return with_round(rank, r, **{kind: tuple(calls)})


def dropped_message(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Send one message less."""
    sending = [i for i, each in enumerate(rank.rounds) if each.sends]
    if not sending:
        return None
    r = rng.choice(sending)
    gone = rng.randrange(len(rank.rounds[r].sends))
    sends = rank.rounds[r].sends
    return with_round(rank, r, sends=(*sends[:gone], *sends[gone + 1 :]))


def doubled_sum(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Add a part twice."""
    adding = [i for i, each in enumerate(rank.rounds) if any(s.right for s in each.sums)]
    if not adding:
        return None
    r = rng.choice(adding)
    sums = [s for s in rank.rounds[r].sums if s.right is not None]
    again = rng.choice(sums)
    part = again.left if again.right == again.out else again.right
    extra = again._replace(left=again.out, right=part)
    place = rank.rounds[r].sums.index(again) + 1
    every = rank.rounds[r].sums
    return with_round(rank, r, sums=(*every[:place], extra, *every[place:]))


def merged_rounds(rank: RankRounds, rng: random.Random) -> RankRounds | None:
    """Make two rounds at once, so that a rank sends before it has received."""
    if len(rank.rounds) < 2:
        return None
    i = rng.randrange(len(rank.rounds) - 1)
    a, b = rank.rounds[i], rank.rounds[i + 1]
    both = replace(
        b, sends=a.sends + b.sends, receives=a.receives + b.receives, sums=a.sums + b.sums
    )
    return replace(rank, rounds=(*rank.rounds[:i], both, *rank.rounds[i + 2 :]))


MUTATIONS = (
    *(swapped_sends, dropped_round, wrong_offset, dropped_message, doubled_sum, merged_rounds),
)


def broken_and_found(schedule: Schedule, seed: int, mutation) -> bool:
    """Whether a mutation did harm, which the proof must find then.

    Some do none: a message that nobody uses may go astray, and parts of one sum may change places.
    """
    rng = random.Random(seed)
    rounds, count = lowered(schedule)
    tenant = schedule.problem.demand.tenants[0]
    prove(rounds, tenant, count)
    assert is_right(rounds, tenant, count)
    victims = list(range(len(rounds)))
    rng.shuffle(victims)
    for victim in victims:
        changed = mutation(rounds[victim], rng)
        if changed is None:
            continue
        broken = [changed if i == victim else each for i, each in enumerate(rounds)]
        if is_right(broken, tenant, count):
            continue
        with pytest.raises(VerificationError):
            prove(broken, tenant, count)
        return True
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall", "reducescatter"])
def test_mutations_are_found(collective, mutation):
    """Ranks that differ in one round, place or order do not pass."""
    schedule = solved("mesh:dims=2x3", collective, chunks=2)
    found = broken_and_found(schedule, 0, mutation)
    sums = collective in ("allreduce", "reducescatter")
    assert found or (mutation is doubled_sum and not sums)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_mutations_of_random_schedules_are_found(seed):
    """Every kind of fault in a random rank of a random schedule."""
    rng = random.Random(seed)
    gpus, collective = rng.randrange(2, 9), rng.choice(COLLECTIVES)
    root = rng.randrange(gpus) if has_root(collective) else None
    schedule = random_schedule(rng, gpus, collective, root)
    found = [broken_and_found(schedule, seed, mutation) for mutation in MUTATIONS]
    assert any(found)


def test_a_group_that_receives_into_what_it_sends_is_found():
    """Within a group nobody says which call comes first."""
    rounds, count = lowered(solved("ring:gpus=4", "allgather", method="ring", chunks=1))
    first = rounds[0].rounds[0]
    racing = first.receives[0]._replace(place=first.sends[0].place)
    broken = [with_round(rounds[0], 0, receives=(racing, *first.receives[1:])), *rounds[1:]]
    tenant = solved("ring:gpus=4", "allgather", method="ring", chunks=1).problem.demand.tenants[0]
    with pytest.raises(VerificationError, match="receives into what it sends"):
        prove(broken, tenant, count)
