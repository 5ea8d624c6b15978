"""The code blocks of the documentation, and how a reader runs them.

The blocks of a page are pasted into one shell, in order, in an empty folder with an empty home:

    ```sh                     runs
    ```python                 runs as a program
    ```json title="a.json"    is saved under this name, which the text above it must mention
    ```text                   right after a block that runs: what it prints; `...` stands for any text

A block without a language is `sh`. Lines that install (`pip install`, `make`, `docker` and so on) are checked, not run.
Instead of port 8765 a free one is used. A block whose first line is `# Needs X.` is not run. One that needs an API key
is: a server of the tests takes any key.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.ports import free_port

PAGES = sorted(
    path.relative_to(paths.ROOT).as_posix()
    for path in (*paths.ROOT.glob("*.md"), *paths.DOCS.rglob("*.md"), paths.ROOT / "examples" / "README.md")
)
FENCE = re.compile(r'^(?P<indent> *)```(?P<language>[\w-]*)(?: title="(?P<title>[^"]+)")?$')
NEEDS = re.compile(r"^(?:#|//) Needs (?P<what>.+)\.$", re.MULTILINE)
PROVIDED = "an API key"
INSTALLS = re.compile(
    r"^(?:[A-Z_]+=\S+ |nohup )*(?:pip|pipx|uv|npm|make|docker|git clone|python3? -m venv|(?:\.|source) \S*activate)\b"
)
EXTRAS = re.compile(r"(?:parley-agent|\.|\.whl)\[([\w,-]+)\]")
TARGETS = re.compile(r"\bmake ((?:[\w-]+ ?)+)")
PAGE_SECONDS = 240
PORT = "8765"
"""The port of servers in the pages. A run uses another one, because two runs may be made at a time."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    follows: bool
    """Whether only blank lines lie between this block and the one above."""
    above: str
    """The page up to this block."""

    @property
    def needs(self) -> str | None:
        found = NEEDS.search("\n".join(self.text.splitlines()[:2]))
        return found["what"] if found else None

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and self.title is None and self.needs in (None, PROVIDED)


def read_blocks(page: str) -> list[Block]:
    """The blocks of a page. Raises AssertionError for a fence that cannot be read."""
    lines = (paths.ROOT / page).read_text(encoding="utf-8").splitlines()
    fences = [at for at, line in enumerate(lines) if line.lstrip().startswith("```")]
    assert len(fences) % 2 == 0, f"{page}: a block does not end"
    blocks: list[Block] = []
    last_end = None
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        fence = FENCE.match(lines[start])
        assert fence, f"{page}:{start + 1}: cannot read the fence {lines[start]!r}"
        block = Block(
            page=page,
            line=start + 1,
            language=fence["language"] or "sh",
            title=fence["title"],
            text="".join(f"{line.removeprefix(fence['indent'])}\n" for line in lines[start + 1 : end]),
            follows=last_end is not None and not "".join(lines[last_end + 1 : start]).strip(),
            above="\n".join(lines[:start]),
        )
        blocks.append(block)
        last_end = end
    return blocks


def check_installation(line: str) -> list[str]:
    """What is wrong with a line that installs: an extra or a target that does not exist."""
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (paths.ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE)) | {"unit", "session", "process", "compat", "stress"}
    extras = {extra for found in EXTRAS.findall(line) for extra in found.split(",")}
    targets = {target for found in TARGETS.findall(line.partition("#")[0]) for target in found.split()}
    return [
        *(f"no extra {extra!r}" for extra in extras - set(project["optional-dependencies"])),
        *(f"no target {target!r}" for target in targets - known),
    ]


@dataclass(frozen=True)
class Output:
    """What a block printed, with stderr."""

    block: Block
    text: str


@dataclass(frozen=True)
class PageRun:
    """How the blocks of a page ran."""

    outputs: list[Output]
    exit_code: int

    @property
    def failure(self) -> str:
        """The block that failed and what it printed, or an empty text."""
        if self.exit_code == 0:
            return ""
        last = self.outputs[-1]
        return f"{last.block.page}:{last.block.line} ended with {self.exit_code}:\n{last.text}"


def run_page(blocks: list[Block], folder: Path, key: Mapping[str, str]) -> PageRun:
    """Run the blocks of a page in one shell, as a reader would paste them.

    `key` has the variables for blocks that need an API key.
    """
    work, notes = folder / "work", folder / "notes"
    work.mkdir()
    notes.mkdir()
    port = str(free_port())
    done = [
        replace(block, text=block.text.replace(PORT, port))
        for block in blocks
        if block.is_run or block.title is not None
    ]
    script = "set -eo pipefail\n" + "".join(f"{line}\n" for block in done for line in write_steps(block, notes, key))
    (notes / "script").write_text(script, encoding="utf-8")
    with subprocess.Popen(
        ["bash", str(notes / "script")],
        cwd=work,
        env=make_environment(folder),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        try:
            exit_code = shell.wait(PAGE_SECONDS)
        except subprocess.TimeoutExpired:
            exit_code = -signal.SIGALRM
        finally:
            end_group(shell.pid)  # also what the page started in the background
    outputs = [(block, notes / f"{block.line}.out") for block in done]
    read = [Output(block, path.read_text(encoding="utf-8")) for block, path in outputs if path.exists()]
    return PageRun(read, exit_code)


def write_steps(block: Block, notes: Path, key: Mapping[str, str]) -> Iterator[str]:
    """The lines of the script for a block."""
    yield from (f"export {name}={quote(key[name])}" if block.needs == PROVIDED else f"unset {name}" for name in key)
    yield f"exec > {quote(str(notes / f'{block.line}.out'))} 2>&1"
    if block.title is not None or block.language == "python":
        name = block.title or f"block_{block.line}.py"
        (notes / f"{block.line}.txt").write_text(block.text, encoding="utf-8")
        target = f'"$HOME"/{quote(name[2:])}' if name.startswith("~/") else quote(name)
        yield f'mkdir -p "$(dirname {target})" && cp {quote(str(notes / f"{block.line}.txt"))} {target}'
        if block.title is None:
            yield f"python -W error {target}"
        return
    yield from (line for line in block.text.splitlines() if not INSTALLS.match(line))


def end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def make_environment(home: Path) -> dict[str, str]:
    """An environment with the executables of this one, and nothing of the person who runs the tests."""
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A test run in a page must not clean up after the other test runs of the machine.
    own = {"HOME": str(home), "PATH": search, "LANG": "C.UTF-8", "PYTEST_DEBUG_TEMPROOT": str(home)}
    return {**base_environment(), **own}


def matches(expected: str, printed: str) -> bool:
    """Compare an output with what the page shows; `...` stands for any text."""
    parts = (re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(".*?".join(parts), printed.strip(), re.DOTALL) is not None
