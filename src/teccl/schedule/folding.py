"""Folding: sends into messages from GPU to GPU, whatever switches lie between."""

import numpy as np
import numpy.typing as npt

from teccl.schedule.sends import Schedule

IntArray = npt.NDArray[np.int64]


def ends_of_messages(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Return pairs of sends at which messages begin and end, by the end.

    Where a switch merges, several messages have one end.
    """
    topology, sends = schedule.problem.topology, schedule.sends
    rows = np.arange(len(sends))
    if topology.num_switches == 0:
        return rows, rows
    is_switch = topology.is_switch
    from_gpu = ~is_switch[topology.link_src[sends["link"]]]
    to_gpu = ~is_switch[topology.link_dst[sends["link"]]]
    direct = rows[from_gpu & to_gpu]
    entering: dict[tuple[int, int], list[int]] = {}
    for row in rows[~to_gpu].tolist():
        key = (int(sends["transfer"][row]), int(topology.link_dst[sends["link"][row]]))
        entering.setdefault(key, []).append(row)
    pairs = [(row, row) for row in direct.tolist()]
    for leaf in rows[~from_gpu & to_gpu].tolist():
        found, seen, stack = [], {leaf}, [leaf]
        while stack:
            row = stack.pop()
            if from_gpu[row]:
                found.append(row)
                continue
            key = (int(sends["transfer"][row]), int(topology.link_src[sends["link"][row]]))
            new = [before for before in entering.get(key, []) if before not in seen]
            seen.update(new)
            stack += new
        pairs += [(root, leaf) for root in sorted(found)]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]
