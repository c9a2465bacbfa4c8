"""The experiments by name."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from teccl.result import Result
from teccl.studies.experiments.experiment import (
    TIMED,
    Experiment,
    ExperimentCase,
    micros,
    percent,
    request,
    seconds,
)

SIZES = ("1KB", "4KB", "16KB", "64KB", "256KB", "1MB", "4MB", "16MB", "64MB", "256MB", "1GB")
FEW = ("1KB", "64KB", "1MB", "64MB")
# Time for one exact model.
QUICK_LIMIT, FULL_LIMIT = "15s", "300s"
# Rounding of what the paper prints.
ROUNDING = 1e-4


def published(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table of the paper."""
    text = (files("teccl.studies.experiments") / "data" / f"{name}.csv").read_text()
    yield from csv.DictReader(text.splitlines())


def _sccl_instance(quick: bool, seed: int) -> list[ExperimentCase]:
    def case(row: Mapping[str, str]) -> ExperimentCase:
        chunks = int(row["chunks"])
        task = request(
            "dgx1:alpha=0",
            row["collective"],
            f"{200 * chunks}KB",
            chunks=chunks,
            grid=True,
            epoch="slowest",
            seed=seed,
        )

        def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
            (r,) = results
            return {
                "epochs": r and r.epochs,
                "bound": r and r.bound_epochs,
                "paper": row["epochs"],
                "status": r and r.status.value,
                "sccl_s": row["sccl_solver_s"],
                "paper_s": row["teccl_solver_s"],
                TIMED: seconds(results),
            }

        labels = {"collective": row["collective"], "chunks": chunks}
        return ExperimentCase(labels=labels, tasks=(task,), figures=figures)

    return [case(row) for row in published("paper_sccl_instance")][: 8 if quick else None]


def _sccl_least_steps(quick: bool, seed: int) -> list[ExperimentCase]:  # noqa: ARG001, it is small
    def case(row: Mapping[str, str]) -> ExperimentCase:
        chunks = int(row["chunks"])
        size = f"{200 * chunks}KB"
        ours = request("dgx1", row["collective"], size, chunks=chunks, seed=seed)
        model = replace(ours, method="sccl-like", options={"chunks": chunks})

        def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
            r, s = results
            return {
                "finish_us": r and micros(r.finish_time_s),
                "bound_us": r and micros(r.chunk_bound_s),
                "sccl_like": s and s.message,
                "paper_sccl_us": row["sccl_us"],
                "paper_us": row["teccl_us"],
                TIMED: seconds(results),
            }

        labels = {"collective": row["collective"], "chunks": chunks}
        return ExperimentCase(labels=labels, tasks=(ours, model), figures=figures)

    return [case(row) for row in published("paper_sccl_least_steps")]


def _ndv2(quick: bool, seed: int) -> list[ExperimentCase]:
    def case(row: Mapping[str, str]) -> ExperimentCase:
        spec, kind, size = "ndv2:chassis=2", row["collective"], row["output_buffer"]
        grid = request(
            spec, kind, size, chunks=1, grid=True, epoch=f"{row['epoch_us']}us", seed=seed
        )
        free = request(spec, kind, size, seed=seed)

        def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
            g, f = results
            theirs = float(row["finish_us"])
            times = [
                None if g is None else micros(g.grid_time_s),
                None if g is None else micros(g.finish_time_s),
                None if f is None else micros(f.finish_time_s),
            ]
            # The paper's figure is its grid's for copies, and the finish of its rates otherwise.
            same = times[:1] if kind == "allgather" else times[:2]
            return {
                "epoch_us": float(row["epoch_us"]),
                "grid_us": times[0],
                "finish_us": times[1],
                "auto_us": times[2],
                "paper_us": theirs,
                "taccl_us": row["taccl_finish_us"] or "-",
                "same_model": _verdict(same, theirs),
                "best": _verdict(times, theirs),
                "paper_s": row["solver_s"],
                TIMED: seconds(results),
            }

        labels = {"collective": kind, "variant": row["variant"], "size": size}
        return ExperimentCase(labels=labels, tasks=(grid, free), figures=figures)

    rows = published("paper_ndv2_2chassis")
    return [case(row) for row in rows if not quick or row["output_buffer"] in FEW]


def _verdict(times: Sequence[float | None], theirs: float) -> str:
    best = min((t for t in times if t is not None), default=float("inf"))
    return "ok" if best <= theirs * (1 + ROUNDING) else "later"


def _alpha_error(quick: bool, seed: int) -> list[ExperimentCase]:
    def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
        blind, aware = results
        if blind is None or aware is None or blind.schedule is None:
            return {}
        from teccl.replay import simulate

        real = simulate(blind.schedule, topology=aware.problem.topology).finish_ps
        error = real / (blind.finish_ps or 1) - 1
        return {
            "promised_us": micros(blind.finish_time_s),
            "real_us": real / 1e6,
            "error_percent": percent(error),
            "with_alpha_us": micros(aware.finish_time_s),
            TIMED: seconds(results),
        }

    return [
        ExperimentCase(
            labels={"topology": spec, "size": size},
            tasks=(
                request(_without_alpha(spec), "allgather", size, seed=seed),
                request(spec, "allgather", size, seed=seed),
            ),
            figures=figures,
        )
        for spec in ("dgx1", "ndv2:chassis=2")
        for size in (FEW if quick else SIZES)
    ]


def _without_alpha(spec: str) -> str:
    return f"{spec}{',' if ':' in spec else ':'}alpha=0"


def _pair(
    specs: Sequence[str],
    sizes: Sequence[str],
    one: Mapping[str, object],
    other: Mapping[str, object],
    names: tuple[str, str],
) -> list[ExperimentCase]:
    """Return cases that compare two sets of options by their finish times."""

    def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
        a, b = (None if r is None else micros(r.finish_time_s) for r in results)
        ratio = None if a is None or b is None else round(b / a, 4)
        return {f"{names[0]}_us": a, f"{names[1]}_us": b, "ratio": ratio, TIMED: seconds(results)}

    return [
        ExperimentCase(
            labels={"topology": spec, "size": size},
            tasks=(
                request(spec, "allgather", size, **one),
                request(spec, "allgather", size, **other),
            ),
            figures=figures,
        )
        for spec in specs
        for size in sizes
    ]


def _copy(quick: bool, seed: int) -> list[ExperimentCase]:
    specs = (
        ("dgx1", "internal2:chassis=2")
        if quick
        else ("dgx1", "dgx2", "internal1:chassis=2", "internal2:chassis=2", "ndv2:chassis=2")
    )
    options = {"chunks": 1, "seed": seed}
    return _pair(
        specs, FEW if quick else SIZES, options, {**options, "copy": False}, ("copy", "no_copy")
    )


def _epochs(quick: bool, seed: int) -> list[ExperimentCase]:
    options = {"grid": True, "chunks": 1, "seed": seed}
    return _pair(
        ("ndv2:chassis=2",),
        FEW if quick else SIZES,
        {**options, "epoch": "fastest"},
        {**options, "epoch": "slowest"},
        ("fastest", "slowest"),
    )


def _buffers(quick: bool, seed: int) -> list[ExperimentCase]:
    specs = (
        ("dgx1", "internal2:chassis=2")
        if quick
        else ("dgx1", "internal1:chassis=2", "internal2:chassis=2", "torus:dims=4x4")
    )
    options = {"chunks": 1, "seed": seed}
    return _pair(
        specs,
        FEW if quick else SIZES,
        options,
        {**options, "buffer": "none"},
        ("unlimited", "none"),
    )


def _astar(quick: bool, seed: int) -> list[ExperimentCase]:
    def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
        a, m = results
        return {
            "astar_epochs": a and a.epochs,
            "milp_epochs": m and m.epochs,
            "bound": m and m.bound_epochs,
            "astar": a and a.status.value,
            "milp": m and m.status.value,
            TIMED: seconds(results),
        }

    specs = (
        ("internal2:chassis=2", "dgx1")
        if quick
        else (
            "internal1:chassis=1",
            "internal1:chassis=2",
            "internal2:chassis=2",
            "internal2:chassis=4",
            "dgx1",
        )
    )
    options = {"time_limit": QUICK_LIMIT if quick else FULL_LIMIT, "seed": seed}
    return [
        ExperimentCase(
            labels={"topology": spec, "size": "1MB"},
            tasks=tuple(
                request(spec, "allgather", "1MB", method=m, **options) for m in ("astar", "milp")
            ),
            figures=figures,
        )
        for spec in specs
    ]


def _large(quick: bool, seed: int) -> list[ExperimentCase]:
    per_chassis = {"internal1": 4, "internal2": 2}

    def case(row: Mapping[str, str]) -> ExperimentCase:
        gpus = int(row["gpus"])
        spec = f"{row['topology']}:chassis={gpus // per_chassis[row['topology']]}"

        def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
            (r,) = results
            return {
                "finish_us": r and micros(r.finish_time_s),
                "gap_percent": r and percent(r.physical_gap),
                "paper_method": row["method"],
                "paper_s": row["solver_s"],
                TIMED: seconds(results),
            }

        labels = {"topology": row["topology"], "collective": row["collective"], "gpus": gpus}
        task = request(spec, row["collective"], "16MB", effort="quick", seed=seed)
        return ExperimentCase(labels=labels, tasks=(task,), figures=figures)

    rows = published("paper_large_topologies")
    return [case(row) for row in rows if not quick or int(row["gpus"]) <= 64]


def _gaps(quick: bool, seed: int) -> list[ExperimentCase]:
    def figures(results: Sequence[Result | None]) -> Mapping[str, object]:
        (r,) = results
        return {
            "finish_us": r and micros(r.finish_time_s),
            "bound_us": r and micros(r.physical_bound_s),
            "gap_percent": r and percent(r.physical_gap),
            "chunks": r and r.num_chunks,
            "method": r and r.method,
            TIMED: seconds(results),
        }

    specs = (
        ("dgx1", "ndv2:chassis=2", "torus:dims=4x4")
        if quick
        else (
            "dgx1",
            "dgx2",
            "dgx2:chassis=2",
            "ndv2:chassis=2",
            "dgx-h100:chassis=2",
            "mi300x",
            "internal1:chassis=4",
            "internal2:chassis=4",
            "torus:dims=4x4",
            "hypercube:dimension=4",
        )
    )
    kinds = ("allgather", "allreduce", "alltoall")
    return [
        ExperimentCase(
            labels={"topology": spec, "collective": kind, "size": size},
            tasks=(request(spec, kind, size, seed=seed),),
            figures=figures,
        )
        for spec in specs
        for kind in kinds
        for size in (("1KB", "1MB", "64MB") if quick else SIZES)
    ]


_BELOW_THE_CUT = (
    "SCCL's 3.4 us for AllToAll are two steps of 1.7 us in which each NVLink carries one chunk. "
    "Six NVLinks join the two quads of a DGX-1, so two steps carry 12 chunks across where 16 must "
    "cross: the figure lies below that cut, and no schedule on this machine reaches it that way."
)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="sccl-instance",
            title="SCCL's instances",
            cases=_sccl_instance,
            about="DGX-1, alpha 0, chunks of 25 KB, epochs of the slowest link.",
        ),
        Experiment(
            name="sccl-least-steps",
            title="SCCL's least steps",
            cases=_sccl_least_steps,
            about="DGX-1, alpha 0.7 us, chunks of 25 KB, physical time.",
            notes=(_BELOW_THE_CUT,),
        ),
        Experiment(
            name="ndv2",
            title="NDv2, two chassis",
            cases=_ndv2,
            about="Ours beside the paper's and TACCL's; one chunk on the paper's epochs, and auto.",
            notes=(
                "same_model compares grid with grid for AllGather, for AllToAll the finish too.",
                "best takes auto with its own chunks as well.",
                (
                    "Where same_model says later, the paper's figure lies a few epochs below ours "
                    "on the same grid, for a reason we do not know."
                ),
            ),
        ),
        Experiment(
            name="alpha-error",
            title="Ignoring alpha",
            cases=_alpha_error,
            about="A schedule made as if alpha were 0, and what it takes in truth.",
            figure=("size", "error_percent"),
        ),
        Experiment(
            name="copy",
            title="What copies are worth",
            cases=_copy,
            about="AllGather, one chunk.",
            figure=("size", "ratio"),
        ),
        Experiment(
            name="epochs",
            title="Small and large epochs",
            cases=_epochs,
            about="AllGather on the grid of the fastest and of the slowest link.",
            figure=("size", "ratio"),
        ),
        Experiment(
            name="store-and-forward",
            title="What buffers are worth",
            cases=_buffers,
            about="AllGather, one chunk, with unlimited buffers and with none.",
            notes=("On grids the paper reports no benefit; in physical time there is some.",),
            figure=("size", "ratio"),
        ),
        Experiment(
            name="astar",
            title="A* against the optimum",
            cases=_astar,
            about="AllGather of 1 MB, epochs of the fastest link.",
        ),
        Experiment(
            name="large",
            title="Large topologies",
            cases=_large,
            about="Stand-ins for the paper's two proprietary topologies, 16 MB, effort quick.",
            notes=("The paper's times are those of its solver on 80 cores.",),
        ),
        Experiment(
            name="gaps",
            title="Gap to the physical bound",
            cases=_gaps,
            about="Every size and collective, automatic chunks.",
        ),
    )
}
