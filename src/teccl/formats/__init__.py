"""File formats of other programs, one package each: `write`, `read` and `prove`.

`write` makes files from a schedule, `read` parses files and turns them into a schedule, `prove`
judges what was written by the rules of the program that will read it. `prove` never imports
`write`: a mistake in one cannot hide in the other.
"""
