"""Trees of additions, numbered so that two that differ by commutation only have one number."""


class Trees:
    """Numbers of trees; 0 is the empty one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], int] = {}

    def own(self, contributor: int) -> int:
        """Return the tree that is one contribution."""
        return self._number(("own", contributor, 0))

    def joined(self, one: int, other: int) -> int:
        """Return the sum of two trees."""
        if not one or not other:
            return one or other
        return self._number(("sum", min(one, other), max(one, other)))

    def unknown(self, kind: str, number: int) -> int:
        """Return a tree of which nothing is known but where it is made."""
        return self._number((kind, number, -1))

    def _number(self, key: tuple[str, int, int]) -> int:
        return self._known.setdefault(key, len(self._known) + 1)
