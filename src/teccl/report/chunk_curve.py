"""The curve of finish times over numbers of chunks, as an SVG that needs no script."""

import html
from collections.abc import Sequence

from teccl.result import Attempt
from teccl.units import display_time

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 180, 70, 26, 30


def chunk_curve(tried: Sequence[Attempt], chosen: int, bound_s: float | None = None) -> str:
    """Return a section with the finish time of each number of chunks that was tried.

    Parameters
    ----------
    tried
        What came of each number of chunks.
    chosen
        The number that was taken.
    bound_s
        What no schedule can beat, drawn as a line.
    """
    if len(tried) < 2:
        return ""
    best: dict[int, float] = {}
    for count, _, time in sorted(tried):
        best[count] = min(time, best.get(count, time))
    highest = max(best.values())
    lowest = min([*best.values(), *([bound_s] if bound_s else [])])
    step = (_WIDTH - _LEFT - 20) / max(1, len(best) - 1)

    def height(seconds: float) -> float:
        part = (seconds - lowest) / (highest - lowest) if highest > lowest else 0.5
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    places = [(_LEFT + i * step, height(time)) for i, time in enumerate(best.values())]
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if count == chosen else 3}"/>'
        f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{count}</text>'
        f'<text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">{display_time(time)}</text>'
        for (count, time), (x, y) in zip(best.items(), places, strict=True)
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    limit = ""
    if bound_s:
        y = height(bound_s)
        limit = f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    title = html.escape(f"Finish time over chunks per block; {chosen} were taken")
    return (
        f'<figure class="chunk-curve"><figcaption>{title}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f'{limit}<polyline points="{line}"/>{marks}</svg></figure>'
    )
