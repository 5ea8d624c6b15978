"""Searching files for a pattern, by ripgrep.

The program is `rg` from the PATH, else the one that came with our wheel, else our own
in Python (standin.py), which answers the same questions more slowly.

    found = await search(Query(pattern="TODO"), root, environment=..., timeout_seconds=20)
    found.files          # [("src/a.py", [b"12:# TODO"])]: paths from the root on, and what to show of each

Output is read with bounded memory. What is more than that is asked for again in the
order of paths and cut where the caller has enough, so that pages fit together. The
program sees no settings of the user, follows no link, and is killed at the deadline.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import Found, Query
from parley.workspace.findings import Findings, Hides
from parley.workspace.root import Root

PIPE_BYTES = 1 << 20
SMALL_BYTES = 1 << 15
GATHERING_SECONDS = 0.005
COMPLAINT_BYTES = 1 << 14
UNORDERED_BYTES = 4 << 20
"""So much output is taken in any order and sorted here; ripgrep is much faster if it may choose."""
MOST_BYTES = 64 << 20
LONGEST_LINE = 500
LONGEST_ARGUMENT = 30_000

ALWAYS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--null"),
    *("--hidden", "--no-ignore-global", "--no-messages", "--no-ignore-messages"),
    "--engine=auto",  # look-around, where ripgrep's own engine has none
)
NOT_IN = tuple(f"--glob=!{name}" for name in (".git", ".svn", ".hg", ".bzr", ".jj", ".sl"))
MODES = {
    "files": ("--files-with-matches",),
    "count": ("--count",),
    "content": ("--line-number", f"--max-columns={LONGEST_LINE}", "--max-columns-preview"),
}


async def search(
    query: Query,
    root: Root,
    *,
    environment: dict[str, str],
    timeout_seconds: float,
    hides: Hides = lambda path: False,
    enough_lines: int | None = None,
) -> Found:
    """Paths are from the root on, in order. Raises ToolError with the program's own words if the pattern is no good."""
    check(query)
    clock = asyncio.get_running_loop().time
    begun = clock()
    findings = Findings(query.mode, hides, UNORDERED_BYTES if query.mode == "content" else MOST_BYTES, None)
    ended = await run_some(query, root, environment, timeout_seconds, findings, in_order=False)
    if ended.stopped and query.mode == "content":
        findings = Findings(query.mode, hides, MOST_BYTES, enough_lines)
        left = max(0.1, timeout_seconds - (clock() - begun))
        ended = await run_some(query, root, environment, left, findings, in_order=True)
    else:
        findings.files.sort(key=in_path_order)
    return Found(
        files=findings.files,
        complete=not (ended.stopped or ended.timed_out),
        timed_out=ended.timed_out,
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


def commands(query: Query, root: Root, environment: dict[str, str], in_order: bool) -> Iterator[tuple[list[str], bool]]:
    """What to run, best first, and whether it is ripgrep."""
    for program in programs(environment):
        yield [program, *arguments(query, in_order=in_order, is_folder=root.is_folder)], True
    # -I and -S: nothing of the user's Python comes in, and it starts faster.
    start = "import sys; sys.path.insert(0, sys.argv[1]); from parley.workspace.standin import main; main()"
    package = str(Path(__file__).parents[2])
    question = msgspec.json.encode(query).decode()
    yield [sys.executable, "-I", "-S", "-c", start, package, question, "./" if root.is_folder else "-"], False


class Ended(Struct, frozen=True, kw_only=True):
    stopped: bool
    """There was more output than we took."""
    timed_out: bool
    by_ripgrep: bool


async def run_some(
    query: Query, root: Root, environment: dict[str, str], timeout_seconds: float, findings: Findings, *, in_order: bool
) -> Ended:
    """Run the first program that can be run. Raises ToolError."""
    for argv, by_ripgrep in commands(query, root, environment, in_order):
        try:
            return await run(argv, root, environment, timeout_seconds, findings, by_ripgrep)
        except OSError:
            continue  # not for this machine, or gone
    raise ToolError("The search could not be started: neither ripgrep nor Python can be run here.")


async def run(
    argv: list[str],
    root: Root,
    environment: dict[str, str],
    timeout_seconds: float,
    findings: Findings,
    by_ripgrep: bool,
) -> Ended:
    """Run a program and take what it says. Cancelling kills it. Raises ToolError, and OSError if it does not start."""
    if not root.is_folder:
        os.lseek(root.descriptor, 0, os.SEEK_SET)
    heard, said = wide_pipe()
    with closing(heard):
        with closing(said):
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=root.path() if root.is_folder else "/",
                env=environment,
                stdin=asyncio.subprocess.DEVNULL if root.is_folder else root.descriptor,
                stdout=said,
                stderr=asyncio.subprocess.PIPE,
            )
        complaint = asyncio.create_task(beginning(process.stderr))
        stopped = timed_out = False
        try:
            async with asyncio.timeout(timeout_seconds):
                async with aclosing(chunks(heard)) as pieces:
                    async for chunk in pieces:
                        if not findings.take(chunk):
                            stopped = True
                            break
                if not stopped:
                    await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            words = await complaint
            code = await process.wait()
    if not (stopped or timed_out):
        judge(code, words)
    return Ended(stopped=stopped, timed_out=timed_out, by_ripgrep=by_ripgrep)


def wide_pipe() -> tuple[int, int]:
    """A pipe that holds a good deal, where the system has such."""
    import fcntl

    heard, said = os.pipe()
    with suppress(OSError, AttributeError):
        fcntl.fcntl(said, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return heard, said


@contextmanager
def closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """What comes through a pipe, to its end.

    ripgrep writes once for every file. To wake up for each would cost more than the search, so
    after a small piece we let some more gather.
    """
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        chunk = os.read(descriptor, PIPE_BYTES)
        if not chunk:
            return
        yield chunk
        if len(chunk) < SMALL_BYTES:
            await asyncio.sleep(GATHERING_SECONDS)


def judge(code: int, words: str) -> None:
    """Raises ToolError if the program did not do its work. 2 without a word: some files could not be read."""
    if code == 2 and words:
        raise ToolError(words.removeprefix("rg: "))
    if code not in (0, 1, 2):
        raise ToolError(f"The search broke off with exit code {code}.{' ' + words if words else ''}")


async def beginning(stream: asyncio.StreamReader | None) -> str:
    """The first part of a stream, which is read to its end."""
    assert stream is not None
    kept = bytearray()
    while chunk := await stream.read(COMPLAINT_BYTES):
        kept += chunk[: COMPLAINT_BYTES - len(kept)]
    return kept.decode(errors="replace").strip()
