"""The command line: parse, call the library, print."""

import os
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv
        Arguments after the program's name, None for those of the process.

    Returns
    -------
    int
        0 success, 1 no schedule, 2 bad input or usage, 3 failed verification, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        from teccl.cli.startup import collect_seldom, keep_interrupts

        collect_seldom()
        keep_interrupts()
    try:
        from teccl.cli.app import run

        code = run(arguments)
    except KeyboardInterrupt:
        if os.environ.get("TECCL_DEBUG") == "1":
            raise
        sys.stderr.write("error: interrupted\n")
        code = 130
    if argv is None:
        # The command is over; while Python takes itself apart there is nothing left to stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from teccl.cli.startup import collect_no_more

        collect_no_more()
    return code
