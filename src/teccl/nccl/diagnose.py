"""Diagnosis: measured times beside expected ones, and the likeliest reasons that a log can show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from teccl.nccl.expect import Expectation
from teccl.nccl.logs import LogRow, TestLog
from teccl.nccl.shape import Shape

# A size is far off where it takes this much longer than expected.
FAR_OFF = 1.25
# Printed bandwidths agree with size over time up to their few digits and a little.
_ROUNDING = 0.05
# Bandwidth shows at sizes that take this much longer than the shortest.
_LARGE = 8.0
# How near a ratio must be to that of a part of the network cards.
_NEAR = 0.06
# A size this much slower than both of its neighbours stands out.
_DIP = 0.7
# Times are printed with few digits: what is this much faster than the bound cannot be rounding.
_SURE = 0.99
_FAR_PATHS = ("PXB", "PHB", "SYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A likely reason, most telling first.

    Parameters
    ----------
    kind
        A short name.
    text
        What it is and what to do.
    evidence
        Lines of the log, or figures, that show it.
    """

    kind: str
    text: str
    evidence: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"kind": self.kind, "text": self.text, "evidence": self.evidence}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One size, measured and expected."""

    row: LogRow
    expected: Expectation

    @property
    def expected_s(self) -> float:
        """What NCCL's model says; where it says nothing, a schedule's time or the bound."""
        known = self.expected.nccl_s or self.expected.schedule_s
        return known or self.expected.bound_s

    @property
    def ratio(self) -> float:
        """How many times as long as expected it took."""
        return self.row.seconds / self.expected_s

    @property
    def is_far_off(self) -> bool:
        """Whether it took much longer than expected."""
        return self.ratio > FAR_OFF

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "size_bytes": self.row.size_bytes,
            "measured_s": self.row.seconds,
            "measured_busbw_GBps": self.row.busbw,
            "expected_s": self.expected_s,
            "expected_busbw_GBps": self.expected.busbw(self.expected_s),
            "bound_s": self.expected.bound_s,
            "ratio": self.ratio,
            "far_off": self.is_far_off,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A log beside what was expected of it.

    Parameters
    ----------
    log
        What was measured.
    shape
        The machine as NCCL's model sees it, None where that is not known.
    sizes
        Sizes that both have.
    """

    log: TestLog
    shape: Shape | None
    sizes: tuple[Compared, ...]

    @property
    def large(self) -> list[Compared]:
        """Sizes at which the bandwidth shows."""
        shortest = min((each.row.seconds for each in self.sizes), default=0.0)
        return [each for each in self.sizes if each.row.seconds >= _LARGE * shortest]

    @property
    def slowdown(self) -> float:
        """How many times as long as expected large sizes took; 1 where there are none."""
        return median([each.ratio for each in self.large[-3:]]) if self.large else 1.0


def findings(case: MeasuredCase) -> list[Diagnosis]:
    """Return what the log shows, most telling first; at least one finding."""
    damage = [*_wrong_values(case), *_units(case)]
    if damage:
        return damage
    found = [finding for check in CHECKS for finding in check(case)]
    if found and any(finding.kind != "truncated" for finding in found):
        return found
    far = [each for each in case.sizes if each.is_far_off]
    if far:
        text = "some sizes are far slower than expected and the log does not show why"
        found.append(Diagnosis(kind="unexplained", text=text, evidence=_worst(far)))
    elif case.sizes:
        text = f"no size took more than {FAR_OFF:g} times as long as expected"
        evidence = f"at most {max(each.ratio for each in case.sizes):.2f} times"
        found.append(Diagnosis(kind="healthy", text=text, evidence=evidence))
    return found or [
        Diagnosis(
            kind="no-sizes",
            text="nothing to compare: the log lists no sizes, only debug output",
            evidence=case.log.name,
        )
    ]


def _wrong_values(case: MeasuredCase) -> Iterator[Diagnosis]:
    bad = [each.row for each in case.sizes if each.row.wrong]
    if bad:
        yield Diagnosis(
            kind="wrong-values",
            text="results are wrong, so times mean nothing; look for failing hardware",
            evidence=f"{bad[0].wrong} wrong values at {bad[0].size_bytes} bytes",
        )


def _units(case: MeasuredCase) -> Iterator[Diagnosis]:
    """Time, size and bandwidth of a row must agree."""
    odd = [
        row
        for row in (each.row for each in case.sizes)
        if row.algbw > 1 and abs(row.size_bytes / row.seconds / 1e9 / row.algbw - 1) > _ROUNDING
    ]
    if len(odd) > len(case.sizes) / 2:
        row = odd[-1]
        says = row.size_bytes / row.seconds / 1e9
        yield Diagnosis(
            kind="units",
            text="times are not in microseconds or bandwidths not in GB/s, as nccl-tests prints "
            "them; convert the log",
            evidence=f"{row.size_bytes} bytes in {row.seconds * 1e6:.4g} us are {says:.4g} GB/s, "
            f"the log says {row.algbw:.4g}",
        )


def _impossible(case: MeasuredCase) -> Iterator[Diagnosis]:
    fast = [each for each in case.sizes if each.row.seconds < each.expected.bound_s * _SURE]
    if fast:
        each = fast[-1]
        yield Diagnosis(
            kind="impossible",
            text="faster than the topology allows: it has more or faster links than the topology "
            "says, or the log counts another size",
            evidence=f"{each.row.size_bytes} bytes in {each.row.seconds * 1e6:.4g} us; no schedule "
            f"beats {each.expected.bound_s * 1e6:.4g} us",
        )


def _protocol(case: MeasuredCase) -> Iterator[Diagnosis]:
    for name in ("NCCL_PROTO", "NCCL_ALGO"):
        if name in case.log.settings:
            yield Diagnosis(
                kind="protocol",
                text=f"{name} is fixed for all sizes; unset it unless a measurement asked for it",
                evidence=f"{name} set by environment to {case.log.settings[name]}",
            )


def _fewer_nics(case: MeasuredCase) -> Iterator[Diagnosis]:
    """Cards that NCCL lists, or a slowdown of large sizes by a whole number of cards."""
    if case.shape is None or case.shape.nodes < 2:
        return
    expected, listed = case.shape.per_node, len(case.log.nics)
    if 0 < listed < expected:
        yield Diagnosis(
            kind="nics",
            text=f"{listed} network cards are in use where the topology has {expected} a node; "
            "look at NCCL_IB_HCA and at cards that are down",
            evidence=f"NCCL uses {', '.join(case.log.nics)}",
        )
        return
    part = 1 / case.slowdown
    for count in range(1, expected):
        if abs(part / (count / expected) - 1) < _NEAR and case.slowdown > FAR_OFF:
            text = (
                "half of the network cards" if 2 * count == expected else f"{count} network cards"
            )
            yield Diagnosis(
                kind="nics",
                text=f"large sizes run as if {text} of {expected} worked; look for rails that are "
                "missing or down",
                evidence=f"large sizes take {case.slowdown:.2f} times as long as expected, "
                f"{expected} of {count} cards would be {expected / count:.2f}",
            )
            return


def _paths(case: MeasuredCase) -> Iterator[Diagnosis]:
    far = sorted({way for _, way in case.log.paths if way in _FAR_PATHS})
    if far and case.slowdown > FAR_OFF:
        yield Diagnosis(
            kind="paths",
            text=f"GPUs reach their network cards over {', '.join(far)} rather than PIX, through "
            "more of the host than need be; look at the placement of ranks and cards",
            evidence=f"paths between nodes are of type {', '.join(far)}",
        )


def _slow_link(case: MeasuredCase) -> Iterator[Diagnosis]:
    small = [each for each in case.sizes if each not in case.large]
    if case.slowdown > FAR_OFF and median([each.ratio for each in small] or [1.0]) <= FAR_OFF:
        yield Diagnosis(
            kind="slow-link",
            text="small sizes are as expected and large ones all slower by one factor: the slowest "
            "link sets the pace of a ring; look for a link, a card or a GPU below its rate",
            evidence=f"large sizes take {case.slowdown:.2f} times as long as expected",
        )


def _dips(case: MeasuredCase) -> Iterator[Diagnosis]:
    rows = [each.row for each in case.sizes]
    for before, row, after in zip(rows, rows[1:], rows[2:], strict=False):
        if row.busbw < _DIP * min(before.busbw, after.busbw):
            yield Diagnosis(
                kind="switch-over",
                text="one size is slower than both of its neighbours, as where NCCL changes its "
                "protocol or algorithm too early or too late; a tuner file can move that",
                evidence=f"{row.busbw:.4g} GB/s at {row.size_bytes} bytes between "
                f"{before.busbw:.4g} and {after.busbw:.4g}",
            )
            return


def _truncated(case: MeasuredCase) -> Iterator[Diagnosis]:
    if case.log.rows and not case.log.complete:
        yield Diagnosis(
            kind="truncated",
            text="the log ends before its last line, the test did not finish or was cut; sizes "
            "after the last one are missing",
            evidence=f"last size {case.log.rows[-1].size_bytes} bytes, no line with the average",
        )


def _worst(far: Sequence[Compared]) -> str:
    each = max(far, key=lambda one: one.ratio)
    return f"{each.row.size_bytes} bytes took {each.ratio:.2f} times as long as expected"


CHECKS: tuple[Callable[[MeasuredCase], Iterator[Diagnosis]], ...] = (
    _impossible,
    _protocol,
    _fewer_nics,
    _paths,
    _truncated,
    _slow_link,
    _dips,
)


def compared(log: TestLog, expected: Sequence[Expectation], shape: Shape | None) -> MeasuredCase:
    """Set a log beside what was expected of its sizes."""
    by_size = {each.size_bytes: each for each in expected}
    sizes = tuple(
        Compared(row=row, expected=by_size[row.size_bytes])
        for row in log.rows
        if row.size_bytes in by_size
    )
    return MeasuredCase(log=log, shape=shape, sizes=sizes)
