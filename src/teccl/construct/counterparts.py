"""Counterparts: AllReduces made of schedules for the collectives that they consist of.

Everybody's buffer brought to all is an AllGather of whole buffers, whose contents are added up
where they arrive; a ReduceScatter leaves what an AllGather begins with.
"""

from itertools import chain

import numpy as np

from teccl.construct.partial_sums import Delivery, summed_schedule
from teccl.construct.schemes import one_shot
from teccl.construct.staged import stage_items
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array


def gathered_and_added(problem: Problem, gather: Schedule) -> Schedule:
    """Return an AllReduce in one shot that moves whole buffers as an AllGather of them does.

    Parameters
    ----------
    problem
        The AllReduce, its buffer cut into as many pieces as the AllGather's blocks.
    gather
        An AllGather of the same ranks, of as many buffers.
    """
    table, topology = gather.problem.chunks, problem.topology
    ranks = problem.demand.tenants[0].members(topology.num_gpus)
    scheme, place = one_shot(len(ranks)), {int(topology.gpus[r]): m for m, r in enumerate(ranks)}
    items = chain(*stage_items(scheme, problem.num_chunks, 0))
    known = {(item.parts[0], item.piece): item for item in items}
    item_of = [
        known[place[int(table.sources(chunk)[0])], piece]
        for chunk, piece in enumerate(table.piece.tolist())
    ]
    columns = (gather.sends[name].tolist() for name in ("chunk", "link", "start_ps", "transfer"))
    deliveries = [
        Delivery(item_of[chunk], link, start, transfer)
        for chunk, link, start, transfer in zip(*columns, strict=True)
    ]
    return summed_schedule(problem, scheme, [deliveries])


def scattered_and_gathered(problem: Problem, scatter: Schedule, gather: Schedule) -> Schedule:
    """Return an AllReduce that is a ReduceScatter and then an AllGather, of as many chunks each."""
    halves = (scatter.sends, gather.sends)

    def joined(name: str) -> np.ndarray:
        return np.concatenate([sends[name] for sends in halves])

    count = len(scatter.sends)
    start, transfer = joined("start_ps"), joined("transfer")
    start[count:] += scatter.finish_ps
    transfer[count:] += transfer[:count].max(initial=-1) + 1
    sends = send_array(
        joined("chunk"), joined("link"), start, transfer=transfer, reduce=joined("reduce")
    )
    return Schedule(problem=problem, sends=sends, method="construct")
