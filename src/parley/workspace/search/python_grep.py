"""What stands in for ripgrep where there is none: the same answers in the same form, in Python.

Started by ripgrep.py as a process of its own, because a pattern of a model can keep
Python's `re` busy for ever, and a process can be killed. It is about three times slower,
knows fewer file types, takes Python's regular expressions, and passes over files above
64 MiB. Run with the bare interpreter; standard library only.
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

from parley.workspace.globs import BadGlob, Glob
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


class Unusable(Exception):
    """The question makes no sense, and why."""


def main() -> None:
    """`argv`: our package's place, the question as JSON, and `./` for this folder or `-` for a file on stdin."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    question = json.loads(sys.argv[2])
    try:
        search = Search(question, sys.stdout.buffer)
        if sys.argv[3] == "-":
            search.file(b"<stdin>", 0)
        else:
            search.folder()
    except Unusable as flaw:
        sys.stderr.write(str(flaw))
        sys.exit(2)
    sys.stdout.buffer.flush()
    sys.exit(0 if search.files_found else 1)


class Search:
    def __init__(self, question: dict[str, Any], out: BinaryIO) -> None:
        self.files_found = 0
        self._question = question
        self._out = out
        self._for_text: Any = compiled(question, question["pattern"])
        self._for_bytes: Any = (
            compiled(question, question["pattern"].encode()) if question["pattern"].isascii() else None
        )
        self._regex = self._for_text
        self._wanted = wanted(question)
        self._tell = {"files": self._tell_name, "count": self._tell_count, "content": self._tell_lines}[
            question["mode"]
        ]

    def folder(self) -> None:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        for found in Walk(root, os.getcwd(), in_order=True).files():
            if not found.entry.is_file(follow_symlinks=False) or not self._wanted(found.path):
                continue
            try:
                descriptor = os.open(found.entry.name, FILE, dir_fd=found.folder)
            except OSError:
                continue  # not ours to read, or swapped for something else
            self.file(b"./" + os.fsencode(found.path), descriptor)

    def file(self, path: bytes, descriptor: int) -> None:
        """Search an opened file and close it."""
        try:
            data = whole(descriptor)
        finally:
            os.close(descriptor)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            data = data.decode("utf-16", "replace").encode()
        if b"\0" in data:
            return
        # Plain text is searched as bytes, which is faster; in other text `.` has to mean a character.
        plain = self._for_bytes is not None and data.isascii()
        self._regex = self._for_bytes if plain else self._for_text
        text: Any = data if plain else data.decode(errors="surrogateescape")
        if self._regex.search(text):
            self._tell(path, text)

    def _tell_name(self, path: bytes, text: Any) -> None:
        if next(self._hits(text), None) is None:
            return
        self.files_found += 1
        self._out.write(path + b"\0")

    def _tell_count(self, path: bytes, text: Any) -> None:
        hits = list(self._hits(text))
        count = len(hits) if self._question["multiline"] else len({first for first, _, _ in hits})
        if count:
            self.files_found += 1
            self._out.write(b"%s\0%d\n" % (path, count))

    def _tell_lines(self, path: bytes, text: Any) -> None:
        lines = split(text)
        shown = dict(self._shown(text, lines))
        if not shown:
            return
        around = self._question["before"] or self._question["after"]
        if self.files_found and around:
            self._out.write(b"--\n")
        self.files_found += 1
        last = None
        for number in sorted(shown):
            if around and last is not None and number > last + 1:
                self._out.write(b"--\n")
            mark, pieces = shown[number]
            for piece in pieces:
                self._out.write(b"%s\0%d%s%s\n" % (path, number + 1, mark, shortened(piece)))
            last = number

    def _shown(self, text: Any, lines: list[Any]) -> Iterator[tuple[int, tuple[bytes, list[bytes]]]]:
        """Line numbers, with the mark of a match or of a line around one, and what to print. Later ones count."""
        before, after = self._question["before"], self._question["after"]
        hits = list(self._hits(text))
        matching: dict[int, list[bytes]] = {}
        for first, last, match in hits:
            pieces = split(match) if self._question["only_matching"] else lines[first : last + 1]
            for number, piece in enumerate(pieces, first):
                printed = matching.setdefault(number, [])
                if self._question["only_matching"] or not printed:
                    printed.append(encoded(piece))
        for number in sorted(matching):
            for near in range(max(0, number - before), min(len(lines), number + after + 1)):
                if near not in matching:
                    yield near, (b"-", [encoded(lines[near])])
        for number, pieces in matching.items():
            yield number, (b":", pieces)

    def _hits(self, text: Any) -> Iterator[tuple[int, int, Any]]:
        """Each match with the numbers of its first and last line, from 0 on."""
        newline: Any = "\n" if isinstance(text, str) else b"\n"
        if not self._question["multiline"]:
            # Line by line, so that `\s` and the like stay within one.
            for number, line in enumerate(split(text)):
                for match in self._regex.finditer(line):
                    yield number, number, match[0]
            return
        for match in self._regex.finditer(text):
            first = text.count(newline, 0, match.start())
            yield first, first + match[0].rstrip(newline).count(newline), match[0].rstrip(newline)


def whole(descriptor: int) -> bytes:
    """What is in a file; nothing if it is no regular one, too large, or cannot be read."""
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


def encoded(text: Any) -> bytes:
    return text.encode(errors="surrogateescape") if isinstance(text, str) else bytes(text)


def shortened(line: bytes) -> bytes:
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + OMITTED


def compiled(question: dict[str, Any], pattern: str | bytes) -> re.Pattern[Any]:
    """Raises Unusable."""
    flags = re.MULTILINE
    flags |= re.IGNORECASE if question["ignore_case"] else 0
    flags |= re.DOTALL if question["multiline"] else 0
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as flaw:
        raise Unusable(f"regex parse error: {flaw}") from None


def wanted(question: dict[str, Any]) -> Callable[[str], bool]:
    """Which paths are searched. Raises Unusable."""
    kind, given = question["type"], question["globs"]
    if kind is not None and kind not in TYPES:
        raise Unusable(f"unrecognized file type: {kind}; without ripgrep there are only {', '.join(TYPES)}")
    try:
        of_kind = some_of([] if kind is None else [TYPES[kind]])
        named = some_of([glob for glob in given if not glob.startswith("!")])
        refused = some_of([glob[1:] for glob in given if glob.startswith("!")], otherwise=False)
    except BadGlob as flaw:
        raise Unusable(str(flaw)) from None
    return lambda path: of_kind(path) and named(path) and not refused(path)


def some_of(patterns: list[str], otherwise: bool = True) -> Callable[[str], bool]:
    """Whether one of the patterns matches; `otherwise` where there are none. Raises BadGlob."""
    if not patterns:
        return lambda path: otherwise
    return Glob.of(*(pattern if "/" in pattern else f"**/{pattern}" for pattern in patterns)).matches
