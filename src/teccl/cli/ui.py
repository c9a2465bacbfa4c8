"""`teccl ui`: the local web app."""

from typing import Annotated

import typer

from teccl.cli.options import QuietOption, flag


def ui(
    *,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port on loopback (any free one).", min=0)
    ] = 0,
    no_open: Annotated[bool, flag("--no-open", help_text="Do not open a browser.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Solve, watch and compare in the browser; Ctrl-C ends it.

    The app listens on this machine only and takes requests only from the page at the address that
    it prints.
    """
    from teccl.cli.output import emit
    from teccl.web import serve

    def ready(address: str) -> None:
        if not quiet:
            emit(f"teccl is at {address}")
            emit("Ctrl-C ends it; schedules that were not downloaded are lost")
        if not no_open:
            typer.launch(address)

    serve(port=port, ready=ready)
