"""Plans: which schedule serves which sizes, as files that a runtime can be given.

Between two sizes of a sweep the plan changes where the schedule of the larger begins to win when
both are replayed; a schedule that nowhere wins by more than a little is left out.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from teccl import __version__
from teccl import _files as files
from teccl.errors import ExportError, ExportRefused, InputError
from teccl.formats.registry import formats_that
from teccl.formats.writing import export
from teccl.nccl import model_of
from teccl.replay import simulate
from teccl.result import Result
from teccl.schedule import Schedule
from teccl.studies.running import Bench, Workplace
from teccl.studies.sweeping import Sweep
from teccl.studies.tuners import TUNER_FILES, Rule, rules_of, tuner_files
from teccl.topology import Topology
from teccl.units import format_size

# A schedule serves another one's size too where it is at most this much slower there.
TOLERANCE = Fraction(1, 1000)
# Halvings of the interval, on a scale of factors, in which one schedule overtakes another.
_BISECTIONS = 6
# Sizes above the largest of the sweep that its schedule still serves.
_BEYOND = 2
# NCCL's own algorithms by the baseline that models them.
NCCL_ALGORITHMS = {"ring": "ring", "tree": "double-binary-tree"}
# Collectives that NCCL's tuner plugin names.
TUNER_COLLECTIVES = ("allgather", "allreduce", "broadcast", "reduce", "reducescatter")
# Fewer chunks that are tried where a runtime refuses a schedule for its length.
_FALLBACK_CHUNKS = (16, 8, 4, 2, 1)
# Sizes below it run under the low-latency protocol.
LOW_LATENCY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """Sizes from `min_bytes` up to, but without, `max_bytes` that one schedule serves."""

    min_bytes: int
    max_bytes: int
    result: Result


def size_ranges(results: Sequence[Result]) -> list[SizeRange]:
    """Cut the axis of sizes into ranges, each with the schedule that serves it best."""
    found = sorted((r for r in results if r.schedule is not None), key=lambda r: r.size_bytes)
    if not found:
        raise InputError("no size has a schedule; there is nothing to plan with")
    kept = [found[0]]
    starts = [0]
    for result in found[1:]:
        if _serves(kept[-1], result):
            continue
        starts.append(_overtaking(kept[-1], result))
        kept.append(result)
    ends = [*starts[1:], math.ceil(found[-1].size_bytes * _BEYOND)]
    return [
        SizeRange(min_bytes=low, max_bytes=high, result=result)
        for low, high, result in zip(starts, ends, kept, strict=True)
    ]


def _serves(one: Result, other: Result) -> bool:
    """Whether one result's schedule is as good as another's at the other's size."""
    if one.size_bytes < LOW_LATENCY_BYTES <= other.size_bytes:
        # Runtimes change the protocol here, which a file states for all its sizes.
        return False
    finish = finish_at(_schedule(one), other.size_bytes)
    return finish <= (other.finish_ps or 0) * (1 + TOLERANCE)


def _overtaking(small: Result, large: Result) -> int:
    """Return the size from which the schedule for the larger size is the faster of two."""
    low, high = small.size_bytes, large.size_bytes
    for _ in range(_BISECTIONS):
        middle = Fraction(round(math.sqrt(low * high)))
        if not low < middle < high:
            break
        if finish_at(_schedule(large), middle) < finish_at(_schedule(small), middle):
            high = middle
        else:
            low = middle
    return math.ceil(high)


def finish_at(schedule: Schedule, size_bytes: Fraction) -> int:
    """Return the picoseconds that a schedule takes for another size, in the same order.

    Moving k times the bytes takes what moving the same bytes at a k-th of the rates takes.
    """
    slower = size_bytes / schedule.problem.size_bytes
    return simulate(schedule, topology=_slowed(schedule.problem.topology, slower)).finish_ps


def _slowed(topology: Topology, factor: Fraction) -> Topology:
    links = tuple(
        replace(
            link,
            bandwidth=link.bandwidth / factor,
            profile=tuple((start, rate / factor) for start, rate in link.profile),
        )
        for link in topology.links
    )
    shared = {name: rate / factor for name, rate in topology.shared.items()}
    return replace(topology, links=links, shared=shared)


def _schedule(result: Result) -> Schedule:
    assert result.schedule is not None
    return result.schedule


def write_plan(
    sweep: Sweep,
    folder: str | Path,
    *,
    targets: Sequence[str] = ("msccl",),
    place: Workplace | None = None,
) -> dict[str, Any]:
    """Write schedules, exports and tables for every range of a sweep, and return the plan.

    The folder gets ``plan.json``, a schedule and one export per target for each range, and, for
    collectives that NCCL's tuner plugin knows, ``tuner.csv`` and its dialects.

    Parameters
    ----------
    sweep
        What was found.
    folder
        Where to write; made if need be.
    targets
        Names of formats that `teccl export` knows.
    place
        Where schedules are made again with fewer chunks if a target refuses the best one.
    """
    known = formats_that("writes")
    for target in targets:
        if target not in known:
            raise ExportError(f"unknown target {target[:40]!r}; give some of {', '.join(known)}")
    where = Path(folder)
    ranges = size_ranges(sweep.results)
    with replace(place or Workplace(), jobs=1, dask=None, mpi=False).opened() as bench:
        entries = [_write_range(r, where, targets, bench, sweep) for r in ranges]
        rules = _tuner_rules(sweep, bench)
    plan = {
        "format": "teccl-plan",
        "schema_version": 1,
        "tool_version": __version__,
        "topology": sweep.topology.name,
        "num_gpus": sweep.topology.num_gpus,
        "collective": sweep.collective,
        "ranges": entries,
    }
    if rules:
        plan["tuner"] = TUNER_FILES["nccl"]
        plan["tuners"] = dict(TUNER_FILES)
        nodes = len({node.group for node in sweep.topology.nodes if not node.is_switch})
        made = tuner_files(sweep.collective, rules, nodes=nodes, ranks=sweep.topology.num_gpus)
        for dialect, text in made.items():
            files.write_atomically(where / TUNER_FILES[dialect], text, InputError)
    text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    files.write_atomically(where / "plan.json", text, InputError)
    return plan


def _write_range(
    sizes: SizeRange, folder: Path, targets: Sequence[str], bench: Bench, sweep: Sweep
) -> dict[str, Any]:
    result = sizes.result
    stem = f"{sweep.collective}-{format_size(result.size_bytes)}"
    _schedule(result).save(folder / f"{stem}.json.gz")
    return {
        "minBytes": sizes.min_bytes,
        "maxBytes": sizes.max_bytes,
        "size_bytes": int(result.size_bytes),
        "method": result.method,
        "num_chunks": result.num_chunks,
        "finish_time_s": result.finish_time_s,
        "physical_gap": result.physical_gap,
        "schedule": f"{stem}.json.gz",
        "exports": {
            target: _export(sizes, target, folder / stem, bench=bench, sweep=sweep)
            for target in targets
        },
    }


def _export(
    sizes: SizeRange, target: str, stem: Path, *, bench: Bench, sweep: Sweep
) -> dict[str, Any]:
    """Export a range's schedule, or the best one with few enough chunks for the target."""
    kind = formats_that("writes")[target]
    ranged = {"min_bytes": sizes.min_bytes, "max_bytes": sizes.max_bytes}
    limits: dict[str, Any] = {
        name: value for name, value in ranged.items() if name in kind.write_options
    }
    path = stem.with_name(f"{stem.name}.{target}{kind.suffixes[0]}")
    reason = ""
    for result in _shorter(sizes.result, bench, sweep):
        try:
            made = export(_schedule(result), to=target, path=path, **limits)
        except (ExportRefused, ExportError) as refusal:
            reason = reason or str(refusal)
            continue
        return {
            "files": [file.path.name for file in made.files],
            "num_chunks": result.num_chunks,
            "finish_time_s": result.finish_time_s,
            "notes": list(made.notes) + ([f"fewer chunks, because {reason}"] if reason else []),
        }
    return {"files": [], "refused": reason}


def _shorter(result: Result, bench: Bench, sweep: Sweep) -> Any:
    """Yield a result, then others for its size with fewer and fewer chunks."""
    yield result
    task = next(
        outcome.task for row in sweep.rows for outcome in row.outcomes if outcome.result is result
    )
    for count in _FALLBACK_CHUNKS:
        if count < (result.num_chunks or 1):
            options = {**task.options, "chunks": count}
            found = bench.run([replace(task, options=options)])
            if found and found[0].result is not None and found[0].result.schedule is not None:
                yield found[0].result


def _tuner_rules(sweep: Sweep, bench: Bench) -> list[Rule]:
    """Return which of NCCL's own algorithms and protocols to take for which sizes.

    NCCL's cost model decides where it knows the machine, otherwise the replay of the baselines that
    model its algorithms; what teccl made is given to the runtime by the exported files instead.
    """
    if sweep.collective not in TUNER_COLLECTIVES:
        return []
    found: list[tuple[Fraction, str, str]] = []
    for row in sorted(sweep.rows, key=lambda row: row.size_bytes):
        if row.best is None:
            continue
        model = model_of(row.best)
        if model is not None:
            found.append((row.size_bytes, model[0].algorithm.value, model[0].protocol.value))
            continue
        name = _best_nccl(sweep, row.size_bytes, bench)
        if name is None:
            return []
        found.append((row.size_bytes, name, ""))
    return rules_of(found, low_latency_bytes=LOW_LATENCY_BYTES)


def _best_nccl(sweep: Sweep, size: Fraction, bench: Bench) -> str | None:
    row = next(row for row in sweep.rows if row.size_bytes == size)
    task = row.outcomes[0].task
    options: Mapping[str, Any] = {
        name: value for name, value in task.options.items() if name in ("switch", "transit", "seed")
    }
    found: dict[str, int] = {}
    for name, baseline in NCCL_ALGORITHMS.items():
        (outcome,) = bench.run([replace(task, method=baseline, options=options)])
        if outcome.result is not None and outcome.result.finish_ps is not None:
            found[name] = outcome.result.finish_ps
    return min(found, key=lambda name: found[name], default=None)
