"""What a search program says, taken apart as it comes, up to a limit.

    ./src/a.py NUL 12:# TODO        a line that matches
    ./src/a.py NUL 13-pass          a line around it
    --                              between lines that do not follow each other

The lines of one file come in one piece. Files that somebody wants hidden leave no trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable

NOTICE = re.compile(rb"(.*): (binary file matches|WARNING: stopped searching binary file)")
STANDARD_INPUT = b"<stdin>"
"""How a program calls a file that was handed to it."""

Hides = Callable[[str], bool]
"""Whether nothing may be told of a path."""


class Findings:
    """The files found so far, and what to show of each."""

    def __init__(self, mode: str, hides: Hides, most_bytes: int, enough_lines: int | None) -> None:
        self.files: list[tuple[str, list[bytes]]] = []
        self._hides = hides
        self._room = most_bytes
        self._enough_lines = enough_lines
        self._lines_taken = 0
        self._end = b"\0" if mode == "files" else b"\n"
        self._rest = b""
        self._path: bytes | None = None
        self._lines: list[bytes] | None = None
        """Of the file we are in; None if it is hidden."""
        self._gap = False

    def take(self, chunk: bytes) -> bool:
        """Whether more is wanted."""
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
