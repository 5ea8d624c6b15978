"""Programs one after the other, each in its own folder with its own model, and what they print.

One process for all of them: importing the official SDK takes a second. What it is given on stdin is a list of
`{"name", "path", "cwd", "environment"}`; stdout gets `{name: printed}`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback

printed = {}
for program in json.load(sys.stdin):
    os.chdir(program["cwd"])
    os.environ.update(program["environment"])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(program["path"], run_name="__main__")
        except BaseException:
            traceback.print_exc(file=out)
    printed[program["name"]] = out.getvalue()
json.dump(printed, sys.stdout)
