"""Features: what strategies ask about a request, computed once."""

from dataclasses import dataclass
from functools import cached_property

from teccl.construct.params import OFFER_UNITS
from teccl.demand import Collective
from teccl.footprint import construction_footprint
from teccl.synthesis.request import Request

# Collectives with trees over all GPUs.
_TREES = (Collective.ALLGATHER, Collective.REDUCESCATTER, Collective.ALLREDUCE)


@dataclass(frozen=True)
class Features:
    """Properties of what was asked for that decide who serves it and what that costs."""

    request: Request

    @cached_property
    def collectives(self) -> frozenset[Collective]:
        """Collectives of all tenants."""
        return frozenset(tenant.collective for tenant in self.request.demand.tenants)

    @cached_property
    def phases(self) -> int:
        """Two for an AllReduce, whose ReduceScatter and AllGather each count like a collective."""
        return 2 if Collective.ALLREDUCE in self.collectives else 1

    @property
    def asks_for_trees(self) -> bool:
        """Whether all tenants ask for collectives with trees over all of their GPUs."""
        return self.collectives <= set(_TREES)

    @property
    def has_tenants(self) -> bool:
        """Whether several share the fabric."""
        return len(self.request.demand.tenants) > 1

    @cached_property
    def is_exchange(self) -> bool:
        """Whether every chunk has one source and one destination."""
        table = self.request.problem(1).chunks
        ends = set(table.source_set.tolist()) | set(table.destination_set.tolist())
        return all(len(table.sets[end]) == 1 for end in ends)

    @property
    def on_grid(self) -> bool:
        """Whether epochs are counted."""
        return self.request.grid

    @property
    def given_chunks(self) -> int | None:
        """Number of chunks, None to choose it."""
        return self.request.chunks

    @cached_property
    def sends(self) -> int:
        """About how many sends a schedule with one chunk has."""
        return construction_footprint(self.request.problem(1)).sends

    def offer_work(self, num_chunks: int) -> int:
        """Units of re-timing and judging a schedule."""
        return OFFER_UNITS * self.sends * num_chunks
