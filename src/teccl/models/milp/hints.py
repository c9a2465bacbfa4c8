"""Known schedules as starts of a model."""

import numpy as np
import numpy.typing as npt

from teccl.models.milp.general import Milp
from teccl.schedule import Schedule


def hint_values(milp: Milp, schedule: Schedule) -> npt.NDArray[np.float64] | None:
    """Values of the flow columns that a schedule takes, NaN for all other columns.

    Sends that the model has no column for, because they are too late for its horizon, are left
    out, so the values need not make a solution.
    """
    if schedule.grid is None:
        return None
    values = np.full(milp.model.num_columns, np.nan)
    values[milp.flows.column] = 0.0
    by_way: dict[tuple[int, ...], list[int]] = {}
    for arc, way in enumerate(milp.arcs.ways):
        by_way.setdefault(way, []).append(arc)
    index = milp.flows.columns.index
    for chunk, way, epoch in _ways(milp, schedule):
        for arc in by_way.get(way, ())[:1]:
            if epoch < milp.horizon and index[chunk, arc, epoch] >= 0:
                values[index[chunk, arc, epoch]] += 1.0
    return np.minimum(values, milp.model.upper)


def _ways(milp: Milp, schedule: Schedule) -> list[tuple[int, tuple[int, ...], int]]:
    """Chunk, way and epoch of everything a schedule starts, as the model's arcs see it."""
    sends = schedule.sends
    chunks, links = sends["chunk"].tolist(), sends["link"].tolist()
    epochs, transfers = sends["epoch"].tolist(), sends["transfer"].tolist()
    if milp.arcs.by_link:
        return [(c, (e,), k) for c, e, k in zip(chunks, links, epochs, strict=True)]
    topology = milp.problem.topology
    groups: dict[int, list[int]] = {}
    for row, transfer in enumerate(transfers):
        groups.setdefault(transfer, []).append(row)
    found = []
    for rows in groups.values():
        into = {int(topology.link_dst[links[row]]): row for row in rows}
        first = min(epochs[row] for row in rows)
        for row in rows:
            way = [links[row]]
            before = into.get(int(topology.link_src[links[row]]))
            while before is not None and len(way) <= len(rows):
                way.append(links[before])
                before = into.get(int(topology.link_src[links[before]]))
            found.append((chunks[row], tuple(way[::-1]), first))
    return found
