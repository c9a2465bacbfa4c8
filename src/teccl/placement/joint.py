"""Joint demands: all groups of all axes at once, each a tenant on the GPUs where its ranks sit."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from teccl.demand import Collective, Demand, ExplicitChunk, Tenant
from teccl.errors import DemandError
from teccl.placement.exchanging import Placement
from teccl.placement.groups import Axis, group_names, members


def joint_demand(placement: Placement, *, demand: Demand | None = None) -> Demand:
    """Return what all groups run at the same time, by GPU.

    Parameters
    ----------
    placement
        Where ranks sit. The groups of an axis become tenants that are called after it, with a
        number; their priority is its weight.
    demand
        Further tenants, whose ranks are seated too; names keep unless a group has the same.
    """
    gpu = placement.gpu
    tenants = [
        _tenant(axis, name, tuple(gpu[rank] for rank in group))
        for number, axis in enumerate(placement.axes)
        if axis.size > 1
        for name, group in zip(
            group_names(placement.axes, number),
            members(placement.axes, number).tolist(),
            strict=True,
        )
    ]
    taken = {tenant.name for tenant in tenants}
    for tenant in () if demand is None else demand.tenants:
        if tenant.name in taken:
            raise DemandError(f"{tenant.name} is a group and a tenant of the demand; rename that")
        tenants.append(_seated(tenant, gpu))
    return Demand(tenants=tuple(tenants))


def _tenant(axis: Axis, name: str, seats: tuple[int, ...]) -> Tenant:
    """Return the collective of one group."""
    priority = Fraction(str(axis.weight))
    if axis.pattern != "sendrecv":
        return Tenant(
            collective=Collective(axis.pattern),
            size=axis.num_bytes,
            ranks=seats,
            name=name,
            priority=priority,
        )
    ends = list(pairwise(seats))
    pairs = [*ends, *((b, a) for a, b in ends)]
    return Tenant(
        collective=Collective.EXPLICIT,
        size=axis.num_bytes,
        ranks=seats,
        name=name,
        priority=priority,
        chunks=tuple(ExplicitChunk((a,), (b,)) for a, b in pairs),
    )


def _seated(tenant: Tenant, gpu: tuple[int, ...]) -> Tenant:
    """Return a tenant with GPUs in place of ranks."""

    def seat(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(gpu[rank] for rank in ranks)

    chunks = None
    if tenant.chunks is not None:
        chunks = tuple(
            chunk._replace(sources=seat(chunk.sources), destinations=seat(chunk.destinations))
            for chunk in tenant.chunks
        )
    return replace(
        tenant,
        ranks=seat(tenant.members(len(gpu))),
        root=None if tenant.root is None else gpu[tenant.root],
        ready={gpu[rank]: time for rank, time in tenant.ready.items()},
        chunks=chunks,
    )
