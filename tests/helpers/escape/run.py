"""Run the attempts. Started in the sandbox, and without one for the control, from a copy of this package."""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3))

from tests.helpers.escape import files, network, processes, review
from tests.helpers.escape.attempts import ENTRIES, run_all

__all__ = ["ENTRIES", "files", "network", "processes", "review"]

if __name__ == "__main__":
    with open(sys.argv[1]) as given:
        run_all(json.load(given), sys.argv[2:] or list(ENTRIES))
