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
    """Yield schemes in which groups add up first: for the root, or for an owner in one of them.

    The root adds up what its own group contributes. In each other group the members take turns.
    """
    count = len(groups)
    inside = [
        [m for m, group in enumerate(groups) if group == number]
        for number in dict.fromkeys(groups)
        if number != groups[root]
    ]
    at_once, by_owners = list[tuple[Level, ...]](), list[tuple[Level, ...]]()
    outside = tuple(int(group == groups[root]) for group in groups)
    for turn in range(max(map(len, inside))):
        leaders = [members[turn % len(members)] for members in inside]
        near = Level(tuple(groups), _held_by(count, {*leaders, root}))
        at_once.append((near, _at_root(count, root)))
        for owner in leaders:
            far = Level(outside, _held_by(count, {owner, root}))
            by_owners.append((near, far, _at_root(count, root)))
    yield Scheme(name="hierarchy", shares=tuple(at_once))
    if len(inside) > 1:
        yield Scheme(name="hierarchy", shares=tuple(by_owners))


def _at_root(count: int, root: int) -> Level:
    return Level((0,) * count, _held_by(count, {root}))


def _held_by(count: int, holders: set[int]) -> tuple[bool, ...]:
    return tuple(member in holders for member in range(count))
