"""Compare our Grep and Glob with ripgrep, on a tree of 50,000 files.

    python bench/search.py [--tree DIR] [--files N] [--rounds N]

Each row is the same search, by a tool as in a session and by `rg` as in a shell. The rounds alternate and the median is
shown. The tree is created once in DIR (kept) or in a temporary directory (removed). The target is 1.3 for Grep. Also
shown are a Grep confined to the tree and the Python search that replaces a missing ripgrep.
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
from parley.tools.base import AgentState, Context, Tool, read_input
from parley.tools.search import GlobTool, Grep
from parley.workspace.base import Scope
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
GLOB = GlobTool()
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
    parser.add_argument("--tree", type=Path, help="use or create the tree here, and keep it")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tree(options.tree, options.files) as folder:
        asyncio.run(compare(folder, options.rounds))


async def compare(folder: Path, rounds: int) -> None:
    environment = dict(os.environ)
    program = next(ripgrep.programs(environment), None)
    if program is None:
        sys.exit("no rg found to compare with")
    write(f"{'':34}{'ours ms':>10}{'rg ms':>10}{'ratio':>8}   {program}")
    for label, tool, input, argv in ROWS:
        for variant in VARIANTS if label == ROWS[0][0] else VARIANTS[:1]:
            tool_seconds, rg_seconds = [], []
            for _ in range(rounds + 1):  # the first round is a warm-up
                tool_seconds.append(await timed_tool(tool, input, folder, environment, variant))
                rg_seconds.append(
                    timed_program([program, "--no-config", "--hidden", "-g", "!.git", *argv, "./"], folder)
                )
            ours, theirs = statistics.median(tool_seconds[1:]), statistics.median(rg_seconds[1:])
            is_over = tool is GREP and variant != WITHOUT and ours / theirs > TARGET
            note = "   over the target" if is_over else ""
            write(f"{label + variant:34}{ours * 1000:10.0f}{theirs * 1000:10.0f}{ours / theirs:8.2f}{note}")


async def timed_tool(tool: Tool, input: Json, folder: Path, environment: dict[str, str], variant: str) -> float:
    context = Context(
        state=AgentState(cwd=str(folder)),
        environment=environment,
        files=None,  # type: ignore[arg-type]  # no tool here reads or writes files
        processes=Processes(),
        results_folder=folder,
        new_id=lambda: "bench",
        open_search=lambda: LocalSearch(environment),
    )
    scope = Scope(folders=(str(folder),)) if variant == CONFINED else Scope(anywhere=True)
    found = ripgrep.programs
    if variant == WITHOUT:
        ripgrep.programs = lambda environment: iter(())
    started = time.perf_counter()
    try:
        result: Any = await tool.run(read_input(tool, input), context, scope)
    finally:
        ripgrep.programs = found
    seconds = time.perf_counter() - started
    if "timedOut" in result.detail:
        sys.exit(f"{tool.name} {input} timed out")
    return seconds


def timed_program(argv: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - started


@contextmanager
def tree(folder: Path | None, files: int) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="parley-search-") as name:
            plant(Path(name), files)
            yield Path(name)
        return
    if not (folder / ".git").exists():
        plant(folder, files)
    yield folder


def plant(folder: Path, files: int) -> None:
    """A repository of text files, a tenth of them in directories that git ignores."""
    random_ = random.Random(7)
    lines = [" ".join(random_.choices(WORDS, k=8)) + f" = {number}" for number in range(400)]
    plain = [line for line in lines if "session" not in line]
    for number in range(files):
        branch = number // PER_FOLDER
        if number % PER_FOLDER == 0:
            top = "node_modules" if branch % 10 == 9 else f"package{branch % 40}"
            directory = folder / top / f"area{branch % 7}" / f"part{branch}"
            directory.mkdir(parents=True)
        body = random_.choices(lines if number % 3 == 0 else plain, k=40)
        if number % 5000 == 42:
            body[20] = "the needle is here"
        (directory / f"file{number}{ENDINGS[number % len(ENDINGS)]}").write_text("\n".join(body) + "\n")
    (folder / ".gitignore").write_text("node_modules/\n*.pyc\n__pycache__/\n/build/\n*.log\n.env\n*~\n")
    (folder / ".git").mkdir()


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
