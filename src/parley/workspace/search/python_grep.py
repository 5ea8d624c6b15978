"""A replacement for ripgrep in Python, with the same output format.

`ripgrep.py` starts it as a separate process, because a pattern can keep Python's `re` busy forever and a process can be
killed. It is about three times slower than ripgrep, knows fewer file types, uses Python's regular expressions, and
skips files above 64 MiB. Runs in a bare interpreter and uses only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from parley.workspace.globs import BadGlob, PathGlob
from parley.workspace.search.walk import FILE, Walk

LONGEST_LINE = 500
OMITTED = b" [... omitted end of long line]"
MOST_BYTES = 64 << 20
TYPES = {
    "c": "*.{c,h}",
    "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h}",
    "cs": "*.cs",
    "css": "*.{css,scss}",
    "go": "*.go",
    "html": "*.{htm,html,ejs}",
    "java": "*.java",
    "js": "*.{js,jsx,mjs,cjs,vue}",
    "json": "*.json",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "rb": "*.{rb,gemspec}",
    "rust": "*.rs",
    "scala": "*.{scala,sbt}",
    "sh": "*.{sh,bash,zsh}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.txt",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yml,yaml}",
}


class InvalidQuery(Exception):
    """The query is invalid. The message gives the reason."""


def main() -> None:
    """`argv`: the path of our package, the query as JSON, and `./` for this folder or `-` for a file on stdin."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    query = json.loads(sys.argv[2])
    try:
        search = PythonGrep(query, sys.stdout.buffer)
        if sys.argv[3] == "-":
            search.file(b"<stdin>", 0)
        else:
            search.folder()
    except InvalidQuery as exc:
        sys.stderr.write(str(exc))
        sys.exit(2)
    sys.stdout.buffer.flush()
    sys.exit(0 if search.files_found else 1)


class PythonGrep:
    def __init__(self, query: dict[str, Any], out: BinaryIO) -> None:
        self.files_found = 0
        self._query = query
        self._out = out
        self._for_text: Any = compile_pattern(query, query["pattern"])
        self._for_bytes: Any = compile_pattern(query, query["pattern"].encode()) if query["pattern"].isascii() else None
        self._regex = self._for_text
        kind, globs = query["type"], query["globs"]
        if kind is not None and kind not in TYPES:
            raise InvalidQuery(f"unrecognized file type: {kind}; without ripgrep, the types are {', '.join(TYPES)}")
        try:
            has_type = any_glob([] if kind is None else [TYPES[kind]])
            included = any_glob([glob for glob in globs if not glob.startswith("!")])
            excluded = any_glob([glob[1:] for glob in globs if glob.startswith("!")], otherwise=False)
        except BadGlob as exc:
            raise InvalidQuery(str(exc)) from None
        self._is_searched: Callable[[str], bool] = lambda path: has_type(path) and included(path) and not excluded(path)
        self._write_matches = {"files": self._write_name, "count": self._write_count, "content": self._write_lines}[
            query["mode"]
        ]

    def folder(self) -> None:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        for found in Walk(root, os.getcwd(), in_order=True).files():
            if not found.entry.is_file(follow_symlinks=False) or not self._is_searched(found.path):
                continue
            try:
                descriptor = os.open(found.entry.name, FILE, dir_fd=found.folder)
            except OSError:
                continue  # not readable, or replaced in the meantime
            self.file(b"./" + os.fsencode(found.path), descriptor)

    def file(self, path: bytes, descriptor: int) -> None:
        """Search an opened file and close it."""
        try:
            data = read_whole(descriptor)
        finally:
            os.close(descriptor)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            data = data.decode("utf-16", "replace").encode()
        if b"\0" in data:
            return
        # ASCII is searched as bytes, which is faster. In other text `.` must match a character.
        plain = self._for_bytes is not None and data.isascii()
        self._regex = self._for_bytes if plain else self._for_text
        text: Any = data if plain else data.decode(errors="surrogateescape")
        if self._regex.search(text):
            self._write_matches(path, text)

    def _write_name(self, path: bytes, text: Any) -> None:
        if next(self._hits(text), None) is None:
            return
        self.files_found += 1
        self._out.write(path + b"\0")

    def _write_count(self, path: bytes, text: Any) -> None:
        hits = list(self._hits(text))
        count = len(hits) if self._query["multiline"] else len({first for first, _, _ in hits})
        if count:
            self.files_found += 1
            self._out.write(b"%s\0%d\n" % (path, count))

    def _write_lines(self, path: bytes, text: Any) -> None:
        lines = split(text)
        shown = dict(self._select_lines(text, lines))
        if not shown:
            return
        around = self._query["before"] or self._query["after"]
        if self.files_found and around:
            self._out.write(b"--\n")
        self.files_found += 1
        last = None
        for number in sorted(shown):
            if around and last is not None and number > last + 1:
                self._out.write(b"--\n")
            mark, pieces = shown[number]
            for piece in pieces:
                self._out.write(b"%s\0%d%s%s\n" % (path, number + 1, mark, shorten(piece)))
            last = number

    def _select_lines(self, text: Any, lines: list[Any]) -> Iterator[tuple[int, tuple[bytes, list[bytes]]]]:
        """Yield line numbers with the marker (match or context) and the text. Later items override earlier ones."""
        before, after = self._query["before"], self._query["after"]
        hits = list(self._hits(text))
        matching: dict[int, list[bytes]] = {}
        for first, last, match in hits:
            pieces = split(match) if self._query["only_matching"] else lines[first : last + 1]
            for number, piece in enumerate(pieces, first):
                printed = matching.setdefault(number, [])
                if self._query["only_matching"] or not printed:
                    printed.append(to_bytes(piece))
        for number in sorted(matching):
            for near in range(max(0, number - before), min(len(lines), number + after + 1)):
                if near not in matching:
                    yield near, (b"-", [to_bytes(lines[near])])
        for number, pieces in matching.items():
            yield number, (b":", pieces)

    def _hits(self, text: Any) -> Iterator[tuple[int, int, Any]]:
        """Yield each match with the numbers of its first and last line, counted from 0."""
        newline: Any = "\n" if isinstance(text, str) else b"\n"
        if not self._query["multiline"]:
            # Search line by line, so that `\s` does not match across lines.
            for number, line in enumerate(split(text)):
                for match in self._regex.finditer(line):
                    yield number, number, match[0]
            return
        for match in self._regex.finditer(text):
            first = text.count(newline, 0, match.start())
            yield first, first + match[0].rstrip(newline).count(newline), match[0].rstrip(newline)


def read_whole(descriptor: int) -> bytes:
    """The content of a file; empty if it is not a regular file, too large or unreadable."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        return b""
    pieces, left = [], status.st_size
    try:
        while left > 0 and (piece := os.read(descriptor, left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError:
        return b""
    return b"".join(pieces)


def split(text: Any) -> list[Any]:
    lines: list[Any] = text.split("\n" if isinstance(text, str) else b"\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def to_bytes(text: Any) -> bytes:
    return text.encode(errors="surrogateescape") if isinstance(text, str) else bytes(text)


def shorten(line: bytes) -> bytes:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + OMITTED


def compile_pattern(query: dict[str, Any], pattern: str | bytes) -> re.Pattern[Any]:
    """Compile the search pattern. Raises InvalidQuery."""
    flags = re.MULTILINE
    flags |= re.IGNORECASE if query["ignore_case"] else 0
    flags |= re.DOTALL if query["multiline"] else 0
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as exc:
        raise InvalidQuery(f"regex parse error: {exc}") from None


def any_glob(patterns: list[str], otherwise: bool = True) -> Callable[[str], bool]:
    """A predicate: whether one of the patterns matches; `otherwise` if there are none. Raises BadGlob."""
    if not patterns:
        return lambda path: otherwise
    return PathGlob.of(*(pattern if "/" in pattern else f"**/{pattern}" for pattern in patterns)).matches
