"""Replace files by symlinks that lead out of the tree, while Grep searches it.

    python -m tests.stress.workspace.search_races --searches 2000
    python -m tests.stress.workspace.search_races --searches 500 --free        # not confined: must be caught

One process swaps 200 files for links to a secret and back, as fast as it can; another searches for what is in the
secret, with a scope limited to the tree. Nothing may be found. The exit code is 0 if that held, 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from parley.workspace.base import ContentQuery, Scope, SearchArea
from parley.workspace.search.search import LocalSearch

FOLDERS = 200
SWAPPER = """
import os, sys
tree, secret, folders = sys.argv[1:]
while True:
    for swap in (lambda new: os.symlink(secret, new), lambda new: open(new, "w").close()):
        for number in range(int(folders)):
            place = f"{tree}/{number}"
            swap(place + "/new")
            os.replace(place + "/new", place + "/file")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--free", action="store_true", help="let the search go anywhere")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        tree, secret = Path(made, "tree"), Path(made, "secret")
        secret.write_text("needle\n")
        for number in range(FOLDERS):
            (tree / str(number)).mkdir(parents=True)
        swapper = subprocess.Popen([sys.executable, "-S", "-c", SWAPPER, str(tree), str(secret), str(FOLDERS)])
        try:
            leaks = asyncio.run(leaking(tree, options.searches, options.free))
        finally:
            swapper.kill()
            swapper.wait()
    sys.stdout.write(f"{leaks} of {options.searches} searches found what lies outside\n")
    sys.exit(1 if leaks else 0)


async def leaking(tree: Path, searches: int, free: bool) -> int:
    search = LocalSearch(dict(os.environ))
    reach = Scope(anywhere=True) if free else Scope(folders=(str(tree),))
    area = SearchArea(path=str(tree), cwd=str(tree), scope=reach)
    leaks = 0
    for _ in range(searches):
        found = await search.matches(ContentQuery(pattern="needle"), area, timeout_seconds=20, enough_lines=10)
        if found.slow:
            sys.exit("this is not ripgrep, or it cannot be fenced here")
        leaks += bool(found.files)
    return leaks


if __name__ == "__main__":
    main()
