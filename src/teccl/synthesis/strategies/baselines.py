"""Baselines: textbook algorithms, which are hard to beat where they fit a machine."""

import contextlib
from collections.abc import Iterator

from teccl.construct.baselines import build_baseline, serving_baselines
from teccl.construct.params import CHUNK_TOLERANCE, PYTHON_UNITS
from teccl.errors import MethodError
from teccl.synthesis.chunks import finest, ladder
from teccl.synthesis.features import Features
from teccl.synthesis.search import Search


class Baselines:
    """Tries every baseline that serves, each while more chunks make it better."""

    name = "baselines"

    def refusal(self, features: Features) -> str | None:
        """Baselines know no epochs."""
        return "baselines have no grid" if features.on_grid else None

    def work(self, features: Features) -> int:
        """Make every send in plain Python."""
        return PYTHON_UNITS * features.sends * len(serving_baselines(features.request.problem(1)))

    def attempts(self, search: Search) -> Iterator[None]:
        """Try all with one chunk, those that gain with more."""
        names = serving_baselines(search.request.problem(1))
        before: dict[str, int] = {}

        def work(count: int) -> int:
            return PYTHON_UNITS * search.features.sends * count * len(names)

        for count in ladder(search, work, most=finest(search)):
            search.budget.spend(work(count))
            problem = search.request.problem(count)
            found: dict[str, int] = {}
            for name in names:
                with contextlib.suppress(MethodError):
                    found[name] = search.offer(build_baseline(name, problem))
                search.checkpoint()
            # More chunks at best halve what is above the bound.
            names = [
                name
                for name, finish in found.items()
                if finish <= 2 * search.incumbents.fastest
                and finish * (1 + 1 / CHUNK_TOLERANCE) < before.get(name, 2 * finish)
            ]
            before = found
            yield
            if not names:
                return


class BaselineStrategy:
    """One baseline that was asked for by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refusal(self, _: Features) -> None:
        """Whether it serves is for the baseline to say, with the names of others that do."""

    def work(self, features: Features) -> int:
        """Make every send in plain Python."""
        return PYTHON_UNITS * features.sends

    def attempts(self, search: Search) -> Iterator[None]:
        """Try more and more chunks."""
        for count in ladder(search, lambda _: 0):
            search.offer(build_baseline(self.name, search.request.problem(count)))
            yield
