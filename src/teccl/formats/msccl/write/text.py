"""The text of a program, in the small grammar that the runtimes read."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from teccl.formats.msccl.write.build import Built
from teccl.formats.msccl.write.gpu_transfers import Integers
from teccl.formats.msccl.write.memory_map import LETTERS, buffer_index, offset_of
from teccl.formats.msccl.write.steps import KINDS


def program_text(built: Built, attributes: Mapping[str, object]) -> str:
    """Write a program; equal programs give equal text."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for index, block in enumerate(built.blocks):
        by_rank[block.rank].append(index)
    lines = [f"<algo {_attributes(attributes)}>"]
    names = [0] * len(built.blocks)
    for own in by_rank.values():
        own.sort(key=lambda index: _sort_key(built, index))
        for number, index in enumerate(own):
            names[index] = number
    steps = _step_lines(built, names)
    sizes = {"i_chunks": built.layout.sizes[0], "o_chunks": built.layout.sizes[1]}
    for rank in range(built.layout.ranks):
        gpu = {"id": rank, **sizes, "s_chunks": built.scratch[rank]}
        lines.append(f"  <gpu {_attributes(gpu)}>")
        for index in by_rank[rank]:
            block = built.blocks[index]
            tb = {"id": names[index], "send": block.send, "recv": block.recv, "chan": block.channel}
            lines += [f"    <tb {_attributes(tb)}>", *steps[index], "    </tb>"]
        lines.append("  </gpu>")
    lines.append("</algo>")
    return "\n".join(lines) + "\n"


def _sort_key(built: Built, index: int) -> tuple[int, ...]:
    block = built.blocks[index]
    return (block.channel, block.send < 0, block.send, block.recv)


def _step_lines(built: Built, names: list[int]) -> list[list[str]]:
    """Lines of every block's steps; further waits of a step are steps before it."""
    steps = built.steps
    order = np.argsort(steps.block, kind="stable")
    taken = np.cumsum(steps.lines[order])
    before = np.concatenate([[0], taken])[np.searchsorted(steps.block[order], steps.block)]
    number = np.empty_like(taken)
    number[order] = taken - 1
    number -= before
    awaited = np.zeros(len(number), dtype=np.int64)
    awaited[steps.waits] = 1
    waited = list(
        zip(
            np.array(names)[steps.block[steps.waits]].tolist(),
            number[steps.waits].tolist(),
            strict=True,
        )
    )
    columns = (
        *(steps.block, number, steps.first_wait[:-1], steps.first_wait[1:], steps.kind),
        *(buffer_index(steps.source), offset_of(steps.source)),
        *(buffer_index(steps.target), offset_of(steps.target), steps.count, awaited),
        _stated_order(built),
    )
    lines: list[list[str]] = [[] for _ in built.blocks]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for block, s, first, last, kind, srcbuf, srcoff, dstbuf, dstoff, cnt, hasdep, order in rows:
        depid = deps = -1
        if last > first:
            *more, (depid, deps) = sorted(waited[first:last])
            for place, (other, step) in enumerate(more, s - len(more)):
                lines[block].append(
                    f'      <step s="{place}" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" '
                    f'dstoff="-1" cnt="0" depid="{other}" deps="{step}" hasdep="0"/>'
                )
        stated = "" if order < 0 else f' order="{order}"'
        lines[block].append(
            f'      <step s="{s}" type="{KINDS[kind]}" srcbuf="{LETTERS[srcbuf]}" '
            f'srcoff="{srcoff}" dstbuf="{LETTERS[dstbuf]}" dstoff="{dstoff}" cnt="{cnt}" '
            f'depid="{depid}" deps="{deps}" hasdep="{hasdep}"{stated}/>'
        )
    return lines


def _stated_order(built: Built) -> Integers:
    """Place in the global order of sends for which no thread block says it, else -1.

    Runtimes ignore it: they let the channels of a connection run side by side. Whoever reads the
    file can tell from it how the schedule used the connection.
    """
    channels = Counter((block.rank, block.send) for block in built.blocks if block.send >= 0)
    is_spread = np.array([channels[block.rank, block.send] > 1 for block in built.blocks])
    steps = built.steps
    is_stated = is_spread[steps.block] & (steps.kind == KINDS.index("s"))
    return np.where(is_stated, steps.order, -1)


def _attributes(values: Mapping[str, object]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in values.items())
