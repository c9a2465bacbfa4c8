"""Names of an orbit's nodes: one text with places for coordinates, filled in or found.

A place ``{i}`` is the coordinate along axis i, ``{i.j}`` the number that several make, the last
counting fastest, and ``{n}`` the node's number in its orbit. ``{n*2+1}`` is that number doubled and
one more.
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence

from teccl._files import shown
from teccl.errors import TopologyError
from teccl.orbit.lattice import Moduli
from teccl.topology.graph import MAX_NAME

_PLACE = re.compile(r"\{(n|\d(?:\.\d)*)(?:\*(\d{1,9}))?(?:\+(\d{1,9}))?\}")
# Numbers side by side, which may be read in several ways.
_TOUCHING = re.compile(r"\}\d*\{")
# Ways to read the numbers in a name as coordinates that are tried.
_PATTERNS = 64


def fill_name(name: str, moduli: Moduli, place: int) -> str:
    """Fill the coordinates of an element of an orbit into its name.

    Examples
    --------
    >>> fill_name("c{0}/gpu{n*2+1}", (3, 2), 3)
    'c1/gpu7'
    """
    digits, rest = [0] * len(moduli), place
    for axis in reversed(range(len(moduli))):
        rest, digits[axis] = divmod(rest, moduli[axis])

    def filled(found: re.Match[str]) -> str:
        number = place if found[1] == "n" else 0
        for axis in map(int, () if found[1] == "n" else found[1].split(".")):
            number = number * moduli[axis] + digits[axis]
        return str(number * int(found[2] or 1) + int(found[3] or 0))

    return _PLACE.sub(filled, name)


def check_name(fabric: str, name: str, moduli: Moduli) -> None:
    """Refuse names that do not tell the nodes of an orbit apart, or are more than names.

    Raises
    ------
    TopologyError
        If a place is missing, of no axis, or not a place.
    """
    found = list(_PLACE.finditer(name))
    known = [place[1] for place in found if place[2] is None or int(place[2])]
    places = {int(axis) for each in known if each != "n" for axis in each.split(".")}
    is_plain = not set("{}") & set(_PLACE.sub("", name)) and name.isprintable() and name
    needed = {axis for axis, size in enumerate(moduli) if size > 1 and "n" not in known}
    if not is_plain or len(name) > MAX_NAME or not needed <= places <= set(range(len(moduli))):
        raise TopologyError(
            f"{fabric}: name {shown(name)}; give a short text with "
            f"{' '.join(f'{{{axis}}}' for axis in sorted(needed)) or 'no'} coordinates"
        )


def check_distinct(fabric: str, orbits: Sequence[tuple[str, Moduli]]) -> None:
    """Refuse names that two members of orbits have; only orbits with like names are listed.

    Raises
    ------
    TopologyError
        If a name appears twice.
    """
    alike: dict[str, list[tuple[str, Moduli]]] = {}
    for name, moduli in orbits:
        alike.setdefault(re.sub(r"\d", "", _PLACE.sub("", name)), []).append((name, moduli))
    for some in alike.values():
        if len(some) == 1 and not _TOUCHING.search(some[0][0]):
            continue
        seen: set[str] = set()
        for name, moduli in some:
            for text in (fill_name(name, moduli, i) for i in range(math.prod(moduli))):
                if text in seen:
                    raise TopologyError(
                        f"{fabric}: {shown(text)} is the name of two; change {shown(name)}"
                    )
                seen.add(text)


def find_name(names: Sequence[str], moduli: Moduli) -> str | None:
    """One text with places for coordinates that gives all names, None if there is none."""
    first, last = (re.split(r"(\d+)", names[i]) for i in (0, -1))
    if len(first) != len(last) or any(sign in names[0] for sign in "{}"):
        return None
    choices = [
        [a] if a == b else list(_places(int(a), int(b), moduli)) if b.isdigit() else []
        for a, b in zip(first, last, strict=True)
    ]
    for chosen in itertools.islice(itertools.product(*choices), _PATTERNS):
        text = "".join(chosen)
        if all(fill_name(text, moduli, i) == name for i, name in enumerate(names)):
            return text
    return None


def _places(low: int, high: int, moduli: Moduli) -> Iterator[str]:
    """Yield places that are one number at the first node and another at the last."""
    axes = [axis for axis, size in enumerate(moduli) if size > 1]
    for number in range(1, len(axes) + 1):
        for chosen in itertools.permutations(axes, number):
            most = math.prod(moduli[axis] for axis in chosen) - 1
            step, rest = divmod(high - low, most)
            if step > 0 and not rest:
                is_whole = chosen == tuple(axes)
                text = "n" if is_whole and len(axes) > 1 else ".".join(map(str, chosen))
                factor = f"*{step}" if step > 1 else ""
                yield f"{{{text}{factor}{f'+{low}' if low else ''}}}"
