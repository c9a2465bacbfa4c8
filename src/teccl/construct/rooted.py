"""Rooted schemes: Reduces whose pieces are added up by others first and go on to the root then.

All pieces must enter the root, and each must have been added up by then. Owners that share the
pieces between them do that in two hops, groups that add up among themselves first in three, with
fewer bytes over far links; what comes straight from everybody is there after one.
"""

from collections.abc import Iterator, Sequence

from teccl.construct.staged import Level, Scheme


def straight(count: int, root: int) -> Scheme:
    """Everybody sends to the root, which adds up."""
    return Scheme(name="straight", shares=((_at_root(count, root),),))


def owned_for(count: int, root: int) -> Scheme:
    """Every piece is summed up by one of the others, who sends it to the root."""
    apart = tuple(int(member == root) for member in range(count))
    shares = (
        (Level(apart, _held_by(count, {owner, root})), _at_root(count, root))
        for owner in range(count)
        if owner != root
    )
    return Scheme(name="owners", shares=tuple(shares))


def grouped_for(groups: Sequence[int], root: int) -> Iterator[Scheme]:
    """Yield schemes in which groups add up first: for the root, or for an owner among them.

    At first the root adds up what its own group contributes; where there are owners, its group is
    added up by the others in it, so that what comes to the root is sums alone. In each group the
    members take turns. Owners are in other groups only, or in all.
    """
    count = len(groups)
    apart = tuple(int(member == root) for member in range(count))
    alone = max(groups) + 1
    beside = tuple(alone if member == root else group for member, group in enumerate(groups))
    inside = [
        [m for m, group in enumerate(beside) if group == number]
        for number in dict.fromkeys(beside)
        if number != alone
    ]
    others = [members for members in inside if groups[members[0]] != groups[root]]
    at_once = list[tuple[Level, ...]]()
    for turn in range(max(map(len, others))):
        leaders = _leaders(others, turn)
        near = Level(tuple(groups), _held_by(count, {*leaders, root}))
        at_once.append((near, _at_root(count, root)))
    yield Scheme(name="hierarchy", shares=tuple(at_once))
    if len(others) == 1:
        return
    for owning in (others, inside) if len(inside) > len(others) else (others,):
        by_owners = list[tuple[Level, ...]]()
        for turn, owners in enumerate(_owners(owning)):
            near = Level(beside, _held_by(count, {*_leaders(inside, turn), root}))
            for owner in owners:
                far = Level(apart, _held_by(count, {owner, root}))
                by_owners.append((near, far, _at_root(count, root)))
        yield Scheme(name="hierarchy", shares=tuple(by_owners))


def _leaders(groups: Sequence[Sequence[int]], turn: int) -> list[int]:
    return [members[turn % len(members)] for members in groups]


def _owners(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return who owns a share in each turn: each member once, in a turn in which it leads.

    Members of small groups lead in several turns; groups take different ones of theirs.
    """
    turns = max(map(len, groups))
    owners: list[list[int]] = [[] for _ in range(turns)]
    for number, members in enumerate(groups):
        for place, member in enumerate(members):
            leads = range(place, turns, len(members))
            owners[leads[number % len(leads)]].append(member)
    return owners


def _at_root(count: int, root: int) -> Level:
    return Level((0,) * count, _held_by(count, {root}))


def _held_by(count: int, holders: set[int]) -> tuple[bool, ...]:
    return tuple(member in holders for member in range(count))
