"""The text of a program, in the small grammar that the runtimes read."""

from collections import defaultdict
from collections.abc import Mapping

from teccl.exporters.lowering.blocks import Block, Step
from teccl.exporters.lowering.layout import Layout, buffer_of, offset_of


def program_text(
    blocks: list[Block], layout: Layout, scratch: list[int], attributes: Mapping[str, object]
) -> str:
    """Write a program; equal programs give equal text."""
    by_rank: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        by_rank[block.rank].append(block)
    lines = [f"<algo {_attributes(attributes)}>"]
    for rank in range(layout.ranks):
        own = sorted(by_rank[rank], key=lambda b: (b.channel, b.send < 0, b.send, b.recv))
        for number, block in enumerate(own):
            block.id = number
        sizes = {"i_chunks": layout.sizes[0], "o_chunks": layout.sizes[1]}
        lines.append(f"  <gpu {_attributes({'id': rank, **sizes, 's_chunks': scratch[rank]})}>")
        numbers = {id(step): number for block in own for step, number in _numbered(block)}
        for block in own:
            lines += _block_lines(block, numbers)
        lines.append("  </gpu>")
    lines.append("</algo>")
    return "\n".join(lines) + "\n"


def _numbered(block: Block) -> list[tuple[Step, int]]:
    """Steps with their numbers in the file, where further dependencies take numbers too."""
    found, number = [], -1
    for step in block.steps:
        number += max(1, len(step.waits))
        found.append((step, number))
    return found


def _block_lines(block: Block, numbers: dict[int, int]) -> list[str]:
    names = {"id": block.id, "send": block.send, "recv": block.recv, "chan": block.channel}
    lines = [f"    <tb {_attributes(names)}>"]
    for step, number in _numbered(block):
        waits = [(w.block.id, numbers[id(w)]) for w in step.waits if w.block is not None]
        waits.sort()
        first = number - max(0, len(waits) - 1)
        for extra, (depid, deps) in enumerate(waits[:-1]):
            lines.append(
                f'      <step s="{first + extra}" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" '
                f'dstoff="-1" cnt="0" depid="{depid}" deps="{deps}" hasdep="0"/>'
            )
        depid, deps = waits[-1] if waits else (-1, -1)
        lines.append(
            f'      <step s="{number}" type="{step.kind}" srcbuf="{buffer_of(step.source)}" '
            f'srcoff="{offset_of(step.source)}" dstbuf="{buffer_of(step.target)}" '
            f'dstoff="{offset_of(step.target)}" cnt="{step.count}" depid="{depid}" deps="{deps}" '
            f'hasdep="{int(step.is_awaited)}"/>'
        )
    lines.append("    </tb>")
    return lines


def _attributes(values: Mapping[str, object]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in values.items())
