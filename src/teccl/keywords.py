"""Keywords: what `solve` may be told, each described once, and the names to choose from.

The command line, the app and the documentation take flags, choices and sentences from here; tests
hold the library's signature to it. Nothing heavy is loaded, so that help and completion are quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Collective(StrEnum):
    """The collectives teccl knows by name."""

    ALLGATHER = "allgather"
    ALLTOALL = "alltoall"
    REDUCESCATTER = "reducescatter"
    ALLREDUCE = "allreduce"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    GATHER = "gather"
    SCATTERGATHER = "scattergather"
    ALLTOALLV = "alltoallv"
    EXPLICIT = "explicit"

    @property
    def reduces(self) -> bool:
        """Whether data of several ranks is combined."""
        return self in (Collective.REDUCESCATTER, Collective.ALLREDUCE, Collective.REDUCE)

    @property
    def has_root(self) -> bool:
        """Whether one rank is singled out."""
        return self in (
            Collective.BROADCAST,
            Collective.REDUCE,
            Collective.SCATTER,
            Collective.GATHER,
            Collective.SCATTERGATHER,
        )


class Effort(StrEnum):
    """How much work `auto` does."""

    QUICK = "quick"
    NORMAL = "normal"
    THOROUGH = "thorough"


class Objective(StrEnum):
    """What exact models minimise."""

    FINISH = "finish"
    PAPER = "paper"


class Solver(StrEnum):
    """Back ends of exact models."""

    HIGHS = "highs"
    CPSAT = "cpsat"
    GUROBI = "gurobi"


class SwitchMode(StrEnum):
    """What a switch may do with an arrival."""

    COPY = "copy"
    NO_COPY = "no-copy"
    HYPER_EDGE = "hyper-edge"


class Transit(StrEnum):
    """When data that enters a switch leaves it."""

    STORE_AND_FORWARD = "store-and-forward"
    CUT_THROUGH = "cut-through"


# Those that a name says all about; the others take a demand file.
NAMED_COLLECTIVES = tuple(each.value for each in Collective if each is not Collective.EXPLICIT)
GRID_METHODS = ("milp", "lp", "astar")
METHOD_NAMES = (
    *("auto", "construct", *GRID_METHODS, "ring", "recursive-doubling", "binomial-tree"),
    *("double-binary-tree", "shortest-path"),
)


class Topic(StrEnum):
    """Under which heading help lists a keyword."""

    DEMAND = "Demand"
    METHOD = "Method"
    GRID = "Grid of the paper"
    MODEL = "Switches and buffers"
    CHANGES = "Changes to the topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One keyword of `solve`.

    Parameters
    ----------
    flag
        Its name on the command line.
    topic
        The heading in help.
    text
        What it is for, without the full stop.
    default
        What holds where it is not given, as help shows it; empty where there is nothing to say.
    value
        How help shows what it takes; empty for flags that take nothing.
    choices
        Names of which it takes one.
    sets
        What a flag that takes nothing sets it to.
    repeats
        Whether it may be given several times.
    in_app
        Whether the app in the browser has a field for it.
    """

    flag: str
    topic: Topic
    text: str
    default: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()
    sets: bool | None = None
    repeats: bool = False
    in_app: bool = False

    @property
    def help(self) -> str:
        """The sentence that help shows."""
        default = f" ({self.default})" if self.default else ""
        choices = f": {', '.join(self.choices)}" if self.choices else ""
        again = "; may repeat" if self.repeats else ""
        return f"{self.text}{default}{choices}{again}."


def _names(kind: type[StrEnum]) -> tuple[str, ...]:
    return tuple(each.value for each in kind)


KEYWORDS: Mapping[str, Keyword] = {
    "size": Keyword(
        flag="--size",
        topic=Topic.DEMAND,
        value="SIZE",
        text="Bytes as nccl-tests counts them, such as 1MB",
        in_app=True,
    ),
    "ranks": Keyword(
        flag="--ranks",
        topic=Topic.DEMAND,
        value="RANKS",
        text="Ranks that take part, such as 0-7,12",
    ),
    "root": Keyword(
        flag="--root", topic=Topic.DEMAND, value="R", text="Rank of the root", in_app=True
    ),
    "demand": Keyword(
        flag="--demand",
        topic=Topic.DEMAND,
        value="FILE",
        text="A demand file, in place of COLLECTIVE",
    ),
    "chunks": Keyword(
        flag="--chunks",
        topic=Topic.METHOD,
        value="auto|N",
        text="Pieces per block",
        default="auto, on the grid 1",
        in_app=True,
    ),
    "max_chunks": Keyword(
        flag="--max-chunks", topic=Topic.METHOD, value="N", text="Most pieces that auto tries"
    ),
    "chunk_tolerance": Keyword(
        flag="--chunk-tolerance",
        topic=Topic.METHOD,
        value="PART",
        text="How much later fewer chunks may end",
        default="0.1%, with overheads 1%",
    ),
    "method": Keyword(
        flag="--method",
        topic=Topic.METHOD,
        text="How to make the schedule",
        default="auto",
        choices=METHOD_NAMES,
        in_app=True,
    ),
    "effort": Keyword(
        flag="--effort",
        topic=Topic.METHOD,
        text="How much work auto does",
        default="normal",
        choices=_names(Effort),
        in_app=True,
    ),
    "time_limit": Keyword(
        flag="--time-limit",
        topic=Topic.METHOD,
        value="DURATION",
        text="Keep the best found by then, such as 10s",
        in_app=True,
    ),
    "gap": Keyword(
        flag="--gap",
        topic=Topic.METHOD,
        value="GAP",
        text="Stop this close to the bound, such as 1%",
    ),
    "objective": Keyword(
        flag="--objective",
        topic=Topic.METHOD,
        text="What to minimise",
        default="finish",
        choices=_names(Objective),
    ),
    "from_schedule": Keyword(
        flag="--from", topic=Topic.METHOD, value="SCHEDULE", text="Start from this schedule file"
    ),
    "warm_start": Keyword(
        flag="--no-warm-start", topic=Topic.METHOD, text="Give exact models no start", sets=False
    ),
    "solver": Keyword(
        flag="--solver",
        topic=Topic.METHOD,
        text="Back end of exact models",
        default="highs",
        choices=_names(Solver),
    ),
    "threads": Keyword(flag="--threads", topic=Topic.METHOD, value="N", text="Threads to use"),
    "seed": Keyword(
        flag="--seed", topic=Topic.METHOD, value="N", text="Seed of random choices", default="0"
    ),
    "grid": Keyword(
        flag="--grid", topic=Topic.GRID, text="Use the paper's epochs end to end", sets=True
    ),
    "epoch": Keyword(
        flag="--epoch",
        topic=Topic.GRID,
        value="fastest|slowest|DURATION",
        text="Length of an epoch",
        default="fastest",
    ),
    "epoch_multiplier": Keyword(
        flag="--epoch-multiplier",
        topic=Topic.GRID,
        value="M",
        text="Factor on the epoch",
        default="1",
    ),
    "horizon": Keyword(
        flag="--horizon",
        topic=Topic.GRID,
        value="auto|K",
        text="Number of epochs",
        default="auto",
    ),
    "switch": Keyword(
        flag="--switch",
        topic=Topic.MODEL,
        text="What a switch may do",
        default="copy",
        choices=_names(SwitchMode),
        in_app=True,
    ),
    "transit": Keyword(
        flag="--transit",
        topic=Topic.MODEL,
        text="How data passes a switch",
        default="store-and-forward",
        choices=_names(Transit),
        in_app=True,
    ),
    "buffer": Keyword(
        flag="--buffer",
        topic=Topic.MODEL,
        value="unlimited|none|N",
        text="Received chunks that may wait at a GPU to be forwarded",
        default="unlimited",
    ),
    "copy": Keyword(
        flag="--no-copy", topic=Topic.MODEL, text="No node copies, GPUs included", sets=False
    ),
    "any_order": Keyword(
        flag="--any-order",
        topic=Topic.METHOD,
        text="Ranks of an AllReduce may add in different orders",
        sets=True,
    ),
    "without_links": Keyword(
        flag="--without-link",
        topic=Topic.CHANGES,
        value="A:B",
        text="Remove links A:B, A>B or A:*",
        repeats=True,
    ),
    "degrade": Keyword(
        flag="--degrade",
        topic=Topic.CHANGES,
        value="A:B=50%",
        text="Scale links' bandwidth",
        repeats=True,
    ),
    "overhead": Keyword(
        flag="--overhead",
        topic=Topic.CHANGES,
        value="DURATION",
        text="Time a transfer holds a link beside its bytes",
    ),
}
