"""Run the command line as ``python -m teccl``."""

import sys

from teccl.cli import main

# Ranks of mpi4py.futures and spawned workers load this module without running it.
if __name__ == "__main__":
    sys.exit(main())
