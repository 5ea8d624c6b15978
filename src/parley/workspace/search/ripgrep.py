"""Search the content of files with ripgrep.

The program is `rg` from the PATH, otherwise the one installed with our wheel, otherwise our slower Python replacement
(python_grep.py).

    found = await search(ContentQuery(pattern="TODO"), root, Conditions(environment=...), timeout_seconds=20)
    found.files          # [("src/a.py", [b"12:# TODO"])]: paths relative to the root, and the lines to show

Output is read with bounded memory. If there is more, the search runs again, sorted by path, and stops when the caller
has enough lines, so that pages are consistent. The program ignores the user's ripgrep configuration, follows no
symlinks, and is killed at the timeout (`run_program`). It opens ignore files by itself and would wait for a pipe in the
place of one: then the Python replacement searches, which reads only regular files.

The output that `RipgrepOutput` parses:

    ./src/a.py NUL 12:# TODO        a matching line
    ./src/a.py NUL 13-pass          a context line
    --                              between lines that are not adjacent

The lines of one file are contiguous. Hidden files leave no trace in the results.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import search_path
from parley.workspace.base import ContentQuery, SearchMatches
from parley.workspace.landlock import EXECUTE, READ, READ_FILE, AllowedPath, is_supported, run_restricted

if TYPE_CHECKING:
    from parley.workspace.search.search import Root

UNORDERED_BYTES = 4 << 20
"""Up to this size, output is sorted here, because ripgrep is much faster unsorted."""
MOST_BYTES = 16 << 20
"""Output beyond this size is dropped and reported as incomplete."""
LONGEST_LINE = 500
LONGEST_ARGUMENT = 30_000

IGNORE_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
MOST_IGNORE_BYTES = 1 << 24
STALL_SECONDS = 1.0
"""After this time, ignore files below the root are looked at: one of them may be the reason."""

ALWAYS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--null"),
    *("--hidden", "--no-ignore-global", "--no-messages", "--no-ignore-messages"),
    "--engine=auto",  # PCRE2 for look-around, which the default engine lacks
)
NOT_IN = tuple(f"--glob=!{name}" for name in (".git", ".svn", ".hg", ".bzr", ".jj", ".sl"))
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")
"""Paths that a program may need to start."""
MODES = {
    "files": ("--files-with-matches",),
    "count": ("--count",),
    "content": ("--line-number", f"--max-columns={LONGEST_LINE}", "--max-columns-preview"),
}


NOTICE = re.compile(rb"(.*): (binary file matches|WARNING: stopped searching binary file)")
STANDARD_INPUT = b"<stdin>"
"""The name of a file that is passed as stdin."""
Hides = Callable[[str], bool]
"""Whether a path must not appear in the results."""
PIPE_BYTES = 1 << 20
SMALL_BYTES = 1 << 15
PAUSE_SECONDS = 0.005
ERROR_BYTES = 1 << 14


class Conditions(Struct, frozen=True, kw_only=True):
    """How the program is started."""

    environment: dict[str, str]
    changeable: tuple[str, ...] = ()
    """The folders that the session can change."""
    confined: bool = False
    """Nothing outside the tree may be read, even if files are replaced during the search."""


async def search(
    query: ContentQuery,
    root: Root,
    conditions: Conditions,
    *,
    timeout_seconds: float,
    hides: Hides = lambda path: False,
    enough_lines: int | None = None,
) -> SearchMatches:
    """Results are sorted and relative to the root. Raises ToolError with the program's message for a bad pattern."""
    for text in (query.pattern, query.type or "", *query.globs):
        if "\0" in text:
            raise ToolError(r"A pattern cannot contain a NUL character; write \x00 instead.")
        if len(text) > LONGEST_ARGUMENT:
            raise ToolError(f"A pattern cannot be longer than {LONGEST_ARGUMENT} characters.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ToolError("The pattern is not valid Unicode.") from None
    clock = asyncio.get_running_loop().time
    started = clock()
    output = RipgrepOutput(query.mode, hides, UNORDERED_BYTES if query.mode == "content" else MOST_BYTES, None)
    result, is_ripgrep = await run(query, root, conditions, timeout_seconds, output, in_order=False)
    if result.stopped and query.mode == "content":
        output = RipgrepOutput(query.mode, hides, MOST_BYTES, enough_lines)
        left = max(0.1, timeout_seconds - (clock() - started))
        result, is_ripgrep = await run(query, root, conditions, left, output, in_order=True)
    else:
        output.files.sort(key=in_path_order)
    return SearchMatches(
        files=output.files,
        complete=not (result.stopped or result.timed_out),
        timed_out=result.timed_out,
        slow=not is_ripgrep,
    )


def in_path_order(file: tuple[str, list[bytes]]) -> str:
    """The sort key of ripgrep: component by component."""
    return file[0].replace("/", "\0")


# The program.


def arguments(query: ContentQuery, *, in_order: bool, is_folder: bool) -> list[str]:
    """The arguments for ripgrep. Each value is joined to its option by `=`, so it cannot be read as another option."""
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


def filters(query: ContentQuery) -> list[str]:
    """The options that select files.

    In ripgrep a glob overrides ignore files: `*` would search all ignored files. A type does not, so globs for file
    names only are passed as a type of our own.
    """
    wanted = [glob.removeprefix("**/") for glob in query.globs if glob not in ("*", "**", "**/*")]
    names = all(not re.search(r"^!|[/:]", glob) for glob in wanted)
    if wanted and names and query.type is None:
        return [*(f"--type-add=wanted:{glob}" for glob in wanted), "--type=wanted"]
    types = [] if query.type is None else [f"--type={query.type}"]
    return [*types, *(f"--glob={glob}" for glob in query.globs if glob.removeprefix("**/") in wanted)]


def programs(environment: dict[str, str]) -> Iterator[str]:
    """Yield the candidates for ripgrep: those on PATH, and the one that was installed with us."""
    for folder in (*search_path.folders(environment.get("PATH")), os.path.dirname(sys.executable)):
        if search_path.is_program(program := os.path.join(folder, "rg")):
            yield program


def commands(
    query: ContentQuery, root: Root, conditions: Conditions, in_order: bool
) -> Iterator[tuple[list[str], bool]]:
    """Yield the commands to try, best first, and whether each is ripgrep.

    Ripgrep opens files by name. If the search is confined, it runs under Landlock, or not at all if Landlock is not
    available; the Python replacement opens files relative to folder descriptors.
    """
    untrusted = search_path.list_untrusted(conditions.changeable, conditions.environment.get("HOME", ""))
    for program in programs(conditions.environment):
        is_ours = os.path.dirname(program) == os.path.dirname(sys.executable)
        if not (is_ours or search_path.is_trusted(program, untrusted)):
            continue
        if conditions.confined and root.is_folder and not is_supported():
            break
        yield [program, *arguments(query, in_order=in_order, is_folder=root.is_folder)], True
    # -I and -S: isolated from the user's Python, and a faster start.
    start = "import sys; sys.path.insert(0, sys.argv[1]); from parley.workspace.search.python_grep import main; main()"
    package = str(Path(__file__).parents[3])
    query_json = msgspec.json.encode(query).decode()
    yield [sys.executable, "-I", "-S", "-c", start, package, query_json, "./" if root.is_folder else "-"], False


async def run(
    query: ContentQuery,
    root: Root,
    conditions: Conditions,
    timeout_seconds: float,
    output: RipgrepOutput,
    *,
    in_order: bool,
) -> tuple[ProgramResult, bool]:
    """Run the first program that can be run. Returns its result, and whether it is ripgrep. Raises ToolError."""
    for argv, is_ripgrep in commands(query, root, conditions, in_order):
        is_confined = conditions.confined and is_ripgrep and root.is_folder
        start = partial(start_program, argv, root, conditions.environment, is_confined)
        program = partial(run_program, start, output.take, timeout_seconds=timeout_seconds)
        try:
            result = await (run_unless_stalled(program, root) if is_ripgrep and root.is_folder else program())
        except OSError:
            continue  # not executable here, or gone
        if result is None:
            output.reset()
            continue
        if result.code in (126, 127):
            continue  # a dependency is missing
        if not (result.stopped or result.timed_out):
            check_exit(result.code, result.error_text)
        return result, is_ripgrep
    raise ToolError("The search could not be started: neither ripgrep nor Python can be executed.")


async def run_unless_stalled(program: Callable[[], Awaitable[ProgramResult]], root: Root) -> ProgramResult | None:
    """Run ripgrep; None if it cannot read an ignore file to its end, because it is a pipe, a device or huge."""
    if has_odd_file(os.path.join(root.real, "*")):
        return None
    searching = asyncio.ensure_future(program())
    try:
        await asyncio.wait({searching}, timeout=STALL_SECONDS)
        if not searching.done() and await asyncio.to_thread(has_odd_file_below, root.path()):
            return None
        return await searching
    finally:
        searching.cancel()
        await asyncio.wait({searching})


def has_odd_file(path: str) -> bool:
    """Whether ripgrep cannot read an ignore file of the folders above a path to its end."""
    for file in ignore_files_above(path):
        with suppress(OSError):
            status = os.stat(file)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or status.st_size > MOST_IGNORE_BYTES:
                return True
    return False


def has_odd_file_below(folder: str) -> bool:
    names = {name for name in IGNORE_FILES if "/" not in name} | {".git"}
    return any(
        names.intersection((*files, *folders)) and has_odd_file(f"{path}/*") for path, folders, files in os.walk(folder)
    )


def start_program(
    argv: list[str], root: Root, environment: dict[str, str], is_confined: bool, out: int, err: int
) -> subprocess.Popen[bytes]:
    """Start a program. A confined one can read only the tree and the ignore files above it. Raises OSError."""
    with ExitStack() as opened:

        def open_path(path: str, flags: int) -> int:
            descriptor = os.open(path, flags | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            return descriptor

        if root.is_folder:
            stdin = open_path(os.devnull, os.O_RDONLY)  # here, because a confined program cannot open it
        else:
            stdin = root.descriptor
            os.lseek(stdin, 0, os.SEEK_SET)

        def start() -> subprocess.Popen[bytes]:
            cwd = root.path() if root.is_folder else "/"
            return subprocess.Popen(argv, cwd=cwd, env=environment, stdin=stdin, stdout=out, stderr=err)

        if not is_confined:
            return start()
        allowed = [AllowedPath(root.descriptor, READ)]
        programs = [(path, EXECUTE | READ_FILE, os.O_PATH) for path in (argv[0], *SYSTEM)]
        rules = [(path, READ_FILE, os.O_PATH | os.O_NOFOLLOW) for path in ignore_files_above(root.real)]
        for path, access, flags in (*programs, *rules):
            with suppress(OSError):
                allowed.append(AllowedPath(open_path(path, flags), access))
        return run_restricted(start, allowed)


def ignore_files_above(real: str) -> Iterator[str]:
    while real != "/":
        real = os.path.dirname(real)
        yield from (os.path.join(real, name) for name in IGNORE_FILES)


def check_exit(code: int, message: str) -> None:
    """Raises ToolError if the program failed. Exit code 2 without a message means that some files were unreadable."""
    if code == 2 and message:
        raise ToolError(message.removeprefix("rg: "))
    if code not in (0, 1, 2):
        raise ToolError(f"The search failed with exit code {code}.{' ' + message if message else ''}")


class RipgrepOutput:
    """Parses the output piece by piece, up to a limit: the files found so far, and their lines."""

    def __init__(self, mode: str, hides: Hides, max_bytes: int, enough_lines: int | None) -> None:
        self._hides = hides
        self._max_bytes = max_bytes
        self._enough_lines = enough_lines
        self._end = b"\0" if mode == "files" else b"\n"
        self.reset()

    def reset(self) -> None:
        """Forget what was taken: another program searches again."""
        self.files: list[tuple[str, list[bytes]]] = []
        self._room = self._max_bytes
        self._lines_taken = 0
        self._rest = b""
        self._path: bytes | None = None
        self._lines: list[bytes] | None = None
        """The lines of the current file; None if it is hidden."""
        self._gap = False

    def take(self, chunk: bytes) -> bool:
        """Parse a piece of output. Returns whether more is wanted."""
        self._room -= len(chunk)
        *records, self._rest = (self._rest + chunk).split(self._end)
        for record in records:
            self._record(record)
        enough = self._enough_lines is not None and self._lines_taken > self._enough_lines
        return self._room > 0 and not enough

    def _record(self, record: bytes) -> None:
        path, null, shown = record.partition(b"\0")
        if not null and self._end == b"\n":
            if record == b"--":
                self._gap = True
                return
            notice = NOTICE.match(record)
            if notice is None:
                return
            path, shown = notice[1], notice[2]
        if path != self._path:
            self._begin(path)
        elif self._gap and self._lines is not None:
            self._lines.append(b"--")
            self._lines_taken += 1
        self._gap = False
        if self._lines is not None and self._end == b"\n":
            self._lines.append(shown)
            self._lines_taken += 1

    def _begin(self, path: bytes) -> None:
        self._path = path
        name = "" if path == STANDARD_INPUT else path[len("./") :].decode(errors="surrogateescape")
        self._lines = None if self._hides(name) else []
        if self._lines is not None:
            self.files.append((name, self._lines))


class ProgramResult(Struct, frozen=True, kw_only=True):
    code: int
    """Negative for a signal."""
    error_text: str
    """The start of its stderr."""
    stopped: bool
    """`take` wanted no more output."""
    timed_out: bool


async def run_program(
    start: Callable[[int, int], subprocess.Popen[bytes]], take: Callable[[bytes], bool], *, timeout_seconds: float
) -> ProgramResult:
    """Run a program to its end. `start` gets the descriptors for stdout and stderr. Raises what `start` raises."""
    with ExitStack() as open_ends:
        output, output_writer = wide_pipe(open_ends)
        errors, errors_writer = wide_pipe(open_ends)
        with closing(output_writer), closing(errors_writer):
            process = start(output_writer, errors_writer)
        stderr = asyncio.create_task(read_start(errors))
        stopped = timed_out = False
        try:
            async with asyncio.timeout(timeout_seconds):
                async with aclosing(chunks(output)) as pieces:
                    async for piece in pieces:
                        if not take(piece):
                            stopped = True
                            break
                if not stopped:
                    await asyncio.to_thread(process.wait)
        except TimeoutError:
            timed_out = True
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            code = await asyncio.to_thread(process.wait)
            error_text = await stderr
    return ProgramResult(code=code, error_text=error_text, stopped=stopped, timed_out=timed_out)


def wide_pipe(open_ends: ExitStack) -> tuple[int, int]:
    """Create a pipe with a large buffer, where supported. Its reading end is closed with `open_ends`."""
    reading, writing = os.pipe()
    open_ends.enter_context(closing(reading))
    with suppress(OSError, AttributeError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return reading, writing


@contextmanager
def closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Yield the data of a pipe, to its end.

    A search program writes once per file. Waking up for each write would cost more than the search, so after a small
    piece this waits a moment.
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
            await asyncio.sleep(PAUSE_SECONDS)


async def read_start(descriptor: int) -> str:
    """Read a pipe to its end and return the first part."""
    kept = bytearray()
    async with aclosing(chunks(descriptor)) as pieces:
        async for piece in pieces:
            kept += piece[: ERROR_BYTES - len(kept)]
    return kept.decode(errors="replace").strip()
