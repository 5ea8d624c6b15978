"""Searching files for a pattern, by ripgrep.

The program is `rg` from the PATH, else the one that came with our wheel, else our own
in Python (python_grep.py), which answers the same questions more slowly.

    found = await search(Query(pattern="TODO"), root, Conditions(environment=...), timeout_seconds=20)
    found.files          # [("src/a.py", [b"12:# TODO"])]: paths from the root on, and what to show of each

Output is read with bounded memory. What is more than that is asked for again in the
order of paths and cut where the caller has enough, so that pages fit together. The
program sees no settings of the user, follows no link, and is killed at the deadline (program.py).
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import Found, Query
from parley.workspace.landlock import READ, READ_FILE, RUN, Gap, can_fence, fenced
from parley.workspace.search.program import Heard, hear
from parley.workspace.search.ripgrep_output import Findings, Hides
from parley.workspace.search.root import Root

if TYPE_CHECKING:
    import subprocess

UNORDERED_BYTES = 4 << 20
"""So much output is taken in any order and sorted here; ripgrep is much faster if it may choose."""
MOST_BYTES = 16 << 20
"""More is not kept, and not said to be complete."""
LONGEST_LINE = 500
LONGEST_ARGUMENT = 30_000

ALWAYS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--null"),
    *("--hidden", "--no-ignore-global", "--no-messages", "--no-ignore-messages"),
    "--engine=auto",  # look-around, where ripgrep's own engine has none
)
NOT_IN = tuple(f"--glob=!{name}" for name in (".git", ".svn", ".hg", ".bzr", ".jj", ".sl"))
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")
"""What a program may need to run at all."""
MODES = {
    "files": ("--files-with-matches",),
    "count": ("--count",),
    "content": ("--line-number", f"--max-columns={LONGEST_LINE}", "--max-columns-preview"),
}


class Conditions(Struct, frozen=True, kw_only=True):
    environment: dict[str, str]
    confined: bool = False
    """Nothing outside the tree may be read, whatever somebody swaps in it meanwhile."""


async def search(
    query: Query,
    root: Root,
    conditions: Conditions,
    *,
    timeout_seconds: float,
    hides: Hides = lambda path: False,
    enough_lines: int | None = None,
) -> Found:
    """Paths are from the root on, in order. Raises ToolError with the program's own words if the pattern is no good."""
    check(query)
    clock = asyncio.get_running_loop().time
    begun = clock()
    findings = Findings(query.mode, hides, UNORDERED_BYTES if query.mode == "content" else MOST_BYTES, None)
    ended = await run(query, root, conditions, timeout_seconds, findings, in_order=False)
    if ended.heard.stopped and query.mode == "content":
        findings = Findings(query.mode, hides, MOST_BYTES, enough_lines)
        left = max(0.1, timeout_seconds - (clock() - begun))
        ended = await run(query, root, conditions, left, findings, in_order=True)
    else:
        findings.files.sort(key=in_path_order)
    return Found(
        files=findings.files,
        complete=not (ended.heard.stopped or ended.heard.timed_out),
        timed_out=ended.heard.timed_out,
        slow=not ended.by_ripgrep,
    )


def in_path_order(file: tuple[str, list[bytes]]) -> str:
    """As ripgrep sorts: name by name, so that a folder is gone through where its name stands."""
    return file[0].replace("/", "\0")


def check(query: Query) -> None:
    """Raises ToolError for what cannot be an argument of a program."""
    for text in (query.pattern, query.type or "", *query.globs):
        if "\0" in text:
            raise ToolError(r"A pattern cannot contain a NUL character; write \x00 instead.")
        if len(text) > LONGEST_ARGUMENT:
            raise ToolError(f"A pattern cannot be longer than {LONGEST_ARGUMENT} characters.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ToolError("The pattern is not valid Unicode.") from None


# The program.


def arguments(query: Query, *, in_order: bool, is_folder: bool) -> list[str]:
    """How ripgrep is asked. Every value is bound to its option by `=`: none can pass for another option."""
    return [
        *ALWAYS,
        *MODES[query.mode],
        *(["--only-matching"] if query.only_matching and query.mode == "content" else []),
        *([f"--before-context={query.before}"] if query.before and query.mode == "content" else []),
        *([f"--after-context={query.after}"] if query.after and query.mode == "content" else []),
        *(["--ignore-case"] if query.ignore_case else []),
        *(["--multiline", "--multiline-dotall"] if query.multiline else []),
        *(["--sort=path"] if in_order else []),
        *filters(query),
        *NOT_IN,
        f"--regexp={query.pattern}",
        "--",
        "./" if is_folder else "-",
    ]


def filters(query: Query) -> list[str]:
    """Which files are wanted.

    To ripgrep a glob is stronger than ignore files: `*` would search everything they name. A
    type is not, so globs for names alone are spelled as a type of our own.
    """
    wanted = [glob.removeprefix("**/") for glob in query.globs if glob not in ("*", "**", "**/*")]
    names = all(not re.search(r"^!|[/:]", glob) for glob in wanted)
    if wanted and names and query.type is None:
        return [*(f"--type-add=wanted:{glob}" for glob in wanted), "--type=wanted"]
    types = [] if query.type is None else [f"--type={query.type}"]
    return [*types, *(f"--glob={glob}" for glob in query.globs if glob.removeprefix("**/") in wanted)]


def programs(environment: dict[str, str]) -> Iterator[str]:
    """Where ripgrep may be. A relative place in the PATH is left out: it could be in the tree we search."""
    places = [place for place in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]
    for place in (*places, os.path.dirname(sys.executable)):
        program = os.path.join(place, "rg")
        if os.access(program, os.X_OK) and os.path.isfile(program):
            yield program


def commands(query: Query, root: Root, conditions: Conditions, in_order: bool) -> Iterator[tuple[list[str], bool]]:
    """What to run, best first, and whether it is ripgrep.

    ripgrep opens files by their names. Where that is not good enough it runs behind a fence, or not at
    all if there are no fences: the stand-in opens from folder to folder.
    """
    for program in programs(conditions.environment):
        if conditions.confined and root.is_folder and not can_fence():
            break
        yield [program, *arguments(query, in_order=in_order, is_folder=root.is_folder)], True
    # -I and -S: nothing of the user's Python comes in, and it starts faster.
    start = "import sys; sys.path.insert(0, sys.argv[1]); from parley.workspace.search.python_grep import main; main()"
    package = str(Path(__file__).parents[3])
    question = msgspec.json.encode(query).decode()
    yield [sys.executable, "-I", "-S", "-c", start, package, question, "./" if root.is_folder else "-"], False


class Ended(Struct, frozen=True, kw_only=True):
    heard: Heard
    by_ripgrep: bool


async def run(
    query: Query, root: Root, conditions: Conditions, timeout_seconds: float, findings: Findings, *, in_order: bool
) -> Ended:
    """Run the first program that can be run. Raises ToolError."""
    for argv, by_ripgrep in commands(query, root, conditions, in_order):
        fence = conditions.confined and by_ripgrep and root.is_folder
        start = partial(start_behind_fence if fence else start_freely, argv, root, conditions.environment)
        try:
            heard = await hear(start, findings.take, timeout_seconds=timeout_seconds)
        except OSError:
            continue  # not for this machine, or gone
        if heard.code in (126, 127):
            continue  # it needs something that is not there
        if not (heard.stopped or heard.timed_out):
            judge(heard.code, heard.complaint)
        return Ended(heard=heard, by_ripgrep=by_ripgrep)
    raise ToolError("The search could not be started: neither ripgrep nor Python can be run here.")


def start_freely(
    argv: list[str], root: Root, environment: dict[str, str], out: int, err: int
) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    with silence() as nothing:
        return popen(argv, root, environment, nothing, out, err)


@contextmanager
def silence() -> Iterator[int]:
    """For a program that is not to read from us."""
    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def popen(
    argv: list[str], root: Root, environment: dict[str, str], nothing: int, out: int, err: int
) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    import subprocess

    if root.is_folder:
        return subprocess.Popen(argv, cwd=root.path(), env=environment, stdin=nothing, stdout=out, stderr=err)
    os.lseek(root.descriptor, 0, os.SEEK_SET)
    return subprocess.Popen(argv, cwd="/", env=environment, stdin=root.descriptor, stdout=out, stderr=err)


def start_behind_fence(
    argv: list[str], root: Root, environment: dict[str, str], out: int, err: int
) -> subprocess.Popen[bytes]:
    """The same, able to read nothing but the tree and the ignore files above it. Raises OSError."""
    with ExitStack() as opened, silence() as nothing:

        def gap(path: str, access: int, flags: int = 0) -> Iterator[Gap]:
            with suppress(OSError):
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
                opened.callback(os.close, descriptor)
                yield Gap(descriptor, access)

        gaps = [
            Gap(root.descriptor, READ),
            *gap(argv[0], RUN | READ_FILE),
            *(found for path in SYSTEM for found in gap(path, RUN | READ_FILE)),
            *(found for path in ignore_files_above(root.real) for found in gap(path, READ_FILE, os.O_NOFOLLOW)),
        ]
        return fenced(lambda: popen(argv, root, environment, nothing, out, err), gaps)


def ignore_files_above(real: str) -> Iterator[str]:
    while real != "/":
        real = os.path.dirname(real)
        yield from (os.path.join(real, name) for name in (".rgignore", ".ignore", ".gitignore", ".git/info/exclude"))


def judge(code: int, words: str) -> None:
    """Raises ToolError if the program did not do its work. 2 without a word: some files could not be read."""
    if code == 2 and words:
        raise ToolError(words.removeprefix("rg: "))
    if code not in (0, 1, 2):
        raise ToolError(f"The search broke off with exit code {code}.{' ' + words if words else ''}")
