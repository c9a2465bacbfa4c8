"""Options to draw: what a request may ask for beside a topology and a collective."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _quality.chance import Chance
from _quality.demands import COLLECTIVES, LARGEST, SMALLEST, draw_tenant
from _quality.fabrics import Fabric


@dataclass(slots=True, kw_only=True)
class Draft:
    """A problem while it is drawn.

    Parameters
    ----------
    ranks, size
        Who takes part, and bytes.
    tenants
        Entries of a demand file, the first of them the drawn collective.
    keywords
        Of `solve`, beside the demand.
    """

    chance: Chance
    fabric: Fabric
    ranks: list[int]
    size: int
    tenants: list[dict[str, Any]]
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def scale_us(self) -> float:
        """About as long as the collective takes: latencies and the data at 50 GB/s."""
        return 2 + self.size / 50e3


def _profile(draft: Draft) -> None:
    """Let some links change their rate once or twice while the collective runs."""
    chance, document = draft.chance, draft.fabric.topology
    assert isinstance(document, dict)
    links = document["links"]
    for link in chance.sample(links, chance.spread_whole(1, max(1, len(links) // 4))):
        rate = float(link["bandwidth"].removesuffix("GB/s"))
        starts = sorted({_time(chance, draft.scale_us) for _ in range(chance.whole(1, 2))})
        link["profile"] = [
            [f"{start:g}us", f"{float(f'{rate * chance.spread(0.1, 2):.2g}'):g}GB/s"]
            for start in starts
        ]


def _time(chance: Chance, scale_us: float) -> float:
    return chance.digits(scale_us / 10, scale_us, 2)


def _tenants(draft: Draft) -> None:
    """Add one or two tenants, apart from the first or on the same ranks, some of them late."""
    chance, gpus = draft.chance, len(draft.fabric.gpus)
    count = chance.whole(2, 3)
    groups = [draft.ranks] * count
    if len(draft.ranks) >= 2 * count and chance.coin(0.5):
        order = chance.sample(draft.ranks, len(draft.ranks)) if chance.coin(0.5) else draft.ranks
        groups = [sorted(order[i::count]) for i in range(count)]
    first = draft.tenants[0]
    names = [first["collective"], *(chance.choice(COLLECTIVES) for _ in groups[1:])]
    draft.tenants.clear()
    for i, (name, ranks) in enumerate(zip(names, groups, strict=True)):
        size = draft.size
        if i:
            size = min(LARGEST, max(SMALLEST, int(chance.digits(size / 16, size * 16, 3))))
        entry = draw_tenant(chance, name, size, ranks, gpus)
        entry |= {"name": f"tenant{i}", "priority": chance.whole(1, 10)}
        if chance.coin(0.5):
            late = chance.sample(ranks, chance.whole(1, len(ranks)))
            entry["ready"] = {
                str(rank): f"{_time(chance, draft.scale_us):g}us" for rank in sorted(late)
            }
        draft.tenants.append(entry)


def _setting(**values: object) -> Callable[[Draft], None]:
    return lambda draft: draft.keywords.update(values)


def _chunks(draft: Draft) -> None:
    draft.keywords["chunks"] = draft.chance.choice((1, 2, 3, 4, 6, 8, 16, 32))


def _buffer(draft: Draft) -> None:
    draft.keywords["buffer"] = draft.chance.spread_whole(1, 16)


def _grid(draft: Draft) -> None:
    draft.keywords["grid"] = True
    if draft.chance.coin(0.5):
        draft.keywords["epoch"] = "slowest"


OPTIONS: dict[str, Callable[[Draft], None]] = {
    "buffer-none": _setting(buffer="none"),
    "buffer-n": _buffer,
    "profile": _profile,
    "tenants": _tenants,
    "no-copy": _setting(copy=False),
    "switch-no-copy": _setting(switch="no-copy"),
    "hyper-edge": _setting(switch="hyper-edge"),
    "cut-through": _setting(transit="cut-through"),
    "chunks": _chunks,
    "grid": _grid,
}
NEED_SWITCHES = ("switch-no-copy", "hyper-edge", "cut-through")
# One keyword twice, or what `teccl` documents as not going together.
_APART = (
    {"buffer-none", "buffer-n"},
    {"switch-no-copy", "hyper-edge"},
    {"profile", "hyper-edge"},
    {"profile", "cut-through"},
)


def draw_options(chance: Chance) -> tuple[str, ...]:
    """Draw one option, all equally likely, and in a quarter of all cases a second one."""
    first = chance.choice(list(OPTIONS))
    second = chance.choice(list(OPTIONS))
    both = chance.coin(0.25) and first != second and {first, second} not in _APART
    return (first, second) if both else (first,)
