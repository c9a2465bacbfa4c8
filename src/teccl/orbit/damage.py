"""Damage: single links of a fabric that are down or slower than their orbit's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from teccl._arrays import BoolArray, IntArray, ints
from teccl._suggest import did_you_mean
from teccl.errors import TopologyError
from teccl.orbit.fabric import Fabric
from teccl.topology.graph import MIN_BANDWIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Links that a fabric does not have as its orbits say.

    Parameters
    ----------
    fabric
        The fabric as it was built; no link of it shares a capacity.
    rates
        Bandwidth by link number, None where the link is down; kept in ascending order.

    Examples
    --------
    >>> from teccl.orbit import parse_fabric
    >>> Damage.of(parse_fabric("torus:dims=4x4"), down=["gpu0:gpu1"]).rates
    {32: None, 49: None}
    """

    fabric: Fabric
    rates: Mapping[int, Fraction | None]

    def __post_init__(self) -> None:
        if self.fabric.shared:
            raise TopologyError(
                f"{self.fabric.name}: links share capacities, which is not planned around damage"
            )
        object.__setattr__(self, "rates", dict(sorted(self.rates.items())))
        for link, rate in self.rates.items():
            if not 0 <= link < self.fabric.num_links:
                raise TopologyError(
                    f"{self.fabric.name}: link {link} is damaged; "
                    f"give 0 to {self.fabric.num_links - 1}"
                )
            healthy = self.fabric.link_at(link).bandwidth
            if rate is not None and not MIN_BANDWIDTH <= rate < healthy:
                raise TopologyError(
                    f"{self.fabric.name}: damaged link {link} has {rate} bytes/s; give "
                    f"{MIN_BANDWIDTH} up to less than its {healthy}, or none where it is down"
                )

    @property
    def links(self) -> IntArray:
        """Numbers of the damaged links."""
        return ints(list(self.rates))

    def is_down(self, links: IntArray) -> BoolArray:
        """Whether links are down."""
        gone = [link for link, rate in self.rates.items() if rate is None]
        down: BoolArray = np.isin(links, ints(gone))
        return down

    @staticmethod
    def of(
        fabric: Fabric, *, down: Iterable[str] = (), slower: Mapping[str, Fraction] | None = None
    ) -> "Damage":
        """Read damage from the names of links, as `Topology.find_links` does.

        Parameters
        ----------
        down
            Links that are gone: ``A:B`` (both ways), ``A>B`` or ``A:*``.
        slower
            What part of their bandwidth links have left.

        Raises
        ------
        TopologyError
            If there are no such links, or a part is not between 0 and 1.
        """
        names = {fabric.node_name(i): i for i in range(fabric.num_nodes)}
        links = np.arange(fabric.num_links)
        ends = fabric.link_ends(links)
        left: dict[int, Fraction] = {}
        for spec, part in (slower or {}).items():
            if not 0 < part <= 1:
                raise TopologyError(
                    f"degrade {spec}: factor {part} is not between 0 and 1; "
                    "remove a link that is down (--without-link)"
                )
            for link in _find(fabric, names, ends, spec):
                left[link] = left.get(link, Fraction(1)) * part
        rates: dict[int, Fraction | None] = {
            link: fabric.link_at(link).bandwidth * part for link, part in left.items() if part < 1
        }
        for spec in down:
            rates |= dict.fromkeys(_find(fabric, names, ends, spec))
        return Damage(fabric=fabric, rates=rates)


def _find(
    fabric: Fabric, names: Mapping[str, int], ends: tuple[IntArray, IntArray], spec: str
) -> list[int]:
    """Numbers of the links that a text names."""
    signs = [i for i, char in enumerate(spec) if char in ":>"]
    if not signs:
        raise TopologyError(f"link {spec!r}: write A:B (both ways), A>B (one way) or A:*")
    halves = [(spec[:i], spec[i], spec[i + 1 :]) for i in signs]
    known = [each for each in halves if all(_node(fabric, names, x) is not None for x in each[::2])]
    if not known:
        left, _, right = halves[0]
        wrong = left if _node(fabric, names, left) is None else right
        raise TopologyError(f"no node {wrong[:80]!r} in {fabric.name}{did_you_mean(wrong, names)}")
    left, sign, right = known[0]
    a, b = _node(fabric, names, left), _node(fabric, names, right)
    src, dst = ends
    there = (src == a) & ((dst == b) | (b == -1))
    if sign == ":":
        there |= (dst == a) & ((src == b) | (b == -1))
    if not there.any():
        raise TopologyError(f"link {spec!r}: {fabric.name} has no link between these nodes")
    return np.flatnonzero(there).tolist()


def _node(fabric: Fabric, names: Mapping[str, int], text: str) -> int | None:
    """Number of a node by name or rank, -1 for any, None where there is none."""
    if text == "*":
        return -1
    if text not in names and text.isascii() and text.isdigit() and len(text) < 10:
        return fabric.gpu_of(int(text)) if int(text) < fabric.num_gpus else None
    return names.get(text)
