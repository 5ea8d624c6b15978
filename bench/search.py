"""How our Grep and Glob compare with ripgrep itself, on a tree of 50,000 files.

    python bench/search.py [--tree DIR] [--files N] [--rounds N]

Each row is the same question, put to a tool as a session would and to `rg` as a shell would; the rounds take turns,
and the median counts. The tree is made once in DIR (kept) or in a temporary folder (removed). The target is 1.3 for
Grep; also shown is a Grep that may read the tree only (behind a fence), and what stands in for a missing ripgrep.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.protocol.base import Json
from parley.tools.base import Context, Tool, read_input
from parley.tools.search.glob import Glob
from parley.tools.search.grep import Grep
from parley.workspace.base import Reach
from parley.workspace.process.processes import Processes
from parley.workspace.search import ripgrep
from parley.workspace.search.search import LocalSearch

WORDS = ("engine", "session", "tool", "result", "model", "stream", "line", "path", "read", "write", "value", "index")
ENDINGS = (".py", ".py", ".py", ".ts", ".ts", ".js", ".md", ".json", ".txt", ".html")
PER_FOLDER = 20
TARGET = 1.3
CONFINED, WITHOUT = ", confined", ", without rg"
VARIANTS = ("", CONFINED, WITHOUT)

GREP = Grep()
GLOB = Glob()
ROWS: tuple[tuple[str, Tool, Json, list[str]], ...] = (
    ("Grep, rare word, files", GREP, {"pattern": "needle"}, ["-l", "needle"]),
    ("Grep, no match", GREP, {"pattern": "haystack_[0-9]+"}, ["-l", "haystack_[0-9]+"]),
    ("Grep, common word, files", GREP, {"pattern": "session"}, ["-l", "session"]),
    ("Grep, rare word, lines", GREP, {"pattern": "needle", "output_mode": "content"}, ["-n", "needle"]),
    ("Grep, common word, lines", GREP, {"pattern": "session", "output_mode": "content"}, ["-n", "session"]),
    ("Grep, common word, counts", GREP, {"pattern": "session", "output_mode": "count"}, ["-c", "session"]),
    ("Grep, one type, files", GREP, {"pattern": "needle", "type": "py"}, ["-l", "-tpy", "needle"]),
    ("Glob **/*.py", GLOB, {"pattern": "**/*.py"}, ["--files", "-g", "**/*.py"]),
    ("Glob *, newest first", GLOB, {"pattern": "**/*"}, ["--files", "--sortr", "modified"]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, help="use or make the tree here, and keep it")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tree(options.tree, options.files) as folder:
        asyncio.run(compare(folder, options.rounds))


async def compare(folder: Path, rounds: int) -> None:
    environment = dict(os.environ)
    program = next(ripgrep.programs(environment), None)
    if program is None:
        sys.exit("there is no rg here to compare with")
    say(f"{'':34}{'ours ms':>10}{'rg ms':>10}{'ratio':>8}   {program}")
    for label, tool, input, argv in ROWS:
        for variant in VARIANTS if label == ROWS[0][0] else VARIANTS[:1]:
            ours, theirs = [], []
            for _ in range(rounds + 1):  # the first round warms up
                ours.append(await timed_tool(tool, input, folder, environment, variant))
                theirs.append(timed_program([program, "--no-config", "--hidden", "-g", "!.git", *argv, "./"], folder))
            mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
            over = tool is GREP and variant != WITHOUT and mine / other > TARGET
            note = "   over the target" if over else ""
            say(f"{label + variant:34}{mine * 1000:10.0f}{other * 1000:10.0f}{mine / other:8.2f}{note}")


async def timed_tool(tool: Tool, input: Json, folder: Path, environment: dict[str, str], variant: str) -> float:
    context = Context(
        cwd=str(folder),
        environment=environment,
        files=None,  # type: ignore[arg-type]  # no tool here reads or writes through it
        processes=Processes(),
        results_folder=folder,
        new_id=lambda: "bench",
        search=LocalSearch(environment),
    )
    reach = Reach(folders=(str(folder),)) if variant == CONFINED else Reach(anywhere=True)
    found = ripgrep.programs
    if variant == WITHOUT:
        ripgrep.programs = lambda environment: iter(())
    begun = time.perf_counter()
    try:
        result: Any = await tool.run(read_input(tool, input), context, reach)
    finally:
        ripgrep.programs = found
    seconds = time.perf_counter() - begun
    if "timedOut" in result.detail:
        sys.exit(f"{tool.name} {input} ran out of time")
    return seconds


def timed_program(argv: list[str], folder: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - begun


@contextmanager
def tree(folder: Path | None, files: int) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="parley-search-") as made:
            plant(Path(made), files)
            yield Path(made)
        return
    if not (folder / ".git").exists():
        plant(folder, files)
    yield folder


def plant(folder: Path, files: int) -> None:
    """A repository of text files, a tenth of them in folders that git ignores."""
    dice = random.Random(7)
    lines = [" ".join(dice.choices(WORDS, k=8)) + f" = {number}" for number in range(400)]
    plain = [line for line in lines if "session" not in line]
    for number in range(files):
        branch = number // PER_FOLDER
        if number % PER_FOLDER == 0:
            top = "node_modules" if branch % 10 == 9 else f"package{branch % 40}"
            place = folder / top / f"area{branch % 7}" / f"part{branch}"
            place.mkdir(parents=True)
        body = dice.choices(lines if number % 3 == 0 else plain, k=40)
        if number % 5000 == 42:
            body[20] = "the needle is here"
        (place / f"file{number}{ENDINGS[number % len(ENDINGS)]}").write_text("\n".join(body) + "\n")
    (folder / ".gitignore").write_text("node_modules/\n*.pyc\n__pycache__/\n/build/\n*.log\n.env\n*~\n")
    (folder / ".git").mkdir()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
