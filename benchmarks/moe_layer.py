"""One mixture-of-experts layer on eight nodes: dispatch and combine, plain and deduplicated.

    python benchmarks/moe_layer.py [--topology dgx-h100:chassis=8] [--tokens 32768] [--work 1000000]

Top-8 of 256 experts, four on each GPU; the four of the first GPU get `skew` times the mean. Prints
a Markdown table in microseconds: plain AllToAllv and deduplicated, each a verified schedule, the
bound of the plain one, direct sends in rank order, and two rivals (see `_moe_baselines.py`), shifts
round a ring and matchings between servers, timed by a formula that flatters them.
"""

import argparse
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from _moe_baselines import Paces, shifts, staged
from _table import print_machine, print_markdown

import teccl
from teccl.bounds import summarise
from teccl.demand import Demand
from teccl.exchange.attempts import Attempts
from teccl.exchange.cutting import FIRST
from teccl.moe import Traffic, read_routing
from teccl.moe.demands import nodes_of

TOKEN_BYTES = {"dispatch": Fraction(7168), "combine": Fraction(14336)}
HEADER = (
    *("skew", "way", "rank order", "ring shifts", "matchings"),
    *("plain", "bound", "deduplicated", "gain", "saved, %"),
)


def rivals(planner: teccl.Planner, plain: Demand, nodes: np.ndarray) -> list[float]:
    """Microseconds of direct sends in rank order, shifts round a ring and staged matchings."""
    whole = Attempts(planner.jobs(plain, 1), np.random.default_rng(0), FIRST)
    matrix = np.array(plain.tenants[0].matrix, dtype=float)
    paces = Paces.of(planner.network())
    direct = whole.straight().finish / 1e6
    return [direct, 1e6 * shifts(matrix, paces), 1e6 * staged(matrix, nodes, paces)]


def row(planner: teccl.Planner, tokens: int, skew: int, way: str, work: int) -> list[str]:
    """Plan one way of one skew."""
    routing = read_routing(f"hot:tokens={tokens},hot=4,skew={skew}", num_experts=256, top_k=8)
    nodes = nodes_of(planner.topology)
    traffic = Traffic.of(routing, np.arange(256) * len(nodes) // 256, nodes)
    make, size = getattr(traffic, way), TOKEN_BYTES[way]
    plain, shared = (make(size, multicast=multicast) for multicast in (False, True))
    problem = planner.jobs(plain, 1).problem
    bound = summarise(problem, grid=None, given_chunks=False, narrow=True).physical_ps / 1e6
    finish = [planner.plan(demand, work=work).finish_ps / 1e6 for demand in (plain, shared)]
    crossings = traffic.crossings()
    times = (*rivals(planner, plain, nodes), finish[0], bound, finish[1])
    return [
        f"{traffic.skew:.2f}",
        way,
        *(f"{time:.0f}" for time in times),
        f"{finish[0] / finish[1]:.2f}",
        f"{100 * (1 - crossings['node'] / crossings['rank']):.1f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="dgx-h100:chassis=8")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--work", type=int, default=1_000_000)
    options = parser.parse_args()
    planner = teccl.Planner(options.topology)

    def rows() -> Iterator[list[str]]:
        for skew in range(1, 6):
            for way in TOKEN_BYTES:
                yield row(planner, options.tokens, skew, way, options.work)

    print_machine()
    title = f"{options.tokens} tokens, top-8 of 256 experts on {options.topology}, microseconds"
    print_markdown(title, HEADER, rows())


if __name__ == "__main__":
    main()
