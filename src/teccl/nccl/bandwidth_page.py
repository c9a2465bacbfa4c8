"""A page with measured and expected bandwidth over sizes, in one file that needs no network."""

import html
import math
from collections.abc import Sequence

from teccl.nccl.diagnose import Diagnosis, MeasuredCase
from teccl.units import display_time, format_size

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 320, 60, 40
_COLOURS = {"measured": "#c33", "expected": "#36c", "no schedule beats": "#888"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: 0.2rem 0.7rem; text-align: right; }
tr.far { background: #fdd; } svg text { font-size: 11px; }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd; } svg text { fill: #ddd; } tr.far { background: #522; }
}
"""


def diagnosis_page(cases: Sequence[tuple[MeasuredCase, list[Diagnosis]]], topology: str) -> str:
    """Return the text of an HTML page."""
    title = html.escape(f"Measured and expected on {topology}")
    parts = "".join(_section(case, found) for case, found in cases)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{parts}<p>Expected times are those of NCCL's cost model where it "
        "has one, a model and not a measurement.</p></body></html>\n"
    )


def _section(case: MeasuredCase, found: list[Diagnosis]) -> str:
    reasons = "".join(
        f"<li><b>{html.escape(each.kind)}</b>: {html.escape(each.text)} "
        f"<i>({html.escape(each.evidence)})</i></li>"
        for each in found
    )
    rows = "".join(
        f"<tr{' class=' + chr(34) + 'far' + chr(34) if each.is_far_off else ''}>"
        f"<td>{format_size(each.row.size_bytes)}</td><td>{display_time(each.row.seconds)}</td>"
        f"<td>{display_time(each.expected_s)}</td><td>{each.row.busbw:.4g}</td>"
        f"<td>{each.expected.busbw(each.expected_s) or 0:.4g}</td><td>{each.ratio:.2f}</td></tr>"
        for each in case.sizes
    )
    head = "".join(
        f"<th>{name}</th>"
        for name in ("size", "measured", "expected", "busbw", "expected busbw", "ratio")
    )
    return (
        f"<h2>{html.escape(case.log.name)}</h2><ol>{reasons}</ol>{_curves(case)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _curves(case: MeasuredCase) -> str:
    """Bus bandwidths over sizes, both on logarithmic axes."""
    if len(case.sizes) < 2:
        return ""
    curves: dict[str, list[float]] = {
        "measured": [each.row.busbw for each in case.sizes],
        "expected": [each.expected.busbw(each.expected_s) or 0.0 for each in case.sizes],
        "no schedule beats": [
            each.expected.busbw(each.expected.bound_s) or 0.0 for each in case.sizes
        ],
    }
    values = [value for curve in curves.values() for value in curve if value]
    low, high = math.log(min(values)), math.log(max(values) * 1.1)
    sizes = [math.log(each.row.size_bytes) for each in case.sizes]
    across = (_WIDTH - _LEFT - 20) / (sizes[-1] - sizes[0] or 1.0)
    up = (_HEIGHT - _BOTTOM - 10) / (high - low or 1.0)

    def place(size: float, value: float) -> str:
        y = _HEIGHT - _BOTTOM - (math.log(value) - low) * up if value else _HEIGHT - _BOTTOM
        return f"{_LEFT + (size - sizes[0]) * across:.1f},{y:.1f}"

    lines = "".join(
        f'<polyline fill="none" stroke="{_COLOURS[name]}" stroke-width="2" points="'
        + " ".join(place(size, value) for size, value in zip(sizes, curve, strict=True))
        + f'"/><text x="{_LEFT + 10}" y="{20 + 16 * i}" fill="{_COLOURS[name]}">{name}</text>'
        for i, (name, curve) in enumerate(curves.items())
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 15}">{format_size(case.sizes[0].row.size_bytes)}</text>'
        f'<text x="{_WIDTH - 60}" y="{_HEIGHT - 15}">'
        f"{format_size(case.sizes[-1].row.size_bytes)}</text>"
        f'<text x="4" y="20">{max(values):.4g} GB/s</text>'
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{lines}{ends}</svg>'
