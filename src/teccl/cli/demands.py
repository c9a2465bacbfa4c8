"""`teccl demand moe`: demand files from the expert choices of tokens."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from teccl.cli.errors import UsageError
from teccl.cli.groups import new_group
from teccl.cli.options import (
    JsonOption,
    QuietOption,
    check_output,
    check_outputs,
    flag,
    option,
)
from teccl.cli.studying import path_option

if TYPE_CHECKING:
    from teccl.moe.demands import Traffic

_LAYER = "Layer"
_RANKS = "Ranks"
# What a token of 7168 numbers of two bytes takes.
_BYTES = "14336B"


def build_group() -> typer.Typer:
    """Return the group `teccl demand`."""
    group = new_group("Make demand files.")
    group.command("moe")(moe)
    return group


def moe(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="CSV (token,expert or layer,expert), JSON lines, .parquet or .npy; or drawn: "
            "zipf:tokens=N,exponent=1,seed=0, hot:tokens=N,hot=1,skew=3,seed=0.",
            show_default=False,
        ),
    ],
    *,
    experts: Annotated[str | None, option("--experts", "E", _LAYER, "Number of experts.")] = None,
    top_k: Annotated[str | None, option("--top-k", "K", _LAYER, "Experts of each token.")] = None,
    layer: Annotated[
        str | None, option("--layer", "L", _LAYER, "Which layer, where the trace has several.")
    ] = None,
    token_bytes: Annotated[
        str | None, option("--token-bytes", "SIZE", _LAYER, "Bytes of a token on its way (14336B).")
    ] = None,
    result_bytes: Annotated[
        str | None, option("--result-bytes", "SIZE", _LAYER, "Bytes of a result (as a token).")
    ] = None,
    topology: Annotated[
        str | None,
        option("--topology", "TOPOLOGY", _RANKS, "Whose GPUs are ranks, whose groups nodes."),
    ] = None,
    ranks: Annotated[
        str | None, option("--ranks", "N", _RANKS, "Number of ranks, without --topology.")
    ] = None,
    per_node: Annotated[
        str | None, option("--per-node", "N", _RANKS, "Ranks of each node, with --ranks (8).")
    ] = None,
    placement: Annotated[
        str,
        option("--placement", "HOW", _RANKS, "Experts on ranks: round-robin, balanced or a file."),
    ] = "round-robin",
    plain: Annotated[
        bool, flag("--plain", help_text="AllToAllv, without copies and sums inside nodes.")
    ] = False,
    output: Annotated[str | None, path_option("-o", "FILE", "Write the dispatch there.")] = None,
    combine: Annotated[
        str | None, path_option("--combine", "FILE", "Write the combine there.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn expert choices into dispatch and combine demands, and say what deduplication saves."""
    from teccl.cli.output import emit, emit_json, table
    from teccl.demand.demand_files import save_demand
    from teccl.errors import DemandError
    from teccl.moe import Traffic, place_experts, read_routing
    from teccl.synthesis.request import read_whole
    from teccl.units import parse_size

    if experts is None or top_k is None:
        raise DemandError("a trace needs --experts and --top-k; give both")
    if result_bytes is not None and combine is None:
        raise UsageError("--result-bytes are those of the combine; add --combine FILE")
    paths = [check_output(name) for name in (output, combine)]
    check_outputs(*paths)
    node = _nodes(topology, ranks, per_node)
    routing = read_routing(
        trace,
        num_experts=read_whole(experts, "experts", low=1, high=100_000),
        top_k=read_whole(top_k, "top-k", low=1, high=1000),
        layer=None if layer is None else read_whole(layer, "layer", low=0),
    )
    sizes = [
        parse_size(text, what=what)
        for text, what in (
            (token_bytes or _BYTES, "token-bytes"),
            (result_bytes or token_bytes or _BYTES, "result-bytes"),
        )
    ]
    if min(sizes) <= 0:
        raise DemandError("token-bytes and result-bytes must be positive; give for example 14336B")
    traffic = Traffic.of(routing, place_experts(routing, len(node), placement), node)
    demands = [
        traffic.dispatch(sizes[0], multicast=not plain),
        traffic.combine(sizes[1], multicast=not plain),
    ]
    for demand, path in zip(demands, paths, strict=True):
        if path is not None:
            save_demand(demand, path)
    found = _summary(traffic, len(routing), float(sizes[0]))
    if as_json:
        emit_json(found)
    elif not quiet:
        emit(table((), [(name.replace("_", " "), _shown(value)) for name, value in found.items()]))


def _nodes(topology: str | None, ranks: str | None, per_node: str | None) -> Any:
    """Node of each rank."""
    import numpy as np

    from teccl.errors import DemandError
    from teccl.moe.demands import nodes_of
    from teccl.synthesis.request import read_whole
    from teccl.topology import Topology

    if (topology is None) == (ranks is None):
        raise DemandError("give --topology or --ranks, one of them")
    if topology is not None:
        if per_node is not None:
            raise DemandError("--per-node goes with --ranks; a topology knows its nodes")
        return nodes_of(Topology.parse(topology))
    count = read_whole(ranks, "ranks", low=2, high=10_000)
    return np.arange(count) // read_whole(per_node or 8, "per-node", low=1, high=10_000)


def _summary(traffic: "Traffic", tokens: int, token_bytes: float) -> dict[str, Any]:
    """What crosses between nodes, by who gets a copy of its own."""
    crossings = traffic.crossings()
    saved = 1 - crossings["node"] / crossings["rank"] if crossings["rank"] else 0.0
    return {
        "tokens": tokens,
        "ranks": len(traffic.node),
        "nodes": int(traffic.node.max()) + 1,
        "skew": round(traffic.skew, 4),
        "bytes_across_per_expert": crossings["expert"] * token_bytes,
        "bytes_across_per_rank": crossings["rank"] * token_bytes,
        "bytes_across_per_node": crossings["node"] * token_bytes,
        "saved_by_deduplication": round(saved, 4),
    }


def _shown(value: float) -> str:
    """A number as people read it."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
