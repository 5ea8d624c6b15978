"""`python -m parley`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory: nothing more is imported from there

from parley.cli.main import run

run()
