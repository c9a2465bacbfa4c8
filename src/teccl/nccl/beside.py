"""NCCL's model beside a result of ours."""

from teccl.errors import InputError
from teccl.nccl.cost_model import Cost, best
from teccl.nccl.shape import shape_of
from teccl.result import Result


def model_of(result: Result) -> tuple[Cost, float] | None:
    """What NCCL's model takes for the same collective, and its seconds; None where it has none.

    It knows collectives of all GPUs of a machine whose links are NVLinks.
    """
    tenants, topology = result.problem.demand.tenants, result.problem.topology
    members = tenants[0].members(topology.num_gpus)
    if len(tenants) > 1 or len(members) < topology.num_gpus:
        return None
    try:
        shape = shape_of(topology)
    except InputError:
        return None
    size = float(result.size_bytes)
    found = best(tenants[0].collective, size, shape)
    return None if found is None else (found, found.seconds(size, shape))
