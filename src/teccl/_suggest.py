"""The nearest known name, for error messages."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` or a short list of what is known.

    Examples
    --------
    >>> did_you_mean("tours", ["torus", "mesh"])
    "; did you mean 'torus'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name[:60], names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    if 0 < len(names) <= 24:
        return "; known: " + ", ".join(names)
    return ""
