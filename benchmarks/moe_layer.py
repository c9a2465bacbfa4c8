"""One mixture-of-experts layer on eight nodes: dispatch and combine, plain and deduplicated.

    python benchmarks/moe_layer.py [--topology dgx-h100:chassis=8] [--tokens 65536] [--work 1000000]

Top-8 of 256 experts, four on each GPU; the four of the first GPU get `skew` times the mean. Prints
a Markdown table: direct sends in rank order, plain AllToAllv and deduplicated, in microseconds, and
the bound of the plain one.
"""

import argparse
from fractions import Fraction

import numpy as np

import teccl
from teccl.bounds import summarise
from teccl.exchange.attempts import Attempts
from teccl.moe import Traffic, read_routing
from teccl.moe.demands import nodes_of

TOKEN_BYTES = {"dispatch": Fraction(7168), "combine": Fraction(14336)}


def row(planner: teccl.Planner, tokens: int, skew: int, way: str, work: int) -> list[str]:
    """Plan one way of one skew."""
    routing = read_routing(f"hot:tokens={tokens},hot=4,skew={skew}", num_experts=256, top_k=8)
    experts = np.arange(256) * planner.topology.num_gpus // 256
    traffic = Traffic.of(routing, experts, nodes_of(planner.topology))
    make = getattr(traffic, way)
    size = TOKEN_BYTES[way]
    plain, shared = (make(size, multicast=multicast) for multicast in (False, True))
    whole = Attempts(planner.jobs(plain, 1), np.random.default_rng(0), passes=1, patience=0)
    bound = summarise(whole.jobs.problem, grid=None, given_chunks=False, narrow=True).physical_ps
    finish = [planner.plan(demand, work=work).finish_ps for demand in (plain, shared)]
    crossings = traffic.crossings()
    return [
        f"{traffic.skew:.2f}",
        way,
        *(f"{ps / 1e6:.1f}" for ps in (whole.straight().finish, finish[0], bound, finish[1])),
        f"{finish[0] / finish[1]:.2f}",
        f"{100 * (1 - crossings['node'] / crossings['rank']):.1f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="dgx-h100:chassis=8")
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--work", type=int, default=1_000_000)
    options = parser.parse_args()
    planner = teccl.Planner(options.topology)
    head = ["skew", "way", "direct", "plain", "bound", "deduplicated", "gain", "saved %"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for skew in range(1, 6):
        for way in TOKEN_BYTES:
            cells = row(planner, options.tokens, skew, way, options.work)
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
