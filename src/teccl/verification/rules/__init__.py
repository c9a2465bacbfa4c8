"""The rule book: which rules hold in physical time, and which on the grid.

Each module is one rule; its `check` takes a `Case` and notes what breaks the rule.
"""

from collections.abc import Callable

from teccl.verification.case import Case
from teccl.verification.rules import (
    bound,
    buffers,
    delivery,
    finish,
    gpu_copies,
    grid_links,
    grid_shared_capacities,
    handoffs,
    holdings,
    links,
    ops,
    reductions,
    same_order,
    shapes,
    shared_capacities,
    slots,
    sum_contents,
    sum_copies,
    sum_sends,
    sum_table,
    switch_copies,
    switch_merges,
)

Rule = Callable[[Case], None]

# Rules about order, which picoseconds and epochs have in common.
_ORDER: tuple[Rule, ...] = (
    handoffs.check,
    holdings.check,
    gpu_copies.check,
    reductions.check,
    buffers.check,
)
PHYSICAL: tuple[Rule, ...] = (
    shapes.check,
    switch_merges.check,
    switch_copies.check,
    links.check,
    shared_capacities.check,
    ops.check,
    delivery.check,
    *_ORDER,
    sum_table.check,
    sum_sends.check,
    sum_contents.check,
    sum_copies.check,
    slots.check,
    same_order.check,
    finish.check,
    bound.check,
)
GRID: tuple[Rule, ...] = (grid_links.check, grid_shared_capacities.check, *_ORDER)
