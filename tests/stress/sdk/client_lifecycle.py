"""Leave a client in every way, on every loop, with both kinds of engine, many times: no process stays, no warning.

python -W error -m tests.stress.sdk.client_lifecycle --rounds 20
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
from pathlib import Path

from tests.helpers.sdk import ENGINES, LOOPS, ClientHarness, children, run
from tests.process.sdk.test_lifecycle import BUSY, WAYS


def settled() -> set[int]:
    """The child processes that remain after the reapers have finished."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("parley "):
            thread.join(60)
    return children()


def main(rounds: int) -> int:
    problems: list[str] = []
    sys.unraisablehook = lambda problem: problems.append(f"unraisable: {problem.exc_value!r}")
    count = 0
    for _ in range(rounds):
        for way in WAYS:
            for loop in LOOPS:
                for engine in ENGINES:
                    with tempfile.TemporaryDirectory() as folder:
                        run(loop, way, ClientHarness(Path(folder)).options(engine, BUSY))
                        if left := settled():
                            problems.append(f"{way.__name__} on {loop} with {engine}: {left} are left")
                    count += 1
    sys.stdout.write(f"{count} lives, {len(problems)} problems\n" + "".join(f"  {problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    sys.exit(main(parser.parse_args().rounds))
