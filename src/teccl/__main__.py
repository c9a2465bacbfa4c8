"""Run the command line as ``python -m teccl``."""

import sys

from teccl.cli import main

sys.exit(main())
