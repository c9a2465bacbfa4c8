"""File formats of other programs, one package each: `write`, `read` and `prove`, nothing else.

`write` makes files from a schedule or a topology (`render`, `render_topology`), `read` turns files
into one (`read_schedule`, `read_topology`), `prove` judges what was written by the rules of the
program that will read it. `prove` never imports `write`: a mistake in one cannot hide in the other.
`registry` lists the formats; what several of them share is in `shared`.
"""
